"""What do planned checks see, and what do they cost, beside checks of nodes that are chosen at random?

A fleet whose jobs hold blocks of eight nodes: each four hours others are idle. One check in twenty loses
its nodes before it ends. Over the last of three times the time allowed: shares of the nodes and pairs
that were seen in time, and node-hours a day. Random choice takes as many nodes at once, and as often as
the plan's cost, or a multiple of it, pays for.

The bounds: the plan sees 98 % of nodes and pairs in time, and random choice at the same cost leaves
twice as many unseen. Exit code 1 when one is broken. Run: python benchmarks/fleet_plan.py [--quick]
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from wirespeed.fleet.plan import FEWEST, Seen, batches, node_hours

WITHIN = 14.0
SLOTS = 6
"""A day."""
BLOCK = 8
LOST = 0.05
LEAF = 32
Choice = Callable[[Seen, list[int], np.random.Generator], list[list[int]]]


@dataclass(frozen=True)
class Row:
    node_hours: float
    """A day."""
    nodes: float
    pairs: float

    @property
    def unseen(self) -> float:
        return (1 - self.nodes) + (1 - self.pairs)


def measure(nodes: int, idle: float, leaves: Sequence[Sequence[str]], choose: Choice) -> Row:
    random = np.random.default_rng(7)
    seen = Seen.nothing([f"n{number}" for number in range(nodes)], leaves)
    rows = []
    for _ in range(int(3 * WITHIN * SLOTS)):
        held = random.random(nodes // BLOCK) >= idle
        free = np.flatnonzero(~np.repeat(held, BLOCK)).tolist()
        spent = 0.0
        for one in choose(seen, free, random):
            spent += node_hours(len(one))
            if random.random() >= LOST:
                seen.met(one)
        rows.append((spent * SLOTS, *seen.coverage(WITHIN)))
        seen.later(1 / SLOTS)
    late = np.array(rows[-int(WITHIN * SLOTS) :]).mean(axis=0)
    return Row(*late.tolist())


def planned(size: int) -> Choice:
    def choose(seen: Seen, free: list[int], _: np.random.Generator) -> list[list[int]]:
        number = {name: place for place, name in enumerate(seen.names)}
        found = batches(seen, free, within=WITHIN, size=size)
        return [[number[name] for name in one.nodes] for one in found]

    return choose


def at_random(size: int, a_day: float) -> Choice:
    """Checks of `size` idle nodes that cost so many node-hours a day."""
    owed = 0.0

    def choose(_: Seen, free: list[int], random: np.random.Generator) -> list[list[int]]:
        nonlocal owed
        owed += a_day / SLOTS
        order, found = random.permutation(free).tolist(), []
        while len(order) >= FEWEST and owed >= node_hours(min(size, len(order))) / 2:
            found.append(order[:size])
            order = order[size:]
            owed -= node_hours(len(found[-1]))
        return found

    return choose


def main() -> int:
    quick = "--quick" in sys.argv
    kept = True
    print(
        "| nodes, to be seen | idle | choice | nodes in time | pairs in time | node-hours a day |"
    )
    print("|---|---|---|---|---|---|")
    for count, idle in ((256, 0.3), (256, 0.5)) if quick else ((256, 0.3), (256, 0.5), (1024, 0.3)):
        names = [f"n{number}" for number in range(count)]
        leaves = [names[start : start + LEAF] for start in range(0, count, LEAF)]
        for some, what, size in (([], "pairs", 64), (leaves, "pairs of leaves", 16)):
            if count > 256 and not some:
                continue  # at a third idle no choice brings half a million pairs together in two weeks
            ours = measure(count, idle, some, planned(size))
            rows = [("planned", ours)]
            for times in (1, 2, 4):
                chance = measure(count, idle, some, at_random(size, times * ours.node_hours))
                rows.append((f"random, {times} times the cost", chance))
            for choice, row in rows:
                share = row.node_hours / (count * 24)
                print(
                    f"| {count:,}, {what} | {idle:.0%} | {choice} | {row.nodes:.2%} | {row.pairs:.2%} "
                    f"| {row.node_hours:.1f} ({share:.2%}) |",
                    flush=True,
                )
            kept &= min(ours.nodes, ours.pairs) >= 0.98 and rows[1][1].unseen >= 2 * ours.unseen
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
