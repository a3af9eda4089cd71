import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Constant
from scipy.stats import chisquare, kstest, pearsonr

from arac import envs
from arac.errors import EnvironmentFailure, Interrupted
from arac.models.policies import FlowPolicy
from arac.models.stacked import take, to_numpy
from arac.rollout import episode
from arac.rollout.episode import EpisodeRequest
from arac.rollout.local_pool import LocalPool
from arac.rollout.rollouts import Rollouts
from arac.utils.progress import Progress


def request(policy=None, acting="random", counters=(0, 0, 0), *, seed=0, stream="explore", record=True):
    return EpisodeRequest(policy, acting, seed, stream, counters, record)


def probe(**kwargs):
    """Return an environment in this process, and the bounds of its actions."""
    spec = envs.check("helpers:Probe-v0", kwargs=kwargs)
    return envs.make(spec), spec.low, spec.high


def play(request, **kwargs):
    return episode.run(*probe(**kwargs), request)


def assert_equal_episodes(one, other):
    assert vars(one).keys() == vars(other).keys()
    for name, value in vars(one).items():
        np.testing.assert_array_equal(value, getattr(other, name))


def real_policy(seed, observation_size, action_size):
    key = jax.random.key(seed)
    return to_numpy(FlowPolicy.init(key, observation_size, action_size, hidden=(8,), flows=1, sigma=0.4))


def hopper_requests():
    """Return requests of several kinds and lengths, with a real policy."""
    policies = [real_policy(seed, 11, 3) for seed in range(2)]
    kinds = [("random", True), ("explore", True), ("mode", True), ("mode", False)]
    return [
        request(policy, acting, (member, 3, number), record=record)
        for member, policy in enumerate(policies)
        for number, (acting, record) in enumerate(kinds)
    ]


def pids_of(pool):
    return [worker._process.pid for worker in pool._workers]


def test_an_episode_depends_only_on_its_task():
    environment = probe(length=6)
    first = episode.run(*environment, request())
    episode.run(*environment, request(counters=(9, 9, 9)))
    assert_equal_episodes(first, episode.run(*environment, request()))
    assert_equal_episodes(first, play(request(), length=6))


def test_the_number_of_workers_changes_nothing():
    spec, requests = envs.check("Hopper-v5", max_episode_steps=60), hopper_requests()
    results = []
    for workers in (0, 1, 2):
        with LocalPool(spec, workers) as pool:
            results.append(pool.run(requests, Progress()))
    for alone, *others in zip(*results, strict=True):
        for other in others:
            assert_equal_episodes(alone, other)


def test_results_come_in_the_order_of_the_requests():
    requests = [request(counters=(member, 0, 0)) for member in range(7)]
    spec = envs.check("helpers:Probe-v0")
    with LocalPool(spec, 2) as pool:
        played = pool.run(requests, Progress())
        assert pool.run([], Progress()) == []
    for one, result in zip(requests, played, strict=True):
        assert_equal_episodes(result, play(one))


@pytest.mark.parametrize(
    "other",
    [
        request(counters=(1, 0, 0)),
        request(counters=(0, 1, 0)),
        request(counters=(0, 0, 1)),
        request(seed=1),
        request(stream="evaluate"),
    ],
)
def test_another_counter_seed_or_stream_gives_another_start_and_other_actions(other):
    one, two = play(request()), play(other)
    assert one.observations[0, 0] != two.observations[0, 0]
    assert (one.actions != two.actions).all()


def test_an_episode_has_one_observation_more_than_steps_each_beside_its_action_and_reward():
    played = play(request(), length=8)
    assert (played.observations.shape, played.actions.shape, played.rewards.shape) == ((9, 4), (8, 2), (8,))
    assert {array.dtype for array in (played.observations, played.actions, played.rewards)} == {np.dtype(np.float32)}
    assert played.observations[:, 1].tolist() == list(range(9))
    centre, half = np.array([1, 6]), np.array([2, 4])
    np.testing.assert_allclose(played.observations[1:, 2:], centre + half * played.actions, rtol=1e-5)
    assert (played.steps, len(played), played.total, played.rewards.tolist()) == (8, 8, 4.0, [0.5] * 8)


@pytest.mark.parametrize(("action", "received"), [((-1, -1), (-1, 2)), ((1, 1), (3, 10)), ((0, -0.5), (1, 4))])
def test_minus_one_to_one_is_stretched_to_the_bounds_and_stored_as_it_was(action, received):
    env, low, high = probe()
    played = episode.run(env, low, high, request(Constant(*action), "mode"))
    np.testing.assert_array_equal(played.actions, np.tile(action, (5, 1)))
    np.testing.assert_allclose(env.unwrapped.received, np.tile(received, (5, 1)), rtol=1e-6)
    assert all(env.action_space.contains(given) for given in env.unwrapped.received)


def test_random_acting_is_uniform_and_independent_between_dimensions():
    actions = play(request(), length=3000).actions
    assert np.abs(actions).max() <= 1
    for column in actions.T:
        assert kstest(column, "uniform", args=(-1, 2)).pvalue > 1e-3
    assert pearsonr(*actions.T).pvalue > 1e-3
    assert pearsonr(actions[1:, 0], actions[:-1, 0]).pvalue > 1e-3


def test_exploring_noise_is_standard_normal_and_fresh_at_every_step():
    actions = play(request(Constant(0, 0), "explore"), length=2000).actions
    noise = np.arctanh(actions.astype(float))
    for column in noise.T:
        assert kstest(column, "norm").pvalue > 1e-3
    assert pearsonr(*noise.T).pvalue > 1e-3
    assert pearsonr(noise[1:, 0], noise[:-1, 0]).pvalue > 1e-3


def test_mode_is_the_policys_action_without_noise():
    policy = real_policy(1, 4, 2)
    mode, explore = (play(request(policy, acting), length=20) for acting in ("mode", "explore"))
    np.testing.assert_array_equal(mode.actions, [policy.mode(observation) for observation in mode.observations[:-1]])
    assert (explore.actions != [policy.mode(observation) for observation in explore.observations[:-1]]).any(1).all()


@pytest.mark.parametrize("acting", ["explore", "mode"])
def test_without_a_record_only_return_and_length_come_back(acting):
    full, bare = (play(request(Constant(0, 0), acting, record=record), length=7) for record in (True, False))
    assert (bare.observations.size, bare.actions.size, bare.rewards.size) == (0, 0, 0)
    assert (bare.total, bare.steps, bare.terminated) == (full.total, full.steps, full.terminated) == (3.5, 7, True)


def test_an_episode_that_the_time_limit_cuts_off_is_not_terminated():
    def limited_to(steps):
        spec = envs.check("helpers:Probe-v0", max_episode_steps=steps, kwargs={"length": 5})
        return episode.run(envs.make(spec), spec.low, spec.high, request())

    assert [(limited_to(steps).terminated, len(limited_to(steps))) for steps in (3, 5, 9)] == [
        (False, 3),
        (True, 5),
        (True, 5),
    ]
    assert limited_to(3).observations[-1, 1] == 3


@pytest.mark.parametrize(
    ("trouble", "at", "name"),
    [
        ("nan observation", 0, "an observation"),
        ("nan observation", 3, "an observation"),
        ("nan reward", 2, "a reward"),
        ("infinite reward", 5, "a reward"),
    ],
)
def test_a_number_that_is_not_finite_stops_with_environment_member_and_step(trouble, at, name):
    with pytest.raises(EnvironmentFailure) as caught:
        play(request(counters=(4, 17, 2), seed=6), trouble=trouble, at=at)
    message = str(caught.value)
    assert f"Probe-v0 gave {name} that is not finite at step {at} of the explore episode" in message
    assert "(member 4, generation 17, episode 2, seed 6)" in message


def test_an_environment_that_reuses_its_array_is_recorded_as_it_was():
    spec = envs.check("helpers:Reusing-v0")
    played = episode.run(envs.make(spec), spec.low, spec.high, request())
    assert played.observations[:, 0].tolist() == [0, 1, 2, 3, 4]


def gone(*pids, within=5):
    """Return True if none of these processes is running."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not any(map(is_running, pids)):
            return True
        time.sleep(0.02)
    return False


def is_running(pid):
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def failure_in_worker(time_limit=None, workers=1, **kwargs):
    """Return the message of a pool whose environment fails in its third step."""
    spec = replace(envs.check("helpers:Probe-v0"), kwargs=kwargs)
    with LocalPool(spec, workers, time_limit) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(EnvironmentFailure) as caught:
            pool.run([request(counters=(member, 0, 0)) for member in range(3)], Progress())
        pids = pids_of(pool)
    assert gone(*pids)
    return str(caught.value)


def test_an_environment_that_raises_in_a_worker_is_reported_with_its_traceback():
    message = failure_in_worker(workers=2, trouble="raises")
    assert "RuntimeError: the hinge broke" in message
    assert "helpers.py" in message
    assert re.match(r"helpers:Probe-v0 failed in the explore episode \(member \d, generation 0, episode 0", message)


def test_a_number_that_is_not_finite_in_a_worker_is_reported_in_one_sentence():
    message = failure_in_worker(trouble="nan reward")
    assert "Probe-v0 gave a reward that is not finite at step 3" in message
    assert "\n" not in message


@pytest.mark.parametrize("trouble", ["wide observation", "wide reward"])
def test_a_wrong_shape_is_reported_in_one_sentence(trouble):
    message = failure_in_worker(trouble=trouble)
    assert re.search(r"gave an? (observation|reward) that has shape \(\d,\) instead of \(4?,?\) at step 3", message)
    assert "\n" not in message


def test_an_environment_that_exits_is_reported_with_where_it_did():
    message = failure_in_worker(trouble="exits")
    assert "SystemExit" in message
    assert "helpers.py" in message


@pytest.mark.parametrize("trouble", ["dies", "dies when made"])
def test_a_worker_that_dies_every_time_is_reported(trouble):
    message = failure_in_worker(trouble=trouble)
    assert "lost its worker process in the explore episode (member" in message
    assert "exited with status 1, 3 times in a row" in message


def test_a_segmentation_fault_is_reported_with_where_it_was():
    message = failure_in_worker(trouble="crashes")
    assert "was killed by SIGSEGV, 3 times in a row" in message
    assert "helpers.py" in message


def test_an_environment_that_hangs_is_ended_after_its_time_and_reported_with_where_it_was():
    message = failure_in_worker(time_limit=2.5, trouble="hangs")
    assert "took longer than the 2.5 s of episode_timeout, 3 times in a row" in message
    assert "helpers.py" in message


@pytest.mark.parametrize(("how", "time_limit"), [("dies", None), ("hangs", 3.0)])
def test_a_worker_that_dies_or_hangs_once_is_replaced_and_the_result_is_the_same(how, time_limit, tmp_path):
    """Only the worker of that episode is ended; all other episodes stay with their workers."""
    requests = [request(counters=(member, 0, 0)) for member in range(4)]
    here = [play(request) for request in requests]
    spec = replace(envs.check("helpers:Probe-v0"), kwargs={"trouble": how, "once": str(tmp_path / "once")})
    said, progress = [], Progress()
    progress.log = said.append
    with LocalPool(spec, 2, time_limit) as pool:
        before = pids_of(pool)
        for mine, others in zip(here, pool.run(requests, progress), strict=True):
            assert_equal_episodes(mine, others)
        after = pids_of(pool)
    assert len(set(before) & set(after)) == 1
    assert len(said) == 1
    assert re.search(
        r"lost its worker process in the explore episode .* is replaced and the episode run again", said[0]
    )


def test_a_worker_that_was_killed_is_replaced_and_the_result_is_the_same():
    requests = [request(counters=(member, 0, 0)) for member in range(3)]
    said, progress = [], Progress()
    progress.log = said.append
    with LocalPool(envs.check("helpers:Probe-v0"), 1) as pool:
        first = pool.run(requests, progress)
        os.kill(pids_of(pool)[0], signal.SIGKILL)
        second = pool.run(requests, progress)
    for one, other in zip(first, second, strict=True):
        assert_equal_episodes(one, other)
    assert len(said) == 1
    assert "was killed by SIGKILL" in said[0]


def test_a_worker_that_was_stopped_is_replaced():
    """A stopped worker neither reads nor exits, and is replaced."""
    progress = Progress()
    progress.log = lambda _: None
    wide = Constant(*np.zeros(10**6))  # more than a socket takes at once
    with LocalPool(envs.check("helpers:Probe-v0"), 1, 3.0) as pool:
        [expected] = pool.run([request(wide, "random")], progress)
        os.kill(pids_of(pool)[0], signal.SIGSTOP)
        [again] = pool.run([request(wide, "random")], progress)
    assert_equal_episodes(expected, again)


def test_a_closed_pool_leaves_no_worker():
    pool = LocalPool(envs.check("helpers:Probe-v0"), 2)
    pids = pids_of(pool)
    assert all(map(is_running, pids))
    pool.close()
    assert not any(map(is_running, pids))


def test_what_an_environment_started_ends_with_its_worker(tmp_path):
    spec = envs.check("helpers:Probe-v0", kwargs={"trouble": "starts a process", "once": str(tmp_path / "pid")})
    with LocalPool(spec, 1) as pool:
        pool.run([request()], Progress())
        pid = int((tmp_path / "pid").read_text())
        assert is_running(pid)
    assert gone(pid)


def test_no_worker_outlives_a_parent_that_was_killed_even_in_an_episode_that_hangs(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, signal, threading, sys\n"
        "from dataclasses import replace\n"
        "from arac import envs\n"
        "from arac.utils.progress import Progress\n"
        "from arac.rollout.episode import EpisodeRequest\n"
        "from arac.rollout.local_pool import LocalPool\n"
        "spec = replace(envs.check('helpers:Probe-v0'), kwargs={'trouble': 'hangs for good'})\n"
        "pool = LocalPool(spec, 2)\n"
        "print(*[worker._process.pid for worker in pool._workers], flush=True)\n"
        "threading.Timer(4, os.kill, (os.getpid(), signal.SIGKILL)).start()\n"
        "pool.run([EpisodeRequest(None, 'random', 0, 'explore', (m, 0, 0), True) for m in range(2)], Progress())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert gone(*map(int, done.stdout.split()))


def test_short_episodes_do_not_wait_for_a_long_one(tmp_path):
    """The long episode ends only after all short ones, so a fixed share per worker would never finish."""
    key, progress = tmp_path / "key", Progress()
    long, short = Constant(0.5), Constant(-0.5)
    requests = [request(policy, "mode", (member, 0, 0)) for member, policy in enumerate([short, long, *[short] * 8])]
    seen = []

    def note():
        seen.append(progress.done)
        if progress.done == len(requests) - 1:
            key.touch()

    progress.on_advance = note
    with LocalPool(envs.check("helpers:Gate-v0", kwargs={"key": str(key)}), 2) as pool:
        played = pool.run(requests, progress)
    assert [result.total for result in played] == [-0.5, 0.5, *[-0.5] * 8]
    assert seen == list(range(1, 11))


@pytest.mark.usefixtures("signals")
def test_a_request_to_stop_is_heard_while_workers_play(tmp_path):
    progress = Progress()
    with (
        LocalPool(envs.check("helpers:Gate-v0", kwargs={"key": str(tmp_path / "key")}), 1) as pool,
        progress.handle_signals(),
    ):
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(Interrupted):
            pool.run([request(Constant(0.5), "mode")], progress)
        timer.join()
        pids = pids_of(pool)
    assert gone(*pids)


def test_workers_make_what_a_module_registers_without_a_name_of_its_own():
    """Register an environment as shimmy does dm_control: no other process can import its entry point."""
    spec = envs.check("helpers:Nameless-v0", kwargs={"length": 6})
    with LocalPool(spec, 1) as pool, LocalPool(spec, 0) as here:
        [far], [near] = pool.run([request()], Progress()), here.run([request()], Progress())
    assert_equal_episodes(far, near)


def test_drifting_noise_is_an_ornstein_uhlenbeck_process():
    """The noise is x' = 0.85 x + 0.2 n: neighbours correlate by 0.85, the deviation is 0.2 / sqrt(1 - 0.85^2)."""
    noise = []

    class Listener(Constant):
        def act(self, observation, drawn):
            noise.append(drawn)
            return self.action

    play(request(Listener(0.0, 0.0), "drift"), length=5000)
    noise = np.array(noise)
    assert noise.std() == pytest.approx(0.2 / np.sqrt(1 - 0.85**2), rel=0.1)
    assert pearsonr(noise[:-1, 0], noise[1:, 0]).statistic == pytest.approx(0.85, abs=0.03)
    assert abs(pearsonr(noise[:, 0], noise[:, 1]).statistic) < 0.2
    first = noise[0]
    assert (np.abs(first) < 1).all(), "it begins at 0 in every episode"


class Recorder:
    """A pool that records its requests and plays nothing."""

    def run(self, requests, progress):
        self.requests, self.phase = requests, (progress.name, progress.total)
        return list(range(len(requests)))


def population_of(size):
    return {"weights": jnp.arange(size * 6.0).reshape(size, 2, 3), "bias": jnp.arange(size)}


@pytest.mark.parametrize("acting", ["random", "explore", "drift"])
def test_exploration_is_one_recorded_episode_per_member(acting):
    pool, population = Recorder(), population_of(3)
    assert Rollouts(pool, 5, Progress()).explore(population, 7, acting, noise_hold=9) == [0, 1, 2]
    expected = [(acting, 5, "explore", (member, 7, 0), True, None, 9) for member in range(3)]
    assert [request[1:] for request in pool.requests] == expected
    assert pool.phase == ("collect", 3)
    for member, request in enumerate(pool.requests):
        jax.tree.map(np.testing.assert_array_equal, request.policy, take(population, member))
        assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(request.policy))


def test_evaluation_is_without_noise_grouped_by_member_and_from_common_start_states():
    pool = Recorder()
    rollouts = Rollouts(pool, 5, Progress())
    assert rollouts.evaluate(population_of(2), 7, 3) == [[0, 1, 2], [3, 4, 5]]
    starts = [request.reset_seed for request in pool.requests]
    assert starts[:3] == starts[3:], "all members play the same episodes"
    assert len(set(starts)) == 3
    assert [request[1:] for request in pool.requests] == [
        ("mode", 5, "evaluate", (member, 7, number), False, starts[number], 1)
        for member in range(2)
        for number in range(3)
    ]
    rollouts.evaluate(population_of(2), 8, 3)
    assert not set(starts) & {request.reset_seed for request in pool.requests}, "other episodes at the next evaluation"


@pytest.mark.parametrize("acting", ["random", "explore", "drift"])
def test_held_noise_lasts_for_a_cut_off_zeta_number_of_steps(acting):
    held = episode.run(*probe(length=4000), request(Constant(0.0, 0.0), acting)._replace(noise_hold=8)).actions
    changes = np.flatnonzero((np.diff(held, axis=0) != 0).any(1)) + 1
    lengths = np.diff([0, *changes])  # without the last, which the episode's end truncates
    assert lengths.max() == 8
    probabilities = np.arange(1, 2_000_000.0) ** -1.5
    probabilities /= probabilities.sum()
    expected = np.array([*probabilities[:7], probabilities[7:].sum()]) * len(lengths)
    assert chisquare(np.bincount(lengths, minlength=9)[1:], expected).pvalue > 1e-3


def test_an_evaluation_holds_no_noise():
    one, other = (
        episode.run(*probe(length=20), request(Constant(0.3, 0.1), "mode")._replace(noise_hold=hold)).actions
        for hold in (1, 8)
    )
    np.testing.assert_array_equal(one, other)


def test_an_environment_that_only_the_parent_registered_is_known_to_the_workers():
    gymnasium.register("Mine-v0", "helpers:Probe", max_episode_steps=3)
    spec = envs.check("Mine-v0")
    with LocalPool(spec, 1) as pool:
        [played] = pool.run([request()], Progress())
    assert len(played) <= 3


def test_a_wide_policy_acts_alike_in_a_worker_and_here():
    spec = envs.check("Humanoid-v5")
    policy = FlowPolicy.init(jax.random.key(0), 348, 17, hidden=(256,), flows=3, sigma=0.6)
    requests = [request(to_numpy(policy), "explore", (0, number, 0)) for number in range(2)]
    with LocalPool(spec, 2) as workers, LocalPool(spec, 0) as here:
        for one, other in zip(workers.run(requests, Progress()), here.run(requests, Progress()), strict=True):
            np.testing.assert_array_equal(one.observations, other.observations)
            np.testing.assert_array_equal(one.actions, other.actions)
