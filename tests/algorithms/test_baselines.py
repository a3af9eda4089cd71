"""TD3, CEM-TD3, ERL and CERL as a whole: stored transitions, counted steps, updates and copies of members."""

import jax
import numpy as np
import pytest

import arac
from arac.algorithms import cem_td3, cerl, erl, td3
from arac.algorithms.presets import configured
from arac.cli import main
from arac.envs import check
from arac.errors import UserError
from arac.learning import td3_updates
from arac.models.stacked import members, take
from arac.population.bandit import allocate, ucb_scores
from arac.rollout.rollouts import Rollouts
from arac.storage.run_spec import RunSpec
from arac.utils import progress
from arac.utils.rng import stream_key, stream_rng

SMALL = {"hidden_size": 16, "batch_size": 16, "eval_interval": 0, "eval_episodes": 1, "workers": 0}
SMALL |= {"replay_capacity": 10_000, "warmup_steps": 40}
EVOLUTIONARY = [arac.CEMTD3, arac.ERL, arac.CERL]


def trained(kind, generations=6, **settings):
    """Train an agent for some generations, and return it with the states on the way."""
    states = []

    def stop(agent, _):
        states.append(agent.state)
        return len(states) < generations

    agent = kind("InvertedPendulum-v5", seed=1, **{**SMALL, **settings})
    agent.learn(100_000, callback=stop)
    return agent, [agent.description.first_state(), *states]


def is_among(policy, population):
    """Return True if a member of a population has exactly these parameters."""
    return any(
        all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(policy), jax.tree.leaves(other), strict=True))
        for other in members(population)
    )


@pytest.mark.parametrize("kind", [arac.TD3, *EVOLUTIONARY])
def test_every_environment_step_is_counted_and_stored(kind, monkeypatch):
    played = []
    original = Rollouts._run

    def counting(self, phase, *others, **options):
        episodes = original(self, phase, *others, **options)
        if phase == "collect":
            played.extend(episodes)
        return episodes

    monkeypatch.setattr(Rollouts, "_run", counting)
    agent, states = trained(kind, generations=4)
    assert sum(len(episode) for episode in played) == states[-1].env_steps == len(agent.replay)


@pytest.mark.parametrize(("kind", "episodes"), [(arac.CEMTD3, 10), (arac.ERL, 10 + 1), (arac.CERL, 10 + 10)])
def test_a_generation_plays_as_many_episodes_as_the_paper_has(kind, episodes):
    agent, _ = trained(kind, generations=3)
    assert agent.replay.cursor.episodes == 3 * episodes


def test_erl_judges_by_several_trials():
    agent, _ = trained(arac.ERL, generations=2, trials=3)
    assert agent.replay.cursor.episodes == 2 * (3 * 10 + 1)


@pytest.mark.parametrize("kind", EVOLUTIONARY)
def test_evaluations_are_neither_counted_nor_stored(kind):
    often, _ = trained(kind, generations=3, eval_episodes=3)
    seldom, _ = trained(kind, generations=3, eval_interval=1_000_000)
    assert often.state.env_steps == seldom.state.env_steps
    assert len(often.replay) == len(seldom.replay)


def counted(monkeypatch, module, name):
    """Record the ranges that a loop of updates is called with, one for each generation or actor."""
    monkeypatch.setattr(progress, "_CHUNK", 10**9)
    calls = []
    original = getattr(module, name)

    def counting(*arguments):
        calls.append(arguments[-2:])
        return original(*arguments)

    monkeypatch.setattr(module, name, counting)
    return calls


def test_cem_td3_trains_the_critic_a_fifth_as_often_with_each_actor_as_that_actor(monkeypatch):
    critic_calls = counted(monkeypatch, cem_td3, "critic_updates")
    actor_calls = counted(monkeypatch, cem_td3, "actor_updates")
    _, states = trained(arac.CEMTD3, generations=4)
    steps = [state.last_steps for state in states[:-1] if state.env_steps >= SMALL["warmup_steps"]]
    assert [stop - start for start, stop in critic_calls] == [count // 5 for count in steps for _ in range(5)]
    assert [stop - start for start, stop in actor_calls] == [count for count in steps for _ in range(5)]


def test_cem_td3_teaches_the_first_half_only():
    seen = []

    class Judge(Rollouts):
        def evaluate_fitness(self, population, generation, episodes):
            seen.append(population)
            return super().evaluate_fitness(population, generation, episodes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("arac.agents.agent.Rollouts", Judge)
        agent, states = trained(arac.CEMTD3, generations=3)
    from arac.population.cem import ask

    drawn = ask(states[2].distribution, stream_key(1, "candidates", 2), 10)
    for number in range(10):
        assert is_among(take(drawn, number), seen[2]) == (number >= 5)
    assert agent.config.gradient_actors == 5


def test_cem_td3s_distribution_comes_from_the_fittest(monkeypatch):
    """The distribution equals one recomputed in NumPy from the evaluated actors."""
    seen = []
    original = Rollouts.evaluate_fitness

    def evaluate_fitness(self, population, generation, episodes):
        played = original(self, population, generation, episodes)
        seen.append((population, np.array([episode.total for [episode] in played])))
        return played

    monkeypatch.setattr(Rollouts, "evaluate_fitness", evaluate_fitness)
    _, states = trained(arac.CEMTD3, generations=2)
    population, fitness = seen[1]
    parents = np.argsort(-fitness, kind="stable")[:5]
    weights = np.log(6 / np.arange(1, 6))
    weights /= weights.sum()
    damping = 1e-3 * 0.95**2 + 1e-5 * (1 - 0.95**2)
    before, after = states[1].distribution, states[2].distribution
    leaves = (jax.tree.leaves(part) for part in (population, before.mean, after.mean, after.variance))
    for individuals, old, mean, variance in zip(*leaves, strict=True):
        chosen = np.asarray(individuals)[parents]
        np.testing.assert_allclose(mean, np.tensordot(weights, chosen, 1), rtol=1e-4, atol=1e-6)
        squares = np.tensordot(weights, (chosen - np.asarray(old)) ** 2, 1)
        np.testing.assert_allclose(variance, squares / 5 + damping, rtol=1e-3)


def test_erl_learns_as_many_mini_batches_as_the_generation_had_steps(monkeypatch):
    calls = counted(monkeypatch, td3, "learner_updates")
    _, states = trained(arac.ERL, generations=4)
    gained = np.diff([state.env_steps for state in states])
    assert [stop - start for start, stop in calls] == [
        steps for steps, state in zip(gained, states[1:], strict=True) if state.env_steps > SMALL["warmup_steps"]
    ]


def test_erl_copies_its_learner_into_the_population_at_the_interval():
    _, states = trained(arac.ERL, generations=6, synchronisation_interval=3)
    for generation, state in enumerate(states[1:], 1):
        learner = take(state.learners.actor.policy, 0)
        assert is_among(learner, state.individuals) == (generation % 3 == 0)


def test_the_worst_is_replaced_but_never_a_copy_of_an_elite():
    assert erl.worst(np.array([3.0, 1.0, 2.0]), np.array([0])) == 1
    assert erl.worst(np.array([3.0, 1.0, 2.0]), np.array([1])) == 2


@pytest.mark.parametrize("kind", [arac.ERL, arac.CERL])
def test_the_champion_is_the_fittest_of_the_last_generation_unchanged(kind, monkeypatch):
    seen = []
    original = Rollouts.evaluate_fitness

    def evaluate_fitness(self, population, generation, episodes):
        played = original(self, population, generation, episodes)
        fitness = [np.mean([episode.total for episode in of_one]) for of_one in played]
        seen.append(take(population, int(np.argmax(fitness))))
        return played

    monkeypatch.setattr(Rollouts, "evaluate_fitness", evaluate_fitness)
    agent, states = trained(kind, generations=4)
    for fittest, state in zip(seen, states[1:], strict=True):
        champion = take(state.population, state.champion)
        assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (fittest, champion)), strict=True))
    assert agent.predict(np.zeros(4, np.float32))[0].shape == (1,)


def test_cerls_learners_migrate_at_the_interval():
    _, states = trained(
        arac.CERL, generations=6, migration_interval=3, mutation_probability=0.0, crossover_probability=0.0
    )
    for generation, state in enumerate(states[1:], 1):
        migrated = [is_among(learner, state.individuals) for learner in members(state.learners.actor.policy)]
        assert any(migrated) == (generation % 3 == 0)


def test_cerl_shares_out_its_episodes_by_upper_confidence_bounds(monkeypatch):
    """Values, visits and allocations equal those recomputed from the returns of the episodes."""
    returns = []
    original = Rollouts.explore

    def explore(self, *arguments, **options):
        episodes = original(self, *arguments, **options)
        returns.append([episode.total for episode in episodes])
        return episodes

    monkeypatch.setattr(Rollouts, "explore", explore)
    _, states = trained(arac.CERL, generations=5)
    np.testing.assert_array_equal(states[0].allocation, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1])
    values, visits = {}, np.zeros(4, int)
    for generation, (totals, before, after) in enumerate(zip(returns, states, states[1:], strict=False)):
        for learner, total in zip(before.allocation, totals, strict=True):
            values[learner] = 0.2 * total + 0.8 * values[learner] if learner in values else total
            visits[learner] += 1
        expected = np.array([values[learner] for learner in range(4)])
        np.testing.assert_allclose(after.values, expected)
        np.testing.assert_array_equal(after.visits, visits)
        rng = stream_rng(1, "allocation", generation)
        np.testing.assert_array_equal(after.allocation, allocate(ucb_scores(expected, visits, 0.9), 10, rng))
    assert visits.sum() == 50


def test_cerl_learns_as_many_mini_batches_as_the_generation_before_had_steps(monkeypatch):
    calls = counted(monkeypatch, td3, "learner_updates")
    _, states = trained(arac.CERL, generations=4)
    steps = np.diff([state.env_steps for state in states])
    assert [stop - start for start, stop in calls] == list(steps[:-1])
    assert [state.updates for state in states[1:]] == [0, *np.cumsum(steps[:-1])]
    starts = [start for start, _ in calls]
    assert starts == [0, *np.cumsum(steps[:-2])], "numbered on, so that the delay goes over the generations' borders"


def test_cerls_learners_have_the_papers_horizons(monkeypatch):
    seen = []
    original = td3.learner_updates
    monkeypatch.setattr(td3, "learner_updates", lambda *a: seen.append(a[2]) or original(*a))
    trained(arac.CERL, generations=2)
    np.testing.assert_allclose(seen[0], [0.9, 0.99, 0.997, 0.9995], rtol=1e-6)


@pytest.mark.parametrize(("kind", "loops"), [
    (arac.TD3, [td3.learner_updates]), (arac.ERL, [td3.learner_updates]), (arac.CERL, [td3.learner_updates]),
    (arac.CEMTD3, [cem_td3.critic_updates, cem_td3.actor_updates, cem_td3.ask, cem_td3.tell]),
])  # fmt: skip
def test_the_loops_compile_once_whatever_the_episodes(kind, loops):
    before = [loop._cache_size() for loop in loops]
    _, states = trained(kind, generations=30 if kind is arac.TD3 else 4)
    assert len({np.int64(steps) for steps in np.diff([state.env_steps for state in states])}) > 1
    assert all(loop._cache_size() <= size + 1 for loop, size in zip(loops, before, strict=True))


def test_the_command_trains_each_of_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    for name in ("td3", "cem_td3", "erl", "cerl"):
        assert main(["train", "InvertedPendulum-v5", "--algo", name, "--steps", "100", *small]) == 0
        said = capsys.readouterr().out
        assert "champion with a return of" in said


def test_the_command_says_whose_parameters_it_takes(tmp_path, monkeypatch, capsys):
    def stopped(*_args, **_settings):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(arac.ERL, "learn", stopped)
    assert main(["train", "Hopper", "--algo", "erl", "--hidden-size", "16"]) == 130
    assert "its authors' parameters for Hopper" in capsys.readouterr().out


def test_td3_learns_one_mini_batch_per_step_after_the_warm_up(monkeypatch):
    calls = counted(monkeypatch, td3, "learner_updates")
    _, states = trained(arac.TD3, generations=30)
    assert sum(stop - start for start, stop in calls) == states[-1].env_steps - SMALL["warmup_steps"]
    assert [start for start, _ in calls][1:] == [stop for _, stop in calls][:-1]


@pytest.mark.parametrize(("module", "expected"), [
    (td3, {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "tau": 0.005, "batch_size": 256,
           "target_noise": 0.2, "target_noise_clip": 0.5, "policy_delay": 2, "gradient_clip": None}),
    (cem_td3, {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "tau": 0.005, "batch_size": 100}),
    (erl, {"actor_learning_rate": 5e-5, "critic_learning_rate": 5e-4, "tau": 0.001, "batch_size": 128,
           "target_noise": 0.0, "policy_delay": 1, "gradient_clip": 10.0}),
    (cerl, {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "tau": 0.005, "batch_size": 256,
            "target_noise": 0.2, "target_noise_clip": 0.5, "policy_delay": 2}),
])  # fmt: skip
def test_the_originals_settings_are_the_defaults(module, expected):
    name = module.__name__.rsplit(".", maxsplit=1)[-1]
    kind = arac.agents.classes.AGENTS[name].algorithm.config
    fixed = module.update_config(kind())
    assert isinstance(fixed, td3_updates.UpdateConfig)
    assert {key: getattr(fixed, key) for key in expected} == expected


def shapes(tree):
    return [tuple(leaf.shape) for leaf in jax.tree.leaves(tree)]


@pytest.mark.slow  # with ERL's critic in full size
def test_the_originals_networks_are_the_defaults():
    """Shapes are for 4 observations and 1 action; a leading axis counts individuals, learners or Q networks."""
    first = {
        kind: RunSpec(kind.algorithm, check("InvertedPendulum-v5"), 0, kind.algorithm.config()).outline()
        for kind in (arac.TD3, *EVOLUTIONARY)
    }
    assert shapes(first[arac.TD3].population.network.weights) == [(1, 4, 256), (1, 256, 256), (1, 256, 1)]
    mean = first[arac.CEMTD3].distribution.mean.network
    assert (shapes(mean.weights), mean.style) == ([(4, 400), (400, 300), (300, 1)], ("tanh", "none"))
    assert first[arac.CEMTD3].critic.critic.online.networks.style == ("leaky_relu", "none")
    individuals = first[arac.ERL].individuals.network
    assert (shapes(individuals.weights), individuals.style) == (
        [(10, 4, 128), (10, 128, 128), (10, 128, 1)], ("tanh", "before"),
    )  # fmt: skip
    q = first[arac.ERL].learners.critic.critic.online.networks
    assert shapes((q.state.weights, q.action.weights, q.joint.weights)) == [
        (1, 1, 4, 200), (1, 1, 1, 200), (1, 1, 400, 300), (1, 1, 300, 1),
    ]  # fmt: skip
    portfolio = first[arac.CERL].learners
    assert portfolio.actor.policy.network.style == ("elu", "after")
    assert shapes(portfolio.critic.critic.online.networks.weights) == [(4, 2, 5, 400), (4, 2, 400, 300), (4, 2, 300, 1)]


@pytest.mark.parametrize(("task", "elites", "trials", "interval"), [
    ("Hopper-v5", 3, 5, 1), ("Ant-v5", 3, 1, 1), ("Walker2d-v5", 2, 3, 10), ("HalfCheetah-v5", 1, 1, 10),
])  # fmt: skip
def test_erls_settings_for_single_tasks(task, elites, trials, interval):
    config, _ = configured(arac.ERL.algorithm.config, task, {})
    assert (config.elite_count, config.trials, config.synchronisation_interval) == (elites, trials, interval)


def weights_mutated(config):
    """Return the mean share of an individual's weights that mutate in a generation."""
    share = 0.375 if config.mutation_share == "random" else 1.0
    return config.mutation_probability * config.mutation_fraction * share


@pytest.mark.parametrize(("kind", "preset", "share"), [
    (arac.CERL, "published", 0.045), (arac.CERL, "public-code", 0.00225),
    (arac.ERL, "published", 0.09), (arac.ERL, "public-code", 0.03375),
])  # fmt: skip
def test_published_settings_and_those_of_the_authors_programs_are_presets(kind, preset, share):
    config, row = configured(kind.algorithm.config, "Hopper-v5", {}, preset=preset)
    assert weights_mutated(config) == pytest.approx(share)
    assert row == ("Hopper" if kind is arac.ERL else None), "beside the settings for a task"


def test_a_preset_of_another_algorithm_is_refused_with_those_there_are():
    with pytest.raises(UserError, match=r"one of paper, paper-letter, none for SAC, got 'public-code'"):
        arac.SAC("Pendulum-v1", preset="public-code")


def test_erls_learner_can_begin_with_small_last_layers_and_its_individuals_do_not():
    env = check("Pendulum-v1")
    plain, small = (erl.init(arac.ERL.algorithm.config(last_layer_scale=scale), env, 0) for scale in (1.0, 0.1))
    for ours, theirs in (
        (small.learners.actor.policy.network, plain.learners.actor.policy.network),
        (small.learners.critic.critic.target.networks.joint, plain.learners.critic.critic.target.networks.joint),
    ):
        for name in ("weights", "biases"):
            *before, last = zip(getattr(ours, name), getattr(theirs, name), strict=True)
            np.testing.assert_allclose(last[0], 0.1 * np.asarray(last[1]), rtol=1e-6)
            assert all((np.asarray(one) == np.asarray(other)).all() for one, other in before)
    assert (
        np.asarray(small.individuals.network.weights[-1]) == np.asarray(plain.individuals.network.weights[-1])
    ).all()


@pytest.mark.parametrize(("kind", "settings", "said"), [
    (arac.CEMTD3, {"population_size": 5}, "even"),
    (arac.CEMTD3, {"parents": 11}, "parents"),
    (arac.CEMTD3, {"gradient_actors": 12}, "gradient_actors"),
    (arac.ERL, {"super_mutation_probability": 0.7, "reset_probability": 0.7}, "together"),
    (arac.ERL, {"mutation_fraction": 1.5}, "mutation_fraction"),
    (arac.ERL, {"population_size": 1}, "no individual to evolve"),
    (arac.CERL, {"elite_fraction": 1.0}, "no individual to evolve"),
    (arac.ERL, {"gradient_clip": 0.0}, "gradient_clip"),
    (arac.CERL, {"discounts": ()}, "discounts"),
    (arac.CERL, {"discounts": (0.9, 1.2)}, "discounts"),
    (arac.CERL, {"discounts": ("high",)}, "discounts"),
    (arac.CERL, {"discounts": 0.9}, "discounts"),
    (arac.CERL, {"learner_rollouts": 2}, "learner_rollouts"),
    (arac.TD3, {"policy_delay": 0}, "policy_delay"),
    (arac.TD3, {"flows": 3}, "flows"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(kind, settings, said):
    with pytest.raises(UserError, match=said):
        kind("InvertedPendulum-v5", **settings)


def test_a_portfolio_of_ones_own(tmp_path):
    agent, states = trained(arac.CERL, generations=1, discounts=[0.95, 0.99])
    assert agent.config.discounts == (0.95, 0.99)
    assert len(states[-1].values) == 2
    agent.save(tmp_path / "agent.safetensors")
    assert arac.load(tmp_path / "agent.safetensors").config.discounts == (0.95, 0.99)
