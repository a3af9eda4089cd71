"""Updates against the machine's limit: the share of an update's time that its matrix products alone would take.

For each update the products that it needs are taken from its computation graph, with their exact shapes and layouts,
and run alone in one jitted loop, in turns with the update in the same process. The ratio is the time of the
products over the time of the whole update: 1 would mean that sampling, activations, losses, the flows and Adam cost
nothing.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from arac import envs
from arac.algorithms.presets import paper_table
from arac.envs.tasks import full_name
from arac.learning import sac_updates, update_loop
from arac.learning.forces import ForceConfig, Forces, draw_partners
from arac.learning.jit import compiled
from arac.learning.losses import TargetPolicies
from arac.learning.sac_updates import ActorLearner, CriticLearner, UpdateConfig
from arac.models.critics import fuse_twin_q, init_critic
from arac.models.policies import FlowPolicy, Policy
from arac.models.stacked import take, vmap_init
from arac.replay.buffer import ReplayView, gather
from benchmarks.speed.machine import by_turns, filled_replay
from benchmarks.speed.products import Product, products_loop, products_of

MEMBERS, ELITES, ARCHIVED = 5, 2, 5
PAPER_UPDATE_CONFIG = UpdateConfig(0.99, 0.005, 3e-4, batch_size=256, forces=ForceConfig("kl", "own"))
UPDATE_CONFIG = UpdateConfig(0.99, 0.005, 3e-4, batch_size=256, forces=ForceConfig(base="whole", target=3.0))
STORED = 50_000


class Case(NamedTuple):
    """An update as loops of n iterations: the whole, its sampling alone, its optimiser alone; and its products."""

    name: str
    updates: compiled[..., Any]
    arguments: tuple[Any, ...]  # of `updates`, without the range of update numbers
    sampling: Callable[[int], Any]
    adam: Callable[[int], Any]
    products: list[Product]

    def loop(self, n: int) -> Any:
        return self.updates(*self.arguments, 0, n)

    def text(self) -> str:
        """Return the compiled loop as XLA's text."""
        return self.updates.lower(*self.arguments, 0, 1).compile().as_text()


def measure(tasks: list[str], *, rounds: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each task and update: the fastest of `rounds` loops of `count` updates."""
    for task in tasks:
        for case in cases_of(task):
            yield {"task": task, "update": case.name, **compare(case, rounds=rounds, count=count)}


def cost_of_repulsion(tasks: list[str], *, rounds: int, count: int) -> Iterator[dict[str, Any]]:
    """Yield the time of an environment step's updates for each task and kind of repulsion, measured in turns."""
    kinds = {"none": "5 actors", "the paper's": "5 actors, paper's AR", "default": "5 actors with AR"}
    for task in tasks:
        cases = {case.name: case for case in cases_of(task)}
        names = ["critic", *kinds.values()]
        times = by_turns([lambda case=cases[name]: case.loop(count) for name in names], rounds)  # type: ignore[misc]
        critic, *actors = (1e3 * time / count for time in times)
        share = paper_table()[task]["actor_coefficient"] / MEMBERS  # updates of each actor per environment step
        total = {kind: critic + share * time for kind, time in zip(kinds, actors, strict=True)}
        for kind, ms in total.items():
            yield {"task": task, "repulsion": kind, "ms": ms, "ratio": ms / total["the paper's"]}


def peak_gflops(rounds: int) -> float:
    """Return the GFLOP/s of large matrix products, the most that the machine can reach."""
    cube = jax.random.normal(jax.random.key(0), (1024, 1024))
    run = compiled(lambda x: jax.lax.fori_loop(0, 20, lambda _, y: 1e-2 * (y @ x), x), static=())
    [time] = by_turns([lambda: run(cube)], rounds)
    return 20 * 2 * 1024**3 / time / 1e9


def compare(case: Case, *, rounds: int, count: int) -> dict[str, float]:
    loops = case.loop, products_loop(case.products), case.sampling, case.adam
    times = by_turns([lambda loop=loop: loop(count) for loop in loops], rounds)  # type: ignore[misc]
    update, product, sampling, adam = (time / count for time in times)
    return {
        "per_second": 1 / update,
        "update_ms": 1e3 * update,
        "products_ms": 1e3 * product,
        "products_gflops": sum(product.flops for product in case.products) / product / 1e9,
        "sampling_ms": 1e3 * sampling,
        "adam_ms": 1e3 * adam,
        "ratio": product / update,
    }


def cases_of(task: str) -> Iterator[Case]:
    """Yield the updates of a task's shapes, with the flows and sigma that the paper gives it."""
    spec, row = envs.check(full_name(task)), paper_table()[task]
    sigma = None if row["sigma"] == "learned" else float(row["sigma"])
    return cases(spec.observation_size, spec.action_size, row["flows"], sigma)


def cases(observation_size: int, action_size: int, flows: int, sigma: float | None) -> Iterator[Case]:
    view = filled_replay(observation_size, action_size, STORED).view
    key = jax.random.key(0)
    keys = jax.random.split(key, MEMBERS)
    optimiser = sac_updates.adam(UPDATE_CONFIG)

    def policy(key: jax.Array) -> FlowPolicy:
        return FlowPolicy.init(key, observation_size, action_size, hidden=(256,), flows=flows, sigma=sigma)

    population: Policy = vmap_init(policy, key, MEMBERS)
    actors = ActorLearner(population, jax.vmap(optimiser.init)(population))
    critic = init_critic(key, "value", observation_size, action_size, (256, 256))
    learner = CriticLearner(critic, optimiser.init(critic.online))
    drawn = update_loop.sample_batch(UPDATE_CONFIG.batch_size, view, key)
    batch, wide = gather(view, drawn.positions), fuse_twin_q(learner, action_size)

    one, fixed = take(population, 0), jnp.float32(0.2)
    yield Case(
        "critic",
        sac_updates.critic_updates,
        (UPDATE_CONFIG, learner, one, fixed, view, key),
        sampling_loop(view, keys[:1]),
        adam_loop(critic.online, learner.optimiser),
        products_of(lambda: sac_updates.critic_step(UPDATE_CONFIG, wide, one, fixed, batch, drawn.noise)),
    )

    draws = jax.vmap(lambda key: update_loop.sample_batch(UPDATE_CONFIG.batch_size, view, key))(keys)
    observations = jax.vmap(lambda where: gather(view, where).observation)(draws.positions)

    logs = jnp.full(MEMBERS, jnp.log(fixed))
    adaptive = sac_updates.Temperatures(logs, jax.vmap(optimiser.init)(logs))

    def actor_case(
        name: str, update_config: UpdateConfig, forces: Forces | None, temperature: sac_updates.Temperature = adaptive
    ) -> Case:
        def one_update() -> Any:
            partners = draw_partners(key, MEMBERS)
            return sac_updates.population_step(
                update_config, actors, wide.critic, temperature, forces, partners, observations, draws.noise
            )

        return Case(
            name,
            sac_updates.actor_updates,
            (update_config, actors, critic, temperature, forces, view, keys),
            sampling_loop(view, keys),
            adam_loop(actors.policy, actors.optimiser, stacked=True),
            products_of(one_update),
        )

    archived = TargetPolicies(
        jax.tree.map(lambda leaf: jnp.stack([leaf] * ELITES), population),
        jnp.full((ELITES, ARCHIVED), 0.2),
    )
    elites = jnp.arange(ELITES)
    forces = Forces(jnp.zeros(MEMBERS), jnp.arange(ELITES, MEMBERS), elites, archived)
    papers = Forces(jnp.zeros(MEMBERS), jnp.arange(0), elites, archived)
    yield actor_case(f"{MEMBERS} actors", UPDATE_CONFIG, None)
    yield actor_case(f"{MEMBERS} actors with AR", UPDATE_CONFIG, forces)
    yield actor_case(f"{MEMBERS} actors, paper's AR", PAPER_UPDATE_CONFIG, papers, fixed)


def sampling_loop(view: ReplayView, keys: jax.Array) -> Callable[[int], Any]:
    """Return a loop that samples mini-batches and noise for n updates, one for each key and update."""

    @jax.jit
    def run(n: int, view: ReplayView) -> jax.Array:
        def sample_batch(i: Any) -> update_loop.BatchSample:
            return jax.vmap(
                lambda key: update_loop.sample_batch(UPDATE_CONFIG.batch_size, view, jax.random.fold_in(key, i))
            )(keys)

        def use(drawn: update_loop.BatchSample, total: jax.Array) -> jax.Array:
            sampled = jax.lax.optimization_barrier((gather(view, drawn.positions), drawn.noise))
            return total + sum(leaf.ravel()[0] for leaf in jax.tree.leaves(sampled))

        return update_loop.repeat(0, n, sample_batch, use, jnp.zeros(()))

    return lambda n: run(n, view)


def adam_loop(parameters: Any, optimiser: Any, *, stacked: bool = False) -> Callable[[int], Any]:
    """Return a loop of n optimiser steps with a gradient that costs nothing."""

    def step(parameters: Any, optimiser: Any) -> tuple[Any, Any]:
        return update_loop.gradient_step(sac_updates.adam(UPDATE_CONFIG), parameters, parameters, optimiser)

    def once(_: int, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        return jax.vmap(step)(*carry) if stacked else step(*carry)

    run = jax.jit(lambda n, start: jax.lax.fori_loop(0, n, once, start))
    return lambda n: run(n, (parameters, optimiser))
