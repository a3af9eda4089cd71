"""A process that trains one system in stretches, each when it is told to: so several can be timed by turns.

    python -m benchmarks.speed.contender '{"library": "sbx", "env": "Hopper-v5", ...}'

It runs in whichever environment has the library. A line of words on standard input begins a stretch; a line with the
seconds and environment steps that it took answers. `turns.Contender` is the other end of that pipe.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any


class Gate:
    """Called at every safe point with the environment steps so far: stops there, if the stretch is over.

    The first stretch goes a little beyond the warm-up: it is where each library compiles what it needs.
    """

    def __init__(self, warmup: int, stretch: int) -> None:
        self._stretch, self._goal = stretch, warmup + 500
        self._answers = sys.stdout
        sys.stdout = sys.stderr  # what a library prints is no answer
        self._seconds, self._steps = time.perf_counter(), 0

    def __call__(self, steps: int) -> bool:
        """Whether to go on."""
        if steps < self._goal:
            return True
        self._answer(time.perf_counter() - self._seconds, steps - self._steps)
        go_on = sys.stdin.readline().strip() == "go"
        self._seconds, self._steps, self._goal = time.perf_counter(), steps, steps + self._stretch
        return go_on

    def _answer(self, seconds: float, steps: int) -> None:
        answer = {"seconds": seconds, "steps": steps, "peak_bytes": peak_bytes()}
        print(json.dumps(answer), file=self._answers, flush=True)


def peak_bytes() -> int:
    """The most memory that this process had so far; `getrusage` would count what its parent had, too."""
    status = Path("/proc/self/status")
    if not status.exists():  # macOS, which counts bytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))


def ours(gate: Gate, env: str, algorithm: str, warmup: int, settings: dict[str, Any]) -> None:
    from arac.agents.classes import AGENTS

    agent = AGENTS[algorithm](env, warmup_steps=warmup, **settings)
    agent.learn(10**9, callback=lambda agent, _: gate(agent.state.env_steps))


def theirs(gate: Gate, library: str, env: str, warmup: int, settings: dict[str, Any], evaluation: int) -> None:
    """SAC of Stable-Baselines3 or SBX, and every `evaluation` steps, if that is not 0, ten episodes of evaluation."""
    import importlib

    import gymnasium
    from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback

    class AtTheGate(BaseCallback):
        def _on_step(self) -> bool:
            return gate(self.num_timesteps)

    callbacks: list[BaseCallback] = [AtTheGate()]
    if evaluation:
        callbacks.insert(0, EvalCallback(gymnasium.make(env), n_eval_episodes=10, eval_freq=evaluation, verbose=0))
    kind = importlib.import_module(library).SAC
    model = kind("MlpPolicy", gymnasium.make(env), learning_starts=warmup, **settings)
    model.learn(10**9, callback=CallbackList(callbacks))


def main() -> None:
    task = json.loads(sys.argv[1])
    gate = Gate(task["warmup"], task.pop("stretch"))
    if task["library"] == "arac":
        del task["library"]
        ours(gate, **task)
    else:
        theirs(gate, **task)


if __name__ == "__main__":
    main()
