"""Real runs for benchmarks/verdicts.py: `wirespeed bench` over gloo, a fake engine, a lab with tc.

Every run is a process of its own. Runs come in rounds, one of each kind in a round, and the order
within the round turns, so that what disturbs the machine disturbs all kinds alike. A time limit ends
the measuring after a whole round; what was measured until then counts.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from wirespeed.collectives.stopping import StopRule, WarmUp
from wirespeed.lab import Lab
from wirespeed.lab.spec import LabSpec, parse_rate
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Measurement, NodeFacts, Run, World
from wirespeed.runs.store import load
from wirespeed.statistics import time_stats

Round = dict[str, Run]
"""A run of each kind: A and B, which are alike, and slower ones by the name of their slow-down."""
SLOWER = {"5 %": 0.05, "10 %": 0.10, "20 %": 0.20}
KINDS = ("A", "B", *SLOWER)
SLEEP_S = 1e-3
"""The fake engine's operation beside its work: a sleep, which `slow` makes longer."""
LAB_MBIT = 500
_TOLD_S = 20.0
_BOUND_S = 120


def told(kind: str, done: int, count: int, began: float) -> None:
    """A line of progress with the time that is left."""
    spent = time.monotonic() - began
    left = spent / max(done, 1) * (count - done) / 60
    line = f"{kind}: {done} of {count}, {spent:.0f} s; at most {left:.1f} minutes more"
    print(line, file=sys.stderr, flush=True)


def until(limit_s: float, count: int, name: str) -> Iterator[int]:
    """Numbers from 0, while another one fits into the time; says how far it is now and then."""
    began = last = time.monotonic()
    for number in range(count):
        now = time.monotonic()
        if number and now - began + (now - began) / number > limit_s:
            told(f"{name}: time is up", number, number, began)
            return
        if number and now - last > _TOLD_S:
            told(name, number, count, began)
            last = now
        yield number


def rounds(
    limit_s: float, count: int, name: str, make: Callable[[str], Run], kinds: Sequence[str] = KINDS
) -> list[Round]:
    """Rounds of one run a kind; each round begins with another kind."""
    found = []
    for number in until(limit_s, count, name):
        turn = number % len(kinds)
        found.append({kind: make(kind) for kind in (*kinds[turn:], *kinds[:turn])})
    return found


# wirespeed bench over gloo.


def real_gloo(home: Path, count: int, ranks: int, limit_s: float) -> list[Run]:
    """`wirespeed bench`, run after run, in a home of its own; those that are there are taken first."""
    folder = home / "runs"
    present = sorted(folder.iterdir()) if folder.is_dir() else []
    found = [load(path) for path in present[:count]]
    for _ in until(limit_s, count - len(found), "runs"):
        before = set(folder.iterdir()) if folder.is_dir() else set()
        _bench(home, [*_words("4K", "1M", 16, 0.1), "--ranks", str(ranks)])
        (made,) = set(folder.iterdir()) - before
        found.append(load(made))
    return found


def _words(smallest: str, largest: str, factor: int, seconds: float) -> list[str]:
    words = ["bench", "all_reduce", "all_gather", "-b", smallest, "-e", largest, "-f", str(factor)]
    return [*words, "-c", "0", "--time-per-size", str(seconds), "-q", "-o", "json"]


def _bench(home: Path, words: Sequence[str]) -> None:
    subprocess.run(
        [sys.executable, "-m", "wirespeed", *words],
        env={**os.environ, "WIRESPEED_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=_BOUND_S,
    )


# A lab whose first node's link is slower.


def lab_rounds(home: Path, nodes: int, count: int, limit_s: float) -> list[Round]:
    """`wirespeed bench` over the nodes; tc divides the rate of node-0's link by 1 + slow-down."""
    folder = home / "runs"
    words = [sys.executable, "-m", "wirespeed", *_words("512K", "2M", 4, 0.3)]
    with Lab(LabSpec(nodes, f"verdicts-{os.getpid()}", parse_rate(f"{LAB_MBIT}mbit"))) as lab:

        def make(kind: str) -> Run:
            lab.heal()
            if kind in SLOWER:
                lab.slow("node-0", f"{LAB_MBIT * 1000 / (1 + SLOWER[kind]):.0f}kbit")
            before = set(folder.iterdir()) if folder.is_dir() else set()
            results = lab.run(words, env={"WIRESPEED_HOME": str(home)}, timeout=_BOUND_S)
            if any(one.returncode not in (0, 1) for one in results):
                raise SystemExit("\n".join(str(one) for one in results))
            (made,) = set(folder.iterdir()) - before
            return load(made)

        return rounds(limit_s, count, "rounds", make)


# A fake engine.


def engine_rounds(count: int, limit_s: float) -> list[Round]:
    return rounds(limit_s, count, "rounds", lambda kind: fake_engine(SLOWER.get(kind, 0.0)))


def fake_engine(slow: float) -> Run:
    """A process of its own with two engines, timed by the rules of a run; see `fake_process`."""
    done = subprocess.run(
        [sys.executable, __file__, str(slow)],
        capture_output=True,
        text=True,
        check=True,
        timeout=_BOUND_S,
    )
    rows = [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
    found = [_measurement(2 ** (12 + 4 * j), np.array(row)) for j, row in enumerate(rows)]
    return _run(os.urandom(4).hex(), found)


def _run(id: str, measurements: list[Measurement]) -> Run:
    node = NodeFacts(host="node", ranks=(0, 1), facts=Facts(torch="2"))
    return Run(
        id=id,
        command="bench",
        verdict="MEASURED",
        exit_code=0,
        started="2026-01-01T00:00:00Z",
        seconds=1.0,
        world=World(size=2, nodes=(node,), backend="gloo", launcher="local"),
        measurements=tuple(measurements),
    )


def _measurement(size: int, times: np.ndarray) -> Measurement:
    stats = time_stats(times.tolist())
    return Measurement(
        op="all_reduce",
        engine="torch",
        dtype="float32",
        redop="sum",
        root=-1,
        in_place=False,
        size_bytes=size,
        count=size // 4,
        ranks=2,
        iterations=len(times),
        time=stats,
        algbw=size / stats.median,
        busbw=size / stats.median,
    )


def fake_process(slow: float) -> None:
    """Prints the samples of operations of 1 and 4 times `SLEEP_S`, each beside some copying."""
    buffer = np.ones(2**16)
    for factor in (1, 4):

        def sample(factor: int = factor) -> float:
            start = time.perf_counter()
            buffer.copy()
            # The slow-down: the sleep in the timed path is longer by that share.
            time.sleep(SLEEP_S * factor * (1 + slow))
            return time.perf_counter() - start

        warm, rule, began = WarmUp(), StopRule(max_time_s=0.1), time.monotonic()
        times: list[float] = []
        while chunk := warm.next_chunk(times, time.monotonic() - began):
            times += [sample() for _ in range(chunk)]
        times, began = [], time.monotonic()
        while chunk := rule.next_chunk(times, time.monotonic() - began):
            times += [sample() for _ in range(chunk)]
        print(*times)


if __name__ == "__main__":
    fake_process(float(sys.argv[1]))
