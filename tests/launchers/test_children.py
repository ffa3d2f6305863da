"""Child processes: start, watch and stop real ones."""

import os
import sys
from pathlib import Path

import pytest

from processes import until
from wirespeed.errors import WorldError
from wirespeed.launchers.children import Child, Children


def spec(rank, log, code, **environment):
    return Child(
        rank, f"rank {rank}", (sys.executable, "-c", code), {**os.environ, **environment}, log
    )


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_output_environment_and_return_codes(tmp_path):
    children = Children()
    code = "import os, sys; print('rank', os.environ['RANK']); sys.exit(int(os.environ['RANK']))"
    children.start([spec(r, tmp_path / f"{r}.log", code, RANK=str(r)) for r in range(3)])
    codes = {}
    until(lambda: codes.update(children.ended()) or len(codes) == 3)
    assert codes == {0: 0, 1: 1, 2: 2}
    assert [(tmp_path / f"{r}.log").read_text() for r in range(3)] == [
        "rank 0\n",
        "rank 1\n",
        "rank 2\n",
    ]


def test_stop_ends_what_ignores_sigterm_what_is_stopped_and_children(tmp_path):
    stubborn = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    frozen = "import os, signal; print('up', flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    children = Children()
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    children.start([spec(0, logs[0], stubborn), spec(1, logs[1], frozen)])
    until(lambda: all(log.exists() and log.read_text() for log in logs))
    pids = [*children.pids().values(), int(logs[0].read_text())]
    children.stop(grace_s=0.3)
    until(lambda: all(gone(pid) for pid in pids[:2]))
    until(lambda: gone(pids[2]) or _is_zombie(pids[2]))


def _is_zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_command_that_does_not_exist_is_named_and_nothing_is_left(tmp_path):
    children = Children()
    good = spec(0, tmp_path / "0.log", "import time; time.sleep(60)")
    bad = Child(1, "rank 1", ("/no/such/program",), dict(os.environ), tmp_path / "1.log")
    with pytest.raises(WorldError, match="rank 1 could not be started"):
        children.start([good, bad])
    assert all(gone(pid) for pid in children.pids().values())
