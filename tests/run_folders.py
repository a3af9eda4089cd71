"""Run folders made by hand, their report, and the comparison of two."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import tomli_w

from arac.algorithms.presets import configured
from arac.algorithms.registry import ALGORITHMS
from arac.analysis import caveats, report, summary
from arac.analysis.grouping import group
from arac.storage import pytree_io
from arac.storage.run_records import collect

REAL = Path(__file__).parents[1] / "results" / "repulsion" / "runs"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def run_folder(folder, returns=(1.0, 2.0, 3.0), *, env="Hopper-v5", algo="arac", seed=0, planned=None, **rest):
    """Write the files of a run that a report reads; `steps` are those of the evaluations."""
    steps = rest.pop("steps", [10_000 * (place + 1) for place in range(len(returns))])
    extra = {name: rest.pop(name) for name in ("champion", "versions", "kwargs", "limit", "policy") if name in rest}
    config, preset = configured(ALGORITHMS[algo].config, env, rest)
    folder.mkdir(parents=True)
    table = {
        "steps": planned or (steps[-1] if steps else 100_000),
        "algorithm": algo,
        "seed": seed,
        "preset": preset or "none",
        "environment": {"id": env, "max_episode_steps": extra.get("limit", 1000), "kwargs": extra.get("kwargs", {})},
        **({"policy": extra["policy"]} if "policy" in extra else {}),
        "config": json.loads(json.dumps(asdict(config))),
        "versions": extra.get("versions", {"arac-rl": "0.1.0", "jax": "0.10.2"}),
    }
    (folder / "config.toml").write_text(tomli_w.dumps(table))
    rows = [row(at, value) for at, value in zip(steps, returns, strict=True)]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (folder / "episodes.csv").write_text("env_steps,generation,member,episode,return,length\n")
    times = [{"env_steps": at, "generation": n, "seconds": 60.0 * (n + 1), "phases": {}} for n, at in enumerate(steps)]
    (folder / "timings.jsonl").write_text("".join(json.dumps(one) + "\n" for one in times))
    if "champion" in extra:
        (folder / "champion.json").write_text(json.dumps(extra["champion"]))
    return folder


def row(steps, value, members=3):
    kl = [[0.0 if a == b else a + b / 10 for b in range(members)] for a in range(members)]
    return {
        "env_steps": steps, "generation": 1, "fitness": [value, value - 1, value - 2], "elites": [0], "champion": 0,
        "champion_return": value, "champion_return_std": 0.5, "archive_size": 4,
        "champion_returns": [value - 0.5, value + 0.5], "diversity": {"mean_kl": 0.7, "kl": kl},
    }  # fmt: skip


def study_of(*folders):
    return group(collect(folders).records)


def line_of(folder, variant="ARAC"):
    return next(line for line in summary.lines(study_of(folder)) if str(line.variant) == variant)


def said(folder, kind):
    found = collect([folder])
    return [one.text for one in caveats.remarks(group(found.records), found.broken) if one.kind == kind]


def written(folder, *others):
    report.write([folder, *others], folder / "out")
    return (folder / "out" / "index.html").read_text()


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def assert_same_run(agent, other, folder, other_folder):
    """Compare the parameters and all rows of two runs."""
    first, second = pytree_io.to_arrays(agent.state), pytree_io.to_arrays(other.state)
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)
    for name in ("evaluations.jsonl", "episodes.csv"):
        assert (folder / name).read_bytes() == (other_folder / name).read_bytes(), name
