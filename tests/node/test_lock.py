"""One owner at a time: real processes that hold, die, and want the same folder at once."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from wirespeed.errors import CannotMeasure, StorageError
from wirespeed.node import lock as module
from wirespeed.node.lock import Held, Lock

SHORT_S = 0.4
"""A bound for those of other machines."""
PROGRAM = """\
import sys
from pathlib import Path
from wirespeed.node.lock import Held, Lock
print("ready", flush=True)
sys.stdin.readline()
try:
    held = Lock.take(Path(sys.argv[1]), "wirespeed train")
    print("got", held.before.pid if held.before else "", flush=True)
except Held as error:
    print("held", error, flush=True)
sys.stdin.read()
"""


class Other:
    """A process that takes the lock when told, and holds it until it ends."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.line() == "ready"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def take(self) -> str:
        self.go()
        return self.line()

    def end(self) -> None:
        with self.process:  # which closes its pipes
            self.process.kill()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Callable[[], Other]]:
    made: list[Other] = []

    def make() -> Other:
        made.append(Other(tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOUCH_S", SHORT_S / 8)
    monkeypatch.setattr(module, "_POLL_S", SHORT_S / 40)


def locks(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def left_by(folder: Path, **changes: Any) -> Path:
    """A lock that its owner did not release: ours, with these things said otherwise."""
    mine = Lock.take(folder, "wirespeed check")
    path = folder / ".wirespeed-lock.1"
    told = json.loads(path.read_text())
    mine.release()
    path.write_text(json.dumps(told | changes))
    return path


def test_the_second_is_refused_with_the_name_of_the_first(tmp_path: Path, other: Any) -> None:
    first = other()
    assert first.take() == "got"
    with pytest.raises(Held) as refused:
        Lock.take(tmp_path, "wirespeed train")
    assert f"in use by pid {first.process.pid} on " in refused.value.saw
    assert "wirespeed train, since 20" in refused.value.saw
    assert refused.value.exit_code == 3
    assert refused.value.next == f"ps -fp {first.process.pid}"


def test_the_owner_itself_is_a_second_too(tmp_path: Path) -> None:
    mine = Lock.take(tmp_path, "wirespeed check")
    assert mine.held
    with pytest.raises(Held):
        Lock.take(tmp_path, "wirespeed check")
    mine.release()
    mine.release()
    assert locks(tmp_path) == []
    Lock.take(tmp_path, "wirespeed check").release()


def test_of_eight_at_once_one_takes_a_dead_owners_lock(tmp_path: Path, other: Any) -> None:
    first = other()
    first.take()
    many = [other() for _ in range(8)]
    first.end()
    for one in many:
        one.go()
    said = [one.line() for one in many]
    got = [index for index, text in enumerate(said) if text == f"got {first.process.pid}"]
    assert len(got) == 1, said
    winner = many[got[0]].process.pid
    assert sum(f"in use by pid {winner} " in text for text in said) == 7, said
    assert locks(tmp_path) == [".wirespeed-lock.2"]


def test_a_pid_that_was_given_again_is_another_process(tmp_path: Path) -> None:
    left_by(tmp_path, started=1)
    taken = Lock.take(tmp_path, "wirespeed check")
    assert taken.before is not None and taken.before.pid == os.getpid()
    taken.release()


def test_a_zombie_holds_nothing(tmp_path: Path, other: Any) -> None:
    first = other()
    first.take()
    first.process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, first.process.pid, os.WEXITED | os.WNOWAIT)
    Lock.take(tmp_path, "wirespeed check").release()


def test_a_stopped_owner_lives(tmp_path: Path, other: Any) -> None:
    first = other()
    first.take()
    first.process.send_signal(signal.SIGSTOP)
    with pytest.raises(Held):
        Lock.take(tmp_path, "wirespeed check", bound_s=0.0)


@pytest.mark.parametrize("held", [True, False])
def test_pid_1_of_another_container_is_told_by_its_flock(tmp_path: Path, held: bool) -> None:
    path = left_by(tmp_path, pid=1, space=1, flock=True)
    with path.open() as file:
        if not held:
            Lock.take(tmp_path, "wirespeed check", bound_s=60.0).release()
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(Held, match="pid 1 on "):
            Lock.take(tmp_path, "wirespeed check", bound_s=0.0)


@pytest.mark.parametrize("clock", [0, 2_000_000_000])
def test_another_machines_lock_lives_while_it_is_touched(tmp_path: Path, clock: int) -> None:
    """Whatever its clock says."""
    path = left_by(tmp_path, boot="another", flock=False)
    over = threading.Event()

    def touch() -> None:
        at = clock
        while not over.wait(SHORT_S / 8):
            os.utime(path, (at, at))
            at -= 1

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        with pytest.raises(Held):
            Lock.take(tmp_path, "wirespeed check", bound_s=60.0)
    finally:
        over.set()
        thread.join()
    told: list[str] = []
    begin = time.monotonic()
    taken = Lock.take(tmp_path, "wirespeed check", bound_s=SHORT_S, say=told.append)
    assert time.monotonic() - begin >= SHORT_S
    assert taken.before is not None and "still lives" in told[0]
    taken.release()


def test_a_holder_touches_its_lock(tmp_path: Path) -> None:
    mine = Lock.take(tmp_path, "wirespeed check")
    path = tmp_path / ".wirespeed-lock.1"
    os.utime(path, (1, 1))
    end = time.monotonic() + 20
    while path.stat().st_mtime == 1:
        assert time.monotonic() < end
        time.sleep(0.01)
    mine.release()


def test_who_was_taken_for_dead_knows_it(tmp_path: Path) -> None:
    slow = Lock.take(tmp_path, "wirespeed train")
    (tmp_path / ".wirespeed-lock.2").write_text("{}")
    assert not slow.held
    slow.release()
    assert locks(tmp_path) == [".wirespeed-lock.1", ".wirespeed-lock.2"], "nobody else's is removed"


@pytest.mark.parametrize("text", ["", "[]", "{}", "\0\xff", '{"pid": 1}', "[" * 3000])
def test_a_damaged_lock_is_one_that_nobody_touches(tmp_path: Path, text: str) -> None:
    (tmp_path / ".wirespeed-lock.7").write_text(text)
    Lock.take(tmp_path, "wirespeed check", bound_s=0.05).release()
    assert locks(tmp_path) == []


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_not_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / ".wirespeed-lock.1")
    Lock.take(tmp_path, "wirespeed check", bound_s=0.05).release()
    assert locks(tmp_path) == []


def test_what_another_wrote_is_safe_to_print(tmp_path: Path) -> None:
    left_by(tmp_path, command="\x1b[2J" + "x" * 500)
    with pytest.raises(Held) as refused:
        Lock.take(tmp_path, "wirespeed check")
    assert "\x1b" not in str(refused.value) and len(refused.value.saw) < 400


def test_without_flock_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    mine = Lock.take(tmp_path, "wirespeed check")
    with pytest.raises(Held):
        Lock.take(tmp_path, "wirespeed check")
    mine.release()


def test_a_folder_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot lock .*file") as refused:
        Lock.take(tmp_path / "file", "wirespeed train")
    assert refused.value.next.startswith("df -h ")

    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(CannotMeasure, match="No space left on device"):
        Lock.take(tmp_path / "kept", "wirespeed train")
    assert locks(tmp_path / "kept") == [], "no half lock keeps others out"
