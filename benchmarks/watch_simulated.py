"""Does the judge of watched jobs find what is wrong, and nobody else? Simulated jobs, 4 to 16,384 ranks.

Each job has one fault that makes it about 10 % slower, at a random rank and step, or none, or three at
once; jitter, bursts and noise of the whole job; half of the larger ones have tensor groups of four.
A finding counts as right if its id and subject are the fault's. Then the stream of 16,384 ranks, one
message a second from each, is taken in and judged by one process.

Exit code 1 when a promise is broken. Run: python benchmarks/watch_simulated.py [jobs a row]
"""

import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from watch_simulator import IDS, Fault, FaultKind, Job, messages, simulate, subject
from wirespeed.watch.judge import Judged, judge
from wirespeed.watch.stream import StepStore

LEAST = 0.99
MOST_OFF = 10
"""Steps that an onset may be wrong by."""
MOST_BYTES = 1_000_000_000
STEPS = 300
WORLDS = (4, 16, 256, 4096)
TIMES: dict[FaultKind, tuple[float, int]] = {
    "computes": (0.13, 1),
    "no core": (0.13, 1),
    "sleeps": (0.13, 1),
    "bursts": (1.3, 10),
    "node": (0.13, 1),
    "network": (0.13, 1),
    "data": (0.13, 1),
    "gc": (0.65, 5),
    "checkpoint": (2.6, 20),
    "skew": (0.2, 1),
    "change": (0.15, 1),
    "drift": (0.3, 1),
}
"""By kind: seconds a second of work, and how often."""


@dataclass(slots=True)
class Score:
    faults: int = 0
    found: int = 0
    accused: int = 0
    right: int = 0
    off: list[int] = field(default_factory=list)

    def add(self, job: Job, judged: Judged) -> None:
        wanted = {(IDS[one.kind], subject(one, job)) for one in job.faults}
        named = {
            (one.id, one.subject.name) for one in judged.findings if one.status in ("warn", "fail")
        }
        self.faults += len(wanted)
        self.found += len(wanted & named)
        self.accused += len(named)
        self.right += len(wanted & named)
        dated = {one.subject: one.step for one in judged.watched.changes}
        self.off += [
            abs(dated[subject(one, job)] - one.step)
            for one in job.faults
            if one.kind != "drift" and subject(one, job) in dated
        ]

    def kept(self) -> bool:
        dated = sum(off <= MOST_OFF for off in self.off) >= 0.95 * len(self.off)
        return self.found >= LEAST * self.faults and self.right >= LEAST * self.accused and dated

    def row(self, name: str, ranks: int) -> str:
        recall = f"{self.found / self.faults:.3f}" if self.faults else "–"
        precision = f"{self.right / self.accused:.3f}" if self.accused else "–"
        off = f"{median(self.off):.0f}, {max(self.off)}" if self.off else "–"
        return (
            f"| {name} | {ranks:,} | {self.faults} | {recall} | {precision} | "
            f"{self.accused - self.right} | {off} | {'kept' if self.kept() else 'missed'} |"
        )


def draw(kind: FaultKind, rng: np.random.Generator, ranks: int) -> Fault:
    size, every = TIMES[kind]
    whole = kind in ("change", "drift", "skew") or (
        kind in ("data", "gc", "checkpoint") and bool(rng.integers(2))
    )
    rank = -1 if whole else int(rng.integers(ranks))
    return Fault(kind=kind, rank=rank, step=int(rng.integers(50, 180)), size=size, every=every)


def jobs(kinds: Sequence[FaultKind], ranks: int, seeds: int) -> Iterator[tuple[Job, int]]:
    """So many, with a fault of each kind on ranks of different nodes."""
    per_node = min(8, max(2, ranks // 4))
    for seed in range(1000, 1000 + seeds):  # others than it was written with
        rng = np.random.default_rng((seed, ranks, len(kinds)))
        faults: list[Fault] = []
        while len(faults) < len(kinds):
            one = draw(kinds[len(faults)], rng, ranks)
            if one.rank < 0 or all(
                one.rank // per_node != other.rank // per_node for other in faults
            ):
                faults.append(one)
        tensor = 4 if ranks >= 16 and seed % 2 else 1
        yield (
            Job(
                ranks=ranks,
                steps=STEPS,
                per_node=per_node if "network" not in kinds else max(1, per_node // 2),
                tensor=tensor,
                faults=tuple(faults),
            ),
            seed,
        )


def accuracy(seeds: int) -> bool:
    print(
        "| fault | ranks | faults | recall | precision | wrong | steps off: median, most | ≥ 0.99 |"
    )
    print("|---|---|---|---|---|---|---|---|")
    rows: list[tuple[str, tuple[FaultKind, ...]]] = [("none", ())]
    rows += [(kind, (kind,)) for kind in TIMES]
    rows += [("three at once", ("sleeps", "computes", "data"))]
    good = True
    for name, kinds in rows:
        for ranks in WORLDS:
            if len(kinds) > 1 and ranks < 16:
                continue
            score = Score()
            for job, seed in jobs(kinds, ranks, seeds if ranks < 1000 else max(5, seeds // 10)):
                score.add(job, judge(simulate(job, seed), world_size=ranks))
            good &= score.kept()
            print(score.row(name, ranks), flush=True)
    return good


def digest(ranks: int = 16384, seconds: int = 20) -> bool:
    """Messages of that many seconds, 20 steps each, fill the store; then it is judged. CPU time."""
    job = Job(ranks=ranks, steps=20, step_s=0.04, faults=(Fault(kind="sleeps", rank=7),))
    table = simulate(job, 1)
    store = StepStore(ranks)
    taken = judging = 0.0
    for second in range(seconds):
        for batch in _batches(messages(table, rows=20, start=20 * second), 4096):
            begin = time.process_time()
            for message in batch:
                store.add(message)
            taken += time.process_time() - begin
    begin = time.process_time()
    judged = judge(store.table(), world_size=ranks)
    judging = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    named = [one.subject.name for one in judged.findings if one.status in ("warn", "fail")]
    rate = seconds / taken
    print(
        f"{ranks:,} ranks, {seconds} s: taken in {taken:.2f} s of CPU ({rate:.1f} times real time),"
    )
    print(f"judged in {judging:.2f} s, {peak / 1e6:.0f} MB of this process; named: {named}\n")
    return taken < seconds and peak < MOST_BYTES and named == ["rank 7"]


def _batches(every: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for one in every:
        batch.append(one)
        if len(batch) == size:
            yield batch
            batch = []
    yield batch


def main() -> int:
    good = digest()
    return 0 if accuracy(int(sys.argv[1]) if len(sys.argv) > 1 else 100) and good else 1


if __name__ == "__main__":
    sys.exit(main())
