"""Custom policies: the example trains and resumes exactly, and mistakes are reported before training."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_folders import assert_same_run

import arac
from arac import envs
from arac.learning.losses import TargetPolicies, attraction_repulsion_loss, sampled_kl
from arac.models.policies.custom import CustomPolicyAdapter
from arac.models.stacked import to_numpy, vmap_init

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from custom_policy import KumaraswamyPolicy

SETTINGS = {
    "hidden_size": 16, "batch_size": 16, "warmup_steps": 60, "eval_interval": 60, "eval_episodes": 2, "elites": 1,
    "population_size": 2, "checkpoint_interval": 1, "replay_capacity": 10_000, "workers": 0,
}  # fmt: skip


def trained(folder, *, callback=None, **settings):
    agent = arac.ARAC("InvertedPendulum-v5", seed=3, policy=KumaraswamyPolicy, **{**SETTINGS, **settings})
    return agent.learn(200, run_dir=folder, callback=callback)


def resumed(folder):
    return arac.resume(folder, policy=KumaraswamyPolicy, log=lambda _: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("custom") / "run"
    return trained(folder), folder


def test_it_learns_with_attraction_and_repulsion_and_a_diversity_matrix(whole):
    agent, folder = whole
    rows = [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]
    assert isinstance(agent.champion.policy, KumaraswamyPolicy)
    assert len(agent.archive) > 2
    assert rows[-1]["archive_kl"] != 0, "archived policies attract and repel"
    kl = np.array(rows[-1]["diversity"]["kl"])
    np.testing.assert_allclose(np.diag(kl), 0, atol=1e-4)
    assert kl[0, 1] != 0 != kl[1, 0]
    begun = arac.ARAC("InvertedPendulum-v5", seed=3, policy=KumaraswamyPolicy, **SETTINGS)
    for first, last in zip(
        jax.tree.leaves(begun.state.population), jax.tree.leaves(agent.state.population), strict=True
    ):
        assert not np.array_equal(first, last)


@pytest.mark.parametrize("stop", [1, 3])
def test_stopped_and_resumed_is_like_never_stopped(stop, whole, tmp_path):
    agent, folder = whole
    stopped = trained(tmp_path / "run", callback=lambda agent, _: agent.state.generation < stop)
    assert stopped.state.generation == stop < agent.state.generation
    assert_same_run(agent, resumed(tmp_path / "run"), folder, tmp_path / "run")


def test_killed_before_its_last_checkpoints_it_goes_on_the_same(whole, tmp_path):
    """A killed run leaves rows of generations whose checkpoints were never written."""
    agent, folder = whole
    shutil.copytree(folder, tmp_path / "run")
    for checkpoint in sorted((tmp_path / "run" / "checkpoints").iterdir())[2:]:
        shutil.rmtree(checkpoint)
    assert_same_run(agent, resumed(tmp_path / "run"), folder, tmp_path / "run")


def test_worker_processes_import_it(whole, tmp_path):
    agent, folder = whole
    assert_same_run(agent, trained(tmp_path / "run", workers=1), folder, tmp_path / "run")


def test_it_is_loaded_with_its_class_and_with_no_other(whole, tmp_path):
    agent, folder = whole
    agent.save(tmp_path / "agent")
    observation = np.array([0.1, -0.2, 0.3, 0.0])
    expected = agent.predict(observation, deterministic=True)[0]
    for path in (folder, tmp_path / "agent"):
        loaded = arac.load(path, policy=KumaraswamyPolicy)
        np.testing.assert_array_equal(loaded.predict(observation, deterministic=True)[0], expected)
        with pytest.raises(arac.UserError, match=r"with the policy custom_policy.KumaraswamyPolicy.*with policy=\.$"):
            arac.load(path)
        with pytest.raises(arac.UserError, match=r"got test_custom_policy.Other\.$"):
            arac.load(path, policy=Other)
    with pytest.raises(arac.UserError, match="with policy="):
        arac.resume(folder)
    with pytest.raises(arac.UserError, match="only built-in policies can be exported"):
        agent.export(tmp_path / "policy.npz")
    arac.SAC("InvertedPendulum-v5", workers=0).save(tmp_path / "builtin")
    with pytest.raises(arac.UserError, match="omit policy"):
        arac.load(tmp_path / "builtin", policy=KumaraswamyPolicy)


def test_sac_trains_it_too():
    small = {name: value for name, value in SETTINGS.items() if name not in ("elites", "population_size")}
    agent = arac.SAC("InvertedPendulum-v5", policy=KumaraswamyPolicy, **small).learn(120)
    assert isinstance(agent.champion.policy, KumaraswamyPolicy)


def test_it_is_refused_where_it_cannot_be_trained_and_a_local_class_reaches_workers():
    with pytest.raises(arac.UserError, match="td3 does not support custom policies; these do: arac, sac_nf, sac"):
        arac.TD3("InvertedPendulum-v5", policy=KumaraswamyPolicy)
    with pytest.raises(arac.UserError, match="flows has no effect on a custom policy"):
        arac.ARAC("InvertedPendulum-v5", policy=KumaraswamyPolicy, flows=2)

    @jax.tree_util.register_dataclass
    @dataclass(frozen=True, eq=False)
    class Hidden(Good):
        pass

    found = []
    for workers in (0, 1):
        agent = arac.SAC("InvertedPendulum-v5", policy=Hidden, workers=workers, warmup_steps=10, eval_episodes=1)
        found.append(agent.learn(20).evaluate(2).returns)
    np.testing.assert_array_equal(*found)


def test_classes_with_the_same_fields_have_structures_of_their_own():
    """JAX alone does not distinguish them, and would use the code compiled for `Good` with `Other`."""
    env = envs.check("InvertedPendulum-v5")
    good, other = (CustomPolicyAdapter.init(kind, jax.random.key(0), env) for kind in (Good, Other))
    assert jax.tree.structure(good.policy) == jax.tree.structure(other.policy), "JAX is mended: Own is not needed"
    assert jax.tree.structure(good) != jax.tree.structure(other)


def test_the_divergence_by_samples_is_the_integral():
    first, second = (KumaraswamyPolicy.init(jax.random.key(seed), 2, 1) for seed in (0, 1))
    observation = np.zeros((1, 2), np.float32)
    noise = jax.random.normal(jax.random.key(2), (20_000, 1))
    estimate = jax.jit(sampled_kl)(first, second, jnp.zeros((20_000, 2)), noise)
    grid = np.linspace(-1, 1, 4001, dtype=np.float32)[1:-1, None]
    log_p, log_q = (to_numpy(policy).log_prob(observation, grid).astype(float) for policy in (first, second))
    np.testing.assert_allclose(estimate, np.trapezoid(np.exp(log_p) * (log_p - log_q), grid[:, 0]), atol=0.01)


@pytest.mark.parametrize("divergence", ["kl", "bounded"])
def test_the_whole_policy_feels_attraction_and_repulsion(divergence):
    policy = KumaraswamyPolicy.init(jax.random.key(0), 3, 2)
    others = vmap_init(lambda key: KumaraswamyPolicy.init(key, 3, 2), jax.random.key(1), 2)
    observation, noise = jax.random.normal(jax.random.key(2), (32, 3)), jax.random.normal(jax.random.key(3), (32, 2))

    @jax.jit
    @jax.grad
    def gradient(policy, weights):
        targets, options = (
            TargetPolicies(others, weights),
            {"divergence": divergence, "base": "shared", "kl_clip": None},
        )
        return attraction_repulsion_loss(policy, targets, observation, noise, **options)[0]

    repelled = gradient(policy, jnp.array([1.0, 0.0]))
    assert all(np.any(leaf) for leaf in jax.tree.leaves(repelled))
    attracted = gradient(policy, jnp.array([-1.0, 0.0]))
    for one, other in zip(jax.tree.leaves(repelled), jax.tree.leaves(attracted), strict=True):
        np.testing.assert_allclose(one, -other, rtol=1e-4, atol=1e-6)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Good:
    """A normal distribution around a linear function, with actions well inside the bounds; correct up to rounding."""

    weight: jax.Array

    @classmethod
    def init(cls, key, observation_size, action_size):
        return cls(0.01 * jax.random.normal(key, (observation_size, action_size)))

    def mode(self, observation):
        return observation @ self.weight

    def act(self, observation, noise):
        return self.mode(observation) + 0.1 * noise

    def sample(self, observation, noise):
        action = self.act(observation, noise)
        return action, self.log_prob(observation, action)

    def log_prob(self, observation, action):
        return -50 * ((action - self.mode(observation)) ** 2).sum(-1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Other(Good):
    pass


def variant(**changes):
    """Return a variant of `Good` that has a mistake."""
    made = dataclass(frozen=True, eq=False)(type("Wrong", (Good,), changes))
    return jax.tree_util.register_dataclass(made)


class NoPytree(Good):
    pass


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Counting(Good):
    count: int = 0


def fails(self, *given):
    raise RuntimeError("the formula\nis missing")


WRONG = {
    "no class": (lambda key: None, "policy must be a class, got"),
    "no method": (variant(log_prob=None), "Wrong has no log_prob; a policy has init, act, sample, log_prob, mode"),
    "no pytree": (NoPytree, "NoPytree.init must give a pytree: put @jax.tree_util.register_dataclass"),
    "init gives something else": (variant(init=staticmethod(lambda *sizes: 3.0)), "Wrong.init must give a pytree"),
    "init raises": (variant(init=staticmethod(fails)), "Wrong.init fails: RuntimeError: the formula is missing"),
    "a number that is none of JAX": (Counting, "Counting must hold float32 arrays of JAX, and something in it is 0"),
    "act raises": (variant(act=fails), "fails: RuntimeError: the formula is missing"),
    "actions outside": (
        variant(mode=lambda self, o: 3 + o @ self.weight),
        r"act must give actions in \[-1, 1\], and one of them is 3",
    ),
    "wrong shape": (
        variant(act=lambda self, o, n: (o @ self.weight)[..., 0], sample=lambda self, o, n: (o @ self.weight, 0.0)),
        r"act must give an array of shape \(64, 1\) here, got \(64,\)",
    ),
    "no sum": (
        variant(log_prob=lambda self, o, a: -50 * (a - self.mode(o)) ** 2),
        r"sample must give an array of shape \(64,\) here, got \(64, 1\)",
    ),
    "not finite": (variant(mode=lambda self, o: o @ self.weight / 0.0), "act gives numbers that are not finite"),
    "no pair": (variant(sample=lambda self, o, n: self.act(o, n)), "sample must give a pair"),
    "other log-probability": (
        variant(sample=lambda self, o, n: (self.act(o, n), self.log_prob(o, self.act(o, n)) + 1)),
        "log_prob and sample do not give the same log-probability",
    ),
    "other action": (
        variant(sample=lambda self, o, n: (n - n, (n - n)[..., 0])),
        "act and sample do not give the same action",
    ),
    "no gradient": (
        variant(mode=lambda self, o: jax.lax.stop_gradient(o @ self.weight)),
        "must give actions that can be differentiated",
    ),
    "JAX alone": (
        variant(mode=lambda self, o: o @ self.weight + (0.5 if isinstance(o, np.ndarray) else 0)),
        "does not give the same action for arrays of JAX and of NumPy",
    ),
    "JAX alone, in act": (
        variant(act=lambda self, o, n: self.mode(o) + (0.15 if isinstance(o, np.ndarray) else 0.1) * n),
        "act does not give the same action for arrays of JAX and of NumPy",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_found_before_training_in_one_sentence(mistake):
    policy, said = WRONG[mistake]
    with pytest.raises(arac.UserError, match=said) as caught:
        arac.SAC("InvertedPendulum-v5", policy=policy)
    assert "\n" not in str(caught.value)


def test_the_example_is_a_density_and_acts_alike_in_numpy_and_jax():
    policy = KumaraswamyPolicy.init(jax.random.key(0), 3, 1)
    acting, rng = to_numpy(policy), np.random.default_rng(0)
    grid = np.linspace(-1, 1, 20_001, dtype=np.float32)[:, None]
    observation = np.ones((1, 3), np.float32)
    assert np.trapezoid(np.exp(acting.log_prob(observation, grid)), grid[:, 0]) == pytest.approx(1, abs=1e-3)
    noise = rng.standard_normal((500, 1), np.float32)
    for here, there in zip(
        acting.sample(observation, noise), jax.jit(KumaraswamyPolicy.sample)(policy, observation, noise), strict=True
    ):
        np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        acting.mode(observation), acting.act(observation, np.zeros((1, 1), np.float32)), atol=1e-6
    )


def test_the_docs_show_the_example_as_it_is():
    root = Path(__file__).parents[2]
    assert (root / "examples/custom_policy.py").read_text() in (root / "docs/extending.md").read_text()
