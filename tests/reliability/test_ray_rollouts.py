"""Episodes on Ray give the same bytes as local ones, even if workers fail."""

import threading

import numpy as np
import pytest
from helpers import Constant
from torture import digest

from arac import ARAC, CEMTD3, resume
from arac.envs import check
from arac.errors import EnvironmentFailure, Interrupted, UserError
from arac.rollout.episode import EpisodeRequest
from arac.rollout.local_pool import LocalPool
from arac.rollout.ray_pool import RayPool
from arac.utils import ray_utils
from arac.utils.progress import Progress

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("connection")]

SETTINGS = {"hidden_size": 8, "batch_size": 8, "warmup_steps": 400, "eval_episodes": 2, "eval_interval": 600}
SETTINGS |= {"replay_capacity": 10_000, "population_size": 2, "checkpoint_interval": 400}


@pytest.fixture(scope="module")
def connection():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def trained(kind, folder, rollouts, **settings):
    kind("Pendulum-v1", **{**SETTINGS, **settings}, rollouts=rollouts, workers=1).learn(2400, run_dir=folder)
    files = digest(folder)
    files["config.toml"] = (folder / "config.toml").read_text().replace('rollouts = "ray"', 'rollouts = "local"')
    return files


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """Train a run of ARAC with local rollouts."""
    return trained(ARAC, tmp_path_factory.mktemp("local") / "run", "local", elites=1)


def test_training_on_ray_is_training_with_local_rollouts(local, tmp_path):
    assert trained(ARAC, tmp_path / "run", "ray", elites=1) == local


def test_so_is_that_of_an_algorithm_that_judges_by_what_it_collects(tmp_path):
    chosen = {"parents": 1, "gradient_actors": 1}
    ours = trained(CEMTD3, tmp_path / "ray", "ray", **chosen)
    assert ours == trained(CEMTD3, tmp_path / "local", "local", **chosen)


def test_a_run_that_was_begun_with_local_rollouts_goes_on_on_ray(local, tmp_path):
    def stop(agent, _):
        return agent.state.env_steps < 1200

    first = ARAC("Pendulum-v1", **SETTINGS, elites=1, workers=1)
    first.learn(2400, run_dir=tmp_path / "run", callback=stop)
    resume(tmp_path / "run", rollouts="ray", log=print)
    assert digest(tmp_path / "run") == {**local, "config.toml": digest(tmp_path / "run")["config.toml"]}


def requests(count):
    return [
        EpisodeRequest(Constant(0.1, -0.2), "explore", 7, "explore", (number, 0, 0), True) for number in range(count)
    ]


def same(one, other):
    return all(
        np.array_equal(mine.observations, its.observations) and mine.total == its.total
        for mine, its in zip(one, other, strict=True)
    )


def test_episodes_come_in_their_order_and_policies_go_there_once(monkeypatch):
    spec = check("helpers:Probe-v0", kwargs={"length": 20})
    with LocalPool(spec, 0) as pool:
        expected = pool.run(requests(12), Progress())
    with RayPool(spec) as pool:
        put = []
        there = ray.put
        monkeypatch.setattr(ray, "put", lambda value: put.append(value) or there(value))
        policy = Constant(0.1, -0.2)
        same_policy = [request._replace(policy=policy) for request in requests(12)]
        assert same(pool.run(same_policy, Progress()), expected)
        pool.run(same_policy, Progress())
        assert put == [[policy]]
        pool.run([request._replace(policy=Constant(0.3, 0.3)) for request in same_policy[:1]], Progress())
        assert len(put) == 2


@pytest.mark.parametrize("trouble", ["dies", "hangs for good"])
def test_an_episode_whose_worker_is_lost_is_played_again(trouble, tmp_path):
    """An environment that kills its process, or hangs in C until the timeout, costs one retry."""
    kwargs = {"length": 20, "trouble": trouble, "at": 7, "once": str(tmp_path / "once")}
    with LocalPool(check("helpers:Probe-v0", kwargs={"length": 20}), 0) as pool:
        expected = pool.run(requests(4), Progress())
    with RayPool(check("helpers:Probe-v0", kwargs=kwargs), time_limit=3) as pool:
        assert same(pool.run(requests(4), Progress()), expected)
    assert (tmp_path / "once").exists()


def test_a_worker_that_dies_each_time_is_told(tmp_path):
    spec = check("helpers:Probe-v0", kwargs={"trouble": "dies", "at": 2})
    with RayPool(spec) as pool, pytest.raises(EnvironmentFailure, match=r"lost its Ray worker .* 3 times in a row"):
        pool.run(requests(1), Progress())


def test_what_an_environment_raises_reaches_the_user():
    spec = check("helpers:Probe-v0", kwargs={"trouble": "raises"})
    with RayPool(spec) as pool, pytest.raises(EnvironmentFailure, match=r"(?s)Traceback.*the hinge broke"):
        pool.run(requests(2), Progress())


def test_it_stops_when_it_is_asked_to():
    """Both workers hang when the stop is requested, and are free again afterwards."""
    progress = Progress()
    spec = check("helpers:Probe-v0", kwargs={"trouble": "hangs"})
    timer = threading.Timer(4, lambda: setattr(progress, "_stop", True))
    timer.start()
    with RayPool(spec) as pool, pytest.raises(Interrupted):
        pool.run(requests(2), progress)
    with RayPool(check("helpers:Probe-v0")) as pool:
        assert len(pool.run(requests(2), Progress())) == 2


def test_another_address_than_that_of_the_connection_is_refused():
    with pytest.raises(UserError, match="connected to another cluster"), ray_utils.connected("h:1", show_output=True):
        pass
