"""The time of an update's operations, by the part of the code that they come from.

JAX's profiler says how long each compiled operation ran, and the compiled text says which functions it was traced from.
Profiling slows down every operation a little, small ones relatively more: the shares are of the profiled time.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchmarks.speed.updates import Case, cases_of

# The innermost function of an operation that matches one of these prefixes decides its part.
PARTS = {
    "flows": ("RadialFlow.", "forward_log_det", "inverse_log_det"),
    "Adam": ("gradient_step", "soft_update"),
    "sampling": ("draw_partners", "sample_batch", "gather", "positions"),
    "activations": ("relu", "MLP.", "WideTwinQ."),
    "densities": (
        "log_", "pre_tanh", "Gaussian.", "FlowPolicy.", "attraction_repulsion_loss", "sampled_kl", "gaussian_kl",
        "actor_loss", "value_loss", "q_loss",
    ),
}  # fmt: skip
NAMES = ("products", "transposes", "sums", *PARTS, "other")


def measure(tasks: list[str], *, count: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each task and update: its number of operations, and each part's share of their time."""
    for task in tasks:
        for case in cases_of(task):
            yield {"task": task, "update": case.name, **profile(case, count)}


def profile(case: Case, count: int) -> dict[str, Any]:
    jax.block_until_ready(case.loop(count))
    parts = parts_of(case.text())
    seconds: Counter[str] = Counter()
    operations = 0
    for name, duration in watched(lambda: case.loop(count)):
        if name in parts:
            seconds[parts[name]] += duration
            operations += 1
    total = seconds.total()
    return {"operations": operations / count, "shares": {name: seconds[name] / total for name in NAMES}}


def watched(run: Any) -> Iterator[tuple[str, int]]:
    """Yield the name and the nanoseconds of every operation that `run` executes."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            jax.block_until_ready(run())
        [path] = Path(folder).rglob("*.xplane.pb")
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
            for line in plane.lines:
                for event in line.events:
                    yield event.name, event.duration_ns


class _Operation(NamedTuple):
    name: str
    kind: str  # XLA's opcode
    frame: int  # stack frame where it was traced; 0 if unknown
    calls: str  # name of the computation that it calls; empty if none


_OPERATION = re.compile(r"^\s+(?:ROOT )?%(\S+) = \S+ ([\w-]+)\(")


def parts_of(text: str) -> dict[str, str]:
    """Return the part of each operation of a compiled computation, without loops and those that only pass values."""
    functions = _functions(text)
    operations = [_operation(match, line) for line in text.splitlines() if (match := _OPERATION.match(line))]
    roots = _roots(text)
    passing_on = "while", "call", "conditional", "tuple", "get-tuple-element", "parameter", "constant", "bitcast"
    parts = {}
    for operation in operations:
        if operation.kind in passing_on:
            continue
        frame = operation.frame or roots.get(operation.calls, 0)
        parts[operation.name] = _part(operation, functions.get(frame, []))
    return parts


def _part(operation: _Operation, functions: list[str]) -> str:
    if operation.kind == "dot":
        return "products"
    if operation.name.startswith("transpose"):
        return "transposes"
    if "reduce-window" in operation.name or operation.name.startswith("wrapped_reduce"):
        return "sums"
    for function in functions:
        for part, prefixes in PARTS.items():
            if function.startswith(prefixes):
                return part
    return "other"


def _operation(match: re.Match[str], line: str) -> _Operation:
    frame, calls = re.search(r"stack_frame_id=(\d+)", line), re.search(r"calls=%([\w.-]+)", line)
    return _Operation(match[1], match[2], int(frame[1]) if frame else 0, calls[1] if calls else "")


def _roots(text: str) -> dict[str, int]:
    """Return, for each computation, the stack frame of its last operation that has one."""
    roots, computation = {}, ""
    for line in text.splitlines():
        if line.startswith("%"):
            computation = line[1:].split(" ")[0]
        elif frame := re.search(r"stack_frame_id=(\d+)", line):
            roots[computation] = int(frame[1])
    return roots


def _functions(text: str) -> dict[int, list[str]]:
    """Return the functions of each stack frame, innermost first."""
    names, places, frames = (_table(text, name) for name in ("FunctionNames", "FileLocations", "StackFrames"))
    first = _number(frames.get(1, ""), "parent_frame_id")  # parent of the outermost: 0, or 1 where XLA counts from 1
    functions: dict[int, list[str]] = {0: []}
    for number, frame in frames.items():  # callers come before callees
        place = places[_number(frame, "file_location_id")]
        name = names[_number(place, "function_name_id")].strip('"')
        functions[number] = [name, *functions.get(_number(frame, "parent_frame_id") - first, [])]
    return functions


def _table(text: str, name: str) -> dict[int, str]:
    """Return the entries of a numbered list at the head of the text."""
    found = re.search(rf"^{name}\n((?:\d+ .*\n)+)", text, re.MULTILINE)
    lines = found[1].splitlines() if found else []
    return {int(number): rest for number, rest in (line.split(" ", 1) for line in lines)}


def _number(entry: str, field: str) -> int:
    found = re.search(rf"{field}=(\d+)", entry)
    return int(found[1]) if found else 0
