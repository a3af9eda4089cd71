"""Sweeps: files and their errors, and runs that finish, are retried or fail."""

import io
import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from arac import sweep
from arac.cli import main
from arac.errors import EnvironmentFailure, UserError
from arac.storage import metrics, run_folder
from arac.storage.metrics import Spent, pace
from arac.sweeps import spec as specs
from arac.sweeps.backends import LocalEngine, _places_on
from arac.sweeps.child import settings_on
from arac.sweeps.display import Display, summary, table
from arac.sweeps.jobs import Job, check, is_finished
from arac.sweeps.process import Ended, Resources, _Cores, _graphics, command
from arac.sweeps.scheduler import _settle, carry_out
from arac.sweeps.status import Entry, SweepStatus, together
from arac.utils.processes import cores

SETTINGS = {"hidden_size": 16, "batch_size": 16, "warmup_steps": 200, "eval_episodes": 1, "eval_interval": 200}
SETTINGS |= {"replay_capacity": 10_000}


def job(name="one", seed=0, steps=600, env="helpers:Probe-v0", **settings):
    """Return a run of episodes of 200 steps."""
    kwargs = {"length": 200} if env == "helpers:Probe-v0" else {}
    return Job(name, "sac", env, seed, steps, {**SETTINGS, **settings}, env_kwargs=kwargs)


GOOD = """\
algorithms = ["arac", "sac"]
tasks = ["Hopper", "Pendulum-v1"]  # by a short name, and by Gymnasium's
seeds = [3, 5]
steps = 20_000

[settings]
eval_interval = 5000

[settings.arac]
elites = 1

[grid]
batch_size = [64, 128]

[grid.arac]
ar_coefficient = [0, 0.5]

[resources]
cpus = 2
gpus = 0.25
"""


@pytest.fixture
def read(tmp_path):
    """Read a file with this text."""

    def read(text):
        path = tmp_path / "some.toml"
        path.write_text(text)
        return specs.read(path)

    return read


def test_a_sweep_is_everything_by_everything(read):
    jobs, resources = read(GOOD)
    assert resources == Resources(2, 0.25)
    assert len({one.name for one in jobs}) == len(jobs) == 2 * 2 * (4 + 2)
    assert [one.name for one in jobs[:6]] == [
        "Hopper-v5-arac-batch_size=64-ar_coefficient=0-seed3",
        "Hopper-v5-arac-batch_size=64-ar_coefficient=0.5-seed3",
        "Hopper-v5-arac-batch_size=128-ar_coefficient=0-seed3",
        "Hopper-v5-arac-batch_size=128-ar_coefficient=0.5-seed3",
        "Hopper-v5-sac-batch_size=64-seed3",
        "Hopper-v5-sac-batch_size=128-seed3",
    ]
    assert jobs[1].settings == {"eval_interval": 5000, "elites": 1, "batch_size": 64, "ar_coefficient": 0.5}
    assert (jobs[4].settings, jobs[4].steps) == ({"eval_interval": 5000, "batch_size": 64}, 20_000)
    assert [one.seed for one in jobs] == [3] * 12 + [5] * 12  # the first seed of every task and algorithm comes first


def test_what_is_left_out_is_the_papers(read):
    [one] = read('algorithms = ["cerl"]\ntasks = ["Humanoid"]\n[settings]\ndiscounts = [0.9, 0.99]\n').jobs
    assert (one.seed, one.steps, one.settings) == (0, 1_000_000, {"discounts": (0.9, 0.99)})
    assert settings_on(one, cpus=1) == {"workers": 0, "discounts": (0.9, 0.99)}
    assert settings_on(one, cpus=2) == one.settings


def test_a_list_of_lists_varies_a_setting_that_is_a_list(read):
    jobs = read('algorithms = ["cerl"]\ntasks = ["Hopper"]\n[grid]\ndiscounts = [[0.9], [0.9, 0.99]]\n').jobs
    assert [one.name for one in jobs] == [
        "Hopper-v5-cerl-discounts=0.9-seed0",
        "Hopper-v5-cerl-discounts=0.9+0.99-seed0",
    ]


def test_groups_of_algorithms_go_through_all_tasks_one_after_the_other(read):
    jobs = read('algorithms = [["arac", "sac"], ["td3"]]\ntasks = ["Hopper", "Ant"]\nseeds = 2\n').jobs
    expected = [
        (seed, env, algorithm)
        for seed in (0, 1)
        for group in (("arac", "sac"), ("td3",))
        for env in ("Hopper-v5", "Ant-v5")
        for algorithm in group
    ]
    assert [(job.seed, job.env, job.algorithm) for job in jobs] == expected


def test_presets_can_be_compared_and_overridden(read):
    text = 'algorithms = ["erl", "cerl"]\ntasks = ["Hopper"]\n[settings]\nreset_scale = 0.5\n[grid]\npreset = '
    jobs = read(text + '["published", "public-code"]\n').jobs
    assert [job.name for job in jobs] == [
        f"Hopper-v5-{algorithm}-preset={preset}-seed0"
        for algorithm in ("erl", "cerl")
        for preset in ("published", "public-code")
    ]
    assert [job.settings["preset"] for job in jobs] == ["published", "public-code"] * 2
    assert {job.settings["reset_scale"] for job in jobs} == {0.5}
    refused = r"line 6: Hopper-v5-erl-preset=best-seed0: preset must be one of paper, .*public-code, .* got 'best'"
    with pytest.raises(UserError, match=refused):
        read(text + '["best"]\n')


def test_the_campaign_begins_with_arac_and_sac_and_has_the_papers_steps():
    jobs = specs.read(Path(__file__).parents[2] / "results" / "campaign" / "sweep.toml").jobs
    assert len(jobs) == 8 * 7 * 5
    assert [(job.env, job.algorithm) for job in jobs[:3]] == [
        ("Humanoid-v5", "arac"), ("Humanoid-v5", "sac"), ("HalfCheetah-v5", "arac"),
    ]  # fmt: skip
    assert {job.algorithm for job in jobs[:16]} == {"arac", "sac"}
    assert {job.steps for job in jobs} == {600_000, 1_000_000, 2_000_000}


HEAD = 'algorithms = ["arac", "sac"]\ntasks = ["Hopper"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("algorithms = [", r"some.toml is not TOML: .*\(at (line 1|end of document)"),
        ('tasks = ["Hopper"]', r"algorithms must be a list of at least one name; it is missing"),
        ('algorithms = []\ntasks = ["Hopper"]', r"line 1: algorithms must be a list of at least one name; got \[\]"),
        ('algorithms = [["arac"], []]\ntasks = ["Hopper"]', r"line 1: algorithms must be a list of at least one name"),
        ('algorithms = ["arac"]\ntasks = []', r"line 2: tasks must be"),
        ('algorithms = "arac"\ntasks = ["Hopper"]', r"line 1: algorithms must be a list"),
        ('algorithms = ["arak"]\ntasks = ["Hopper"]', r"line 1: There is no algorithm 'arak'.*arac"),
        ('algorithms = ["arac"]\ntasks = ["Hoper-v5"]', r"line 2: .*Hoper-v5.*Hopper"),
        ('algorithms = ["arac"]\ntasks = ["CartPole-v1"]', r"line 2: .*CartPole-v1"),
        (HEAD + "seed = 3", r"line 3: there is no key 'seed'. Did you mean seeds"),
        (HEAD + "seeds = 0", r"line 3: seeds must be how many, or a list"),
        (HEAD + "seeds = []", r"line 3: seeds must be"),
        (HEAD + "seeds = [1, -2]", r"line 3: seed must be a whole number from 0"),
        (HEAD + "seeds = [1, 1]", r"line 3: 2 runs would have the name Hopper-v5-arac-seed1"),
        ('algorithms = ["sac", "sac"]\ntasks = ["Hopper"]', r"line 1: 2 runs would have the name"),
        ('algorithms = ["sac"]\ntasks = ["Hopper", "Hopper-v5"]', r"line 2: 2 runs would have the name"),
        (HEAD + "[grid]\nbatch_size = [64, 64]", r"line 3: 2 runs would have the name Hopper-v5-arac-batch_size=64"),
        (HEAD + 'steps = "many"', r"line 3: steps must be a whole number above 0, got 'many'"),
        (HEAD + "steps = true", r"line 3: steps must be"),
        (HEAD + "steps = 10_000", r"line 3: Hopper-v5-arac-seed0: steps must be above 10,000, the warm-up of"),
        (
            HEAD + "\n[settings]\nbatchsize = 3",
            r"line 5: Attraction.* has no setting 'batchsize'. Did you mean batch_size\?$",
        ),
        (HEAD + "[settings]\nelites = 1", r"line 4: Soft Actor-Critic has no setting 'elites'.*\[settings.ALGORITHM\]"),
        (HEAD + '[settings]\nbatch_size = "big"', r"line 4: Hopper-v5-arac-seed0: batch_size must be a whole number"),
        (HEAD + "[settings.arac]\nelites = 9", r"line 4: .*elites \(9\) must not exceed population_size"),
        (HEAD + "[grid]\nbatch_size = 64", r"line 4: batch_size must be a list of at least one value, got 64"),
        (HEAD + "[grid]\nbatch_size = []", r"line 4: batch_size must be a list of at least one value"),
        (HEAD + "[grid]\nbatch_size = [64, 0]", r"line 4: .*batch_size must be at least 1, got 0"),
        (HEAD + "[settings]\ntau = 0.1\n[grid]\ntau = [0.1]", r"line 6: tau is in both \[settings\] and \[grid\]"),
        (HEAD + '[settings]\nrollouts = "ray"', r"line 4: the runs of a sweep play their own episodes"),
        (HEAD + "[env_kwargs]\nwind = [1, {x = 1}]", r"line 4: wind must be a number, a word or a list"),
        ("a = " + "[" * 5000, r"some.toml is not TOML"),
        (HEAD + "[grid.td3]\ntau = [0.1]", r"line 3: \[grid.td3\] is for an algorithm, and td3 is not among"),
        (HEAD + "[grid.tdd]\ntau = [0.1]", r"line 3: .* tdd is no algorithm"),
        (HEAD + "grid = 3", r"line 3: grid must be a table"),
        (HEAD + "[resources]\ncpus = 0", r"line 4: cpus must be a whole number above 0"),
        (HEAD + "[resources]\ngpus = -1", r"line 4: gpus must be a number from 0 on"),
        (HEAD + "[resources]\ngpus = 1.5", r"line 4: gpus must be a share of one or a whole number"),
        (HEAD + "[resources]\ncpu = 1", r"line 4: there is no 'cpu'. Did you mean cpus"),
        (HEAD + "[env_kwargs]\nwind = {x = 1}", r"line 4: wind must be a number, a word or a list"),
        (HEAD + "[env_kwargs]\nwind = 1", r"line 2: .*wind"),
        (HEAD + "[settings]\nwarmup_steps = 2_000_000", r"line 4: .*, the warm-up of"),
        (HEAD + "max_episode_steps = 0", r"line 3: max_episode_steps must be a whole number above 0"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(text, said, read):
    with pytest.raises(UserError, match=said) as refused:
        read(text)
    assert "some.toml" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_bad_dictionary_is_refused_with_its_key(tmp_path):
    with pytest.raises(UserError, match=r"^the sweep, grid.tau: tau must be a list"):
        sweep({"algorithms": ["sac"], "tasks": ["Hopper"], "grid": {"tau": 3}}, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_the_command_refuses_before_anything_starts(tmp_path, capsys):
    path = tmp_path / "some.toml"
    path.write_text(HEAD + "steps = 0")
    assert main(["sweep", str(path), "--runs", str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err == f"arac: {path}, line 3: steps must be a whole number above 0, got 0.\n"
    assert main(["sweep", str(tmp_path / "none.toml")]) == 2
    assert "none.toml cannot be read (No such file or directory)" in capsys.readouterr().err
    path.write_text(HEAD + "steps = 20_000")
    for words, said in [
        (["--engine", "spark"], "engine"),
        (["--jobs", "0"], "jobs must be at least 1"),
        (["--engine", "ray", "--jobs", "2"], "jobs is only for engine 'local'"),
        (["--address", "auto"], "address is only for engine 'ray'"),
        (["--retries", "-1"], "--retries must be at least 0"),
    ]:
        assert main(["sweep", str(path), "--runs", str(tmp_path / "runs"), *words]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_lists_the_runs_and_starts_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "some.toml"
    path.write_text(HEAD + "steps = 20_000")
    assert main(["sweep", str(path), "--dry-run"]) == 0
    assert capsys.readouterr().out == (
        "Hopper-v5-arac-seed0  20,000 steps\nHopper-v5-sac-seed0  20,000 steps\n"
        "2 runs, 40,000 steps, into runs/some; nothing was started\n"
    )
    assert list(tmp_path.iterdir()) == [path]


def test_more_cores_than_there_are_is_refused():
    with pytest.raises(UserError, match=f"cpus must be at most {len(cores())}"):
        LocalEngine(resources=Resources(len(cores()) + 1))
    with pytest.raises(UserError, match="gpus needs --engine ray"):
        LocalEngine(resources=Resources(1, 0.5))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    parent = tmp_path_factory.mktemp("sweep")
    jobs = [job("one", 0), job("two", 1)]
    carry_out(jobs, parent, LocalEngine(2))
    return parent, jobs


def stamps(parent):
    return {path: path.stat().st_mtime_ns for path in parent.rglob("*") if path.is_file() and path.name != "sweep.json"}


def test_jobs_become_ordinary_runs_and_are_done_once(finished):
    parent, jobs = finished
    for one in jobs:
        assert is_finished(one, parent / one.name)
        assert metrics.read_evaluations(parent / one.name)[-1]["env_steps"] == 600
    before = stamps(parent)
    carry_out(jobs, parent, LocalEngine(2))
    assert stamps(parent) == before


def test_a_larger_number_of_steps_goes_on_from_what_is_there(finished):
    parent, _ = finished
    carry_out([job("two", 1, steps=1000)], parent, LocalEngine(1))
    rows = metrics.read_evaluations(parent / "two")
    assert [row["env_steps"] for row in rows] == [200, 400, 600, 800, 1000]


@pytest.mark.parametrize(
    ("other", "said"),
    [({"hidden_size": 8}, "hidden_size is 8, was 16"), ({"seed": 3}, "seed is 3, was 0"),
     ({"steps": 400}, "more than 400"),
     ({"env": "Hopper"}, "environment.id is 'Hopper-v5', was 'helpers:Probe-v0'")],
)  # fmt: skip
def test_a_folder_with_another_run_is_refused(other, said, finished):
    with pytest.raises(UserError, match=said):
        carry_out([job(**{"name": "one", **other})], finished[0], LocalEngine(1))


def test_so_is_one_whose_settings_are_no_longer_asked_for(finished):
    """Without the setting the default applies, which is another run under the same name."""
    fewer = {name: value for name, value in SETTINGS.items() if name != "hidden_size"}
    with pytest.raises(UserError, match="hidden_size is 256, was 16"):
        check([replace(job("one"), settings=fewer)], finished[0])
    with pytest.raises(UserError, match=r"environment.max_episode_steps is 50, was \d+"):
        check([replace(job("one"), max_episode_steps=50)], finished[0])


def test_settings_without_effect_may_change(finished):
    check([job("one", episode_timeout=30.0, workers=1)], finished[0])


def test_another_sweep_in_the_same_folder_is_refused(finished):
    lock = run_folder.lock(finished[0])
    try:
        with pytest.raises(UserError, match="Another process is working on"):
            carry_out(finished[1][:1], finished[0], LocalEngine(1))
    finally:
        os.close(lock)


TROUBLE = {
    "algorithms": ["sac"],
    "tasks": ["helpers:Probe-v0"],
    "seeds": 2,
    "steps": 600,
    "settings": {**SETTINGS, "checkpoint_interval": 100},
}


def test_a_run_that_fails_is_tried_again_and_told_with_its_traceback_while_others_go_on(tmp_path):
    breaking = {**TROUBLE, "env_kwargs": {"trouble": "raises", "at": 5, "length": 50}}
    jobs = [*specs.read(breaking).jobs[:1], job("good")]
    with pytest.raises(EnvironmentFailure, match="1 of 2 runs failed; the same command tries them again") as failed:
        carry_out(jobs, tmp_path, LocalEngine(1), retries=1)
    told = str(failed.value)
    assert str(tmp_path / "logs" / f"{jobs[0].name}.log") in told
    assert "Traceback" in told
    assert "RuntimeError: the hinge broke" in told
    assert (tmp_path / "logs" / f"{jobs[0].name}.log").read_text().count("\n---") + 1 == 2
    assert is_finished(jobs[1], tmp_path / "good")
    states = {row["name"]: row["state"] for row in json.loads((tmp_path / "sweep.json").read_text())["runs"]}
    assert states == {jobs[0].name: "failed", "good": "finished"}


@pytest.mark.slow
def test_a_run_that_fails_once_goes_on_from_its_checkpoint(tmp_path):
    once = {"trouble": "raises", "at": 40, "length": 50, "once": str(tmp_path / "broken")}
    sweep({**TROUBLE, "seeds": 1, "env_kwargs": once}, tmp_path / "disturbed")
    smooth = {"trouble": "", "at": 40, "length": 50, "once": str(tmp_path / "broken")}
    sweep({**TROUBLE, "seeds": 1, "env_kwargs": smooth}, tmp_path / "smooth")
    disturbed, undisturbed = (
        tmp_path / name / "helpers_Probe-v0-sac-seed0" / "episodes.csv" for name in ("disturbed", "smooth")
    )
    assert disturbed.read_bytes() == undisturbed.read_bytes()
    log = (tmp_path / "disturbed" / "logs" / "helpers_Probe-v0-sac-seed0.log").read_text()
    assert "the hinge broke" in log
    assert "Resuming" in log


def test_what_would_be_refused_again_is_given_up_at_once(tmp_path):
    entry = Entry(job())
    _settle(entry, Ended(2, "no"), SweepStatus([entry.job], tmp_path, engine="local", places=1), retries=5)
    assert entry.state == "failed"


@pytest.mark.parametrize("value", [1, 2.5, float("inf"), True, "a b", 'q"uo', "😀", [1, 2], [[0.5], ["x"]], 1e-7])
def test_arguments_of_an_environment_arrive_as_they_are(value):
    words = command(replace(job(), env_kwargs={"size": value}), Path("x"), lifeline=3, cpus=1)
    assert Job(**json.loads(words[-3])).env_kwargs == {"size": value}


def test_only_tries_that_bring_nothing_count(tmp_path, monkeypatch):
    saved = iter([100, 100, 200, 200, 200, 200])
    monkeypatch.setattr("arac.sweeps.scheduler.saved_steps", lambda folder: next(saved))
    entry = Entry(job(), saved=0)
    status = SweepStatus([entry.job], tmp_path, engine="local", places=1)
    states = []
    for before in (0, 100, 100, 200, 200, 200):
        entry.saved = before
        _settle(entry, Ended(1, "no"), status, retries=2)
        states.append((entry.losses, entry.state))
    assert states == [(1, "waiting"), (2, "waiting"), (1, "waiting"), (2, "waiting"), (3, "failed"), (4, "failed")]


def odd_row(**other):
    """Return the text of a sweep.json with one run that has other values."""
    row = {"name": "x", "algorithm": "sac", "env": "Hopper", "seed": 0, "steps": 3, "settings": {}, "env_kwargs": {}}
    row |= {"max_episode_steps": None, "state": "waiting", "losses": 0, "said": "", **other}
    table = {"format": 1, "engine": "local", "host": "x", "at_work": True, "written": 0, "places": 1, "runs": [row]}
    return json.dumps(table).replace("\\\\ud800", "\\ud800")


def rendered(status, room=None, width=140):
    out = io.StringIO()
    Console(file=out, width=width).print(table(status, room))
    return out.getvalue()


@pytest.fixture
def status(finished):
    """Return the status of one finished run and two running ones, one of which has no files."""
    parent, jobs = finished
    status = SweepStatus([jobs[0], job("one more", 2, steps=1200), job("other", env="Hopper", steps=900)], parent,
                    engine="local", places=2)  # fmt: skip
    status.entries[1].state = status.entries[2].state = "running"
    return status


def test_the_table_has_every_run_with_its_progress_and_time_left(status):
    lines = rendered(status).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["one", "one", "other"]
    assert "finished" in lines[1]
    assert "600 / 600" in lines[1]
    assert ":" in lines[2].split("1,200")[1]  # with the pace of the finished run
    assert lines[-1].startswith("1 of 3 runs finished, 2 running · 600 / 2,700 steps · ")
    assert lines[-1].endswith(" left")
    del status.entries[0]
    assert summary(status).endswith("0 / 2,100 steps · time left: not known yet")


def test_runs_of_which_nothing_is_known_take_as_long_as_all_others(status):
    seconds = pace([status.entries[0].spent])
    assert status.seconds_left() == {"one more": pytest.approx(1200 * seconds)}
    assert status.all_seconds_left() == pytest.approx(1200 * seconds)
    status.places = 1
    assert status.all_seconds_left() == pytest.approx((1200 + 900) * seconds)


def test_a_table_without_room_shows_those_that_are_busy(status):
    lines = rendered(status, room=2).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["one", "other"]
    assert "running" in lines[1]
    assert lines[3] == "… and 1 more"


def test_lines_where_there_is_no_terminal(status, capsys):
    with Display(status, show=True) as display:
        display.tell(status.entries[0])
        status.entries[1].state, status.entries[1].said = "waiting", "Traceback\nKeyError: 3"
        display.tell(status.entries[1])
        status.entries[1].state = "failed"
        display.tell(status.entries[1])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("one: finished at 600 steps, return ")
    assert lines[1:] == [
        "one more: failed, will be retried: KeyError: 3",
        "one more: failed, no retries left: KeyError: 3",
    ]


def test_the_status_of_a_sweep_from_elsewhere(finished, capsys):
    parent, jobs = finished
    carry_out(jobs[:1], parent, LocalEngine(1))
    assert main(["sweep", "status", str(parent)]) == 0
    said = capsys.readouterr().out
    assert "1 of 1 runs finished" in said
    assert main(["sweep", "status", str(parent), "--watch"]) == 0  # it ends because no run is active


def test_what_was_begun_by_a_sweep_that_is_gone_is_stopped(finished):
    parent, _ = finished
    status = SweepStatus([job("one", 0, steps=9000), job("never", 7)], parent, engine="local", places=2)
    status.entries[0].state = "running"
    status.write()
    assert [entry.state for entry in SweepStatus.read(parent).entries] == ["stopped", "waiting"]
    lock = run_folder.lock(parent)
    try:
        assert [entry.state for entry in SweepStatus.read(parent).entries] == ["running", "waiting"]
    finally:
        os.close(lock)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "runs": 3}', odd_row(name="../x"), odd_row(steps=-1),
             odd_row(name="\\ud800"), odd_row(losses="x"), odd_row(name=3), odd_row(seed=None)[:-1]]
)  # fmt: skip
def test_a_status_that_cannot_be_read_is_one_sentence(text, tmp_path, capsys):
    assert main(["sweep", "status", str(tmp_path / "nowhere")]) == 2
    assert "holds no sweep" in capsys.readouterr().err
    (tmp_path / "sweep.json").write_text(text)
    assert main(["sweep", "status", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "sweep.json cannot be read" in error
    assert error.count("\n") == 1


def test_numbers_without_end_do_no_harm(tmp_path, capsys):
    (tmp_path / "sweep.json").write_text(odd_row(losses=-5).replace('"places": 1', '"places": 1' + "0" * 99))
    assert main(["sweep", "status", str(tmp_path)]) == 0
    assert "0 of 1 runs finished, 1 waiting" in capsys.readouterr().out


@pytest.mark.parametrize(("ago", "state"), [(10, "running"), (1000, "stopped")])
def test_a_sweep_on_another_machine_is_at_work_as_long_as_it_writes(ago, state, finished):
    parent, _ = finished
    status = SweepStatus([job("one", 0, steps=9000)], parent, engine="ray", places=2)
    status.entries[0].state = "running"
    status.write()
    table = json.loads((parent / "sweep.json").read_text())
    table |= {"host": "elsewhere", "written": time.time() - ago}
    (parent / "sweep.json").write_text(json.dumps(table))
    assert SweepStatus.read(parent).entries[0].state == state


@pytest.mark.parametrize("text", ["3\n", '{"champion_return": "x"}\n', "[]\n", ""])
def test_odd_rows_do_not_stop_a_sweep(text, tmp_path):
    for name in ("evaluations.jsonl", "timings.jsonl"):
        (tmp_path / name).write_text(text)
    entry = Entry(job())
    entry.look(tmp_path)
    assert (entry.env_steps, entry.champion_return) == (0, None)


def test_what_a_run_spends_is_added_up_while_its_file_grows(tmp_path):
    path, spent = tmp_path / "timings.jsonl", Spent()
    spent.follow(path)
    assert spent.latest is None
    rows = [{"env_steps": 100 * n, "generation": n, "seconds": 2.0 * n, "phases": {"update": 1.0}} for n in range(1, 5)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    for end in (30, 150, 151, len(lines)):
        path.write_text(lines[:end])
        spent.follow(path)
    assert (spent.steps, spent.seconds, spent.latest.env_steps) == (300, 6.0, 400)


def test_room_on_the_nodes_of_a_cluster():
    assert _places_on({"CPU": 8.0}, Resources(3)) == 2
    assert _places_on({"CPU": 64.0, "GPU": 1.0}, Resources(1, 0.1)) == 10
    assert _places_on({"CPU": 64.0, "GPU": 4.0}, Resources(1, 0.6)) == 4
    assert _places_on({"CPU": 64.0, "GPU": 4.0}, Resources(1, 2.0)) == 2
    assert _places_on({"CPU": 64.0}, Resources(1, 0.5)) == 0


def test_runs_begin_in_their_turn_when_a_place_is_free():
    assert together([3.0, 1.0, 1.0, 2.0], 2) == 4.0
    assert together([], 2) == 0.0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_a_core_is_one_runs_alone_until_it_is_given_back(monkeypatch):
    monkeypatch.setattr("arac.sweeps.process.cores", lambda: [1000, 1001, 1002])
    first, second = _Cores(2, 0), _Cores(1, 1)
    assert (first.numbers, second.numbers) == ([1000, 1001], [1002])
    shared = [_Cores(1, turn).numbers[0] for turn in range(6)]  # no core is left to reserve
    assert sorted(shared) == [1000, 1000, 1001, 1001, 1002, 1002]
    with pytest.raises(UserError, match=r"A run needs 4 cores, and on .* there are 3"):
        _Cores(4, 0)
    first.give_back()
    assert _Cores(2, 0).numbers == [1000, 1001]
    with pytest.raises(OSError, match="in use"):
        socket.socket(socket.AF_UNIX).bind("\0arac-core-1002")


def test_a_share_of_a_graphics_card_is_a_share_of_its_memory(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert _graphics(0) == {"JAX_PLATFORMS": "cpu"}
    assert _graphics(0.25) == {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.225"}
    assert _graphics(2) == {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.900"}
