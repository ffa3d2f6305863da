"""Is this part slow? One test for all kinds of parts, on a part's figure round by round.

A part's figures are residuals in natural logarithms: 0 is as fast as the fleet, -0.18 is 1.2 times
slower. Two explanations compete with "healthy": slow always, or slow in some of the rounds. Each is
scored by the logarithm of how much better it fits (a likelihood ratio, in nats). A single figure
counts no more than OUTLIER nats, so that a few wild ones prove nothing (a truncated normal loss), and
the choice of rounds in "some of the rounds" is paid for by its entropy.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from wirespeed.locate.pair_figures import (
    GONE,
    LOST,
    UNEVEN,
    Attribution,
    Culprit,
    Floats,
    Problem,
    Table,
    middle,
    upper,
)
from wirespeed.statistics import median_interval

OUTLIER = 6.0
"""Nats that one figure can count: a reading that is wild for no reason has a chance of e**-6 = 0.25 %
in each round."""
SURPRISE = 6.0
"""Nats beyond ln(parts judged): one false alarm in e**6 = 400 fleets."""
MANY = 64
"""Parts from which on the fleet tells how often a single figure is wild."""
CLEARLY_SLOW = 3.5
"""Sigmas below zero from which a single figure counts as slow."""
OPEN = 2.5
"""A part is settled when this many standard errors below its figure is nothing worth naming."""
MEDIAN_TO_MEAN = 1.2533
"""The standard error of a median over that of a mean, for normal noise."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is asked of the figures: their noise, and the least slow-down that is worth naming."""

    sigma: float
    least: float
    """ln of the factor."""
    parts: int
    """How many were judged at once: the more, the stronger must the evidence be."""

    @property
    def price(self) -> float:
        """Nats that "healthy" has ahead."""
        return SURPRISE + math.log(max(self.parts, 2))


@dataclass(frozen=True, slots=True)
class Evidence:
    """One entry a part. gain: nats over "healthy"; level: ln slow-down in its slow rounds (<= 0)."""

    gain: Floats
    level: Floats
    share: Floats
    """Of the rounds that are slow: 1 where it is slow always."""
    unsettled: Floats
    """1 where more rounds could still show a fault."""
    price: float

    @property
    def guilty(self) -> Floats:
        return self.gain > self.price


def spread(figures: Floats) -> float:
    """Robust sigma of figures that are nearly all healthy: 1.4826 MAD."""
    known = figures[~np.isnan(figures)]
    if known.size == 0:
        return 0.0
    return 1.4826 * float(np.median(np.abs(known - np.median(known))))


def cautious(sigma: float, figures: int) -> float:
    """`sigma`, estimated from so many figures, raised by two of its own standard errors or more: too
    small a noise makes culprits, too large a one only costs rounds."""
    return sigma * (1 + 2 / math.sqrt(max(figures, 1)))


def judge(figures: Floats, asked: Judgement) -> Evidence:
    """figures: [parts, rounds], NaN where a round says nothing about a part."""
    known = ~np.isnan(figures)
    rounds = known.sum(axis=1)
    z = np.where(known, figures, 0.0) / asked.sigma
    level = np.where(rounds > 0, upper(figures), 0.0)
    slow = known & (z < -max(CLEARLY_SLOW, asked.least / asked.sigma))
    most = _most(slow, rounds)
    always = _better(z, known, level / asked.sigma, most) * (level < -asked.least)
    hits = slow.sum(axis=1)
    low = np.where(hits > 0, middle(np.where(slow, figures, np.nan).astype(np.float32)), 0.0)
    share = hits / np.maximum(rounds, 1)
    at_times = _better(z, slow, low / asked.sigma, most) - rounds * _entropy(share)
    at_times = np.where(hits >= 3, at_times, 0.0)
    better = (at_times > always) & (share < 0.8)
    return Evidence(
        gain=np.where(better, at_times, always),
        level=np.where(better, low, level),
        share=np.where(better, share, 1.0),
        unsettled=_unsettled(level, rounds, asked) | (at_times > asked.price * 2 / 3),
        price=asked.price,
    )


def _most(slow: Floats, rounds: Floats) -> float:
    """Nats that one figure can count: less where the fleet itself is often slow in single rounds (on
    an oversubscribed fabric, say), which takes many parts to know."""
    usual = (rounds > 0) & (slow.sum(axis=1) <= rounds / 2)
    if usual.sum() < MANY:
        return OUTLIER
    chance = float(slow[usual].sum()) / float(rounds[usual].sum())
    return min(OUTLIER, -math.log(max(chance, 1e-9)))


def _better(z: Floats, counted: Floats, level: Floats, most: float) -> Floats:
    """Nats by which the figures that count fit `level` (in sigmas) better than 0."""
    gain = np.minimum(z**2 / 2, most) - np.minimum((z - level[:, None]) ** 2 / 2, most)
    result: Floats = np.where(counted, gain, 0.0).sum(axis=1)
    return result


def _entropy(share: Floats) -> Floats:
    p = np.clip(share, 1e-9, 1 - 1e-9)
    result: Floats = -(p * np.log(p) + (1 - p) * np.log(1 - p))
    return result


def _unsettled(level: Floats, rounds: Floats, asked: Judgement) -> Floats:
    """Twice `least` is what must be excluded: no finite number of rounds tells `least` from less."""
    error = MEDIAN_TO_MEAN * asked.sigma / np.sqrt(np.maximum(rounds, 1))
    return (rounds > 0) & (level - OPEN * error < -2 * asked.least)


TURN = 3
"""Calls in a turn."""
FLUKE = math.log(100)
"""Nats beyond ln(nodes judged): in one of a hundred fleets the busiest node is accused by chance."""


def slow_turns(slow: Floats, always: bool) -> Floats:
    """slow: [calls, nodes], whether that call was slow; [turns, nodes], whether that turn was: most of
    its calls for who shall be slow always, else any of them."""
    starts = range(0, len(slow), TURN)
    shares = np.array([slow[start : start + TURN].mean(axis=0) for start in starts])
    return shares > 0.5 if always else shares > 0


def against_chance(slow: int, turns: int, others_slow: int, others: int) -> float:
    """Nats against this node having so many slow turns or more by chance, had the slow turns of all
    been dealt to all alike."""
    every, hits = turns + others, slow + others_slow
    most = min(turns, hits)
    dealt = range(max(slow, hits - others), most + 1)
    ways = [_log_choose(turns, k) + _log_choose(others, hits - k) for k in dealt]
    if not ways:
        return 0.0
    top = max(ways)
    return _log_choose(every, hits) - top - math.log(sum(math.exp(way - top) for way in ways))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def from_fleet(problem: Problem, crosses: Floats) -> Floats:
    """Residuals against the fleet, apart for pairs within a group and across groups."""
    figures = problem.figures
    result, idle = figures.copy(), problem.partner < 0
    for kind in (crosses, ~crosses):
        rows = np.where((kind & ~idle)[..., None], figures, np.nan)
        result = np.where(kind[..., None], figures - _healthy(problem, rows), result)
    return np.maximum(result, LOST)


def _healthy(problem: Problem, rows: Floats) -> float:
    """What a healthy pair reaches: with few nodes most pairs may hold a slow one, so the fast
    partners of each node speak for it, and the upper half of the nodes for the fleet."""
    if np.isnan(rows).all():
        return 0.0
    if not problem.small:
        return float(upper(np.array([np.nanmedian(rows[..., r]) for r in range(rows.shape[2])])))
    pairs = _of_pairs(problem, rows)
    pairs = (pairs + np.swapaxes(pairs, 0, 1)) / 2
    doubtful = sorted(problem.doubtful)
    if len(doubtful) <= problem.nodes - 2:
        pairs[doubtful] = pairs[:, doubtful] = np.nan
    best = np.nanmax(np.where(np.isnan(pairs), LOST, pairs), axis=1)
    start = float(upper(best[best > LOST / 2].ravel())) if (best > LOST / 2).any() else 0.0
    error = MEDIAN_TO_MEAN * _of_repeats(problem, rows) / (2 * problem.repeats) ** 0.5
    limit = start - problem.least - 2 * error
    good = best > limit
    among = np.where(good[:, None] & good[None], pairs, np.nan)
    near = among[among > limit]
    return float(np.nanmedian(near)) if near.size else start


def _of_pairs(problem: Problem, rows: Floats) -> Floats:
    """[nodes, nodes, rails]: medians of the rounds (small worlds only)."""
    n = problem.nodes
    result = np.full((n, n, rows.shape[2]), np.nan, np.float32)
    for a in range(n):
        for b in set(problem.partner[:, a].tolist()) - {-1}:
            result[a, b] = middle(rows[problem.partner[:, a] == b, a].T)
    return result


def _of_repeats(problem: Problem, figures: Floats) -> float:
    """Sigma between rounds of the same schedule: nothing but noise. [rounds, …]"""
    cycle = problem.cycle
    if not cycle or figures.shape[0] <= cycle:
        return 0.1
    differences = figures[cycle:] - figures[:-cycle]
    known = np.abs(differences[np.isfinite(differences)])
    sigma = 1.4826 * float(np.median(known)) / 2**0.5 if known.size else 0.1
    return cautious(sigma, known.size)


def noise(problem: Problem, series: Floats) -> float:
    if not problem.small:
        return max(spread(series), 1e-3)
    return float(np.hypot(_of_repeats(problem, series.T), UNEVEN * problem.repeats**0.5))


# From evidence to named culprits: factors with intervals, and each fault named once.

SILENT_ROUNDS = 2
"""A node is dead when nothing went through in its last so many rounds, with different partners."""
UNSURE = 0.5
"""The confidence where two parts explain the same figures equally well."""
LEAST_LOST = 0.5
"""A node that is slow at work now and then is named if it costs the job this share of what the
threshold allows a node that is slow always; on a shared machine everybody is late sometimes."""
What = Literal["rate", "latency", "time"]


def from_blames(blames: Iterable[Attribution], what: What) -> list[Culprit]:
    return [_culprit(blame, what) for blame in blames]


def _culprit(blame: Attribution, what: What) -> Culprit:
    interval = median_interval(blame.samples or (blame.level,))
    return Culprit(
        kind=blame.kind,
        nodes=blame.nodes,
        rail=blame.rail,
        towards=blame.towards,
        factor=_factor(blame.level),
        low=_factor(interval.high),
        high=_factor(interval.low),
        confidence=_confidence(blame.nats),
        samples=len(blame.samples),
        share=blame.share,
        what=what,
    )


def _factor(level: float) -> float:
    return math.inf if level < GONE else math.exp(-level)


def _confidence(nats: float) -> float:
    """nats: beyond the price, which already holds e**6 to 1 for "healthy"."""
    return min(0.999, 1 / (1 + math.exp(-max(-30.0, min(nats + 3.0, 30.0)))))


def stragglers(seconds: Sequence[Sequence[float]], least: float) -> tuple[list[Culprit], bool]:
    """(culprits, whether more timings could change them), from each node's times (one list a call).

    Noise is what differs between a node's own calls; what all nodes share in a call is taken out.
    """
    times = np.array(seconds, np.float64)
    alive = np.isfinite(times).all(axis=0)
    if alive.sum() < 2:
        return [], False
    speed = -np.log(np.maximum(times[:, alive], 1e-12))
    typical = np.median(speed, axis=0)
    noise = spread((speed - typical).astype(np.float32)) * math.sqrt(len(times) / (len(times) - 1))
    sigma = cautious(max(noise, UNEVEN), int(alive.sum()) * len(times))
    fleet = _fleet(typical, least + 2 * MEDIAN_TO_MEAN * sigma / math.sqrt(len(times)))
    evidence = judge(
        (speed - fleet).T.astype(np.float32), Judgement(sigma, least, int(alive.sum()))
    )
    blames = []
    nodes = np.flatnonzero(alive)
    doubtful, open_ = evidence.unsettled > 0, False
    for i in np.flatnonzero(evidence.guilty):
        level, share = float(evidence.level[i]), float(evidence.share[i])
        if share < 1 and _lost(level, share) < LEAST_LOST * _lost(-least, 1.0):
            continue
        beyond = _beyond_chance(speed - fleet, int(i), level, share)
        if beyond < 0:
            open_ = True
            continue
        if share == 1:  # beyond chance and in every turn: more timings change nothing
            doubtful[i] = False
        own = (speed - fleet)[:, i]
        samples = tuple(own[own < level / 2].tolist() if share < 1 else own.tolist())
        nats = min(beyond, float(evidence.gain[i]) - evidence.price)
        blames.append(
            Attribution("straggler", (int(nodes[i]),), -1, "", level, share, samples, nats)
        )
    return from_blames(blames, "time"), open_ or bool(doubtful.any())


def _beyond_chance(figures: Floats, node: int, level: float, share: float) -> float:
    """Nats by which its slow turns are more than what hits anybody; below 0 they are not.

    Others that are slow in most of their turns are no measure of chance: they are accused themselves.
    """
    slow = slow_turns(figures < level / 2, share == 1)
    counts, turns = slow.sum(axis=0), len(slow)
    others = (counts <= turns / 2) & (np.arange(slow.shape[1]) != node)
    chance = against_chance(
        int(counts[node]), turns, int(counts[others].sum()), turns * int(others.sum())
    )
    return chance - FLUKE - math.log(slow.shape[1])


def _lost(level: float, share: float) -> float:
    """What a job loses in the mean, over its own time: (factor - 1) in that share of its steps."""
    return share * (_factor(level) - 1)


def _fleet(typical: Floats, near: float) -> float:
    """The mean of the healthy: of those near the upper of the two middle speeds, or above it."""
    start = np.sort(typical)[len(typical) // 2]
    return float(typical[typical > start - near].mean())


def dead_nodes(table: Table) -> set[int]:
    """Nodes whose last rounds brought nothing either way, while others still talk."""
    partner, sent = table.partner, table.sent
    silent = np.nanmax(np.where(np.isnan(sent), -np.inf, sent), axis=2) <= LOST / 2
    there = np.where(partner < 0, 0, partner)
    silent &= np.take_along_axis(silent, there, axis=1) & (partner >= 0)
    suspects = np.flatnonzero(silent.any(axis=0))
    lost = {int(a) for a in suspects if _gave_up(partner[:, a], silent[:, a])}
    # One whose last partners were all lost may be well: it is not named unless nobody is left.
    return {a for a in lost if any(int(b) not in lost for b in _last(partner[:, a]))} or lost


def _last(partner: Floats) -> list[int]:
    met = partner[partner >= 0]
    return [int(b) for b in met[-SILENT_ROUNDS:]]


def _gave_up(partner: Floats, silent: Floats) -> bool:
    last = silent[partner >= 0][-SILENT_ROUNDS:]
    return bool(last.all()) and len(set(_last(partner))) == SILENT_ROUNDS


def only_pair(table: Table, least: float) -> list[Culprit]:
    """Two nodes: nothing tells one from the other, so that the link is named, if it is uneven at all.

    Its two ways and its rails are all that can be compared.
    """
    sent = table.sent
    levels = np.array([[float(upper(sent[:, a, r])) for r in range(table.rails)] for a in (0, 1)])
    middle_one = levels.size // 2 if levels.size > 2 else -1
    best = float(np.sort(levels.ravel())[middle_one])
    worst = np.unravel_index(int(levels.argmin()), levels.shape)
    if levels.max() <= LOST / 2:
        return [_pair_culprit(LOST, (LOST,), -1)]
    samples = sent[:, worst[0], worst[1]] - best
    # The best and the worst were chosen for being so, and both are uncertain.
    noise = 2**0.5 * cautious(max(spread(sent - np.median(sent, axis=0)), UNEVEN), sent.size)
    verdict = judge(samples[None], Judgement(noise, least, levels.size))
    if not verdict.guilty[0]:
        return []
    one_rail = table.rails > 1 and levels[:, worst[1]].max() < best + levels.min() / 2
    rail = int(worst[1]) if one_rail else -1
    return [_pair_culprit(float(np.median(samples)), tuple(samples.tolist()), rail)]


def _pair_culprit(level: float, samples: tuple[float, ...], rail: int) -> Culprit:
    blame = Attribution("link", (0, 1), rail, "", level, 1.0, samples, 0.0)
    return replace(_culprit(blame, "rate"), confidence=UNSURE)


def dead_culprit(node: int, rounds: int) -> Culprit:
    samples = (LOST,) * max(rounds, 1)
    return _culprit(Attribution("dead", (node,), -1, "", LOST, 1.0, samples, math.inf), "rate")


_LAME = 3.0
"""Times slower from which on the links of a node are not judged apart from it."""


def without_echoes(culprits: Sequence[Culprit]) -> tuple[Culprit, ...]:
    """Each fault once, costliest first. Rate and latency of one part are one fault, the stronger of
    the two. What the traffic of a straggler shows proves nothing: it is to be mended first. Nor does
    one link of a node that is many times slower with everybody: loss scatters that much."""
    slow = {c.nodes[0] for c in culprits if c.kind == "straggler"}
    lame = {c.nodes[0] for c in culprits if c.kind == "node" and c.factor >= _LAME}
    kept: list[Culprit] = []
    hidden = {"node": slow, "direction": slow, "nic": slow, "link": slow | lame}
    for culprit in sorted(culprits, key=lambda c: (-c.factor, c.kind, c.nodes, c.rail)):
        if hidden.get(culprit.kind, set()).intersection(culprit.nodes):
            continue
        same = (c for c in kept if c.nodes == culprit.nodes and c.what != culprit.what and c.nodes)
        if culprit.what != "time" and any(c.what != "time" for c in same):
            continue
        kept.append(culprit)
    return tuple(kept)
