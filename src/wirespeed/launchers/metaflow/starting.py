"""What a process of Metaflow does before it loads Metaflow: where it runs, and with whom it ends."""

import os
import signal
import sys
import time
from collections.abc import MutableMapping, Sequence
from itertools import pairwise
from pathlib import Path

from wirespeed.launchers.metaflow import FOLDER
from wirespeed.launchers.metaflow.guard import PARENT, end_with_parent, end_with_stdin

__all__ = ["begin", "node_ended", "other_tasks"]

_ENDED = "ended-"
_EXEC_S = 10.0
"""A program that was started has its arguments within this, however loaded the machine is."""


def begin() -> None:
    """To be called by the flow's program, in the runtime and in each of its tasks."""
    _settle(os.environ)
    if "step" in sys.argv:
        end_with_parent()
        return
    # Ctrl-C is what Metaflow's runtime ends in order at; its tasks are in its process group.
    os.environ[PARENT] = str(os.getpid())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    end_with_stdin(_over)


def _over() -> None:
    """Whoever started us waits no longer: that is good where only Metaflow's own steps are left."""
    folder = os.environ.get(FOLDER)
    if folder and len(list(Path(folder).glob(f"{_ENDED}*"))) == _nodes(sys.argv):
        os._exit(0)  # its tasks end with it, as they have called `end_with_parent`
    os.killpg(0, signal.SIGTERM)


def node_ended(node: int) -> None:
    """All ranks of that node have ended with 0."""
    if folder := os.environ.get(FOLDER):
        (Path(folder) / f"{_ENDED}{node}").touch()


def _nodes(arguments: Sequence[str]) -> int:
    return int(dict(pairwise(arguments)).get("--nodes", "1"))


def _settle(environ: MutableMapping[str, str]) -> None:
    """Run in the job's folder, and let Metaflow's settings that name it name it from anywhere."""
    told = environ.get(FOLDER)
    if not told:
        return
    folder = Path(told).absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, value in list(environ.items()):
        if value == told and (name.startswith("METAFLOW_") or name == FOLDER):
            environ[name] = str(folder)
    os.chdir(folder)


def other_tasks() -> list[int]:
    """Pids of the tasks that this one has started: on local compute node 0 starts the others."""
    threads = Path("/proc/self/task").glob("*/children")
    pids = [int(pid) for thread in threads for pid in thread.read_text().split()]
    return [pid for pid in pids if _is_task(pid)]


def _is_task(pid: int) -> bool:
    """Also one that has been killed already: nobody has waited for it yet."""
    words = _words(pid)
    return words is None or (sys.argv[0] in words and "step" in words)


def _words(pid: int) -> list[str] | None:
    """A child's command line; None where it has ended.

    It is empty for a moment after whoever started it goes on: execve(2) lets a vfork's parent run
    before it has written the new program's arguments.
    """
    end = time.monotonic() + _EXEC_S
    while time.monotonic() < end:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return None
        if words:
            return words.decode("utf-8", "replace").split("\0")
        if _has_ended(pid):
            return None
        time.sleep(0.01)
    return []


def _has_ended(pid: int) -> bool:
    """A child of ours; its end is left to be learnt by whoever waits for it."""
    try:
        how = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return how is not None
