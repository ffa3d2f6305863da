"""Metaflow's flow of ours, and the names of the variables that it is told by.

What a process of Metaflow does before it loads Metaflow: where it runs, and with whom it ends.
"""

import os
import signal
import sys
import time
from collections.abc import MutableMapping
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NoReturn

from wirespeed.process.guard import die_with_parent, on_end_of_stdin

FLOW = Path(__file__).parent / "ranks" / "wirespeed_ranks.py"
"""Alone in its folder: Metaflow packs a flow's whole folder for computes elsewhere."""
OWN = "WIRESPEED_METAFLOW_"
"""What these names begin with: no rank gets them."""
COMMAND = f"{OWN}COMMAND"
"""The words of one rank, as a JSON list."""
PYTHON = f"{OWN}PYTHON"
"""Interpreter of the ranks; not set: the one that runs the task."""
COMPUTE = f"{OWN}COMPUTE"
"""A decorator for the ranks' step alone, as JSON: `{"kubernetes": {"image": …}}`."""
CARRY = f"{OWN}CARRY"
"""Names of the variables that the nodes need, with commas between."""
FOLDER = f"{OWN}FOLDER"
"""Where the flow runs: Metaflow reads settings from `.metaflow` in the working directory and above,
and those of a user's project are not meant for us."""


PARENT = "WIRESPEED_PARENT"
"""Pid of the process that starts others; they compare it with their own parent."""


def end_with_parent() -> None:
    """SIGTERM for this process when its parent has gone, however that went.

    The parent must have called this too (or told its pid in `PARENT`): then one that went
    before we could ask is noticed as well. Ends this process at once then, with 143.
    """
    told = os.environ.get(PARENT, "")
    die_with_parent(signal.SIGTERM)
    if told and os.getppid() != int(told):
        sys.exit(128 + signal.SIGTERM)
    os.environ[PARENT] = str(os.getpid())
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, _: FrameType | None) -> NoReturn:
    """In order: what is registered to be done at the end, is done."""
    sys.exit(128 + number)


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
    on_end_of_stdin(_over, held=True)


def _over() -> None:
    """Whoever started us waits no longer: that is good where only Metaflow's own steps are left."""
    folder = os.environ.get(FOLDER)
    nodes = int(dict(pairwise(sys.argv)).get("--nodes", "1"))
    if folder and len(list(Path(folder).glob(f"{_ENDED}*"))) == nodes:
        os._exit(0)  # its tasks end with it, as they have called `end_with_parent`
    os.killpg(0, signal.SIGTERM)


def node_ended(node: int) -> None:
    """All ranks of that node have ended with 0."""
    if folder := os.environ.get(FOLDER):
        (Path(folder) / f"{_ENDED}{node}").touch()


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
