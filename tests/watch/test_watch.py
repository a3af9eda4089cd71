"""Requests that `arac watch` serves and refuses, without a browser."""

import fcntl
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import safetensors.numpy
from run_folders import row, run_folder

from arac.cli import main
from arac.storage import run_folder as runs
from arac.storage import run_records
from arac.watch import run_reader
from arac.watch.run_reader import Follower
from arac.watch.server import Server

VIDEO = bytes(range(256)) * 4


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Serve a run with one video, beside files that must not be served."""
    place = tmp_path_factory.mktemp("watch")
    run = run_folder(place / "run", planned=60_000)
    (place / "secret.mp4").write_bytes(b"secret")
    films = run / "videos"
    (films / "deeper").mkdir(parents=True)
    (films / "10000.mp4").write_bytes(VIDEO)
    (films / "deeper" / "inner.mp4").write_bytes(b"secret")
    (films / "note.txt").write_text("secret")
    (films / ".unfinished.mp4").write_bytes(b"secret")
    (films / "link.mp4").symlink_to(place / "secret.mp4")
    os.mkfifo(films / "pipe.mp4")
    with Server(run) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection(*server.server_address, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        if value is not None:
            connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def progress(folder):
    return json.loads(Follower(folder).look().progress.body)


@pytest.mark.parametrize("path", ["/", "/style.css", "/watch.css", "/chart.js", "/watch.js", "/run.json?a=b"])
def test_what_the_page_needs_is_served_under_a_strict_policy(server, path):
    answer, body = ask(server, path)
    assert answer.status == 200
    assert body
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_it_is_on_this_machine_only(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_address[1]}/"


@pytest.mark.parametrize(
    "path",
    [
        "/videos", "/videos/", "/config.toml", "/evaluations.jsonl", "/../secret.mp4", "/videos/../config.toml",
        "/videos/../../secret.mp4", "/videos/%2e%2e/%2e%2e/secret.mp4", "/videos/..%2f..%2fsecret.mp4",
        "/videos/%252e%252e/secret.mp4", "/videos/..", "/videos/.", "/videos//etc/passwd", "/videos/%2fetc%2fpasswd",
        "/videos/deeper", "/videos/deeper/inner.mp4", "/videos/note.txt", "/videos/.unfinished.mp4",
        "/videos/link.mp4", "/videos/pipe.mp4", "/videos/%00.mp4", "/videos/none.mp4", "/watch/watch.js", "//watch.jsx",
    ],
)  # fmt: skip
def test_everything_else_is_not_there(server, path):
    answer, body = ask(server, path)
    assert answer.status == 404
    assert b"secret" not in body


def test_an_absolute_path_to_a_video_is_not_there(server):
    answer, body = ask(server, f"/videos/{server.folder.parent / 'secret.mp4'}")
    assert (answer.status, b"secret" in body) == (404, False)


def test_a_folder_of_videos_that_is_a_link_is_refused(tmp_path):
    run = run_folder(tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.mp4").write_bytes(VIDEO)
    (run / "videos").symlink_to(tmp_path / "elsewhere")
    assert "not a link" in progress(run)["error"]


@pytest.mark.parametrize(
    "host", [None, "", "evil.example", "evil.example:{port}", "127.0.0.1:1", "127.0.0.1", "[::1]:{port}"]
)
def test_another_name_for_this_machine_is_refused(server, host):
    """A page elsewhere could otherwise rebind its host name to this server and read the run."""
    answer, body = ask(server, "/run.json", Host=host and host.format(port=server.server_address[1]))
    assert answer.status == 403
    assert body == f"This page is at {server.address} only.\n".encode()
    assert ask(server, "/run.json", Host=f"localhost:{server.server_address[1]}")[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
def test_it_can_only_be_read(server, method):
    answer, _ = ask(server, "/run.json", method)
    assert answer.status == 501


@pytest.mark.parametrize(
    ("asked", "status", "place", "expected"),
    [
        (None, 200, None, VIDEO),
        ("bytes=0-9", 206, "bytes 0-9/1024", VIDEO[:10]),
        ("bytes=1000-", 206, "bytes 1000-1023/1024", VIDEO[1000:]),
        ("bytes=-24", 206, "bytes 1000-1023/1024", VIDEO[1000:]),
        ("bytes=-9999", 206, "bytes 0-1023/1024", VIDEO),
        ("bytes=1020-9999", 206, "bytes 1020-1023/1024", VIDEO[1020:]),
        ("bytes=1024-", 416, "bytes */1024", b""),
        ("bytes=0-1,5-6", 200, None, VIDEO),
        ("bytes=-", 200, None, VIDEO),
        ("frames=1-2", 200, None, VIDEO),
        (f"bytes={'9' * 5000}-", 200, None, VIDEO),
    ],
)
def test_a_video_can_be_had_in_parts(server, asked, status, place, expected):
    answer, body = ask(server, "/videos/10000.mp4?1", Range=asked)
    assert (answer.status, answer.headers["Content-Range"], body) == (status, place, expected)
    assert answer.headers["Content-Length"] == str(len(expected))


def test_what_has_not_changed_is_not_sent_again(server):
    for path in ("/progress.json", "/run.json"):
        answer, body = ask(server, path)
        again, nothing = ask(server, path, If_None_Match=answer.headers["ETag"])
        assert (again.status, nothing) == (304, b"")
        assert json.loads(body)


def test_files_that_have_not_changed_are_not_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(run_reader, "_FRESH", 0)
    reads = []
    monkeypatch.setattr(
        run_reader.run_records, "read", lambda *args, read=run_records.read: reads.append(1) or read(*args)
    )
    follower = Follower(run := run_folder(tmp_path / "run"))
    first = follower.look()
    assert follower.look() == first
    assert len(reads) == 1
    with (run / "evaluations.jsonl").open("a") as file:
        file.write(json.dumps(row(40_000, 9.0)) + "\n" + '{"env_steps": 50')  # the last one is being written
    assert json.loads(follower.look().run.body)["series"]["champion"] == [1, 2, 3, 9]
    assert len(reads) == 2


def test_the_states_of_a_run(tmp_path):
    run = run_folder(tmp_path / "run", planned=60_000)
    lock = runs.lock(run)
    assert progress(run)["state"] == "training"
    os.close(lock)
    assert progress(run)["state"] == "gone"
    (run / "checkpoints" / f"{20_000:012d}").mkdir(parents=True)
    assert (progress(run)["state"], progress(run)["saved"]) == ("gone", 20_000)
    (run / "checkpoints" / f"{30_000:012d}").mkdir()
    assert progress(run)["state"] == "stopped"
    assert progress(run_folder(tmp_path / "other"))["state"] == "finished"


def test_looking_whether_a_run_is_locked_does_not_keep_anybody_from_it(tmp_path):
    looking = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    assert not runs.is_locked(tmp_path)
    threading.Timer(0.01, os.close, [looking]).start()
    os.close(runs.lock(tmp_path))


def test_the_archive_is_read_from_the_newest_checkpoint(tmp_path):
    run = run_folder(tmp_path / "run")
    newest = run / "checkpoints" / f"{30_000:012d}"
    newest.mkdir(parents=True)
    assert progress(run)["archive"] is None
    state = {".archive.fitness": [1.5, 2.5, 0.0], ".archive.size": 2, ".env_steps": 30_000}
    arrays = {name: np.array(value) for name, value in state.items()}
    safetensors.numpy.save_file(arrays, newest / "state.safetensors")
    assert progress(run)["archive"] == {"steps": 30_000, "fitness": [1.5, 2.5]}
    (newest / "state.safetensors").rename(tmp_path / "elsewhere")
    (newest / "state.safetensors").symlink_to(tmp_path / "elsewhere")
    assert progress(run)["archive"] is None
    (newest / "state.safetensors").unlink()
    (newest / "state.safetensors").write_bytes(b"\0" * 100)
    assert progress(run)["archive"] is None


@pytest.mark.parametrize(
    ("fitness", "size"),
    [(1.5, 1), ([[1.5]], 1), ([1.5], [1]), ([1.5], float("inf")), (np.complex64([1.5]), 1), ([1.5], -1), ([1.5], 0)],
)
def test_an_archive_of_another_shape_is_none(tmp_path, fitness, size):
    run = run_folder(tmp_path / "run")
    newest = run / "checkpoints" / f"{30_000:012d}"
    newest.mkdir(parents=True)
    arrays = {".archive.fitness": np.array(fitness), ".archive.size": np.array(size)}
    safetensors.numpy.save_file(arrays, newest / "state.safetensors")
    assert progress(run)["archive"] is None


def test_the_population_is_ranked_with_the_spread_of_its_episodes(tmp_path):
    run = run_folder(tmp_path / "run")
    lines = ["20000,1,0,0,5.0,10", *(f"30000,1,{m},{e},{10 * m + 2 * e},10" for m in range(3) for e in range(2)), "300"]
    (run / "episodes.csv").write_text("\n".join(lines))
    population = json.loads(Follower(run).look().run.body)["population"]
    assert population[0] == {"member": 0, "fitness": 3.0, "spread": 1.0, "role": "champion"}
    assert [(one["member"], one["role"]) for one in population] == [(0, "champion"), (1, ""), (2, "")]


@pytest.mark.parametrize(
    "damaged",
    ["30000", "30000,1,0,1", "30000,1,x,1,2.0,10", "30000,1,0,1,?,10", "30000,1,0,1,nan,10", "30000,1,0,1,-inf,10",
     "30000,1,0,1,1e308,10"],
)  # fmt: skip
def test_a_member_with_a_damaged_episode_has_no_spread(tmp_path, damaged):
    run = run_folder(tmp_path / "run")
    (run / "episodes.csv").write_text(f"30000,1,0,0,5.0,10\n{damaged}\n")
    follower = Follower(run)
    assert json.loads(follower.look().run.body)["population"][0]["spread"] is None
    assert "error" not in json.loads(follower.look().progress.body)


def test_garbage_among_the_episodes_hides_none_of_the_others(tmp_path):
    run = run_folder(tmp_path / "run")
    episodes = "".join(f"30000,1,0,{e},{2 * e},10\n" for e in range(2))
    (run / "episodes.csv").write_bytes(b'\xff\0"' * 70_000 + b"\n" + episodes.encode())
    assert json.loads(Follower(run).look().run.body)["population"][0]["spread"] == 1


def test_a_policy_of_the_users_own_is_among_the_settings(tmp_path):
    plain, own = run_folder(tmp_path / "plain"), run_folder(tmp_path / "own", policy="module.Own")
    names = [dict(json.loads(Follower(run).look().run.body)["settings"]).get("policy") for run in (plain, own)]
    assert names == [None, "module.Own"]


@pytest.mark.parametrize("name", ["eval_episodes", "archive_capacity", "eval_interval"])
def test_a_setting_that_is_no_number_does_not_end_the_page(tmp_path, name):
    run = run_folder(tmp_path / "run", [])
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(re.sub(rf"^{name} = .*", f"{name} = 2026-01-01", config, flags=re.MULTILINE))
    follower = Follower(run)
    assert json.loads(follower.look().progress.body)["first"] == (100_000 if name == "eval_interval" else 10_000)
    assert [name, "2026-01-01"] in json.loads(follower.look().run.body)["settings"]


def test_before_the_first_evaluation_it_is_said_when_that_comes(tmp_path):
    assert progress(run_folder(tmp_path / "a", [], eval_interval=5000, planned=60_000))["first"] == 5000
    assert progress(run_folder(tmp_path / "b", [], eval_interval=5000, planned=2000))["first"] == 2000
    assert progress(run_folder(tmp_path / "c", [], eval_interval=0, planned=2000))["first"] == 1


def remove_config(run):
    (run / "config.toml").unlink()


def damage_evaluations(run):
    (run / "evaluations.jsonl").write_text("nonsense\n")


def link_evaluations(run):
    (run / "evaluations.jsonl").unlink()
    (run / "evaluations.jsonl").symlink_to("/etc/passwd")


def rename(run):
    run.rename(run.with_name("renamed"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (remove_config, "This run cannot be read: there is no config.toml in it."),
        (damage_evaluations, "line 1 of its evaluations.jsonl is not an evaluation: it is not JSON."),
        (link_evaluations, "evaluations.jsonl must be an ordinary file or folder, not a link; remove it."),
        (rename, "is gone."),
    ],
)
def test_a_run_that_breaks_is_an_error_in_words_until_it_is_mended(tmp_path, monkeypatch, damage, said):
    monkeypatch.setattr(run_reader, "_FRESH", 0)
    follower = Follower(run := run_folder(tmp_path / "run"))
    before = follower.look()
    kept = {name: (run / name).read_bytes() for name in ("config.toml", "evaluations.jsonl")}
    damage(run)
    broken = follower.look()
    assert json.loads(broken.progress.body)["error"].endswith(said)
    assert broken.run == before.run
    if (renamed := run.with_name("renamed")).exists():
        renamed.rename(run)
    for name, content in kept.items():
        (run / name).unlink(missing_ok=True)
        (run / name).write_bytes(content)
    assert "error" not in json.loads(follower.look().progress.body)
    assert follower.look().run == before.run


def test_a_new_run_in_the_same_place_is_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(run_reader, "_FRESH", 0)
    follower = Follower(run := run_folder(tmp_path / "run"))
    assert json.loads(follower.look().progress.body)["steps"] == 30_000
    run.rename(tmp_path / "old")
    run_folder(run, [1.0])
    assert json.loads(follower.look().progress.body)["steps"] == 10_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none"], r"There is no folder \S+none; give the folder of a run\."),
        (["."], r"\S+ holds no run: there is no config\.toml in it\."),
        (
            ["run", "--port", "TAKEN"],
            r"Cannot bind port \d+ \(Address already in use\); choose another with --port, or leave .*",
        ),
        (
            ["run", "--port", "70000"],
            r"Cannot bind port 70000 \(ports end at 65535\); choose another with --port, or leave .*",
        ),
    ],
)
def test_what_cannot_be_watched_is_refused_in_a_sentence(tmp_path, capsys, words, said):
    run_folder(tmp_path / "run")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = [str(taken.getsockname()[1]) if word == "TAKEN" else word for word in words[1:]]
        assert main(["watch", str(tmp_path / words[0]), *options]) == 2
    assert re.fullmatch(f"arac: {said}\n", capsys.readouterr().err)


@pytest.mark.usefixtures("signals")
def test_the_command_says_where_the_page_is_and_ends_with_ctrl_c(tmp_path):
    run_folder(tmp_path / "run")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-m", "arac", "watch", "run", "--no-browser"], cwd=tmp_path, **pipes)
    try:
        said = re.fullmatch(r"run is shown at http://(127\.0\.0\.1:\d+)/ .*\n", process.stdout.readline())
        connection = http.client.HTTPConnection(said[1], timeout=10)
        connection.request("GET", "/progress.json")
        assert json.load(connection.getresponse())["state"] == "finished"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (130, "")
    finally:
        process.kill()
