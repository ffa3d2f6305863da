"""The faults that reliability.py makes, each with what must be said of it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

NODES = 4
"""Of the lab; a fault takes as many of them as it needs."""
RATE = 300_000_000
"""Of every healthy link, bit/s: what two cores carry for four nodes beside other work."""
BENCH = ("bench", "all_reduce", "-b", "1K", "-f", "2", "-w", "1", "--timeout", "3", "-q")
LONG = (*BENCH, "-e", "16M", "--precision", "0.1", "--max-time", "1", "--ranks", "2")
SHORT = (*BENCH, "-e", "64K", "-n", "3", "--ranks", "2")
TRAIN = (
    "train",
    "--ranks",
    "2",
    "--rounds",
    "2",
    "--steps",
    "1",
    "--layers",
    "1",
    "--max-time",
    "2",
)
QUICK = ("check", "-l", "quick", "-q")

UNEQUAL = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4 + 4 * dist.get_rank()))
"""
"""A user's job whose ranks hand in tensors of different sizes."""

# What other tools do: read in their sources and documentation, which docs/reliability.md names.
WAITS = "waits without end by default; with `-T S`: `Test timeout`, and the host that waited"
ASYNC = "ends where NCCL reports an asynchronous error; the rank only in mpirun's words"
SLOWER = "a lower figure for all; no culprit; fails below 0.9 × `NCCL_TESTS_MIN_BW` if that is set"
SAME = "cannot happen: every rank runs the same loop"
NONE = "nothing of the kind"
UNKNOWN = "unknown"
RULES = (
    "where the figures break a rule or a baseline, by `sb result diagnosis`; pairs with `pair-wise`"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Made before the command, or while it measures (`strike`), else by an `--inject` of its words."""

    name: str
    made: str
    words: tuple[str, ...]
    named: tuple[str, ...]
    """How the id of the finding begins, or words of the line, that names it."""
    codes: tuple[int, ...] = (1,)
    who: str = ""
    """Words that the finding must hold: whom it names."""
    strike: Callable[[Any], object] | None = None
    before: Callable[[Any], object] | None = None
    then: tuple[tuple[str, ...], ...] = ()
    """Commands afterwards whose output counts, too."""
    nodes: int = 0
    """Nodes of the lab; 0: ranks of this machine."""
    root: bool = False
    nccl_tests: str = UNKNOWN
    superbench: str = UNKNOWN


def _signal(number: signal.Signals) -> Callable[[Any], object]:
    return lambda stage: stage.ranks()[1].send_signal(number)


def _of_session(number: signal.Signals) -> Callable[[Any], object]:
    return lambda stage: stage.session.send_signal(number)


def _full_disk(stage: Any) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", stage.home], check=True)
    stage.after.append(lambda: subprocess.run(["umount", "--lazy", stage.home], check=True))


def _strangers(stage: Any) -> None:
    """Garbage, and 40 callers that say nothing, at every port on which this run listens."""
    held: list[socket.socket] = []
    for process in (psutil.Process(stage.session.pid), *stage.ranks().values()):
        with suppress(psutil.Error):
            for one in process.net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN:
                    held += _callers(one.laddr.port)
    stage.after += [one.close for one in held]


def _callers(port: int) -> list[socket.socket]:
    callers = []
    for number in range(41):
        with suppress(OSError):
            one = socket.create_connection(("127.0.0.1", port), 1.0)
            callers.append(one)
            if number == 0:
                one.sendall(b"GET / HTTP/1.1\r\n\r\n" + os.urandom(4096))
    return callers


def _damaged(stage: Any) -> None:
    """Two runs, one of them overwritten."""
    words = [sys.executable, "-m", "wirespeed", "topo", "-q"]
    for _ in range(2):
        subprocess.run(words, env=stage.environment(), check=True, capture_output=True, timeout=60)
    first, *_ = stage.home.glob("runs/*-*")
    (first / "run.json").write_bytes(b'{"id": 7}\x1b[2J')
    (first / "records.jsonl").write_bytes(b"\xff" * 1000)


def _lab(name: str, *words: Any) -> Callable[[Any], object]:
    return lambda stage: getattr(stage.lab, name)(*words)


FAULTS = (
    Fault(
        "rank killed",
        "`kill -9` of rank 1 while it measures",
        LONG,
        ("DIED-001",),
        who="rank 1",
        strike=_signal(signal.SIGKILL),
        nccl_tests=ASYNC,
    ),
    Fault(
        "rank stopped",
        "`kill -STOP` of rank 1 while it measures",
        LONG,
        ("HANG-001",),
        who="rank 1",
        strike=_signal(signal.SIGSTOP),
        nccl_tests=WAITS,
    ),
    Fault(
        "segmentation fault",
        "`kill -SEGV` of rank 1 while it measures",
        LONG,
        ("DIED-001",),
        who="rank 1",
        strike=_signal(signal.SIGSEGV),
        nccl_tests=ASYNC,
    ),
    Fault(
        "rank raises, exits with 1",
        "`bench --inject raise:rank=1`",
        (*SHORT, "--inject", "raise:rank=1,after=3"),
        ("RAISED-001",),
        who="rank 1",
        nccl_tests=ASYNC,
    ),
    Fault(
        "hang: another collective than the rest",
        "`bench --inject other:rank=1`",
        (*SHORT, "--inject", "other:rank=1,after=3"),
        ("HANG-003",),
        who="rank 1",
        nccl_tests=SAME,
        superbench=SAME,
    ),
    Fault(
        "tensors of different sizes",
        "`launch --ranks 2` of a job of 3 lines",
        ("launch", "--ranks", "2", "-q", "--", sys.executable, "-c", UNEQUAL),
        ("GLOO-006",),
        codes=(134,),
        nccl_tests=SAME,
        superbench=SAME,
    ),
    Fault(
        "wrong data: one bit",
        "`bench --inject flip:rank=1`",
        (*SHORT, "--inject", "flip:rank=1"),
        ("COL-",),
        who="rank 1",
        nccl_tests="counted in `#wrong`, FAILED, exit 1; no rank, no place (`-c 1`, the default)",
        superbench="not looked for: `nccl-bw` calls nccl-tests with `-c 0`",
    ),
    Fault(
        "NaN in the loss",
        "`train --inject nan:rank=1,after=3`",
        (*TRAIN, "-q", "--strategy", "naive", "--inject", "nan:rank=1,after=3"),
        ("TRAIN-002",),
        who="rank 1",
        nccl_tests=NONE,
    ),
    Fault(
        "rank never comes",
        "`bench --inject absent:rank=1 --startup-timeout 20`",
        (*SHORT, "--startup-timeout", "20", "--inject", "absent:rank=1"),
        ("JOIN-001",),
        who="rank 1",
        nccl_tests="waits in MPI or NCCL, no rank named",
    ),
    Fault(
        "slow rank",
        "lab: CPU quota of 30 % of a core on node-1; `locate`",
        ("locate", "-q"),
        ("LOC-007",),
        who="node-1",
        before=_lab("straggler", "node-1", "30%"),
        nodes=4,
        nccl_tests=SLOWER,
        superbench=RULES,
    ),
    Fault(
        "slow link",
        "lab: 30 of 300 Mbit/s between node-0 and node-2 (tc); `locate`",
        ("locate", "-q"),
        ("LOC-006",),
        who="node-0 <-> node-2",
        before=_lab("slow_link", "node-0", "node-2", "30mbit"),
        nodes=4,
        nccl_tests=SLOWER,
        superbench=RULES,
    ),
    Fault(
        "lost packets",
        "lab: 2 % of node-1's packets (nftables); `locate`",
        ("locate", "-q"),
        ("LOC-",),
        who="node-1",
        before=_lab("lossy", "node-1", "2%"),
        nodes=3,
        nccl_tests=SLOWER,
        superbench=RULES,
    ),
    Fault(
        "black-holed link",
        "lab: node-1's cable cut while it measures",
        (*LONG[:-2],),
        ("HANG-", "DIED-", "LOST-", "NET-"),
        who="node-1",
        strike=_lab("cut", "node-1"),
        nodes=3,
        nccl_tests=WAITS,
    ),
    Fault(
        "closed ports",
        "lab: a firewall on node-2 that drops; `check --only NET`",
        (*QUICK, "--only", "NET"),
        ("NET-004",),
        who="node-2",
        before=_lab("firewall", "node-2"),
        nodes=3,
        nccl_tests="waits, or NCCL's own error; no cause",
    ),
    Fault(
        "MTU black hole",
        "lab: packets above 1400 bytes to node-1 vanish; `check`",
        (*QUICK, "--timeout", "8"),
        ("NET-005",),
        who="node-1",
        before=_lab("mtu", "node-1", 1400),
        nodes=3,
        nccl_tests=WAITS,
    ),
    Fault(
        "clock 2 s ahead",
        "lab: `check --only NET --inject clock:rank=2`",
        (*QUICK, "--only", "NET", "--inject", "clock:rank=2"),
        ("NET-006",),
        codes=(0,),
        who="node-2",
        nodes=3,
        nccl_tests="not looked at",
        superbench="not looked at",
    ),
    Fault(
        "disk full",
        "the run folder on a file system of 64 KiB",
        (
            *BENCH[:2],
            *["-b", "1000", "-e", "200K", "-i", "1000", "-w", "0", "-n", "1", "--ranks", "2", "-q"],
        ),
        ("No space left on device", "could not be stored"),
        codes=(0,),
        before=_full_disk,
        root=True,
        nccl_tests="stores nothing by default",
    ),
    Fault(
        "the command itself is killed",
        "`kill -9` of it while it measures, then `runs show last`",
        LONG,
        ("RUN-001",),
        codes=(-signal.SIGKILL,),
        strike=_of_session(signal.SIGKILL),
        then=(("runs", "show", "last"),),
        nccl_tests="nothing is kept but what was printed",
    ),
    Fault(
        "Ctrl-C",
        "SIGINT while it measures",
        LONG,
        ("INT-001",),
        codes=(130,),
        strike=_of_session(signal.SIGINT),
        nccl_tests="nothing is kept but what was printed",
    ),
    Fault(
        "strangers on its ports",
        "garbage and 40 silent callers at each port of a running bench",
        LONG,
        ("MEASURED",),
        codes=(0,),
        strike=_strangers,
    ),
    Fault(
        "damaged stored run",
        "garbage in run.json and records of one of two runs; `runs list`",
        ("runs", "list"),
        ("damaged", "cannot be read", "no valid JSON"),
        codes=(0,),
        before=_damaged,
        nccl_tests="stores nothing by default",
    ),
)
