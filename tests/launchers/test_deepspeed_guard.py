"""What ends DeepSpeed's processes: the guard here, a silent or closed connection on the far side."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from processes import marked, until
from wirespeed.errors import WorldError
from wirespeed.launchers.deepspeed import far as deepspeed_far
from wirespeed.launchers.deepspeed.far import silent_s
from wirespeed.launchers.deepspeed.guard import (
    HOLD,
    Node,
    Orders,
    guarded,
    orders_text,
    take,
    unpack,
)
from wirespeed.launchers.rank_wrapper import wrapped
from wirespeed.process.frames import VARIABLE

BOUND_S = 30.0
MARK = "WIRESPEED_TEST_GUARD"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    value = str(tmp_path)
    yield value
    for pid in marked(MARK, value):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start(mark: str) -> Iterator[Start]:
    started = []

    def start(*words: str, grace: float = 0.3, orders: str = "", **env: str) -> object:
        process = subprocess.Popen(
            guarded(sys.executable, words, grace, orders=orders),
            env={**os.environ, MARK: mark, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=BOUND_S)


def hold(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write(HOLD)
    process.stdin.flush()


def hang_up(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None


def told(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """All that it said until it ended, with stdin held open."""
    hold(process)
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = process.stdout.read(), process.stderr.read()
    process.wait(BOUND_S)
    return out, err


def runner(folder: Path) -> tuple[str, ...]:
    """As DeepSpeed's: it would reach out on SIGTERM, and leaves a process that leaves another."""
    inner = f"(setsid sleep 600 & echo > {folder}/inner; wait)"
    own = f"trap 'touch {folder}/reached-out' TERM INT; sh -c '{inner}' & echo > {folder}/up; wait"
    return ("sh", "-c", f"{own}; wait")


@pytest.mark.parametrize("end", ["stdin", "signal"])
def test_all_that_it_left_behind_is_ended(
    start: Start, mark: str, tmp_path: Path, end: str
) -> None:
    process = start(*runner(tmp_path))
    hold(process)
    until(lambda: (tmp_path / "up").exists() and (tmp_path / "inner").exists())
    assert len(marked(MARK, mark)) >= 4
    if end == "stdin":
        hang_up(process)
    else:
        process.send_signal(signal.SIGTERM)
    assert process.wait(BOUND_S) == 128 + signal.SIGTERM
    assert marked(MARK, mark) == []
    assert not (tmp_path / "reached-out").exists()


@pytest.mark.slow
def test_what_ignores_sigterm_is_killed(start: Start, mark: str, tmp_path: Path) -> None:
    stubborn = f"trap '' TERM; echo > {tmp_path}/up; sleep 600"
    process = start("sh", "-c", f'sh -c "{stubborn}" & wait')
    hold(process)
    until((tmp_path / "up").exists)
    hang_up(process)
    process.wait(BOUND_S)
    assert marked(MARK, mark) == []


@pytest.mark.slow
@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_the_exit_code_is_the_runners(start: Start, script: str, code: int) -> None:
    process = start("sh", "-c", f"echo out; echo err >&2; {script}")
    out, err = told(process)
    assert (process.returncode, out, err) == (code, "out\n", "err\n")


def test_without_a_word_on_stdin_it_runs_on(start: Start) -> None:
    process = start("sh", "-c", "sleep 0.5; echo done")
    hang_up(process)
    assert process.stdout is not None
    assert process.stdout.read() == "done\n"
    assert process.wait(BOUND_S) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("pdsh@here: node-1: ssh exited with exit code 255", True),
        ("node-1: pdsh@here: node-1: ssh exited with exit code 255", False),
    ],
)
def test_a_host_that_ended_ends_the_rest(start: Start, mark: str, line: str, ends: bool) -> None:
    process = start("sh", "-c", f"echo '{line}' >&2; sleep 3; echo went on")
    out, err = told(process)
    assert err == f"{line}\n"
    assert (out, process.returncode) == (("", 143) if ends else ("went on\n", 0))
    assert marked(MARK, mark) == []


TELL_ALL = "import json, os; print(json.dumps(dict(os.environ)))"


def written(folder: Path, orders: Orders) -> str:
    path = folder / "orders"
    path.write_text(orders_text(orders))
    return str(path)


def test_deepspeed_sees_nothing_that_it_would_export(start: Start, tmp_path: Path) -> None:
    env = {"MLFLOW_TRACKING_TOKEN": "s3cr3t", "NCCL_X": "1", "UCX_Y": "2", "MY_TOKEN": "s3cr3t"}
    orders = written(tmp_path, Orders(names=("MY_TOKEN", "NCCL_X")))
    out, _ = told(start(sys.executable, "-c", TELL_ALL, orders=orders, **env))
    seen = json.loads(out)
    assert not [name for name in seen if name.startswith(("MLFLOW", "NCCL", "UCX", "PYTHON"))]
    assert seen["DS_ENV_FILE"] == "/dev/null"
    ranks = unpack(seen["WIRESPEED_CARRIED"])
    assert {name: ranks[name] for name in ("NCCL_X", "UCX_Y", "MY_TOKEN")} == {
        name: env[name] for name in ("NCCL_X", "UCX_Y", "MY_TOKEN")
    }
    assert "MLFLOW_TRACKING_TOKEN" not in ranks
    out, _ = told(start(sys.executable, "-c", TELL_ALL, **env))
    assert json.loads(out)["NCCL_X"] == "1"


def test_a_module_found_by_pythonpath_runs_without_it(start: Start, tmp_path: Path) -> None:
    (tmp_path / "only_there.py").write_text(f"import sys\nprint(sys.argv[1:])\n{TELL_ALL}\n")
    orders = written(tmp_path, Orders(names=()))
    words = (sys.executable, "-P", "-m", "only_there", "--a", "b c")
    out, err = told(start(*words, orders=orders, PYTHONPATH=str(tmp_path)))
    first, second = out.splitlines()
    assert (first, err) == ("['--a', 'b c']", "")
    assert "PYTHONPATH" not in json.loads(second)


def test_nodes_get_the_environment_before_deepspeed_starts(start: Start, tmp_path: Path) -> None:
    base, folder = str(tmp_path / "there"), tmp_path / "there-4"
    ssh = Node(("sh", "-c"), 4, (6, 7))  # a far shell, without the network between
    orders = written(tmp_path, Orders(names=("NCCL_X",), folder=base, nodes=[ssh]))
    code = (
        f"import os; print(sorted(os.listdir({str(folder)!r})), 'WIRESPEED_CARRIED' in os.environ)"
    )
    out, err = told(start(sys.executable, "-c", code, orders=orders, NCCL_X="a\nb"))
    assert (out, err) == ("['6', '7'] False\n", "")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert take(base, 4, 7)["NCCL_X"] == "a\nb"
    assert folder.exists()
    assert take(base, 4, 6)["NCCL_X"] == "a\nb"
    assert not folder.exists()
    with pytest.raises(WorldError, match="as it was brought"):
        take(base, 4, 6)


def test_what_no_rank_took_is_removed(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "there-4"
    orders = Orders(names=(), folder=str(tmp_path / "there"), nodes=[Node(("sh", "-c"), 4, (6, 7))])
    process = start("sh", "-c", "exit 7", orders=written(tmp_path, orders))
    told(process)
    assert process.returncode == 7
    assert not folder.exists()


def test_a_node_that_takes_nothing_is_an_error(start: Start, tmp_path: Path) -> None:
    orders = Orders(names=(), folder="/proc/nowhere", nodes=[Node(("sh", "-c"), 0, (0,))])
    process = start("sh", "-c", "echo started", orders=written(tmp_path, orders))
    out, err = told(process)
    assert (out, process.returncode) == ("", 3)
    assert "could not be brought" in err


def test_it_runs_where_deepspeed_can_write_the_folder(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeed puts its folder, unquoted, on the far shells' command lines."""
    odd = tmp_path / "$(touch pwned)"
    odd.mkdir()
    monkeypatch.chdir(odd)
    process = start("sh", "-c", 'pwd; echo "$2"', "sh", "--hostfile", "folder/hosts")
    out, _ = told(process)
    assert out == f"/\n{odd}/folder/hosts\n"


def test_a_silent_rank_ends_when_nobody_is_left_to_hear(mark: str) -> None:
    """sshd that has lost its connection closes the pipe, and ends nothing."""
    ours, theirs = os.pipe()
    place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    process = subprocess.Popen(
        wrapped(sys.executable, ["sleep", "600"]),
        env={**os.environ, **place, VARIABLE: "t", MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
    )
    os.close(theirs)
    assert b" h 0 " in os.read(ours, 4096)
    assert len(marked(MARK, mark)) == 2
    os.close(ours)
    process.wait(BOUND_S)
    assert marked(MARK, mark) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_silence_of_a_connection_is_known(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as theirs,
        server.accept()[0],
    ):
        ends = [*theirs.getsockname()[:2], *theirs.getpeername()[:2]]
        connection = " ".join(map(str, ends))
        time.sleep(0.5)
        silence = silent_s(connection)
        assert silence is not None
        assert silence > 0.4
        theirs.send(b"x")
        time.sleep(0.05)
        after = silent_s(connection)
        assert after is not None
        assert after < silence
    assert silent_s("192.0.2.1 1 192.0.2.2 2") is None
    assert silent_s("nonsense") is None


def test_a_rank_ends_with_a_silent_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = iter([0.0, 1.0, 61.0])
    ended: list[tuple[int, int]] = []
    monkeypatch.setattr(deepspeed_far, "silent_s", lambda connection: next(told))
    monkeypatch.setattr(deepspeed_far, "LOOK_S", 0.01)
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append((pid, number)))
    deepspeed_far._watch("a connection")
    assert ended == [(os.getpid(), signal.SIGTERM)]
    told = iter([1.0])
    monkeypatch.setattr(deepspeed_far, "silent_s", lambda connection: next(told, None))
    deepspeed_far._watch("a connection that is gone")
    assert len(ended) == 1
