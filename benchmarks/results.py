"""The results in README and docs, from the finished runs that are kept in results/.

    python -m benchmarks.results      # or `make results`

Draws the report of the campaign, copies the best champion of each task to results/agents, and writes the tables between
`<!-- results: NAME -->` and `<!-- /results -->` again. Trains nothing.
"""

import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import arac
from arac.algorithms.presets import configured
from arac.analysis import report, summary, tables
from arac.analysis.grouping import Group, Study, group
from arac.analysis.references import public_sac
from arac.analysis.summary import Spread
from arac.storage.run_records import collect
from arac.storage.run_spec import WITHOUT_EFFECT

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/results.md")
NOTHING = "No run is finished yet.\n"
_BLOCK = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- /results -->)", re.DOTALL)


def main(root: Path = ROOT) -> None:
    results = root / "results"
    campaign, agents = results / "campaign" / "runs", results / "agents"
    if _study(campaign) is not None:
        report.write([campaign], campaign.parent / "report")
    take_champions(campaign, agents)
    blocks = {
        "campaign": returns_table(campaign),
        "short": returns_table(results / "repulsion" / "runs"),
        "agents": agents_table(agents),
    }
    for page in PAGES:
        path = root / page
        path.write_text(filled(path.read_text(), blocks))


def filled(page: str, blocks: dict[str, str]) -> str:
    """Return a page with its blocks replaced."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{blocks[found[2]]}\n{found[3]}", page)


def returns_table(runs: Path) -> str:
    """Return a Markdown table of the final returns, beside the paper's and public SAC's after as many steps."""
    study = _study(runs)
    if study is None:
        return NOTHING
    lines = [line for line in summary.lines(study) if line.seeds > line.unfinished]
    head = [
        "task",
        "variant",
        "seeds",
        "steps",
        "return at the end",
        "best evaluation",
        "paper's maximum",
        "public SAC",
    ]
    fresh = any(line.champion for line in lines)
    rows = [head[:5] + ["over 100 fresh episodes"] * fresh + head[5:]]
    for line in lines:
        one = next(one for one in study.on(line.task) if one.variant == line.variant)
        cells = [line.task, str(line.variant), tables.seeds(line), tables.ends(line), str(tables.spread(line.final))]
        cells += [str(tables.spread(line.champion))] * fresh
        rows.append(
            [*cells, str(tables.spread(line.maximum)), str(tables.spread(line.paper)), _public(one, line.ends[0])]
        )
    return _markdown(rows)


def take_champions(runs: Path, out: Path) -> None:
    """Copy the champion with the highest return over fresh episodes of each task, of any algorithm and seed."""
    best: dict[str, tuple[float, Path]] = {}
    study = _study(runs)
    for one in study.groups if study else ():
        for record in one.records:
            agent = runs.parent / record.name / "champion.safetensors"
            if record.champion is not None and agent.exists():
                found = float(record.champion.mean()), agent
                best[one.task] = max(best.get(one.task, found), found)
    for task, (_, agent) in best.items():
        out.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(agent, out / f"{task}.safetensors")


def agents_table(agents: Path, episodes: int = 100) -> str:
    """Return a Markdown table of the agents in a folder, with their returns over fresh episodes."""
    rows = [["file", "task", "agent", "steps", f"{episodes} fresh episodes", "trained by"]]
    for path in sorted(agents.glob("*.safetensors")):
        agent = arac.load(path)
        score = agent.evaluate(episodes)
        members = len(agent.population)
        what = f"{agent.algorithm.label}, " + (f"all {members} members" if members > 1 else "champion")
        returned = str(tables.spread(Spread(score.mean, score.std)))
        rows.append([f"`{path.name}`", agent.env.id, what, f"{agent.state.env_steps:,}", returned, command(agent)])
    return _markdown(rows) if len(rows) > 1 else NOTHING


def command(agent: arac.Agent) -> str:
    """Return the command that trains an agent, whose run had a multiple of 10,000 steps and ended with an episode."""
    default, _ = configured(type(agent.config), agent.env.id, {})
    flags = [
        f" --{name.replace('_', '-')} {value}"
        for name, value in asdict(agent.config).items()
        if name not in WITHOUT_EFFECT and value != getattr(default, name)
    ]
    steps = agent.state.env_steps // 10_000 * 10_000
    chosen = f"--algo {agent.algorithm.name} --steps {steps} --seed {agent.description.seed}"
    return f"`arac train {agent.env.id} {chosen}{''.join(flags)}`"


def _study(runs: Path) -> Study | None:
    return group(collect([runs]).records) if any(runs.glob("*/config.toml")) else None


def _public(one: Group, steps: int) -> str:
    public = public_sac(one.paper_task)
    if public is None:
        return "-"
    nearest = [place for place, at in enumerate(public.steps) if abs(at - steps) <= 0.1 * at]
    return str(tables.spread(Spread(public.returns[nearest[0]], public.stds[nearest[0]]))) if nearest else "-"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = [list(rows[0]), ["---"] * len(rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
