"""Uplinks that nobody told us of: slow nodes that are fast among themselves."""

from collections.abc import Sequence

import numpy as np

from wirespeed.locate.evidence import MEDIAN_TO_MEAN
from wirespeed.locate.problem import Blame, Problem
from wirespeed.locate.table import Floats

__all__ = ["merge"]

MOST_OUTSIDE = 0.6
"""Share of a node's meetings outside its cluster that must be slow: the cluster may be incomplete."""
ALIKE = 0.1
"""Clusters whose levels (ln) differ by less, and that never met slowly, are one."""

Cluster = tuple[int, ...]


def merge(problem: Problem, series: Floats, blames: Sequence[Blame], sigma: float) -> list[Blame]:
    """The blames, with the slow nodes that share an uplink made one.

    series: [rounds, nodes], each node's residual in the round, whatever explains it.
    """
    level = {b.nodes[0]: b.level for b in blames if b.kind == "node"}
    if len(level) < 2:
        return list(blames)
    meetings = _meetings(problem, series, sorted(level))
    fast = {
        (a, b): float(np.mean(figures)) - max(level[a], level[b]) / 2
        > 2.5 * MEDIAN_TO_MEAN * sigma / len(figures) ** 0.5
        for (a, b), figures in meetings.items()
    }
    clusters = _joined({node: {node} for node in level}, [p for p, good in fast.items() if good])
    slow = {pair for pair, good in fast.items() if not good}
    clusters = _alike(clusters, level, slow)
    kept = [_true_members(problem, series, cluster, level) for cluster in clusters]
    return _replaced(blames, [c for c in kept if 1 < len(c) < problem.nodes / 2])


def _meetings(problem: Problem, series: Floats, nodes: list[int]) -> dict[tuple[int, int], Floats]:
    """The figures of each pair of these nodes that met."""
    partner = problem.partner[:, nodes]
    rounds, column = np.nonzero(np.isin(partner, nodes))
    found: dict[tuple[int, int], list[float]] = {}
    for t, a, b in zip(rounds, np.array(nodes)[column], partner[rounds, column], strict=True):
        if a < b:
            found.setdefault((int(a), int(b)), []).append(float(series[t, a]))
    return {pair: np.array(figures) for pair, figures in sorted(found.items())}


def _joined(cluster: dict[int, set[int]], pairs: Sequence[tuple[int, int]]) -> list[Cluster]:
    for a, b in pairs:
        if cluster[a] is not cluster[b]:
            cluster[a] |= cluster[b]
            for node in cluster[b]:
                cluster[node] = cluster[a]
    return sorted({tuple(sorted(c)) for c in cluster.values()})


def _alike(
    clusters: list[Cluster], level: dict[int, float], slow: set[tuple[int, int]]
) -> list[Cluster]:
    """Join the parts of one group that happened not to meet: as slow, and no slow meeting."""
    parts = [c for c in clusters if len(c) > 1]
    middle = {c: float(np.median([level[node] for node in c])) for c in parts}
    apart = {frozenset((_home(parts, a), _home(parts, b))) for a, b in slow}
    pairs = [
        (one[0], other[0])
        for one in parts
        for other in parts
        if one < other
        and abs(middle[one] - middle[other]) < ALIKE
        and frozenset((one, other)) not in apart
    ]
    shared: dict[int, set[int]] = {}
    for cluster in clusters:
        members = set(cluster)
        shared.update(dict.fromkeys(cluster, members))
    return _joined(shared, pairs)


def _home(parts: list[Cluster], node: int) -> Cluster:
    return next((part for part in parts if node in part), (node,))


def _true_members(
    problem: Problem, series: Floats, cluster: Cluster, level: dict[int, float]
) -> Cluster:
    """Those that are slow with the nodes outside: an intermittent node is not part of a group."""
    kept = []
    for node in cluster:
        partner = problem.partner[:, node]
        outside = series[(partner >= 0) & ~np.isin(partner, cluster), node]
        if outside.size and float((outside < level[node] / 2).mean()) > MOST_OUTSIDE:
            kept.append(node)
    return tuple(kept)


def _replaced(blames: Sequence[Blame], clusters: Sequence[Cluster]) -> list[Blame]:
    result = list(blames)
    for cluster in clusters:
        theirs = [b for b in result if b.kind == "node" and b.nodes[0] in cluster]
        result = [b for b in result if b not in theirs]
        nats = max(b.nats for b in theirs)
        samples = tuple(sample for b in theirs for sample in b.samples)
        level = float(np.median(samples))
        result.append(Blame("uplink", cluster, -1, "", level, 1.0, samples, nats))
    return result
