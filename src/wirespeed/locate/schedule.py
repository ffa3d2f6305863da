"""Who talks to whom: rounds of disjoint pairs.

The circle method (T. P. Kirkman, On a problem in combinations, 1847; the usual tournament schedule)
puts n nodes on a ring around a fixed one and turns it: n - 1 rounds in which every pair meets once.
On nodes in random order, its first rounds are random pairings that never repeat a pair.
"""

from collections.abc import Iterable, Sequence
from random import Random

from wirespeed.locate.model import Pair

__all__ = [
    "across",
    "circle_round",
    "circle_rounds",
    "fill",
    "rounds_for_all_pairs",
    "work_order",
]


def rounds_for_all_pairs(nodes: int) -> int:
    """Rounds after which every pair met once: n - 1, or n where one node must rest in each."""
    return max(0, nodes - 1 if nodes % 2 == 0 else nodes)


def circle_round(order: Sequence[int], turn: int) -> list[Pair]:
    """Round `turn` (from 0, taken modulo the number of rounds) of the nodes in this order."""
    n = len(order) + len(order) % 2
    if n < 2:
        return []
    ring = n - 1
    turn %= ring
    seats = [(ring, turn)] + [((turn + k) % ring, (turn - k) % ring) for k in range(1, n // 2)]
    there = len(order)
    return [_pair(order[a], order[b]) for a, b in seats if a < there and b < there]


def circle_rounds(order: Sequence[int]) -> list[list[Pair]]:
    """All rounds: every pair of `order` once, each round's pairs disjoint."""
    return [circle_round(order, turn) for turn in range(rounds_for_all_pairs(len(order)))]


def across(suspects: Sequence[int], good: Sequence[int], random: Random) -> list[Pair]:
    """Each suspect with a node that is known to be good, drawn at random; no more than there are."""
    partners = random.sample(list(good), min(len(good), len(suspects)))
    return [_pair(a, b) for a, b in zip(suspects, partners, strict=False)]


def fill(pairs: Iterable[Pair], nodes: Sequence[int], random: Random) -> list[Pair]:
    """`pairs` (those that are disjoint, first come first served), and the rest of `nodes` at random.

    Everybody talks in every round, so that the load on the switches is the same in all of them.
    """
    free, chosen = set(nodes), []
    for a, b in pairs:
        if a in free and b in free and a != b:
            free -= {a, b}
            chosen.append(_pair(a, b))
    rest = sorted(free)
    random.shuffle(rest)
    return chosen + [_pair(a, b) for a, b in zip(rest[::2], rest[1::2], strict=False)]


def work_order(nodes: int, call: int) -> list[int]:
    """Who works after whom without traffic, another order in each call (the same on every rank):
    what comes with a period, or stays for a while, must not meet the same node each time."""
    return Random(call).sample(range(nodes), nodes)


def _pair(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)
