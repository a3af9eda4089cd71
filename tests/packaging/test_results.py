"""The tables of results in README and docs are made from kept runs and inserted at their markers."""

import re
from pathlib import Path

from helpers import SMALL
from run_folders import run_folder

from arac import ARAC, SAC
from benchmarks import results

ROOT = Path(__file__).parents[2]


def test_finished_runs_are_listed_beside_published_returns(tmp_path):
    for seed in (0, 1):
        champion = {"env_steps": 100_000, "member": 0, "returns": [5000.0 + seed, 5010.0 + seed]}
        run_folder(
            tmp_path / f"a{seed}", [4000.0, 6000.0 + seed], env="HalfCheetah-v5", algo="sac", seed=seed,
            steps=[50_000, 100_000], champion=champion,
        )  # fmt: skip
    run_folder(tmp_path / "unfinished", [1.0], algo="td3", planned=90_000)
    head, _, row = results.returns_table(tmp_path).splitlines()
    assert "over 100 fresh episodes" in head
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "HalfCheetah-v5", "SAC", "2", "100,000", "6,000 ± 1", "5,006 ± 1", "6,000 ± 1", "11,896 ± 574", "6,156 ± 700",
    ]  # fmt: skip


def test_without_runs_it_says_so(tmp_path):
    assert results.returns_table(tmp_path / "none") == results.NOTHING
    assert results.agents_table(tmp_path) == results.NOTHING


def test_the_best_champion_of_a_task_is_taken(tmp_path):
    for seed, value in ((0, 10.0), (1, 30.0), (2, 20.0)):
        champion = {"env_steps": 20_000, "member": 0, "returns": [value]}
        folder = run_folder(tmp_path / "runs" / f"{seed}", [1.0, 2.0], seed=seed, champion=champion)
        (folder / "champion.safetensors").write_text(f"agent {seed}")
    results.take_champions(tmp_path / "runs", tmp_path / "agents")
    assert [path.name for path in (tmp_path / "agents").iterdir()] == ["Hopper-v5.safetensors"]
    assert (tmp_path / "agents" / "Hopper-v5.safetensors").read_text() == "agent 1"


def test_agents_are_listed_with_the_command_that_trained_them(tmp_path):
    agent = SAC("Pendulum-v1", seed=3, **SMALL)
    agent.save(tmp_path / "Pendulum-v1.safetensors", only="champion")
    ARAC("Pendulum-v1", **SMALL).save(tmp_path / "all.safetensors", only="population")
    text = results.agents_table(tmp_path, episodes=2)
    assert "| `Pendulum-v1.safetensors` | Pendulum-v1 | SAC, champion | 0 | -" in text
    assert "`arac train Pendulum-v1 --algo sac --steps 0 --seed 3 --batch-size 16 --hidden-size 16 --replay" in text
    assert "ARAC, all 5 members" in text


def test_a_page_keeps_all_but_its_blocks():
    page = "a\n<!-- results: short -->\nold\n<!-- /results -->\nb <!-- other -->\n"
    once = results.filled(page, {"short": "| new |\n"})
    assert once == "a\n<!-- results: short -->\n\n| new |\n\n<!-- /results -->\nb <!-- other -->\n"
    assert results.filled(once, {"short": "| new |\n"}) == once


def test_the_pages_show_the_tables_of_the_runs_that_are_kept():
    blocks = {"campaign": ROOT / "results" / "campaign" / "runs", "short": ROOT / "results" / "repulsion" / "runs"}
    shown = {
        name for page in results.PAGES for name in re.findall(r"<!-- results: (\w+) -->", (ROOT / page).read_text())
    }
    assert shown == {*blocks, "agents"}
    for page in results.PAGES:
        text = (ROOT / page).read_text()
        for name, runs in blocks.items():
            assert f"<!-- results: {name} -->" not in text or results.returns_table(runs) in text
