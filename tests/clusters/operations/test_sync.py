"""Syncing as a user does it, with pods that are folders of this machine: kubectl is a program that
runs the pod's side here. tests/system/test_cluster_sync.py does it with real pods."""

import ast
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from wirespeed.clusters.sync import target_of
from wirespeed.clusters.sync.local_tree import Hashes, Ignore, ignore_for, scan
from wirespeed.clusters.sync.remote.storage import safe
from wirespeed.clusters.sync.transfer import Lost, Order, Refusal, Wire, bring, python_words
from wirespeed.errors import UsageError

FAKE = Path(__file__).parent / "fake_kubectl.py"


class Bench:
    """A folder to sync, and one pod."""

    def __init__(self, cli: Any) -> None:
        self.cli, self.folder = cli, cli.folder / "mine"
        self.target: Path = cli.folder / "pod" / "workspace"
        self.folder.mkdir()
        (cli.folder / "clusters").mkdir()
        file = {"cluster": {"name": "demo"}, "workload": {"python": sys.executable}}
        (cli.folder / "clusters" / "demo.yaml").write_text(yaml.safe_dump(file))
        program = cli.folder / "bin" / "kubectl"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
        program.chmod(0o755)
        self.pods("Running")

    def pods(self, *phases: str) -> None:
        items = [
            {"metadata": {"name": f"demo-{n}", "uid": str(n)}, "spec": {}, "status": {"phase": one}}
            for n, one in enumerate(phases)
        ]
        (self.cli.folder / "pods.json").write_text(json.dumps({"items": items}))

    def env(self, how: str = "") -> dict[str, str]:
        path = f"{self.cli.folder / 'bin'}{os.pathsep}{self.cli.environment()['PATH']}"
        return {"PATH": path, "FAKE_PODS": str(self.cli.folder / "pods.json"), "FAKE_EXEC": how}

    def words(self, *words: str) -> tuple[str, ...]:
        return ("cluster", "sync", "demo", str(self.folder), "--to", str(self.target), *words)

    def start(self, *words: str, how: str = "", **options: Any) -> Any:
        return self.cli.start(*self.words(*words), env=self.env(how), **options)

    def sync(self, *words: str, how: str = "", **options: Any) -> Any:
        """To its end: here, or with `limits` as a process of its own."""
        if options:
            return self.start(*words, how=how, **options).wait()
        return self.cli.here(*self.words(*words), env=self.env(how))

    def write(self, path: str, content: str | bytes = "x") -> Path:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return place

    def there(self) -> dict[str, Any]:
        return tree(self.target)


def tree(folder: Path) -> dict[str, Any]:
    """Content, or link's target, and mode by path; without our own folder."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = os.fsencode(path.relative_to(folder)).decode("utf-8", "surrogateescape")
        if name.split("/")[0] == ".wirespeed-sync":
            continue
        if path.is_symlink():
            found[name] = os.readlink(path)  # noqa: PTH115 - as it is written
        elif path.is_file():
            found[name] = (path.read_bytes(), path.stat().st_mode & 0o777)
        else:
            found[name] = "folder"
    return found


@pytest.fixture
def bench(cli: Any) -> Bench:
    return Bench(cli)


ODD = [
    "a b",
    "-rf",
    "quo'te\"",
    "new\nline",
    "ünï/cödé",
    "$(id)",
    "*",
    "\udcff\udcfe",
    "esc\x1b[31m",
    ".h",
]


def test_a_folder_comes_as_it_is_and_only_what_differs_is_sent_again(bench: Bench) -> None:
    for name in ODD:
        bench.write(name, name.encode("utf-8", "surrogateescape"))
    bench.write("run.sh", "#!/bin/sh").chmod(0o755)
    bench.write("big.bin", os.urandom(3_000_000)).chmod(0o600)
    bench.write("empty", b"")
    (bench.folder / "void" / "deep").mkdir(parents=True)
    (bench.folder / "link").symlink_to("run.sh")
    (bench.folder / "dotted").symlink_to("./void//deep/")
    (bench.folder / "outside").symlink_to("/datasets/x")
    for left_out in ("__pycache__/a.pyc", ".git/config", "sub/.venv/bin/python", "b.pyc"):
        bench.write(left_out)

    done = bench.sync()
    assert done.code == 0, done.err
    there = bench.there()
    assert there["sub"] == "folder"
    for gone in ("__pycache__", ".git", "b.pyc", "sub/.venv"):
        assert not any(path.startswith(gone) for path in there)
    here = {path: told for path, told in tree(bench.folder).items() if path in there}
    assert there == here and len(there) == len(ODD) + 10
    assert "CLUSTER-034" in done.out and "outside" in done.out
    assert list((bench.target / ".wirespeed-sync" / "new").iterdir()) == []

    again = bench.sync()
    assert again.code == 0 and "nothing to do" in again.out and "sent" not in again.out

    bench.write("a b", "changed")
    (bench.folder / "run.sh").chmod(0o700)
    (bench.folder / "link").unlink()
    (bench.folder / "link").symlink_to("empty")
    dry = bench.sync("--dry-run")
    assert bench.there() == there
    assert [line.split() for line in dry.out.splitlines()[1:4]] == [
        ["changed", "a", "b"],
        ["changed", "link"],
        ["permissions", "run.sh"],
    ]
    third = bench.sync()
    assert "2 changed, 1 with new permissions, 7 B sent" in third.out
    assert bench.there() == {
        path: told for path, told in tree(bench.folder).items() if path in there
    }


@pytest.mark.slow
def test_only_what_a_former_sync_brought_is_deleted(bench: Bench) -> None:
    for name in ("keep", "gone", "touched", "d/e/gone", "d/f/gone", "same"):
        bench.write(name)
    bench.target.mkdir(parents=True)
    (bench.target / "same").write_text("x")
    bench.sync()
    for name in ("gone", "touched", "d/e/gone", "d/f/gone", "same"):
        (bench.folder / name).unlink()
    shutil.rmtree(bench.folder / "d")
    (bench.target / "own").write_text("of the pod")
    (bench.target / "touched").write_text("work of hours")
    (bench.target / "d/f/own").write_text("of the pod")

    without = bench.sync()
    assert "nothing to do" in without.out and "gone" in bench.there()
    dry = bench.sync("--dry-run", "--delete")
    assert "deleted      gone" in dry.out and "gone" in bench.there()
    done = bench.sync("--delete")
    assert done.code == 0, done.err
    expected = {"keep", "own", "touched", "d", "d/f", "d/f/own", "same"}
    assert set(bench.there()) == expected
    assert "CLUSTER-038" in done.out and "touched" in done.out
    assert "nothing to do" in bench.sync("--delete").out


def test_changes_made_in_the_pod_are_told_when_they_are_replaced(bench: Bench) -> None:
    bench.write("train.py", "one")
    bench.sync()
    (bench.target / "train.py").write_text("edited there")
    bench.write("train.py", "two")
    done = bench.sync()
    assert done.code == 0 and "CLUSTER-038" in done.out and "train.py" in done.out
    assert bench.there()["train.py"][0] == b"two"
    bench.write("train.py", "three")
    assert "CLUSTER-038" not in bench.sync().out


@pytest.mark.slow
def test_a_folder_becomes_a_file_and_a_file_a_folder(bench: Bench) -> None:
    bench.write("a/one")
    bench.write("b")
    bench.sync()
    shutil.rmtree(bench.folder / "a")
    (bench.folder / "b").unlink()
    bench.write("a", "file now")
    bench.write("b/two")
    bench.write("c")
    refused = bench.sync()
    assert refused.code == 1 and "CLUSTER-036" in refused.out and "--delete" in refused.out
    assert {"a/one", "b", "c"} <= set(bench.there())
    done = bench.sync("--delete")
    assert done.code == 0, done.out
    assert bench.there() == tree(bench.folder)


def test_nothing_is_written_through_a_link_of_the_pod(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "passwd").write_text("precious")
    bench.target.mkdir(parents=True)
    (bench.target / "data").symlink_to(outside)
    (bench.target / "file").symlink_to(outside / "passwd")
    bench.write("data/passwd", "theirs")
    bench.write("file", "ours")
    done = bench.sync("--delete")
    assert done.code == 1 and "CLUSTER-036" in done.out
    assert (outside / "passwd").read_text() == "precious"
    assert [path.name for path in outside.iterdir()] == ["passwd"]
    assert bench.there()["file"][0] == b"ours"


def test_our_own_folder_in_the_pod_may_not_be_a_link(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    bench.target.mkdir(parents=True)
    (bench.target / ".wirespeed-sync").symlink_to(tmp_path / "outside")
    bench.write("file")
    done = bench.sync()
    assert done.code == 1 and "CLUSTER-037" in done.out and "Traceback" not in done.err
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.slow
def test_killed_anywhere_every_file_is_whole_and_the_next_call_goes_on(bench: Bench) -> None:
    old, new = b"o" * 300_000, b"n" * 300_000
    for number in range(20):
        bench.write(f"d{number % 3}/f{number}", old)
    bench.sync()
    for number in range(20):
        bench.write(f"d{number % 3}/f{number}", new + str(number).encode())
    whole = {old, *(new + str(number).encode() for number in range(20))}
    for most in (3000, 200_000, 3_000_000, 6_030_000):
        done = bench.sync(how=f"cut:{most}")
        assert done.code == 1 and "CLUSTER-037" in done.out, (most, done.out)
        assert {told[0] for told in bench.there().values() if told != "folder"} <= whole
    for wait_s in (0.2, 0.3):
        running = bench.start()
        time.sleep(wait_s)
        running.signal(signal.SIGKILL)
        running.wait()
        assert {told[0] for told in bench.there().values() if told != "folder"} <= whole
    left = bench.target / ".wirespeed-sync" / "new" / "7"
    left.write_text("of an earlier call")
    done = bench.sync()
    assert done.code == 0 and "CLUSTER-038" not in done.out, done.out
    assert bench.there() == tree(bench.folder) and not left.exists()


@pytest.mark.slow
def test_a_reader_never_sees_half_a_file(bench: Bench) -> None:
    kinds = [bytes([65 + number]) * 700_000 for number in range(4)]
    place = bench.target / "model.bin"
    bench.write("model.bin", kinds[0])
    bench.sync()
    seen, stop = set(), threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add(place.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for content in kinds[1:]:
            bench.write("model.bin", content)
            assert bench.start().wait().code == 0
    finally:
        stop.set()
        reader.join()
    assert len(seen) >= 2 and seen <= set(kinds)


@pytest.mark.slow
def test_a_file_that_never_holds_still_is_left_as_it_was(bench: Bench) -> None:
    bench.write("log", b"")
    bench.write("good")
    stop = threading.Event()

    def grow() -> None:
        with (bench.folder / "log").open("ab", buffering=0) as file:
            while not stop.is_set():
                file.write(b"line\n" * 200)
                time.sleep(0.0005)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        done = bench.start().wait()
    finally:
        stop.set()
        writer.join()
    assert done.code == 1 and "CLUSTER-033" in done.out and "log" in done.out
    assert set(bench.there()) == {"good"}
    assert bench.sync().code == 0 and bench.there() == tree(bench.folder)


def test_special_files_are_refused_before_anything_is_sent(bench: Bench) -> None:
    bench.write("good")
    os.mkfifo(bench.folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(bench.folder / "sock"))
    done = bench.sync()
    assert done.code == 1 and "CLUSTER-035" in done.out and not bench.target.exists()
    assert "pipe: a named pipe" in done.out and "sock: a socket" in done.out
    assert bench.sync("--exclude", "pipe", "--exclude", "/sock").code == 0
    assert set(bench.there()) == {"good"}


@pytest.mark.parametrize(
    ("how", "id", "words"),
    [
        ("no-python", "CLUSTER-030", "workload.python"),
        ("forbidden", "CLUSTER-006", "jane may not create pods/exec"),
        ("cut:0", "CLUSTER-037", "unexpected EOF"),
    ],
)
def test_a_pod_that_cannot_be_reached(bench: Bench, how: str, id: str, words: str) -> None:
    bench.write("good")
    done = bench.sync(how=how)
    assert done.code == 1 and id in done.out and words in done.out, done.out
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_no_room_and_no_right_to_write(bench: Bench) -> None:
    bench.write("good", b"g" * 400_000)
    bench.target.mkdir(parents=True)
    # The kernel answers as for a quota: EFBIG. stdout and stderr of the command are far smaller.
    done = bench.sync(limits={__import__("resource").RLIMIT_FSIZE: 100_000})
    assert done.code == 1 and "CLUSTER-031" in done.out, done.out
    assert bench.there() == {}
    words = ("cluster", "sync", "demo", str(bench.folder), "--to", "/proc/self/x")
    refused = bench.cli(*words, env=bench.env())
    assert refused.code == 1 and ("CLUSTER-032" in refused.out or "CLUSTER-037" in refused.out)


def test_pods_that_do_not_run_are_named_and_the_others_synced(bench: Bench) -> None:
    bench.write("good")
    bench.pods("Pending", "Running")
    done = bench.sync()
    assert done.code == 1 and "CLUSTER-039" in done.out and "demo-0" in done.out
    assert bench.there() == tree(bench.folder)
    bench.pods("Pending")
    none = bench.sync()
    assert none.code == 3 and "demo-0 Pending" in none.err
    bench.pods()
    empty = bench.sync()
    assert empty.code == 3 and "wirespeed cluster deploy demo" in empty.err


@pytest.mark.slow
def test_two_syncs_at_once_come_one_after_the_other(bench: Bench) -> None:
    for number in range(50):
        bench.write(f"f{number}", os.urandom(200_000))
    both = [bench.start(), bench.start()]
    assert [one.wait().code for one in both] == [0, 0]
    assert bench.there() == tree(bench.folder)


@pytest.mark.slow
def test_watching_brings_each_change_until_ctrl_c(bench: Bench) -> None:
    bench.write("a", "1")
    running = bench.start("--watch")
    bench.cli.until(lambda: bench.target.is_dir() and set(bench.there()) == {"a"})
    bench.write("a", "2")
    bench.write("b/c")
    bench.cli.until(lambda: bench.there() == tree(bench.folder))
    bench.write(".wirespeedignore", "*.tmp\n")
    bench.write("x.tmp")
    bench.write("d")
    bench.cli.until(lambda: "d" in bench.there())
    assert "x.tmp" not in bench.there()
    running.signal(signal.SIGINT)
    done = running.wait()
    assert done.code == 130 and "interrupted" in done.err and "Traceback" not in done.err
    assert done.out.count("demo-0") >= 2


@pytest.mark.slow
def test_ctrl_c_while_sending_ends_all_of_it(bench: Bench) -> None:
    with (bench.folder / "huge").open("wb") as file:
        file.truncate(1 << 30)
    received = bench.target / ".wirespeed-sync" / "new" / "0"
    running = bench.start()
    bench.cli.until(received.exists)
    running.signal(signal.SIGINT)
    done = running.wait(20)
    assert done.code == 130 and "Traceback" not in done.err, done.err
    bench.cli.nothing_runs()
    assert bench.there() == {}
    (bench.folder / "huge").unlink()
    assert bench.sync().code == 0 and not received.exists()


@pytest.mark.parametrize("to", ["", "workspace", "/", "/a/../b", "//", "/a\nb", "/a/.."])
def test_targets_that_are_refused(to: str) -> None:
    with pytest.raises(UsageError, match="--to"):
        target_of(to)


def test_folders_that_are_refused(bench: Bench, says_clearly: Any) -> None:
    for folder in ("/", str(bench.cli.folder), "clusters/demo.yaml", "nowhere"):
        done = bench.cli.here("cluster", "sync", "demo", folder, env=bench.env())
        says_clearly(done, 2)
        assert not bench.target.exists()


# The two sides against each other.


def _words() -> list[str]:
    return list(python_words(sys.executable))


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/x", "a/../../x", "a//b", "", ".", ".wirespeed-sync/state.json", "a\0b", "a/."],
)
def test_the_pods_side_takes_no_path_that_leads_elsewhere(path: str, tmp_path: Path) -> None:
    assert not safe(path)
    target = tmp_path / "target"
    with pytest.raises(Refusal, match="leads elsewhere"), Wire(_words(), threading.Event()) as wire:
        wire.begin(_program())
        wire.send(b"H", {"target": str(target), "delete": False, "dry": False})
        wire.send(b"M", [[path, "file", 0o644, 1, "0" * 64]])
        wire.send(b"E", None)
        wire.receive()
    assert [one.name for one in tmp_path.rglob("x")] == []


def test_content_that_is_not_what_was_promised_is_not_kept(tmp_path: Path) -> None:
    with (
        pytest.raises(Refusal, match="not what was sent"),
        Wire(_words(), threading.Event()) as wire,
    ):
        wire.begin(_program())
        wire.send(b"H", {"target": str(tmp_path), "delete": False, "dry": False})
        wire.send(b"M", [["a", "file", 0o644, 1, "0" * 64]])
        wire.send(b"E", None)
        while wire.receive()[0] != b"Q":
            pass
        wire.send(b"F", 0)
        wire.send(b"D", b"y")
        wire.send(b"O", "0" * 64)
        wire.receive()
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "said",
    [
        b"garbage that is no frame at all",
        b"P\xff\xff\xff\xff",
        b'P\x00\x00\x00\x09[[9,"new"]Q',
        b'P\x00\x00\x00\x0b[[9,"new"]]Q\x00\x00\x00\x02{}',
        b'P\x00\x00\x00\x0c[[-1,"new"]]Q\x00\x00\x00\x02{}',
        b'P\x00\x00\x00\x0d[[0,"/etc"] ]Q\x00\x00\x00\x02{}',
        b"X\x00\x00\x00\x02[]",
        b"Q\x00\x00\x00\x02[]",
        b"P" + (90_000).to_bytes(4, "big") + b"[" * 90_000,
        b"",
    ],
)
def test_a_pod_that_answers_nonsense_is_not_believed(said: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    found = scan(tmp_path, Ignore([]))
    order = Order(
        folder=tmp_path, tree=found, hashes=Hashes(tmp_path).of(found, lambda _: None),
        target="/t", delete=False, dry=True,
    )  # fmt: skip
    code = f"import sys; sys.stdout.buffer.write({said!r}); sys.stdout.flush(); sys.stdin.read()"
    words = [sys.executable, "-c", code if said else "pass"]
    with pytest.raises(Lost):
        bring(words, "demo-0", order, threading.Event(), lambda _: None)


@pytest.mark.slow
def test_a_lost_or_damaged_state_costs_no_file(bench: Bench) -> None:
    bench.write("a")
    bench.sync()
    state = bench.target / ".wirespeed-sync" / "state.json"
    for text in ("", "{", '{"version": 1, "paths": {"../x": [1,2,3,4,5]}}', "[]", '{"version": 9}'):
        state.write_text(text)
        (bench.folder / "a").unlink(missing_ok=True)
        done = bench.sync("--delete")
        assert done.code == 0 and set(bench.there()) == {"a"}, text
    bench.write("a")
    assert "nothing to do" in bench.sync().out


def test_the_pods_side_needs_no_newer_python_than_it_says() -> None:
    for file in files("wirespeed.clusters.sync.remote").iterdir():
        if file.name.endswith(".py"):
            parsed = ast.parse(file.read_text("utf-8"), feature_version=(3, 8))
            imported = {n.module for n in ast.walk(parsed) if isinstance(n, ast.ImportFrom)}
            ours = {name for name in imported if name and name.startswith("wirespeed")}
            assert all(".sync.remote." in name for name in ours), file.name


def _program() -> bytes:
    from wirespeed.clusters.sync import transfer as session

    return session._program()


# Patterns.

PATHS = [
    "a", "b.pyc", "d/", "d/a", "d/e/", "d/e/a.log", "x.log", "build/", "src/build/", "src/build/o",
    "a[b]", "#x", "!x", "sp ace ", "A", "docs/a.md", "docs/b/c.md", "-x", "a-z", "foo/bar/baz/",
]  # fmt: skip
PATTERNS = [
    "a", "/a", "a/", "d/", "*.pyc", "*.log", "/*.log", "d/*", "d/**", "**/a", "**/e/a.log", "d/**/a.log",
    "build", "/build", "src/build/", "a?b]", "a\\[b]", "[ab]", "[!a]", "[^a]", "[a-c]*", "\\#x", "#x",
    "\\!x", "sp ace ", "sp ace\\ ", "docs/*.md", "docs/**/*.md", "**", "*", "/**", "foo/**/baz",
    "foo/*/baz/", "[", "a[", "[]-a]", "[a-]*", "a[-]z", "-x", "d/e", "e", "*/e", "[[]b", "a\\", "[z-a]",
    "", "   ", "/",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="Requires: git")
def test_patterns_mean_what_they_mean_to_git(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for path in PATHS:
        place = tmp_path / path.rstrip("/")
        place.mkdir(parents=True, exist_ok=True) if path.endswith("/") else (
            place.parent.mkdir(parents=True, exist_ok=True),
            place.touch(),
        )
    for pattern in PATTERNS:
        for lines in ([pattern], ["*", f"!{pattern}"], [pattern, "!a"]):
            (tmp_path / ".gitignore").write_text("\n".join([*lines, "!.gitignore"]) + "\n")
            told = subprocess.run(
                ["git", "-C", str(tmp_path), "ls-files", "-z", "--others", "--exclude-standard"],
                capture_output=True, check=True,
            )  # fmt: skip
            theirs = {path for path in told.stdout.decode().split("\0") if path} - {".gitignore"}
            ignore = Ignore([*lines, "!.gitignore", ".git/"])
            found = {one.path for one in scan(tmp_path, ignore).entries if one.kind == "file"}
            assert found - {".gitignore"} == theirs, lines


def test_later_patterns_decide_and_the_ignore_file_is_read(tmp_path: Path) -> None:
    (tmp_path / ".wirespeedignore").write_text("# mine\n*.ckpt\n!.git\n")
    for path in ("a.ckpt", "b.ckpt", "c", ".git/config"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    found = scan(tmp_path, ignore_for(tmp_path, ("!b.ckpt", "c")))
    assert {one.path for one in found.entries if one.kind == "file"} == {
        ".git/config",
        ".wirespeedignore",
        "b.ckpt",
    }
