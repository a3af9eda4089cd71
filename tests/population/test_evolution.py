"""The evolutionary operators, each against its definition: by hand, in NumPy, or by counting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from arac.models.mlp import MLP, LayerStyle
from arac.population.bandit import allocate, ucb_scores
from arac.population.cem import Distribution, ask, cem_weights, tell
from arac.population.genetic import Crossover, Mutation, crossover, mutate, next_population, plan, tournament

MUTATION = Mutation(
    fraction=0.1, strength=0.1, super_strength=10.0, super_probability=0.05, reset_probability=0.05
)  # fmt: skip


def distribution(size=4, variance=0.5, damping=1e-3):
    return Distribution(jnp.arange(size, dtype=jnp.float32), jnp.full(size, variance), jnp.float32(damping))


# --- The cross-entropy method ---


def test_samples_come_in_opposite_pairs_around_the_mean():
    drawn = np.asarray(ask(distribution(), jax.random.key(0), 10))
    np.testing.assert_allclose((drawn[:5] + drawn[5:]) / 2, np.tile(np.arange(4), (5, 1)), atol=1e-6)
    assert len(np.unique(drawn[:, 0])) == 10


def test_samples_have_the_distributions_mean_and_variance():
    drawn = np.asarray(ask(distribution(variance=0.25), jax.random.key(1), 20_000))
    np.testing.assert_allclose(drawn.mean(0), np.arange(4), atol=1e-5)
    np.testing.assert_allclose(drawn.var(0), 0.25, rtol=0.05)


def test_the_parameters_of_a_policy_are_drawn_independently():
    policy = MLP((jnp.zeros((3, 4)), jnp.zeros((4, 2))), (jnp.zeros(4), jnp.zeros(2)))
    one = Distribution(policy, jax.tree.map(jnp.ones_like, policy), jnp.float32(0))
    drawn = jax.tree.leaves(ask(one, jax.random.key(0), 2000))
    flat = np.concatenate([np.asarray(leaf).reshape(2000, -1) for leaf in drawn], 1)[:1000]
    correlation = np.corrcoef(flat.T) - np.eye(flat.shape[1])
    assert np.abs(correlation).max() < 0.15


def test_weights_are_logarithmic_in_the_rank():
    raw = np.log((1 + 5) / np.arange(1, 6))
    np.testing.assert_allclose(cem_weights(5), raw / raw.sum(), rtol=1e-6)
    assert float(cem_weights(5).sum()) == pytest.approx(1)


def test_the_new_mean_and_variance_against_numpy():
    old, parents = distribution(), np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    new = tell(old, jnp.asarray(parents), decay=0.95, final_damping=1e-5)
    weights = np.log(6 / np.arange(1, 6))
    weights /= weights.sum()
    damping = 0.95 * 1e-3 + 0.05 * 1e-5
    np.testing.assert_allclose(new.damping, damping, rtol=1e-6)
    np.testing.assert_allclose(new.mean, sum(w * p for w, p in zip(weights, parents, strict=True)), rtol=1e-5)
    squares = sum(w * (p - np.arange(4)) ** 2 for w, p in zip(weights, parents, strict=True))
    np.testing.assert_allclose(new.variance, squares / 5 + damping, rtol=1e-5)


def test_the_damping_falls_to_its_final_value():
    current = distribution()
    for _ in range(300):
        current = tell(current, jnp.zeros((2, 4)), decay=0.95, final_damping=1e-5)
    assert float(current.damping) == pytest.approx(1e-5, rel=1e-3)


def test_it_minimises_a_quadratic():
    goal = jnp.array([3.0, -1.0, 0.5, 2.0])
    current = Distribution(jnp.zeros(4), jnp.full(4, 1.0), jnp.float32(0.1))
    for generation in range(150):
        drawn = ask(current, jax.random.key(generation), 10)
        loss = np.asarray(((drawn - goal) ** 2).sum(1))
        current = tell(current, drawn[np.argsort(loss)[:5]], decay=0.95, final_damping=1e-5)
    assert float(((current.mean - goal) ** 2).sum()) < 0.01
    assert float(current.variance.max()) < 0.01


# --- Genetic operators ---


def test_a_tournament_favours_the_fit_as_often_as_it_should():
    """If k of n individuals are drawn, the best wins with 1 - (1 - 1/n)^k and the worst with (1/n)^k."""
    fitness, rng = np.arange(10.0)[::-1], np.random.default_rng(0)
    winners = np.array([tournament(fitness, rng, 3) for _ in range(20_000)])
    assert (winners == 0).mean() == pytest.approx(1 - 0.9**3, abs=0.01)
    assert (winners == 9).mean() == pytest.approx(0.1**3, abs=0.001)


def individual(value, units=50):
    return MLP(
        (jnp.full((20, units), value), jnp.full((units, 3), value)), (jnp.full(units, value), jnp.full(3, value))
    )


def test_crossover_exchanges_whole_units_and_leaves_biases():
    rates, cross = [], jax.jit(crossover)
    for seed in range(200):
        one, other = cross(jax.random.key(seed), individual(0.0), individual(1.0))
        first, second = np.asarray(one.weights[0]), np.asarray(other.weights[0])
        assert (first == first[0]).all(), "a unit is whole"
        assert ((first[0] == 1) & (second[0] == 0)).sum() == 0, "one overwrites the other, they never swap"
        rates.append([(first[0] == 1).mean(), (second[0] == 0).mean()])
        assert (np.asarray(one.biases[0]) == 0).all()
        assert (np.asarray(other.biases[0]) == 1).all()
    # k events over n units, k uniform in 0 … 2n - 1, leave a unit alone with (1 - 1/n)^k.
    drawn = 1 - np.mean([(1 - 1 / 50) ** k for k in range(100)])
    np.testing.assert_allclose(np.mean(rates, 0), drawn / 2, atol=0.03)


def test_mutation_rates_by_counting():
    before = MLP((jnp.ones((400, 500)),), (jnp.ones(500),))
    after = jax.jit(mutate, static_argnums=2)(jax.random.key(0), before, MUTATION)
    weights = np.asarray(after.weights[0]).ravel()
    changed = weights[weights != 1]
    assert len(changed) / weights.size == pytest.approx(0.1, abs=0.005)
    # 90 % of those are small, around 1; super-mutations around 1 with spread 10; resets around 0 with spread 1.
    small = np.abs(changed - 1) < 0.5
    wide = np.abs(changed - 1) > 5
    assert small.mean() == pytest.approx(0.9 + 0.05 * 0.04 + 0.05 * 0.242, abs=0.01)
    assert wide.mean() == pytest.approx(0.05 * 0.617, abs=0.006)
    assert changed[small].std() == pytest.approx(0.1, abs=0.02)
    np.testing.assert_array_equal(after.biases[0], before.biases[0])


def test_a_random_share_is_drawn_as_the_authors_program_draws_it():
    """Mutation equals loops in NumPy: a layer is sometimes skipped, else fewer weights than the fraction mutate."""
    rng, size, fraction, count = np.random.default_rng(0), 2000, 0.1, 8000

    def by_loops():  # one weight drawn twice counts as two here
        return rng.integers(int(np.ceil(fraction * size))) / size if rng.random() < 2 * rng.random() else 0.0

    before = MLP((jnp.ones((40, 50)),), (jnp.ones(50),))
    change = jax.jit(jax.vmap(lambda key: mutate(key, before, MUTATION._replace(random_share=True)).weights[0] != 1))
    ours = np.asarray(change(jax.random.split(jax.random.key(0), count))).mean((1, 2))
    theirs = np.array([by_loops() for _ in range(count)])
    for shares in (ours, theirs):
        assert shares.mean() == pytest.approx(0.0375, abs=0.0015)
    levels = [0.1, 0.4, 0.6, 0.9]
    np.testing.assert_allclose(np.quantile(ours, levels), np.quantile(theirs, levels), atol=0.005)


def test_weights_are_drawn_anew_at_the_scale_that_was_asked_for():
    before = MLP((jnp.full((300, 300), 100.0),), (jnp.zeros(300),))
    resets = MUTATION._replace(fraction=1.0, super_probability=0.0, reset_probability=1.0, reset_scale=0.1)
    drawn = np.asarray(jax.jit(mutate, static_argnums=2)(jax.random.key(0), before, resets).weights[0])
    assert drawn.std() == pytest.approx(0.1, rel=0.02)
    assert drawn.mean() == pytest.approx(0.0, abs=0.002)


@pytest.mark.parametrize(("units", "share"), [(2.0, 0.568), (0.3, 0.135)])
def test_how_many_units_a_crossover_exchanges(units, share):
    cross = jax.jit(lambda key: crossover(key, individual(0.0, 400), individual(1.0, 400), Crossover(units, 1.0)))
    weights, biases = [], []
    for seed in range(150):
        one, other = cross(jax.random.key(seed))
        for rates, first, second in (
            (weights, one.weights[0][0], other.weights[0][0]),
            (biases, one.biases[0], other.biases[0]),
        ):
            rates.append(float((np.asarray(first) == 1).mean() + (np.asarray(second) == 0).mean()))
    assert np.mean(weights) == pytest.approx(share, rel=0.15)
    assert np.mean(biases) == pytest.approx(np.exp(-1), rel=0.15)  # for u n draws, with u uniform in [0, 1]


def test_mutation_leaves_norms_alone():
    network = MLP.init(jax.random.key(0), (5, 8, 2), LayerStyle("elu", norm="after"))
    changed = jax.jit(mutate, static_argnums=2)(jax.random.key(1), network, MUTATION._replace(fraction=1.0))
    np.testing.assert_array_equal(changed.norms[0].scale, network.norms[0].scale)
    assert (np.asarray(changed.weights[0]) != np.asarray(network.weights[0])).all()


def planned(fitness, seed, **options):
    chosen = {"elites": 2, "tournament_size": 3, "crossover_probability": 0.5, "mutation_probability": 0.9}
    return plan(fitness, np.random.default_rng(seed), **{**chosen, **options})


@pytest.mark.parametrize("size", [2, 3, 5, 10, 25])
@pytest.mark.parametrize("migrants", [0, 4])
def test_a_plan_keeps_the_elites_and_fills_every_slot(size, migrants):
    for seed in range(100):
        fitness = np.random.default_rng(seed).normal(size=size)
        made = planned(fitness, seed, elites=1 + (size > 3), migrants=migrants)
        best = np.argsort(-fitness)[: 1 + (size > 3)]
        np.testing.assert_array_equal(made.sources[made.elites], best)
        assert not made.mutants[made.elites].any()
        touched = set(made.pairs.ravel())
        assert not touched & set(made.elites), "what is kept is not crossed"
        assert not touched & set(made.migrants)
        assert not set(made.migrants) & set(made.elites)
        assert len(made.migrants) <= migrants
        assert len(set(made.elites)) == len(made.elites)


@pytest.mark.parametrize("size", [3, 4, 5, 10])
def test_nobody_lives_on_who_was_not_selected(size, monkeypatch):
    """If the same two win all tournaments, all other slots get copies of a selected individual."""
    winners = iter([size - 1, size - 2] * 10_000)
    monkeypatch.setattr("arac.population.genetic.tournament", lambda *_: next(winners))
    for seed in range(50):
        fitness = np.arange(size, dtype=float)
        made = planned(fitness, seed, elites=1)
        kept = {slot for slot in range(size) if made.sources[slot] == slot}
        assert kept <= {size - 1, size - 2}, made


def test_an_unselected_slot_is_crossed_from_an_elite_and_a_selected_one(monkeypatch):
    """Seven unselected slots, one of them for the elite, leave three pairs, each with the elite as one source."""
    monkeypatch.setattr("arac.population.genetic.tournament", lambda fitness, rng, size: int(rng.integers(8, 10)))
    for seed in range(50):
        made = planned(np.arange(10.0), seed, elites=1, crossover_probability=0.0)
        origins = [{int(made.sources[first]), int(made.sources[second])} for first, second in made.pairs[:3]]
        assert all(9 in pair and pair <= {8, 9} for pair in origins)


def test_pairs_and_mutants_come_as_often_as_they_should():
    plans = [planned(np.arange(10.0), seed, mutation_probability=0.3) for seed in range(2000)]
    assert np.mean([made.mutants.sum() / 8 for made in plans]) == pytest.approx(0.3, abs=0.02)
    assert all(len(planned(np.arange(10.0), s, mutation_probability=0.0).mutants.nonzero()[0]) == 0 for s in range(9))


def test_breeding_copies_crosses_and_mutates_what_the_plan_says():
    population = MLP(
        (jnp.arange(10.0)[:, None, None] * jnp.ones((10, 4, 6)),), (jnp.arange(10.0)[:, None] * jnp.ones(6),)
    )
    for seed in range(20):
        made = planned(np.random.default_rng(seed).normal(size=10), seed)
        after = next_population(population, made, jax.random.key(seed), MUTATION._replace(fraction=1.0))
        weights = np.asarray(after.weights[0])
        np.testing.assert_array_equal(np.asarray(after.biases[0])[:, 0], made.sources)
        untouched = sorted(set(range(10)) - set(made.pairs.ravel()) - set(made.mutants.nonzero()[0]))
        for slot in untouched:
            assert (weights[slot] == made.sources[slot]).all()
        for slot in made.mutants.nonzero()[0]:
            if made.sources[slot] != 0:  # a mutation is relative to the weight
                assert (weights[slot] != made.sources[slot]).any()


def test_breeding_compiles_once_whatever_the_plan():
    from arac.population.genetic import _next_population

    population = individual(1.0)
    population = jax.tree.map(lambda leaf: jnp.stack([leaf] * 10), population)
    before = _next_population._cache_size()
    for seed in range(10):
        next_population(population, planned(np.arange(10.0), seed), jax.random.key(seed), MUTATION)
    assert _next_population._cache_size() == before + 1


# --- Shares among learners ---


def test_ucb_scores_by_hand():
    """The values 1, 3, 5 are normalised to 0, 2/6.1, 4/6.1; the visits 2, 4, 4 give exploration 0.9 sqrt(ln 10 / n)."""
    scores = ucb_scores(np.array([1.0, 3.0, 5.0]), np.array([2, 4, 4]), 0.9)
    exploration = 0.9 * np.sqrt(np.log(10) / np.array([2, 4, 4]))
    np.testing.assert_allclose(scores, np.array([0, 2 / 6.1, 4 / 6.1]) + exploration)


def test_learners_are_drawn_in_proportion_to_their_scores():
    rng, scores = np.random.default_rng(0), np.array([1.0, 2.0, 5.0])
    drawn = np.concatenate([allocate(scores, 10, rng) for _ in range(3000)])
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), scores / 8, atol=0.01)
    assert len(allocate(np.zeros(4), 10, rng)) == 10
