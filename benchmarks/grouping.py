"""Are nodes told to be behind the right switch? Shares of right and wrong leaves on simulated fabrics.

By size, rounds, noise and faults: the share of the nodes that are with their leaf, that are not clear,
and that are with another one. The bounds: at 10 % noise 98 % with their leaf where all pairs were
measured (of 16 nodes six times), and at most 2 % of those that are assigned with a wrong one, however
few pairs there were; no group in a fabric that has none.

Exit code 1 when a bound is broken. Run: python benchmarks/grouping.py [--quick]
"""

import sys
import time
from collections import Counter
from dataclasses import dataclass
from random import Random

from wirespeed.locate.grouping import Grouping, group
from wirespeed.locate.localise import circle_round, rounds_for_all_pairs
from wirespeed.locate.simulator import FabricSpec, FaultKind, SimulatedFabric, random_faults

LEAST, MOST_WRONG = 0.98, 0.02
KINDS: tuple[FaultKind, ...] = ("node", "rail", "direction", "uplink", "straggler")


@dataclass(frozen=True)
class Row:
    right: float
    unclear: float
    wrong: float
    """Share of those that were assigned."""
    seconds: float


def leaves_told(found: Grouping, spec: FabricSpec) -> tuple[int, int]:
    """(right, wrong): each leaf is stood for by one group, the one that holds most of it."""
    leaf = {node: number for number, nodes in enumerate(spec.leaves) for node in nodes}
    counts = [Counter(leaf.get(node, 0) for node in one).most_common(1)[0] for one in found.groups]
    best: dict[int, int] = {}
    for number, count in counts:
        best[number] = max(best.get(number, 0), count)
    right = sum(best.values())
    return right, sum(map(len, found.groups)) - right


def measure(spec: FabricSpec, rounds: int, faults: int, runs: int) -> Row:
    """Means over `runs` seeds; rounds: 0 for all pairs, else so many random ones."""
    right = wrong = unclear = 0
    seconds = 0.0
    for seed in range(runs):
        injected = random_faults(spec, faults, KINDS, seed) if faults else ()
        fabric = SimulatedFabric(spec, injected, seed)
        order = Random(seed).sample(range(spec.nodes), spec.nodes)
        turns = range(rounds or rounds_for_all_pairs(spec.nodes))
        seen = [one for turn in turns for one in fabric.round(circle_round(order, turn))]
        start = time.perf_counter()
        found = group(spec.nodes, seen)
        seconds += time.perf_counter() - start
        some_right, some_wrong = leaves_told(found, spec)
        # No group that stands out is no wrong answer, but the caller is told what would have shown.
        silent = len(found.groups) == 1 and bool(spec.leaf)
        right += 0 if silent else some_right
        wrong += 0 if silent else some_wrong
        unclear += spec.nodes if silent else len(found.unsure)
    every = spec.nodes * runs
    return Row(right / every, unclear / every, wrong / max(right + wrong, 1), seconds / runs)


def main() -> int:
    runs = 3 if "--quick" in sys.argv else 20
    cases = [
        (nodes, leaf, rounds, faults, noise)
        for nodes, leaf in ((16, 4), (64, 16), (256, 32), (1024, 32))
        for rounds, faults, noise in (
            (0 if nodes > 16 else 90, 0, 0.1),
            (0 if nodes > 16 else 90, 4 if nodes > 16 else 1, 0.1),
            (0 if nodes > 16 else 90, 0, 0.05),
            (nodes // 2 if nodes > 16 else 45, 0, 0.1),
            (24, 0, 0.1),
        )
        if not ("--quick" in sys.argv and nodes > 256)
    ]
    cases += [(64, 0, 0, 0, 0.1), (64, 0, 24, 4, 0.1), (256, 0, 0, 4, 0.1)]
    kept = True
    print("| nodes, a leaf | rounds | faults | noise | right | not clear | wrong | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for nodes, leaf, rounds, faults, noise in cases:
        rails = 1 if nodes == 16 else 2
        spec = FabricSpec(nodes=nodes, rails=rails, leaf=leaf, oversubscription=1.5, noise=noise)
        row = measure(spec, rounds, faults, max(runs // 10, 1) if nodes > 256 else runs)
        every = rounds_for_all_pairs(nodes)
        told = f"{rounds or every}{' (all pairs)' if (rounds or every) >= every else ''}"
        print(
            f"| {nodes:,}, {leaf or 'one switch'} | {told} | {faults} | {noise:.0%} | {row.right:.3f} "
            f"| {row.unclear:.3f} | {row.wrong:.3f} | {row.seconds:.2f} |",
            flush=True,
        )
        kept &= row.wrong <= MOST_WRONG
        kept &= row.right >= LEAST or (rounds or every) < (every if nodes > 16 else 90)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
