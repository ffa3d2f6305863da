"""What does our harness add to a timed operation? A plain script in processes of its own is the peer.

Two worlds live side by side on this machine, on the default scheduler: `plain_all_reduce.py`, as
torchrun starts it, and ours as the session runs it (watchdog, heartbeats and its polling included;
barrier, clock and gathering are those of `bench` and `check`). They take turns in short blocks, through
as many rotating buffers; one sleeps while the other measures, and who goes first alternates. A round is
a block of each; the figure is the median of the rounds' ratios with its bootstrap interval.

A row is **kept** when the whole interval lies within 2 % or within 3 µs, **over** when it lies beyond
both, **not shown** in between. Exit code 1 unless every row is kept; run it on a quiet machine. What
`--same` shows, the plain script against itself, is the machine's own noise: less cannot be told apart.
With `--engine mpi4py` both worlds are started by mpirun, and mpi4py's own loop (plain_mpi.py) is the
peer.

    [chrt -r 1] python benchmarks/overhead.py [--rounds 40] [--calls 400] [--sizes 4096,65536] [--same]
        [--engine mpi4py] [--launches 5]
"""

import argparse
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import IO, Any

PLAIN = Path(__file__).with_name("plain_all_reduce.py")
PLAIN_MPI = PLAIN.with_name("plain_mpi.py")
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n")
LIMIT_RATIO, LIMIT_S = 1.02, 3e-6
RESAMPLED, CONFIDENCE = 2000, 0.95
HEADER = (
    "| size | plain µs | ours µs | ratio, 95 % interval | added µs, 95 % interval | rounds | |\n"
    "|---|---|---|---|---|---|---|\n"
)
Pair = tuple[float, float]
"""Seconds of one round: the plain world's, ours."""
Turn = Callable[[str], float]
"""Hands a world what to time, `SIZE BUFFERS CALLS`; seconds, the median of its slowest rank."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--launches", type=int, default=1)
    parser.add_argument("--sizes", default="4096,65536,1048576")
    parser.add_argument("--same", action="store_true", help="the plain script against itself")
    parser.add_argument("--engine", choices=("torch", "mpi4py"), default="torch")
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.sizes.split(",")]
    where = f"{asked.ranks} ranks, {os.cpu_count()} cores, {asked.engine}, {scheduler()}"
    sys.stdout.write(f"{where}\n\n{HEADER}")
    other = plain_world if asked.same else our_world
    engine: str = asked.engine
    launches: dict[int, list[list[Pair]]] = {size: [] for size in sizes}
    for _ in range(asked.launches):
        with plain_world(asked.ranks, engine) as plain, other(asked.ranks, engine) as ours:
            for size, found in launches.items():
                found.append(compared(plain, ours, size, asked.rounds, asked.calls))
    rows = [row(size, found) for size, found in launches.items()]
    return 0 if all(rows) else 1


def scheduler() -> str:
    default = os.sched_getscheduler(0) == os.SCHED_OTHER
    return "default scheduler" if default else "real-time scheduler"


def compared(plain: Turn, ours: Turn, size: int, rounds: int, calls: int) -> list[Pair]:
    """The rounds of one launch."""
    from wirespeed.collectives.oracle import rotation
    from wirespeed.node.limits import llc_bytes

    line = f"{size} {rotation(2 * size, llc_bytes())} {calls}"
    pairs = []
    for number in range(rounds + 1):
        if number % 2:
            mine, theirs = ours(line), plain(line)
        else:
            theirs, mine = plain(line), ours(line)
        pairs.append((theirs, mine))
    return pairs[1:]  # the first connects


def row(size: int, launches: list[list[Pair]]) -> bool:
    """Print it; whether it is kept. Of several launches each gives one sample, its median: where memory
    lies differs from launch to launch, and all rounds of one share that."""
    ratios = [[mine / theirs for theirs, mine in one] for one in launches]
    more = [[mine - theirs for theirs, mine in one] for one in launches]
    ratio, added = (
        interval(found[0] if len(found) == 1 else list(map(median, found)))
        for found in (ratios, more)
    )
    verdict = judged(ratio, added)
    pairs = [pair for one in launches for pair in one]
    bare, own = (median(side) * 1e6 for side in zip(*pairs, strict=True))
    print(
        f"| {size >> 10} KiB | {bare:.1f} | {own:.1f} "
        f"| {ratio[1]:.3f} ({ratio[0]:.3f} … {ratio[2]:.3f}) "
        f"| {added[1] * 1e6:+.1f} ({added[0] * 1e6:+.1f} … {added[2] * 1e6:+.1f}) "
        f"| {len(pairs)} | {verdict} |",
        flush=True,
    )
    return verdict == "kept"


def interval(figures: Sequence[float]) -> tuple[float, float, float]:
    """(low, median, high) of the median, by bootstrap."""
    draw = random.Random(0)
    found = sorted(median(draw.choices(figures, k=len(figures))) for _ in range(RESAMPLED))
    tail = round(RESAMPLED * (1 - CONFIDENCE) / 2)
    return found[tail], median(figures), found[-1 - tail]


def judged(ratio: tuple[float, float, float], added: tuple[float, float, float]) -> str:
    if ratio[2] <= LIMIT_RATIO or added[2] <= LIMIT_S:
        return "kept"
    return "over" if ratio[0] > LIMIT_RATIO and added[0] > LIMIT_S else "not shown"


@contextmanager
def plain_world(ranks: int, engine: str) -> Iterator[Turn]:
    ports = {"MASTER_PORT": str(free_port()), "TURNS_PORT": str(free_port())}
    words = [sys.executable, str(PLAIN), "-"] if engine == "torch" else mpi(ranks, PLAIN_MPI)
    with (
        tempfile.TemporaryDirectory() as folder,
        started(words, ranks, {**ports, "TURNS_FOLDER": folder}) as turn,
    ):
        yield turn


def mpi(ranks: int, script: Path) -> list[str]:
    """The command that starts all ranks."""
    return [*MPIRUN, str(ranks), sys.executable, str(script)]


@contextmanager
def our_world(ranks: int, engine: str) -> Iterator[Turn]:
    """With the session's monitor in this process, which also polls as `session/local.py` does."""
    from wirespeed.session.local import POLL_S
    from wirespeed.watchdog import Monitor, new_token

    token = new_token()
    over = threading.Event()

    def poll(monitor: Any) -> None:
        while not over.is_set():
            monitor.wait(POLL_S)

    with (
        tempfile.TemporaryDirectory() as folder,
        Monitor(ranks, token, on_record=lambda *_: None, op_timeout_s=600) as monitor,
    ):
        told = {
            "WIRESPEED_CONSOLE": f"127.0.0.1:{monitor.start()}",
            "WIRESPEED_TOKEN": token,
            "BENCH_STORE": str(Path(folder) / "store"),
            "BENCH_ENGINE": engine,
        }
        script = Path(__file__)
        words = [sys.executable, str(script)] if engine == "torch" else mpi(ranks, script)
        poller = threading.Thread(target=poll, args=(monitor,))
        poller.start()
        try:
            with started(words, ranks, told) as turn:
                yield turn
        finally:
            over.set()
            poller.join()


@contextmanager
def started(command: list[str], ranks: int, more: dict[str, str]) -> Iterator[Turn]:
    """Ranks of one world; rank 0 is told by its standard input, and answers on its output. mpirun is
    one process, which hands both on."""
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **more}
    shared |= {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": str(ranks)}
    by_mpirun = command[0] == MPIRUN[0]
    processes = [
        subprocess.Popen(
            command,
            env=shared if by_mpirun else {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            stdout=subprocess.PIPE if rank == 0 else None,
            text=True,
        )
        for rank in range(1 if by_mpirun else ranks)
    ]
    try:
        yield lambda line: told(processes[0], line)
        processes[0].communicate("\n", timeout=60)  # Open MPI 5 does not hand the end on
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
            process.wait(timeout=60)


def told(first: "subprocess.Popen[str]", line: str) -> float:
    pipes: tuple[IO[str] | None, IO[str] | None] = (first.stdin, first.stdout)
    given, answers = pipes
    if given is None or answers is None:
        raise RuntimeError("rank 0 has no pipes")
    given.write(line + "\n")
    given.flush()
    answer = answers.readline()
    if not answer:
        raise RuntimeError("rank 0 has ended")
    return float(answer) / 1e6


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def our_rank() -> int:
    """A rank of ours, up to the end of rank 0's input."""
    import torch.distributed as dist

    from wirespeed.collectives.catalogue import CATALOGUE
    from wirespeed.node.identity import detect
    from wirespeed.plan import Case, Measure, Plan
    from wirespeed.rank.joining import join, leave
    from wirespeed.rank.measure import measure
    from wirespeed.rank.place import site_of
    from wirespeed.watchdog.heartbeat import Heartbeat

    identity = detect({**os.environ, "LOCAL_WORLD_SIZE": os.environ["WORLD_SIZE"]})
    if identity is None:
        raise RuntimeError("this is started by main")
    host, _, port = os.environ["WIRESPEED_CONSOLE"].rpartition(":")
    heartbeat = Heartbeat(
        host, int(port), os.environ["WIRESPEED_TOKEN"], identity.rank, identity.world_size
    )
    heartbeat.connect(20)
    store = dist.FileStore(os.environ["BENCH_STORE"], identity.world_size)
    plan = Plan(command="bench", steps=(), op_timeout_s=600, engine=os.environ["BENCH_ENGINE"])
    place = join(identity, plan, store, "gloo", heartbeat.tick, lambda bound: None)
    heartbeat.phase("running")
    while True:
        line = sys.stdin.readline() if place.rank == 0 else ""
        line = place.control.objects(line, str)[0]
        if not line.strip():
            break
        size, buffers, calls = map(int, line.split())
        heartbeat.enter(line)
        case = Case(op="all_reduce", redop="sum", size_bytes=size)
        site = site_of(place, case, CATALOGUE["all_reduce"], size)
        # Every buffer once, as the plain loops do.
        how = Measure(warmup=max(20, buffers), iterations=calls)
        found = measure(place, site, how, None)
        if place.rank == 0:
            print(f"{found.time.median * 1e6:.3f}", flush=True)
    leave(place)
    heartbeat.finish(0)
    return 0


if __name__ == "__main__":
    sys.exit(our_rank() if "BENCH_STORE" in os.environ else main())
