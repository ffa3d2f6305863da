"""Does the localiser keep its promises? Precision, recall, rounds and seconds on simulated fabrics.

By size, by kind of fault, by noise and by how often the fault shows, beside what measuring all pairs
(n - 1 rounds) and bisection (log2 n more runs of the whole job a fault) would cost. The bounds: a
thousand nodes with eight faults in at most 24 rounds, precision and recall of 0.99; fewer than 1 % of
healthy fabrics with a culprit; 16,384 nodes in 60 s and 2 GB.

Exit code 1 when a bound is broken. Run: python benchmarks/localisation.py [--quick]
"""

import math
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from wirespeed.locate.simulator import (
    COMMON_KINDS,
    FabricSpec,
    FaultKind,
    random_faults,
    score,
    simulate,
    standard_spec,
)

LEAST, MOST_FALSE, ROUNDS, SECONDS, GIGABYTES = 0.99, 0.01, 24, 60.0, 2.0
KINDS: tuple[FaultKind, ...] = (*COMMON_KINDS, "nic", "dead", "latency")


@dataclass(frozen=True)
class Row:
    precision: float
    recall: float
    rounds: float
    most_rounds: int
    seconds: float
    false_alarms: float
    """Share of the runs that named a part that was healthy."""


def measure(
    spec: FabricSpec,
    faults: int,
    runs: int,
    kinds: Sequence[FaultKind] = COMMON_KINDS,
    often: float = 1.0,
) -> Row:
    """Means over `runs` seeds; precision and recall over the runs, seconds of one run."""
    scores, rounds, seconds = [], [], 0.0
    for seed in range(runs):
        injected = random_faults(spec, faults, kinds, seed) if faults else ()
        injected = tuple(replace(fault, often=often) for fault in injected)
        diagnosis, took = simulate(spec, injected, seed)
        scores.append(score(diagnosis.culprits, injected))
        rounds.append(diagnosis.rounds)
        seconds += took
    return Row(
        precision=sum(p for p, _ in scores) / runs,
        recall=sum(r for _, r in scores) / runs,
        rounds=sum(rounds) / runs,
        most_rounds=max(rounds),
        seconds=seconds / runs,
        false_alarms=sum(p < 1 for p, _ in scores) / runs,
    )


def line(name: str, row: Row, more: str = "") -> str:
    return (
        f"| {name} | {row.precision:.3f} | {row.recall:.3f} | {row.rounds:.1f} "
        f"| {row.most_rounds} | {row.seconds:.3g} |{more}"
    )


def header(first: str, more: str = "") -> None:
    print(f"\n| {first} | precision | recall | rounds | most | seconds |{more}")
    print("|---" * (6 + more.count("|")) + "|")


def by_size(scale: int) -> bool:
    header("nodes, faults", " all pairs | bisection |")
    kept = True
    sizes = ((8, 1, 100), (16, 2, 100), (32, 2, 100), (64, 2, 100), (256, 4, 50), (1024, 8, 100))
    for nodes, faults, runs in (*sizes, (4096, 8, 10), (16384, 8, 3)):
        row = measure(standard_spec(nodes), faults, max(2, runs // scale))
        cost = f" {nodes - 1} | {faults * math.ceil(math.log2(nodes))} |"
        print(line(f"{nodes:,}, {faults}", row, cost), flush=True)
        if nodes == 1024:
            kept &= min(row.precision, row.recall) >= LEAST and row.most_rounds <= ROUNDS
        if nodes == 16384:
            kept &= row.seconds < SECONDS
    return kept


def by_kind(scale: int) -> None:
    header("kind (1,024 nodes, 3 faults)")
    for kind in KINDS:
        print(line(kind, measure(standard_spec(1024), 3, max(2, 20 // scale), (kind,))), flush=True)


def by_noise(scale: int) -> None:
    header("noise (1,024 nodes, 8 faults)")
    for noise in (0.02, 0.05, 0.1, 0.2, 0.3):
        row = measure(standard_spec(1024, noise), 8, max(2, 20 // scale))
        print(line(f"{noise:.0%}", row), flush=True)


def by_frequency(scale: int) -> None:
    header("shows in (256 nodes, 2 nodes slow)")
    for often in (1.0, 0.7, 0.5, 0.3, 0.2):
        row = measure(standard_spec(256), 2, max(2, 40 // scale), ("node",), often)
        print(line(f"{often:.0%} of the rounds", row), flush=True)


def by_fabric(scale: int) -> None:
    header("fabric (1,024 nodes, 8 faults)")
    usual = standard_spec(1024)
    fabrics = {
        "leaves known, 1.5 to 1": usual,
        "leaves known, 1 to 1": replace(usual, oversubscription=1.0),
        "leaves known, 2 to 1": replace(usual, oversubscription=2.0),
        "leaves not known, 1.5 to 1": replace(usual, knows_groups=False),
        "one rail, 1.5 to 1": replace(usual, rails=1),
    }
    for name, spec in fabrics.items():
        print(line(name, measure(spec, 8, max(2, 20 // scale))), flush=True)


def healthy(scale: int) -> bool:
    print("\n| healthy nodes | runs | with a culprit | rounds |\n|---|---|---|---|")
    kept = True
    for nodes, runs in (
        (2, 1000),
        (3, 1000),
        (4, 1000),
        (8, 500),
        (16, 500),
        (64, 300),
        (1024, 200),
    ):
        runs = max(2, runs // scale)
        row = measure(standard_spec(nodes), 0, runs)
        print(f"| {nodes:,} | {runs} | {row.false_alarms:.1%} | {row.rounds:.1f} |", flush=True)
        kept &= row.false_alarms < MOST_FALSE
    return kept


def main() -> int:
    scale = 10 if "--quick" in sys.argv[1:] else 1
    kept = by_size(scale)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(f"\nMost memory: {memory:.2f} GB")
    by_kind(scale)
    by_noise(scale)
    by_frequency(scale)
    by_fabric(scale)
    kept &= healthy(scale) and memory < GIGABYTES
    print("\nThe bounds hold." if kept else "\nA bound is broken.")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
