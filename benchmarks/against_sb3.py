"""Comparison of TD3 and SAC with those of Stable-Baselines3, with the same settings on the same task.

    make against-sb3

Both sides train for the same number of steps, one episode and then as many updates as it had steps, and are evaluated
at the end over ten episodes without noise. A run that is in the JSON file is not repeated. There are as many runs at a
time as cores, each on one core.
"""

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.machine import processor

ENV = "HalfCheetah-v5"
WARMUP, BATCH, RATE, HIDDEN, REPLAY = 5_000, 256, 3e-4, 256, 100_000
ALGORITHMS = ("td3", "sac")
LIBRARIES = ("arac", "stable-baselines3")
EPISODES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path("results/against_sb3.json"))
    args = parser.parse_args()
    results = json.loads(args.json.read_text()) if args.json.exists() else {"runs": {}}
    names = [
        f"{algorithm} {library} {seed} {args.steps}"
        for seed in range(args.seeds)
        for algorithm in ALGORITHMS
        for library in LIBRARIES
    ]
    missing = [name for name in names if name not in results["runs"]]
    began = time.monotonic()
    spawn, cores = get_context("spawn"), sorted(os.sched_getaffinity(0))
    free = spawn.SimpleQueue()
    for core in cores:
        free.put(core)
    with ProcessPoolExecutor(len(cores), mp_context=spawn, initializer=settle, initargs=(free,)) as pool:
        for done, (name, returns) in enumerate(pool.map(train, missing), 1):
            results |= {"env": ENV, "machine": processor(), "versions": versions()}
            results["runs"][name] = returns
            args.json.write_text(json.dumps(results, indent=1) + "\n")
            left = (time.monotonic() - began) / done * (len(missing) - done)
            print(f"{name}: {np.mean(returns):,.0f} · about {left / 60:.0f} minutes left", flush=True)
    print(table(results["runs"], args.steps, args.seeds))


def settle(free: Any) -> None:
    """Pin this process to a core that no other run uses."""
    os.sched_setaffinity(0, {free.get()})


def train(name: str) -> tuple[str, list[float]]:
    """Train an agent, and return the run's name with the agent's returns over its final episodes."""
    algorithm, library, seed, steps = name.split()
    learn = ours if library == "arac" else theirs
    return name, learn(algorithm, int(seed), int(steps))


def ours(algorithm: str, seed: int, steps: int) -> list[float]:
    from arac.agents.classes import AGENTS

    agent = AGENTS[algorithm](
        ENV, seed=seed, warmup_steps=WARMUP, batch_size=BATCH, learning_rate=RATE, hidden_size=HIDDEN,
        replay_capacity=REPLAY, eval_interval=10_000_000, eval_episodes=1, workers=0,
    )  # fmt: skip
    agent.learn(steps)
    returns: list[float] = agent.evaluate(EPISODES).returns.tolist()
    return returns


def theirs(algorithm: str, seed: int, steps: int) -> list[float]:
    import gymnasium
    import torch
    from stable_baselines3 import SAC, TD3
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.noise import NormalActionNoise

    torch.set_num_threads(1)
    env = gymnasium.make(ENV)
    size = env.action_space.sample().size
    settings: dict[str, Any] = {
        "learning_rate": RATE, "buffer_size": REPLAY, "learning_starts": WARMUP, "batch_size": BATCH,
        "train_freq": (1, "episode"), "gradient_steps": -1, "policy_kwargs": {"net_arch": [HIDDEN, HIDDEN]},
        "seed": seed, "device": "cpu",
    }  # fmt: skip
    if algorithm == "td3":
        settings["action_noise"] = NormalActionNoise(np.zeros(size), 0.1 * np.ones(size))
    model = (TD3 if algorithm == "td3" else SAC)("MlpPolicy", env, **settings)
    model.learn(steps)
    returns, _ = evaluate_policy(
        model, gymnasium.make(ENV), n_eval_episodes=EPISODES, return_episode_rewards=True, warn=False
    )
    return [float(one) for one in returns]


def versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("arac-rl", "jax", "stable-baselines3", "torch", "gymnasium", "mujoco")}


def table(runs: dict[str, list[float]], steps: int, seeds: int) -> str:
    lines = ["", "| algorithm | library | each seed | mean ± std over seeds |", "| --- | --- | --- | --- |"]
    for algorithm in ALGORITHMS:
        for library in LIBRARIES:
            means = [np.mean(runs[f"{algorithm} {library} {seed} {steps}"]) for seed in range(seeds)]
            each = ", ".join(f"{mean:,.0f}" for mean in means)
            spread = np.std(means, ddof=1) if seeds > 1 else 0.0
            lines.append(f"| {algorithm.upper()} | {library} | {each} | {np.mean(means):,.0f} ± {spread:,.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
