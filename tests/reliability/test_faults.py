"""Failures of environment, numbers, disk and other processes."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from torture import digest

import arac
from arac import cli
from arac.envs import check
from arac.replay.buffer import sample
from arac.storage import checkpoint, run_folder, verify
from arac.training import loop
from arac.utils import memory

SMALL = {
    "hidden_size": 16,
    "batch_size": 16,
    "warmup_steps": 30,
    "eval_interval": 60,
    "eval_episodes": 1,
    "checkpoint_interval": 1,
    "replay_capacity": 10_000,
    "workers": 0,
}
FLAGS = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
STEPS = 200


def sac(folder, steps=STEPS, callback=None, env="helpers:Probe-v0", **settings):
    agent = arac.SAC(env, seed=1, **{**SMALL, **settings})
    return agent.learn(steps, run_dir=folder, callback=callback)


def command(*words, cwd):
    return [sys.executable, "-m", "arac", *map(str, words)], {"cwd": cwd, "text": True}


def is_sound(folder):
    return all(finding.level != "damaged" for finding in verify.examine(folder))


def assert_same_state(one, other):
    for mine, others in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True):
        np.testing.assert_array_equal(mine, others)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    return folder, sac(folder, env_kwargs={"when": "/nowhere"})


@pytest.mark.filterwarnings("ignore:helpers")
@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (
            "nan observation",
            "an observation that is not finite at step 3 of the explore episode (member 0, generation 9",
        ),
        ("nan reward", "a reward that is not finite at step 3 of the explore episode (member 0, generation 9"),
        ("wide observation", "an observation that has shape (5,) instead of (4,) at step 3"),
        ("raises", "RuntimeError: the hinge broke"),
        ("exits", "SystemExit"),
        ("dies", "exited with status 1, 3 times in a row"),
        pytest.param(
            "hangs", "took longer than the 1.5 s of episode_timeout, 3 times in a row", marks=pytest.mark.slow
        ),
    ],
)
def test_an_environment_that_fails_in_the_middle_of_a_run_costs_one_generation(trouble, said, undisturbed, tmp_path):
    """After a fix, the resumed run equals an undisturbed one."""
    trigger = tmp_path / "trigger"

    def begin_trouble(agent, _):
        if agent.state.generation == 9:
            trigger.touch()

    kwargs = {"trouble": trouble, "when": str(trigger)}
    settings = {"episode_timeout": 1.5} if trouble == "hangs" else {}
    settings |= {"workers": 1} if trouble in ("raises", "exits", "dies", "hangs") else {}
    with pytest.raises(arac.EnvironmentFailure) as caught:
        sac(tmp_path / "run", callback=begin_trouble, env_kwargs=kwargs, **settings)
    assert said in str(caught.value)
    assert "seed 1" in str(caught.value)
    assert is_sound(tmp_path / "run")
    trigger.unlink()
    again = arac.resume(tmp_path / "run", log=lambda _: None)
    _, expected = undisturbed
    assert_same_state(again, expected)
    for mine, others in zip(*(sample(a.replay.view, jax.random.key(0), 500) for a in (again, expected)), strict=True):
        assert np.isfinite(mine).all()
        np.testing.assert_array_equal(mine, others)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_command_shows_the_environments_traceback_and_ends_with_status_3(workers, tmp_path, capsys):
    words = ["train", "helpers:Breaking-v0", "--algo", "sac", *FLAGS, "--workers", str(workers), "--steps", "200"]
    assert cli.main([*words, "--run-dir", str(tmp_path / "run")]) == 3
    complaint = capsys.readouterr().err
    assert "RuntimeError: the hinge broke" in complaint
    assert "The last complete generation is saved" in complaint
    assert is_sound(tmp_path / "run")


def test_parameters_that_are_not_finite_stop_the_run_before_they_are_saved(tmp_path):
    with pytest.raises(arac.EnvironmentFailure, match=r"is no longer finite after \d+ steps"):
        sac(tmp_path / "run", learning_rate=1e25)
    agent = arac.load(tmp_path / "run")
    assert agent.state.env_steps > 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(agent.state))
    assert is_sound(tmp_path / "run")


def test_a_loss_that_is_not_finite_stops_the_run(undisturbed):
    _, agent = undisturbed
    losses = {"critic_loss": 1.0, "actor_loss": float("inf")}
    row = loop.Evaluation(1, 1, *[np.zeros((1, 1))] * 5, 0, losses)
    with pytest.raises(arac.EnvironmentFailure, match="actor_loss is no longer finite"):
        loop._check_finite(agent.state, row)


DISK = """
mount -t tmpfs -o size={size} none disk || exit 77
"{python}" -m arac train InvertedPendulum-v5 --algo sac {flags} --seed 1 --steps 900 --run-dir disk/run
echo "status $?"
cp -r disk/run run
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Train the run that one on a full disk must equal once there is space."""
    return sac(tmp_path_factory.mktemp("whole") / "run", env="InvertedPendulum-v5", steps=900)


@pytest.mark.parametrize("size", ["96k", pytest.param("160k", marks=pytest.mark.slow)])
def test_a_full_disk_leaves_the_checkpoint_before_it_and_a_clear_sentence(size, whole, tmp_path):
    """The file system is really full, and mounted in a separate namespace."""
    (tmp_path / "disk").mkdir()
    script = DISK.format(size=size, python=sys.executable, flags=" ".join(FLAGS))
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("this machine lets nobody mount a file system")
    assert "status 3" in done.stdout
    assert done.stderr.count("\n") == 1
    assert "disk/run cannot be written (No space left on device)" in done.stderr
    assert "steps are saved. Fix this, then resume with: " in done.stderr
    assert list((tmp_path / "run").rglob("*.tmp")) == []
    assert is_sound(tmp_path / "run")
    assert_same_state(arac.resume(tmp_path / "run", log=lambda _: None), whole)


@pytest.fixture
def busy(signals, tmp_path):
    """Return a run that another process trains, and that process."""
    words, options = command(
        "train", "InvertedPendulum-v5", "--algo", "sac", *FLAGS, "--steps", 10**6, "--run-dir", "run", cwd=tmp_path
    )
    process = subprocess.Popen(words, **options, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "timings.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    yield tmp_path / "run", process
    process.kill()
    process.communicate()


def test_a_second_process_on_a_run_stops_at_once_and_the_first_does_not_notice(busy, monkeypatch, capsys):
    folder, process = busy
    monkeypatch.chdir(folder.parent)
    for words in (["resume", "run"], ["train", "InvertedPendulum-v5", "--run-dir", "run"]):
        assert cli.main(words) == 2
        complaint = capsys.readouterr().err
        assert complaint.count("\n") == 1
        assert "Another process is working on run" in complaint or "already holds a run" in complaint
    assert process.poll() is None
    assert any("a process is working on it" in finding.text for finding in verify.examine(folder))
    process.send_signal(signal.SIGTERM)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130, complaint
    assert is_sound(folder)


def test_the_lock_cannot_be_removed_and_is_gone_with_a_process_that_was_killed(busy, monkeypatch, capsys):
    folder, process = busy
    for path in folder.glob(".*"):
        path.unlink()
    monkeypatch.chdir(folder.parent)
    assert cli.main(["resume", "run"]) == 2
    assert "Another process is working on run" in capsys.readouterr().err
    process.kill()
    process.wait()
    agent = arac.resume(folder, callback=lambda *_: False, log=lambda _: None)
    assert agent.state.env_steps > 0


def test_two_processes_that_begin_a_run_at_once_do_not_mix(tmp_path):
    words = ["train", "InvertedPendulum-v5", "--algo", "sac", *FLAGS, "--steps", 100, "--run-dir", "run"]
    starts = [command(*words, "--seed", seed, cwd=tmp_path) for seed in (0, 1)]
    processes = [subprocess.Popen(words, **options, stdout=-3, stderr=subprocess.PIPE) for words, options in starts]
    complaints = [process.communicate(timeout=200)[1] for process in processes]
    assert sorted(process.returncode for process in processes) == [0, 2], complaints
    assert is_sound(tmp_path / "run")


@pytest.fixture
def finished(undisturbed, tmp_path):
    folder, _ = undisturbed
    shutil.copytree(folder, tmp_path / "run")
    return tmp_path / "run"


def edit(folder, old, new):
    text = (folder / "config.toml").read_text()
    assert old in text
    (folder / "config.toml").write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("learning_rate = 0.0003", "learning_rate = 0.001", "learning_rate is 0.001, was 0.0003"),
        ("seed = 1", "seed = 2", "seed is 2, was 1"),
        ("hidden_size = 16", "hidden_size = 9", "hidden_size is 9, was 16"),
        ("max_episode_steps = 5000", "max_episode_steps = 500", "environment.max_episode_steps is 500, was 5000"),
        ('when = "/nowhere"', 'when = "/here"', "environment.kwargs is {'when': '/here'}, was {'when': '/nowhere'}"),
    ],
)
def test_a_changed_config_is_refused_with_the_differences(old, new, said, finished, capsys):
    edit(finished, old, new)
    before = digest(finished)
    assert cli.main(["resume", str(finished), "--steps", "300"]) == 2
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1
    assert digest(finished) == before
    with pytest.raises(arac.UserError, match="another configuration"):
        arac.load(finished)
    assert not is_sound(finished)


def test_what_has_no_effect_on_results_may_change_and_steps_may_grow(finished):
    edit(finished, "workers = 0", "workers = 1")
    edit(finished, "checkpoint_interval = 1", "checkpoint_interval = 50")
    edit(finished, "episode_timeout = 600.0", 'episode_timeout = "none"')
    assert arac.resume(finished, total_steps=300, log=lambda _: None).state.env_steps >= 300


def test_a_setting_that_the_checkpoint_does_not_know_had_its_default(undisturbed):
    """Checkpoints of this version load after a setting was added, unless it was changed."""
    _, agent = undisturbed
    identity = agent.description.identity()
    del identity["config"]["tau"]
    assert agent.description.differences(identity) == []
    other = arac.SAC("helpers:Probe-v0", seed=1, env_kwargs={"when": "/nowhere"}, **SMALL, tau=0.1)
    assert other.description.differences(identity) == ["tau is 0.1, was 0.005"]


def test_other_versions_are_said(finished):
    edit(finished, f'mujoco = "{run_folder.versions()["mujoco"]}"', 'mujoco = "1.2.3"')
    said = []
    arac.resume(finished, log=said.append)
    assert any(f"mujoco {run_folder.versions()['mujoco']} instead of 1.2.3" in sentence for sentence in said)


@pytest.mark.parametrize("name", ["../x", "runs/../../x", "a\nb", "\x1b[2J"])
def test_names_that_lead_elsewhere_are_refused(name, tmp_path, monkeypatch, capsys):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert cli.main(["train", "helpers:Probe-v0", *FLAGS, "--steps", "200", "--run-dir", name]) == 2
    complaint = capsys.readouterr().err
    assert "Invalid run folder" in complaint
    assert complaint.count("\n") == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "here"]
    with pytest.raises(arac.UserError, match="Invalid run folder"):
        sac(name)


@pytest.mark.parametrize("words", [["resume"], ["doctor"], ["evaluate"]])
def test_a_folder_that_is_not_a_run_is_refused(words, tmp_path, capsys):
    (tmp_path / "notes.txt").touch()
    assert cli.main([*words, str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_a_folder_with_something_else_in_it_is_refused(tmp_path):
    (tmp_path / "evaluations.jsonl").write_text("mine")
    with pytest.raises(arac.UserError, match="not empty and holds no run"):
        sac(tmp_path)
    assert (tmp_path / "evaluations.jsonl").read_text() == "mine"


def test_a_folder_whose_run_was_killed_before_it_was_one_can_be_used(undisturbed, tmp_path):
    folder, _ = undisturbed
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "run" / "config.toml").rename(tmp_path / "run" / ".config.toml.tmp")
    (tmp_path / "run" / ".beginning.tmp").touch()
    with pytest.raises(arac.UserError, match="holds no run"):
        arac.resume(tmp_path / "run")
    sac(tmp_path / "run", env_kwargs={"when": "/nowhere"})
    assert digest(tmp_path / "run") == digest(folder)


def test_a_folder_whose_run_was_killed_at_its_first_file_can_be_used(undisturbed, tmp_path):
    def kill(*_, **__):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", kill)
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # a kill leaves temporary files
        with pytest.raises(KeyboardInterrupt):
            sac(tmp_path / "run", env_kwargs={"when": "/nowhere"})
    assert any((tmp_path / "run").rglob("*.tmp"))
    sac(tmp_path / "run", env_kwargs={"when": "/nowhere"})
    assert digest(tmp_path / "run") == digest(undisturbed[0])


def test_a_run_that_a_trained_agent_begins_has_its_first_checkpoint_before_it_is_a_run(tmp_path):
    agent = arac.SAC("helpers:Probe-v0", seed=1, **SMALL).learn(STEPS)
    steps = agent.state.env_steps
    write, written = run_folder.write_durably, []

    def noted(path, data):
        written.append((path.name, [int(p.name) for p in checkpoint.list_checkpoints(path.parent)]))
        write(path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folder, "write_durably", noted)
        agent.learn(STEPS, run_dir=tmp_path / "run")
    assert written == [("config.toml", [steps])]


@pytest.mark.parametrize(
    "name", ["replay", "checkpoints", "tensorboard", "evaluations.jsonl", "timings.jsonl", "curve.png"]
)
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_run_folder_that_leads_elsewhere_is_refused(name, kind, finished, tmp_path):
    """No file outside of the run is changed, and no process waits for the other end of a pipe."""
    victim = tmp_path / "victim"
    path = finished / name
    if path.exists():
        path.rename(victim)
    else:
        victim.write_text("precious")
    path.symlink_to(victim) if kind == "link" else os.mkfifo(path)
    before = digest(tmp_path)
    with pytest.raises(arac.UserError, match="must be an ordinary file or folder"):
        arac.resume(finished, total_steps=300)
    assert digest(tmp_path) == before


def test_arguments_of_the_environment_that_cannot_be_written_down_are_refused_before_a_folder_is_made(tmp_path):
    with pytest.raises(arac.UserError, match="env_kwargs must be"):
        sac(tmp_path / "run", env_kwargs={"when": None})
    assert not (tmp_path / "run").exists()
    with pytest.raises(arac.UserError, match="env_kwargs must be"):
        arac.SAC("helpers:Probe-v0", env_kwargs={"length": np.int64(4)}).save(tmp_path / "agent")


def test_runs_that_cannot_be_put_anywhere_are_refused(tmp_path, monkeypatch, capsys):
    """A link to a missing disk is reported."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").symlink_to("/nowhere/at/all")
    assert cli.main(["train", "helpers:Probe-v0", *FLAGS, "--steps", "200"]) == 2
    assert "Cannot create runs" in capsys.readouterr().err


def test_a_damaged_newest_checkpoint_is_said_when_an_agent_is_loaded_or_measured(finished, capsys):
    newest = sorted((finished / "checkpoints").iterdir())[-1] / "state.safetensors"
    newest.write_bytes(newest.read_bytes() + b"x")
    said = []
    arac.load(finished, log=said.append)
    assert len(said) == 1
    assert cli.main(["evaluate", str(finished), "--episodes", "1"]) == 0
    assert f"skipped checkpoint {int(newest.parent.name)}" in capsys.readouterr().out


def test_rows_that_somebody_has_spoilt_do_not_fail_the_command(finished, capsys):
    (finished / "evaluations.jsonl").write_text("hello\n")
    assert cli.main(["resume", str(finished), "--steps", "260"]) == 0
    out, err = capsys.readouterr()
    assert "is not as the run wrote it" in out
    assert "cannot be read any more" in out
    assert err == ""


def test_a_new_goal_keeps_the_versions_that_the_run_began_with(finished):
    edit(finished, f'mujoco = "{run_folder.versions()["mujoco"]}"', 'mujoco = "1.2.3"')
    said = []
    arac.resume(finished, total_steps=260, log=said.append)
    assert any("instead of 1.2.3" in sentence for sentence in said)
    assert run_folder.other_versions(finished)


def test_a_replay_buffer_that_does_not_fit_is_refused_with_its_size(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "Humanoid-v5", "--replay-capacity", str(10**11)]) == 2
    complaint = capsys.readouterr().err
    assert "A replay_capacity of 100,000,000,000 transitions of Humanoid-v5 would take 156.1 TB of memory" in complaint
    assert "lower --replay-capacity" in complaint
    assert list(tmp_path.iterdir()) == []


def test_networks_that_do_not_fit_are_refused_before_they_are_made(capsys):
    assert cli.main(["train", "Humanoid-v5", "--hidden-size", str(10**7)]) == 2
    assert "would take" in capsys.readouterr().err
    assert cli.main(["train", "Humanoid-v5", "--population-size", str(10**9)]) == 2
    assert "population_size must be from 1 to 10000" in capsys.readouterr().err


def test_the_memory_that_is_needed_is_compared_with_what_is_free(monkeypatch):
    description = arac.SAC("InvertedPendulum-v5").description
    needed = 1_062_500 * (4 * 4 + 4 * 1 + 4 + 1) + 4 * 1_000_000
    monkeypatch.setattr(memory, "available", lambda: needed)
    loop.check_memory(description)
    monkeypatch.setattr(memory, "available", lambda: needed - 1)
    with pytest.raises(arac.UserError, match=r"would take 30\.6 MB of memory, and 30\.6 MB is free"):
        loop.check_memory(description)


def test_the_free_memory_is_no_more_than_the_machine_has():
    assert 0 < memory.available() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_the_limit_of_a_container_counts_and_what_it_has_cached_does_not(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 400\nactive_file 100\ninactive_file 200\n")
    assert memory._of_group(tmp_path) == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._of_group(tmp_path) == 2**63


@pytest.mark.parametrize(("amount", "words"), [(12, "12.0 bytes"), (1_559_000_000, "1.6 GB"), (2.5e18, "2,500.0 PB")])
def test_an_amount_of_memory_in_words(amount, words):
    assert memory.in_words(amount) == words


def test_an_environment_whose_observations_are_not_of_its_space_is_refused_before_training():
    with pytest.raises(arac.UserError, match=r"gives observations of shape \(5,\), but its space says \(4,\)"):
        check("helpers:Probe-v0", kwargs={"trouble": "wide observation", "at": 0})


def test_an_environment_that_cannot_be_reset_is_refused_before_training(tmp_path):
    with pytest.raises(arac.UserError, match=r"Cannot reset the environment .*: FileNotFoundError"):
        check(
            "helpers:Probe-v0", kwargs={"trouble": "starts a process", "at": 0, "once": str(Path(tmp_path, "no", "x"))}
        )
