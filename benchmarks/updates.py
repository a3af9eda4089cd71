"""Updates against the machine's limit: how much of an update's time its matrix multiplications alone would take.

    python benchmarks/updates.py [--json results/updates.json]

For each update the products it needs are read off its own computation graph, with their exact shapes and layouts,
and run alone in one jitted loop, interleaved with the update in the same process. The ratio is the time of the
products over the time of the whole update: 1 would mean that sampling, activations, losses, the flows and Adam cost
nothing.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from common import processor, random_episode

from arac import updates
from arac.critics import init_critic
from arac.losses import Archived
from arac.policies import FlowPolicy
from arac.population import over_members, take
from arac.replay import Contents, ReplayBuffer
from arac.updates import ActorLearner, CriticLearner, Rules

SHAPES = {"Hopper": (11, 3, 4), "Humanoid": (348, 17, 3)}  # observations, actions, flows
MEMBERS, ELITES, ARCHIVED = 5, 2, 5
RULES = Rules(discount=0.99, tau=0.005, learning_rate=3e-4, batch_size=256, kl_clip=1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--rounds", type=int, default=9, help="how often each loop is timed (the median counts)")
    parser.add_argument("--updates", type=int, default=100, help="updates per timed loop")
    args = parser.parse_args()

    peak = time_of(cube_loop(), 1, args.rounds) / 20
    print(f"1024-cubed products: {2 * 1024**3 / peak / 1e9:.0f} GFLOP/s\n")
    print(
        f"{'shape':10}{'update':36}{'per second':>11}{'ms':>8}{'products':>10}{'sampling':>10}{'Adam':>7}{'ratio':>7}"
    )
    rows = []
    for shape, sizes in SHAPES.items():
        for case in cases(*sizes):
            row = {"shape": shape, "update": case.name, **compare(case, args.updates, args.rounds)}
            rows.append(row)
            print(
                f"{shape:10}{case.name:36}{row['per_second']:>11.0f}{row['update_ms']:>8.2f}{row['products_ms']:>10.2f}"
                f"{row['sampling_ms']:>10.2f}{row['adam_ms']:>7.2f}{row['ratio']:>7.2f}",
                flush=True,
            )
    if args.json:
        machine = {"processor": processor(), "jax": jax.__version__, "python": platform.python_version()}
        result = {"machine": machine, "peak_gflops": 2 * 1024**3 / peak / 1e9, "rows": rows}
        args.json.write_text(json.dumps(result, indent=1) + "\n")


class Case(NamedTuple):
    """An update, as loops of n: whole, its sampling alone, its optimiser alone; and its products."""

    name: str
    loop: Callable[[int], Any]
    sampling: Callable[[int], Any]
    adam: Callable[[int], Any]
    products: list[Any]


def cases(observation_size: int, action_size: int, flows: int) -> Iterator[Case]:
    contents = filled_replay(observation_size, action_size).contents
    key = jax.random.key(0)
    keys = jax.random.split(key, MEMBERS)
    optimiser = updates.adam(RULES)

    def policy(key: jax.Array) -> FlowPolicy:
        return FlowPolicy.init(key, observation_size, action_size, hidden=(256,), flows=flows, sigma=0.4)

    population = over_members(policy, key, MEMBERS)
    actors = ActorLearner(population, jax.vmap(optimiser.init)(population))
    critic = init_critic(key, "value", observation_size, action_size, (256, 256))
    learner = CriticLearner(critic, optimiser.init(critic.online))
    batch, noise = updates.draw(RULES.batch_size, contents, key)

    one = take(population, 0)
    yield Case(
        "critic",
        lambda n: updates.critic_updates(RULES, learner, one, 0.2, contents, key, 0, n),
        sampling_loop(contents, keys[:1]),
        adam_loop(critic.online, learner.optimiser),
        products_of(lambda: updates.critic_step(RULES, learner, one, jnp.float32(0.2), batch, noise)),
    )

    def actor_case(name: str, members: int, archived: Archived | None) -> Case:
        learners = take(actors, np.arange(members))

        batches, noises = jax.vmap(lambda key: updates.draw(RULES.batch_size, contents, key))(keys[:members])

        def one_update() -> Any:
            return jax.vmap(
                lambda learner, felt, observation, noise: updates.actor_step(
                    RULES, learner, critic, jnp.float32(0.2), felt, observation, noise
                )
            )(learners, archived, batches.observation, noises)

        def loop(n: int) -> Any:
            return updates.actor_updates(RULES, learners, critic, 0.2, archived, contents, keys[:members], 0, n)

        return Case(
            name,
            loop,
            sampling_loop(contents, keys[:members]),
            adam_loop(learners.policy, learners.optimiser, stacked=True),
            products_of(one_update),
        )

    felt = Archived(
        jax.tree.map(lambda leaf: jnp.stack([leaf] * ELITES), population),
        jnp.full((ELITES, ARCHIVED), 0.2),
    )
    yield actor_case(f"{MEMBERS} actors side by side", MEMBERS, None)
    yield actor_case(f"{ELITES} elites with attraction-repulsion", ELITES, felt)


def compare(case: Case, count: int, rounds: int) -> dict[str, float]:
    """Times the loops of a case one after the other, several times; medians."""
    loops = (case.loop, products_loop(case.products), case.sampling, case.adam)
    for loop in loops:
        jax.block_until_ready(loop(count))
    times = [[seconds(lambda loop=loop: loop(count)) / count for loop in loops] for _ in range(rounds)]  # type: ignore[misc]
    update, product, sampling, adam = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "per_second": 1 / update,
        "update_ms": 1e3 * update,
        "products_ms": 1e3 * product,
        "products_gflops": sum(flop_count(equation) for equation in case.products) / product / 1e9,
        "sampling_ms": 1e3 * sampling,
        "adam_ms": 1e3 * adam,
        "ratio": product / update,
    }


def sampling_loop(contents: Contents, keys: jax.Array) -> Callable[[int], Any]:
    """Mini-batches and noise for n updates, one for each key and update."""

    def once(i: int, total: jax.Array, contents: Contents) -> jax.Array:
        drawn = jax.vmap(lambda key: updates.draw(RULES.batch_size, contents, jax.random.fold_in(key, i)))(keys)
        return total + sum(leaf.ravel()[0] for leaf in jax.tree.leaves(jax.lax.optimization_barrier(drawn)))

    run = jax.jit(lambda n, c: jax.lax.fori_loop(0, n, lambda i, total: once(i, total, c), jnp.zeros(())))
    return lambda n: run(n, contents)


def adam_loop(parameters: Any, optimiser: Any, *, stacked: bool = False) -> Callable[[int], Any]:
    """n steps of the optimiser with a gradient that costs nothing."""

    def step(parameters: Any, optimiser: Any) -> tuple[Any, Any]:
        return updates.gradient_step(RULES, parameters, parameters, optimiser)

    def once(_: int, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        return jax.vmap(step)(*carry) if stacked else step(*carry)

    run = jax.jit(lambda n, start: jax.lax.fori_loop(0, n, once, start))
    return lambda n: run(n, (parameters, optimiser))


def products_of(step: Callable[[], Any]) -> list[Any]:
    """The different matrix products in a computation, as equations of its graph.

    Two equations are the same product if they do the same to the same values: XLA computes such a product once.
    """
    products: dict[int, Any] = {}

    def walk(jaxpr: Any, arguments: list[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))

        def value(atom: Any) -> Any:
            return str(atom) if hasattr(atom, "val") else values.setdefault(atom, (id(jaxpr), str(atom)))

        for equation in jaxpr.eqns:
            inputs = [value(atom) for atom in equation.invars]
            inner = next((p for p in map(_graph, equation.params.values()) if p is not None), None)
            if inner is not None:
                outputs = walk(inner, inputs)
            else:
                meaning = hash((equation.primitive.name, str(equation.params), tuple(inputs)))
                outputs = [(meaning, place) for place in range(len(equation.outvars))]
                if equation.primitive.name == "dot_general":
                    products.setdefault(meaning, equation)
            values.update(zip(equation.outvars, outputs, strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    graph = jax.make_jaxpr(step)().jaxpr
    walk(graph, list(map(str, graph.invars)))
    return list(products.values())


def _graph(parameter: Any) -> Any:
    """The graph inside an equation's parameter, if it has one."""
    inner = getattr(parameter, "jaxpr", parameter)
    return inner if hasattr(inner, "eqns") else None


def products_loop(products: list[Any]) -> Callable[[int], Any]:
    """A jitted loop that does these products and nothing else, n times."""
    key = jax.random.key(1)
    operands = [tuple(jax.random.normal(key, var.aval.shape) for var in equation.invars) for equation in products]

    def once(_: int, lefts: list[jax.Array]) -> list[jax.Array]:
        following = []
        for equation, left, (__, right) in zip(products, lefts, operands, strict=True):
            # The barrier keeps XLA from computing only the one number that is used: it makes the next round differ.
            result = jax.lax.optimization_barrier(equation.primitive.bind(left, right, **equation.params))
            following.append(left.at[(0,) * left.ndim].set(1e-3 * result.ravel()[0]))
        return following

    run = jax.jit(lambda n, lefts: jax.lax.fori_loop(0, n, once, lefts))
    return lambda n: run(n, [left for left, _ in operands])


def flop_count(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    return 2 * int(np.prod(equation.outvars[0].aval.shape)) * int(np.prod([left[axis] for axis in contracted]))


def cube_loop() -> Callable[[int], Any]:
    cube = jax.random.normal(jax.random.key(0), (1024, 1024))
    run = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, y: 1e-2 * (y @ x), x))
    return lambda _: run(cube)


def time_of(loop: Callable[[int], Any], count: int, rounds: int) -> float:
    jax.block_until_ready(loop(count))
    return statistics.median(seconds(lambda: loop(count)) for _ in range(rounds))


def seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - began


def filled_replay(observation_size: int, action_size: int, episodes: int = 50, steps: int = 1000) -> ReplayBuffer:
    rng = np.random.default_rng(0)
    replay = ReplayBuffer(episodes * steps, observation_size, action_size)
    replay.extend(random_episode(rng, observation_size, action_size, steps) for _ in range(episodes))
    return replay


if __name__ == "__main__":
    main()
