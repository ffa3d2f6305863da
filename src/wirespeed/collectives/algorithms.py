"""The algorithms of collectives as models: how many steps, and how many bytes of the busiest rank.

Steps and bytes are those of R. Thakur, R. Rabenseifner and W. Gropp, Optimization of Collective
Communication Operations in MPICH, 2005. Standard library only.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Algorithm:
    name: str
    steps: Callable[[int], float]
    bytes: Callable[[int], float]
    """Of the busiest rank, over the size."""
    burst: int = 0
    """Bytes that a link which was idle lets through at once (`_carried`), in trees with children at
    once."""

    def carried(self, ranks: int, size: float) -> float:
        """Bytes that one after the other take their time on a link."""
        return _carried(ranks, size, self.burst) if self.burst else self.bytes(ranks) * size


def _log2(n: int) -> float:
    return float(math.ceil(math.log2(n))) if n > 1 else 0.0


def _all(n: int) -> float:
    return float(n - 1)


def _twice(n: int) -> float:
    return 2.0 * (n - 1)


def _share(n: int) -> float:
    return (n - 1) / n


def _ring_bytes(n: int) -> float:
    return 2 * (n - 1) / n


def _two_trees(n: int) -> float:
    return 2.0 if n > 1 else 0.0


def _one(n: int) -> float:
    return 1.0 if n > 1 else 0.0


def _twice_log2(n: int) -> float:
    return 2 * _log2(n)


def _scatter_gather(n: int) -> float:
    return _log2(n) + n - 1


def _half_log2(n: int) -> float:
    return _log2(n) / 2


@lru_cache(maxsize=1024)
def _paths(n: int) -> dict[int, int]:
    """Of a binomial tree whose ranks send to all their children at once, and pass on when they have it
    all: by the ranks on a way down that pass on, the most sends along it (each child waits for all).

    So does gloo (facebookincubator/gloo, gloo/broadcast.cc), where rank v that got it in round i sends
    to v + 2^j in each later round j.
    """

    def below(rank: int, joined: int) -> dict[int, int]:
        rounds = [j for j in range(joined, int(_log2(n))) if rank + (1 << j) < n]
        most = {1 if rank else 0: len(rounds)} if rounds else {0: 0}
        for j in rounds:
            for passing, sends in below(rank + (1 << j), j + 1).items():
                way = passing + (1 if rank else 0)
                most[way] = max(most.get(way, 0), sends + len(rounds))
        return most

    return below(0, 0)


def children_at_once(n: int) -> float:
    """Sends on the longest way down, all of a rank's as long as they take together."""
    return float(max(_paths(n).values()))


def _carried(n: int, size: float, burst: int) -> float:
    """Each rank that passes on was idle before, so that its link lets a burst through (a token bucket);
    the root's is never idle for longer than between two calls."""
    ways = (sends * size - passing * burst for passing, sends in _paths(n).items())
    return max(_log2(n) * size, *ways)


REDUCING = (
    Algorithm("ring", _twice, _ring_bytes),
    Algorithm("tree", _twice_log2, _two_trees),
    Algorithm("recursive doubling", _log2, _log2),
    Algorithm("halving and doubling", _twice_log2, _ring_bytes),
)
SPREADING = (
    Algorithm("ring", _all, _share),
    Algorithm("recursive doubling", _log2, _share),
)
ROOTED = (
    Algorithm("binomial tree", _log2, _log2),
    Algorithm("binomial tree, children at once", _log2, children_at_once),
    # Each send costs the sender its time (LogP's o: D. Culler et al., 1993), however short it is.
    Algorithm("binomial tree, send by send", children_at_once, children_at_once),
    Algorithm("scatter and all-gather", _scatter_gather, _ring_bytes),
    Algorithm("chain", _all, _one),
)
EXCHANGING = (
    Algorithm("pairwise", _all, _share),
    Algorithm("Bruck", _log2, _half_log2),
)
SPLITTING = (
    Algorithm("linear", _all, _share),
    Algorithm("binomial tree", _log2, _share),
)
DIRECT = (Algorithm("direct", _one, _one),)
