"""Members of a population, and the observations that `predict` accepts."""

import gymnasium
import jax
import numpy as np
import pytest
from drawn_agents import drawn
from gymnasium import spaces
from helpers import SMALL, Odd

import arac
from arac.agents.classes import AGENTS

OBSERVATION = np.array([0.1, -0.2, 0.3, 0.0])


@pytest.fixture(scope="module")
def agent():
    return arac.ARAC("InvertedPendulum-v5", seed=1, **SMALL).learn(200)


def test_every_member_acts_by_itself_as_its_policy_does(agent):
    assert len(agent.population) == 5
    actions = [member.predict(OBSERVATION, deterministic=True)[0] for member in agent.population]
    assert len({float(action[0]) for action in actions}) == 5
    stacked = jax.vmap(lambda policy: policy.mode(OBSERVATION.astype(np.float32)))(agent.state.population)
    np.testing.assert_allclose(actions, 3 * np.asarray(stacked), rtol=1e-5)  # torques of ±3


def test_the_champion_is_the_first_elite_and_what_the_agent_predicts_with(agent):
    champion = agent.champion
    assert champion is agent.population[agent.state.champion]
    assert [member.is_elite for member in agent.population] == [n in agent.state.elites for n in range(5)]
    assert champion.fitness == max(member.fitness for member in agent.population)
    np.testing.assert_array_equal(
        agent.predict(OBSERVATION, deterministic=True)[0], champion.predict(OBSERVATION, deterministic=True)[0]
    )


def test_the_archive_holds_what_was_evaluated_with_its_fitness(agent):
    archive = agent.state.archive
    assert len(agent.archive) == archive.size >= 5
    assert [member.fitness for member in agent.archive] == archive.fitness[: archive.size].tolist()
    assert agent.archive[0].predict(np.zeros((3, 4)))[0].shape == (3, 1)
    newest = {member.fitness for member in agent.population}
    assert newest <= {member.fitness for member in agent.archive}


def test_members_change_with_the_agent_and_not_before():
    agent = arac.ARAC("InvertedPendulum-v5", seed=1, **SMALL)
    assert (agent.archive, agent.champion.fitness) == ((), None)
    first = agent.population
    assert agent.population is first
    agent.learn(200)
    before, after = (one.predict(OBSERVATION, deterministic=True)[0] for one in (first[0], agent.population[0]))
    assert before != after


@pytest.mark.parametrize("name", [name for name in AGENTS if name != "arac"])
def test_every_algorithm_has_members(name):
    agent = drawn(name)
    agent._fitness = np.array([7.0])  # these algorithms evaluate the champion only
    assert agent.archive == ()
    assert [member.fitness for member in agent.population if member.fitness is not None] == [7.0]
    assert (agent.champion.fitness, agent.champion.is_elite) == (7.0, True)
    assert agent.population[-1].predict(np.zeros((2, 4)))[0].shape == (2, 1)


@pytest.mark.parametrize("kind", [arac.ARAC, arac.ERL])
def test_what_is_loaded_from_a_run_knows_how_it_was_measured(kind, tmp_path):
    trained = kind("InvertedPendulum-v5", seed=1, **SMALL).learn(200, run_dir=tmp_path / "run")
    expected = [member.fitness for member in trained.population]
    loaded = arac.load(tmp_path / "run")
    assert loaded.champion.fitness is not None
    assert [member.fitness for member in loaded.population] == expected
    rows = tmp_path / "run" / "evaluations.jsonl"
    last = rows.read_text().splitlines()[-1]
    for text in (
        "",
        last[:-9] + "\n",
        last.replace('"fitness": [', '"fitness": [1.0, 2.0, ') + "\n",
        last.replace(":", ": 1", 1) + "\n",
    ):
        rows.write_text(text)
        assert {member.fitness for member in arac.load(tmp_path / "run").population} == {None}


class Asymmetric(gymnasium.Env):
    """An environment with asymmetric float64 actions and observations of all kinds."""

    action_space = spaces.Box(np.array([-1.0, 0.0]), np.array([3.0, 10.0]), dtype=np.float64)

    def __init__(self, observations: str = "box") -> None:
        self.observation_space = Odd(observations=observations).observation_space

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.mark.parametrize("observations", ["box", "double", "matrix", "dict"])
def test_predict_takes_what_the_environment_gives_one_and_many(observations):
    agent = arac.SAC(Asymmetric, **SMALL, max_episode_steps=5, env_kwargs={"observations": observations})
    env = Asymmetric(observations)
    given = [env.reset(seed=seed)[0] for seed in range(3)]
    flat = np.stack([spaces.flatten(env.observation_space, one) for one in given])
    one_by_one = np.stack([agent.predict(one, deterministic=True)[0] for one in given])
    space = env.observation_space
    batch = gymnasium.vector.utils.concatenate(space, given, gymnasium.vector.utils.create_empty_array(space, 3))
    for several in (flat, batch):
        action = agent.predict(several, deterministic=True)[0]
        assert (action.shape, action.dtype) == ((3, 2), np.float64)
        np.testing.assert_allclose(action, one_by_one, rtol=1e-5)
    assert all(env.action_space.contains(action) for action in one_by_one)
    noisy, _ = agent.predict(batch)
    assert noisy.shape == (3, 2)


@pytest.mark.parametrize(
    ("observation", "said"),
    [
        (np.zeros(3), r"\(3,\)"),
        (np.zeros((2, 5)), r"\(2, 5\)"),
        (1.0, r"\(\)"),
        ([[1, 2, 3, 4], [1, 2]], "something else"),
        ({"angle": 1.0}, "something else"),
        (["a", "b", "c", "d"], "something else"),
        (None, r"\(\)"),
    ],
)
def test_what_is_no_observation_is_refused_in_one_sentence(agent, observation, said):
    with pytest.raises(
        arac.UserError, match=rf"InvertedPendulum-v5 has observations of 4 numbers; predict got {said}"
    ) as e:
        agent.predict(observation)
    assert "\n" not in str(e.value)


def test_a_dictionary_that_lacks_a_part_is_refused():
    agent = arac.SAC("Odd-v0", **SMALL, env_kwargs={"observations": "dict"})
    for wrong in (
        {"arm": np.zeros((2, 2))},
        {"arm": np.zeros((3, 2, 2)), "gripper": np.array([1, 2])},
        {"arm": 1, "gripper": 2},
    ):
        with pytest.raises(arac.UserError, match="observations of 7 numbers"):
            agent.predict(wrong)


def test_evaluate_plays_from_the_seeds_it_is_given(agent):
    """The returns equal those of episodes played by hand, with the environment itself."""
    seeds = [3, 1, 4]
    score = agent.evaluate(reset_seeds=seeds)
    env, returns = gymnasium.make("InvertedPendulum-v5"), []
    for seed in seeds:
        (observation, _), done, total = env.reset(seed=seed), False, 0.0
        while not done:
            observation, reward, terminated, truncated, _ = env.step(agent.predict(observation, deterministic=True)[0])
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
    assert score.returns.tolist() == returns
    assert score.lengths.shape == (3,)


@pytest.mark.parametrize(("seeds", "said"), [([], "at least 1"), ([1, -1], "got -1"), ([0.5], "got 0.5")])
def test_seeds_that_are_none_are_refused(agent, seeds, said):
    with pytest.raises(arac.UserError, match=said):
        agent.evaluate(reset_seeds=seeds)
