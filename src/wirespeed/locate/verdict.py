"""From evidence to named culprits: factors with intervals, and each fault named once."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from wirespeed.locate.evidence import MEDIAN_TO_MEAN, Judgement, cautious, judge, spread
from wirespeed.locate.fluke import FLUKE, against_chance, slow_turns
from wirespeed.locate.model import Culprit
from wirespeed.locate.problem import GONE, UNEVEN, Blame
from wirespeed.locate.table import LOST, Floats, Table, upper
from wirespeed.statistics import median_interval

__all__ = ["dead_nodes", "from_blames", "only_pair", "stragglers", "without_echoes"]

SILENT_ROUNDS = 2
"""A node is dead when nothing went through in its last so many rounds, with different partners."""
UNSURE = 0.5
"""The confidence where two parts explain the same figures equally well."""
LEAST_LOST = 0.5
"""A node that is slow at work now and then is named if it costs the job this share of what the
threshold allows a node that is slow always; on a shared machine everybody is late sometimes."""
What = Literal["rate", "latency", "time"]


def from_blames(blames: Iterable[Blame], what: What) -> list[Culprit]:
    return [_culprit(blame, what) for blame in blames]


def _culprit(blame: Blame, what: What) -> Culprit:
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
    open_ = bool((evidence.unsettled > 0).any())
    for i in np.flatnonzero(evidence.guilty):
        level, share = float(evidence.level[i]), float(evidence.share[i])
        if share < 1 and _lost(level, share) < LEAST_LOST * _lost(-least, 1.0):
            continue
        beyond = _beyond_chance(speed - fleet, int(i), level, share)
        if beyond < 0:
            open_ = True
            continue
        own = (speed - fleet)[:, i]
        samples = tuple(own[own < level / 2].tolist() if share < 1 else own.tolist())
        nats = min(beyond, float(evidence.gain[i]) - evidence.price)
        blames.append(Blame("straggler", (int(nodes[i]),), -1, "", level, share, samples, nats))
    return from_blames(blames, "time"), open_


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
    met = partner >= 0
    last = silent[met][-SILENT_ROUNDS:]
    return (
        len(last) == SILENT_ROUNDS
        and bool(last.all())
        and len(set(_last(partner))) == SILENT_ROUNDS
    )


def only_pair(table: Table, least: float) -> list[Culprit]:
    """Two nodes: nothing tells one from the other, so that the link is named, if it is uneven at all.

    Its two ways and its rails are all that can be compared.
    """
    sent = table.sent
    levels = np.array([[float(upper(sent[:, a, r])) for r in range(table.rails)] for a in (0, 1)])
    best = (
        float(np.sort(levels.ravel())[levels.size // 2]) if levels.size > 2 else float(levels.max())
    )
    worst = np.unravel_index(int(levels.argmin()), levels.shape)
    if levels.max() <= LOST / 2:
        return [_pair_culprit(LOST, (LOST,), -1)]
    samples = sent[:, worst[0], worst[1]] - best
    # The best and the worst were chosen for being so, and both are uncertain.
    noise = 2**0.5 * cautious(max(spread(sent - np.median(sent, axis=0)), UNEVEN), sent.size)
    verdict = judge(samples[None], Judgement(noise, least, levels.size))
    if not verdict.guilty[0]:
        return []
    rail = (
        int(worst[1])
        if table.rails > 1 and levels[:, worst[1]].max() < best + levels.min() / 2
        else -1
    )
    return [_pair_culprit(float(np.median(samples)), tuple(samples.tolist()), rail)]


def _pair_culprit(level: float, samples: tuple[float, ...], rail: int) -> Culprit:
    interval = median_interval(samples)
    return Culprit(
        kind="link",
        nodes=(0, 1),
        rail=rail,
        factor=_factor(level),
        low=_factor(interval.high),
        high=_factor(interval.low),
        confidence=UNSURE,
        samples=len(samples),
    )


_LAME = 3.0
"""Times slower from which on the links of a node are not judged apart from it."""


def without_echoes(culprits: Sequence[Culprit]) -> tuple[Culprit, ...]:
    """Each fault once, costliest first. Rate and latency of one part are one fault, the stronger of
    the two. What the traffic of a straggler shows proves nothing: it is to be mended first. Nor does
    one link of a node that is many times slower with everybody: loss scatters that much."""
    slow = {c.nodes[0] for c in culprits if c.kind == "straggler"}
    lame = {c.nodes[0] for c in culprits if c.kind == "node" and c.factor >= _LAME}
    kept: list[Culprit] = []
    for culprit in sorted(culprits, key=lambda c: (-c.factor, c.kind, c.nodes, c.rail)):
        of_straggler = culprit.kind in ("node", "direction", "nic", "link")
        if of_straggler and slow.intersection(culprit.nodes):
            continue
        if culprit.kind == "link" and lame.intersection(culprit.nodes):
            continue
        same = (c for c in kept if c.nodes == culprit.nodes and c.what != culprit.what and c.nodes)
        if culprit.what != "time" and any(c.what != "time" for c in same):
            continue
        kept.append(culprit)
    return tuple(kept)
