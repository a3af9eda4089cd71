"""The report as a whole: escaping, pictures, reproducible bytes, real runs."""

import json

import pytest
from run_folders import PNG, REAL, data_of, run_folder, written

from arac.analysis import report
from arac.analysis.report import pictures
from arac.cli import main
from arac.errors import UserError
from arac.experiments.outputs import Table, write
from arac.web import embedded


def test_everything_from_files_is_escaped(tmp_path):
    evil = "$x_{</script><script>alert(1)</script><img src=x onerror=alert(2)>$"
    run_folder(tmp_path / "runs" / "<b>name", env=f"{evil}-v1", versions={"jax": evil}, kwargs={"a": evil})
    pics = tmp_path / "runs" / "pics"
    pics.mkdir()
    (pics / "didactic.png").write_bytes(PNG)
    table = {"rows": [["a", "b"], [evil, "2"]], "notes": [f"Below {evil}."]}
    (pics / "didactic.json").write_text(json.dumps({"table": table}))
    text = written(tmp_path / "runs")
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "<b>name" not in text
    assert text.count("</script>") == 2
    assert evil in data_of(text)["tasks"][0]["name"]


def test_json_in_the_page_knows_no_infinity_and_ends_no_script():
    assert embedded({"a": [float("nan"), float("inf"), 1.5], "b": "</script>"}) == (
        '{"a":[null,null,1.5],"b":"\\u003c/script>"}'
    )


def test_pictures_lie_in_the_page_with_their_tables(tmp_path):
    run_folder(tmp_path / "run")
    (tmp_path / "deceptive.png").write_bytes(PNG)
    table = Table([["variant", "found"], ["ARAC", "19"], ["a<b", "2 * 3"]], ["For 20 seeds.", "A note."])
    written_table = write(tmp_path, "deceptive", table, {"steps": 3})
    assert written_table == (
        "| variant | found |\n| --- | --- |\n| ARAC | 19 |\n| a<b | 2 * 3 |\n\nFor 20 seeds.\n\nA note.\n"
    )
    (tmp_path / "repulsion.png").write_bytes(b"not a picture")
    (tmp_path / "other.png").write_bytes(PNG)
    assert [one.name for one in pictures.find([tmp_path])] == ["deceptive"]
    text = written(tmp_path)
    assert "data:image/png;base64,iVBOR" in text
    assert "<td>ARAC</td><td>19</td>" in text
    assert "<td>a&lt;b</td><td>2 * 3</td>" in text
    assert "<p>For 20 seeds.</p>" in text
    assert "Pictures" not in written(run_folder(tmp_path / "apart" / "run"))


@pytest.mark.parametrize(
    ("beside", "shown"),
    [
        (None, True),
        ("{}", True),
        ('{"table": 3}', False),
        ('{"table": {"rows": [1], "notes": []}}', False),
        ("[", False),
    ],
)
def test_a_picture_without_a_table_is_shown_and_one_with_a_broken_table_is_not(beside, shown, tmp_path):
    (tmp_path / "didactic.png").write_bytes(PNG)
    if beside is not None:
        (tmp_path / "didactic.json").write_text(beside)
    assert len(pictures.find([tmp_path])) == shown


def test_pictures_that_lie_where_the_page_goes_are_shown_and_stay(tmp_path):
    run_folder(tmp_path / "run")
    (tmp_path / "didactic.png").write_bytes(PNG)
    report.write([tmp_path], tmp_path)
    assert "Policy shapes under repulsion" in (tmp_path / "index.html").read_text()
    assert (tmp_path / "didactic.png").read_bytes() == PNG
    before = (tmp_path / "index.html").read_bytes()
    report.write([tmp_path], tmp_path)
    assert (tmp_path / "index.html").read_bytes() == before


def test_pictures_are_not_looked_for_in_what_a_run_keeps(tmp_path):
    run = run_folder(tmp_path / "run")
    for place in (run / "replay", run / "checkpoints" / "10"):
        place.mkdir(parents=True)
        (place / "didactic.png").write_bytes(PNG)
    assert pictures.find([tmp_path]) == []
    aside = tmp_path / "aside" / "replay"  # not a run's
    aside.mkdir(parents=True)
    (aside / "didactic.png").write_bytes(PNG)
    assert len(pictures.find([tmp_path])) == 1


def test_a_folder_of_pictures_goes_with_others_but_not_alone(tmp_path):
    run = run_folder(tmp_path / "run")
    (tmp_path / "pics").mkdir()
    (tmp_path / "pics" / "repulsion.png").write_bytes(PNG)
    report.write([tmp_path / "pics", run], tmp_path / "out")
    assert "data:image/png" in (tmp_path / "out" / "index.html").read_text()
    with pytest.raises(UserError, match="There is no run at or below"):
        report.write([tmp_path / "pics"], tmp_path / "other")


def test_the_same_folders_give_the_same_bytes(tmp_path):
    run_folder(tmp_path / "runs" / "a")
    files = []
    for name in ("first", "second"):
        report.write([tmp_path / "runs"], tmp_path / name)
        files.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert files[0] == files[1]


def test_real_runs_of_this_repository(tmp_path, capsys):
    """These are the runs of docs/results.md; tests/cli/test_cli.py reports on a new one."""
    assert main(["report", str(REAL), "--out", str(tmp_path / "page")]) == 0
    printed = capsys.readouterr().out
    assert "| HalfCheetah-v5 | ARAC, ar_coefficient 0 |" in printed
    data = data_of((tmp_path / "page" / "index.html").read_text())
    assert {len(run["fitness"]) for run in data["runs"]} == {len(run["kl"]) for run in data["runs"]} == {5}
    assert len(data["runs"]) == len(list(REAL.iterdir()))


def test_published_returns_are_marked_as_far_as_the_runs_have_got(tmp_path):
    steps = [100_000, 300_000, 500_000]
    run_folder(tmp_path / "short", [1.0, 2.0, 3.0], env="HalfCheetah-v5", algo="sac", steps=steps, planned=10**6)
    [task] = data_of(written(tmp_path))["tasks"]
    [public] = task["references"]
    assert (public["name"], public["variant"]) == ("Public SAC", None)
    assert (public["x"], public["y"]) == ([100_000, 300_000], [6156, 8593])
    assert (public["low"], public["high"]) == ([5456, None], [6856, None])  # the deviation at 300,000 is not published
    text = (tmp_path / "out" / "index.html").read_text()
    assert "Public SAC: 6,156 ± 700 at 100,000, 8,593 at 300,000, 11,321 ± 1,051 at 1,000,000 steps" in text


def test_the_papers_maximum_is_marked_beside_whole_runs_with_its_settings(tmp_path):
    steps = [500_000, 1_000_000]
    run_folder(tmp_path / "sac", [1.0, 2.0], env="HalfCheetah-v5", algo="sac", steps=steps)
    run_folder(tmp_path / "arac", [1.0, 2.0], env="HalfCheetah-v5", steps=steps)
    run_folder(tmp_path / "other", [1.0, 2.0], env="HalfCheetah-v5", steps=steps, flows=1)
    run_folder(tmp_path / "unknown", [1.0, 2.0], env="Pendulum-v1", steps=steps)
    data = data_of(written(tmp_path))
    names = [variant["label"] for variant in data["variants"]]
    of = {task["name"]: task["references"] for task in data["tasks"]}
    assert of["Pendulum-v1"] == []
    maxima = {one["name"]: one for one in of["HalfCheetah-v5"] if one["variant"] is not None}
    assert sorted(maxima) == ["ARAC, paper's maximum", "SAC, paper's maximum"]
    ours = maxima["ARAC, paper's maximum"]
    assert names[ours["variant"]] == "ARAC"
    assert (ours["x"], ours["y"], ours["low"], ours["high"]) == ([1_000_000], [10_264], [9993], [10_535])
