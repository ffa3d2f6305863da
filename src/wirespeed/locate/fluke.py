"""Could it have hit anybody? Counts of slow turns of one node against those of all others.

A likelihood of single figures believes that figures are wild on their own. On a busy machine they are
not: other work takes a core for seconds, from whoever is there. So calls are put together into turns,
each longer than such a burst as a rule, and a node is told from the others only by how many of its
turns were slow (R. A. Fisher, The Design of Experiments, 1935: the exact test).
"""

import math

import numpy as np

from wirespeed.locate.table import Floats

__all__ = ["FLUKE", "TURN", "against_chance", "slow_turns"]

TURN = 3
"""Calls in a turn."""
FLUKE = math.log(100)
"""Nats beyond ln(nodes judged): in one of a hundred fleets the busiest node is accused by chance."""


def slow_turns(slow: Floats, always: bool) -> Floats:
    """slow: [calls, nodes], whether that call was slow; [turns, nodes], whether that turn was: most of
    its calls for who shall be slow always, else any of them."""
    starts = range(0, len(slow), TURN)
    shares = np.array([slow[start : start + TURN].mean(axis=0) for start in starts])
    result: Floats = shares > 0.5 if always else shares > 0
    return result


def against_chance(slow: int, turns: int, others_slow: int, others: int) -> float:
    """Nats against this node having so many slow turns or more by chance, had the slow turns of all
    been dealt to all alike."""
    every, hits = turns + others, slow + others_slow
    most = min(turns, hits)
    ways = [
        _log_choose(turns, k) + _log_choose(others, hits - k)
        for k in range(slow, most + 1)
        if hits - k <= others
    ]
    if not ways:
        return 0.0
    top = max(ways)
    return _log_choose(every, hits) - top - math.log(sum(math.exp(way - top) for way in ways))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
