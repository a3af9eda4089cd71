"""A process that trains one algorithm in stretches, each on request, so that several can be timed by turns.

    python -m benchmarks.speed.contender '{"library": "sbx", "env": "Hopper-v5", ...}'

It runs in the Python environment that has the library. A line `go` on standard input begins a stretch, and a line with
its seconds and environment steps on standard output ends it. `turns.Contender` is the other end of these pipes.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any


class Gate:
    """A callback that is called at every safe point, and waits there for the next request once a stretch is over.

    The first stretch ends a little after the warm-up, because each library compiles in it.
    """

    def __init__(self, warmup: int, stretch: int) -> None:
        self._stretch, self._goal = stretch, warmup + 500
        self._answers = sys.stdout
        sys.stdout = sys.stderr  # keeps what a library prints out of the answers
        self._seconds, self._steps = time.perf_counter(), 0

    def __call__(self, steps: int) -> bool:
        """Return whether to continue training; if the stretch is over, report it and wait for a request first."""
        if steps < self._goal:
            return True
        self._answer(time.perf_counter() - self._seconds, steps - self._steps)
        proceed = sys.stdin.readline().strip() == "go"
        self._seconds, self._steps, self._goal = time.perf_counter(), steps, steps + self._stretch
        return proceed

    def _answer(self, seconds: float, steps: int) -> None:
        answer = {"seconds": seconds, "steps": steps, "peak_bytes": peak_bytes()}
        print(json.dumps(answer), file=self._answers, flush=True)


def peak_bytes() -> int:
    """Return the peak memory of this process so far; `getrusage` would include that of its parent."""
    status = Path("/proc/self/status")
    if not status.exists():  # macOS, which counts bytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))


def ours(gate: Gate, env: str, algorithm: str, warmup: int, settings: dict[str, Any]) -> None:
    from arac.agents.classes import AGENTS

    agent = AGENTS[algorithm](env, warmup_steps=warmup, **settings)
    agent.learn(10**9, callback=lambda agent, _: gate(agent.state.env_steps))


def theirs(gate: Gate, library: str, env: str, warmup: int, settings: dict[str, Any], evaluation: int) -> None:
    """Train SAC of Stable-Baselines3 or SBX, with ten evaluation episodes every `evaluation` steps unless that is 0."""
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
