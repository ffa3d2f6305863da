"""From the table of readings to the fewest parts that explain what is slow.

A pair goes at the speed of its slowest part, so a slow node makes all of its pairs slow and its
partners look worse than they are. The remedy is greedy explaining: take the parts with the strongest
evidence, set aside the readings that they explain, judge the rest again, until nothing is left.
Coarse parts come first (a rail, a leaf's uplink), and only where at least three quarters of what lies
behind them is slow; then nodes, directions, NICs and links compete.
"""

from collections.abc import Sequence

import numpy as np

from wirespeed.locate.evidence import (
    MEDIAN_TO_MEAN,
    Evidence,
    Judgement,
    from_fleet,
    judge,
    noise,
)
from wirespeed.locate.pair_figures import (
    Attribution,
    CulpritKind,
    Findings,
    Floats,
    Pair,
    Problem,
    Towards,
    middle,
    upper,
)

MOST_PASSES = 40
MOST_OF = 0.75
"""Share of the parts behind a rail or an uplink that must be slow for it to be named instead."""


MOST_OUTSIDE = 0.6
"""Share of a node's pairs outside its cluster that must be slow: the cluster may be incomplete."""
ALIKE = 0.1
"""Clusters whose levels (ln) differ by less, and that never met slowly, are one."""

Cluster = tuple[int, ...]


def explain(problem: Problem) -> Findings:
    """The blames, strongest first in each stage, and what is still open."""
    return _Explainer(problem).run()


class _Explainer:
    """rest: ln residual of each reading that nothing explains yet, NaN for the others; 0 is healthy."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.found = problem, Findings()
        self.partner = problem.partner
        self.idle = self.partner < 0
        self.there = np.where(self.idle, 0, self.partner)
        self.group = np.full(problem.nodes, -1)
        for number, members in enumerate(problem.groups):
            self.group[list(members)] = number
        mine, other = self.group, self.group[self.there]
        self.crosses = (mine != other) | (mine < 0) | (other < 0)
        self.rest = from_fleet(problem, self.crosses)
        self.whole = self.rest.copy()
        self.sigmas: dict[str, float] = {}

    def run(self) -> Findings:
        self._rails()
        if self.problem.groups:
            self._uplinks()
        for _ in range(MOST_PASSES):
            if not self._nodes_and_links():
                break
        self.found.blames = merge(
            self.problem, middle(self._both(self.whole)), self.found.blames, self.sigmas["node"]
        )
        return self.found

    def _sigma(self, kind: str, series: Floats) -> float:
        """Noise of one figure of a series [parts, rounds], taken before anything was explained."""
        if kind not in self.sigmas:
            self.sigmas[kind] = noise(self.problem, series)
        return self.sigmas[kind]

    def _judge(self, kind: str, series: Floats, parts: int) -> Evidence:
        sigma = self._sigma(kind, series)
        return judge(series, Judgement(sigma, self.problem.least, parts))

    # Coarse parts

    def _rails(self) -> None:
        rails = self.problem.rails
        if rails < 2:
            return
        both = self._both(self.rest)
        series = middle(np.moveaxis(both, 1, 2)).T
        evidence = self._judge("rail", series, rails)
        for r in np.flatnonzero(evidence.guilty):
            if self._share_slow(both[..., r].T, evidence.level[r] / 2) >= MOST_OF:
                self._blame("rail", (), series[r], evidence, int(r), rail=int(r))
                self.rest[..., r] = np.nan

    def _uplinks(self) -> None:
        """One at a time, the strongest first: the others' pairs with it are slow as well."""
        members = [list(group) for group in self.problem.groups]
        if len(members) < 3:
            return
        done: set[int] = set()
        while True:
            across = np.where(self.crosses, self._node_series(self.rest), np.nan)
            series = np.stack([middle(across[:, group]) for group in members])
            evidence = self._judge("uplink", series, len(members))
            worst = [g for g in np.argsort(-evidence.gain) if evidence.guilty[g] and g not in done]
            named = next((g for g in worst if self._is_uplink(int(g), across, evidence)), None)
            if named is None:
                return
            done.add(int(named))
            nodes = tuple(members[named])
            self._blame("uplink", nodes, series[named], evidence, int(named))
            behind = np.isin(self.there, nodes) | np.isin(np.arange(self.problem.nodes), nodes)
            self.rest[self.crosses & behind] = np.nan

    def _is_uplink(self, group: int, across: Floats, evidence: Evidence) -> bool:
        """Most of its nodes are slow to the others, and not among themselves (where that was seen)."""
        nodes, half = list(self.problem.groups[group]), evidence.level[group] / 2
        if self._share_slow(across[:, nodes].T, half) < MOST_OF:
            return False
        inner = np.where(self.crosses, np.nan, self._node_series(self.rest))[:, nodes]
        seen = inner[~np.isnan(inner)]
        if seen.size < 2 * len(nodes) and len(nodes) > 1:
            self.found.inside.add(group)
        return seen.size == 0 or float(upper(seen)) > half

    def _share_slow(self, series: Floats, limit: float) -> float:
        """Of the parts [parts, rounds]: those that are slow with nearly all partners."""
        levels = upper(series, 0.8 if self.problem.nodes <= 8 else 0.5)
        known = levels[~np.isnan(levels)]
        return float((known < limit).mean()) if known.size else 0.0

    # Nodes, directions, NICs, links

    def _received(self, sent: Floats) -> Floats:
        got = np.take_along_axis(sent, self.there[..., None], axis=1)
        return np.where(self.idle[..., None], np.nan, got)

    def _both(self, sent: Floats) -> Floats:
        return _mean(sent, self._received(sent)) if self.problem.both_ways else sent

    def _node_series(self, sent: Floats) -> Floats:
        """[rounds, nodes]: median of the rails, mean of both ways."""
        return middle(self._both(sent))

    def _nodes_and_links(self) -> bool:
        """One pass: all parts whose evidence is the strongest among those that share readings."""
        kinds = self._series()
        parts = self.problem.nodes * (len(kinds) + self.problem.rails - 1)
        evidences = {name: self._judge(name, series, parts) for name, series in kinds.items()}
        gain = np.stack([self._by_node(e.gain - e.price) for e in evidences.values()])
        open_ = np.stack([self._by_node(e.unsettled) for e in evidences.values()]).max(axis=0)
        self.found.unsettled = set(np.flatnonzero(open_ > 0).tolist())
        best = gain.max(axis=0)
        links = self._links(best)
        silent = self.idle | np.isnan(middle(self.rest))
        rivals = np.where(silent, -np.inf, best[self.there]).max(axis=0)
        chosen = [int(a) for a in np.flatnonzero((best > 0) & (best >= rivals))]
        taken: set[int] = {node for pair in links for node in pair}
        for a in sorted(set(chosen) - taken, key=lambda node: -best[node]):
            met = self.there[~self.idle[:, a], a].tolist()
            if not (self.problem.small and taken.intersection(met)):
                name = list(evidences)[int(gain[:, a].argmax())]
                self._name(a, name, kinds[name], evidences[name])
                taken.add(a)
        return bool(taken)

    def _series(self) -> dict[str, Floats]:
        """[parts, rounds] each; NICs are numbered node by node."""
        sent, rails = self.rest, self.problem.rails
        if not self.problem.both_ways:
            return {"node": np.ascontiguousarray(middle(sent).T)}
        got = self._received(sent)
        out, into = middle(sent), middle(got)
        result = {"node": _mean(out, into).T, "out": out.T, "in": into.T}
        if rails > 1:
            result["nic"] = np.moveaxis(_mean(sent, got), 0, 2).reshape(-1, sent.shape[0])
        return {name: np.ascontiguousarray(series) for name, series in result.items()}

    def _by_node(self, values: Floats) -> Floats:
        result: Floats = values.reshape(self.problem.nodes, -1).max(axis=1)
        return result

    def _name(self, node: int, name: str, series: Floats, evidence: Evidence) -> None:
        """Say what of the node is slow: look at each way and rail in the rounds that were slow."""
        rails = self.problem.rails
        part = node
        if name == "nic":
            part = node * rails + int(evidence.gain[node * rails : (node + 1) * rails].argmax())
        half = float(evidence.level[part]) / 2
        rounds = series[part] < half if evidence.share[part] < 1 else ~np.isnan(series[part])
        sent, got = self.rest[:, node], self._received(self.rest)[:, node]
        slow = np.stack([upper(way[rounds].T) < half for way in (sent, got)])
        # With one rail a way's share is all or nothing.
        out, into = slow.mean(axis=1) > 0.5
        towards: Towards = ""
        if self.problem.both_ways and out != into:
            towards = "out" if out else "in"
        if rails > 1 and name == "nic" and slow.mean(axis=1).max() <= 0.5:
            rail = part - node * rails
            self._blame("nic", (node,), series[part], evidence, part, rail=rail)
            self._set_aside(node, "", rail)
            return
        kind: CulpritKind = "direction" if towards else "node"
        ways = {"out": sent, "in": got, "": _mean(sent, got)}
        self._blame(kind, (node,), middle(ways[towards]), evidence, part, towards=towards)
        self._set_aside(node, towards, slice(None))

    def _set_aside(self, node: int, towards: str, rail: int | slice) -> None:
        if towards in ("", "out"):
            self.rest[:, node, rail] = np.nan
        if towards in ("", "in"):
            rounds = np.flatnonzero(~self.idle[:, node])
            self.rest[rounds, self.there[rounds, node], rail] = np.nan

    def _links(self, best: Floats) -> list[Pair]:
        """Pairs that are slow whenever they meet, more so than either end is slow at all."""
        series = middle(self.rest)
        sigma = self._sigma("link", series.T)
        pairs = self._pairs_to_judge(series, sigma)
        if not pairs:
            return []
        meetings = [np.flatnonzero(self.partner[:, a] == b) for a, b in pairs]
        if not self.problem.small:  # the first time is why we look: it was chosen for being slow
            meetings = [rounds[1:] for rounds in meetings]
        width = max(1, *map(len, meetings))
        ways = np.full((3, len(pairs), width), np.nan, np.float32)
        for i, ((a, b), rounds) in enumerate(zip(pairs, meetings, strict=True)):
            ways[0, i, : len(rounds)] = series[rounds, a]
            ways[1, i, : len(rounds)] = series[rounds, b]
        ways[2] = _mean(ways[0], ways[1])
        # In a large world what lies below twice `least` was never looked at again.
        least = self.problem.least * (1 if self.problem.small else 2)
        judged_pairs = len(pairs) if self.problem.small else self.problem.nodes**2 // 2
        asked = Judgement(sigma, least, judged_pairs)
        judged = [judge(way, asked) for way in ways]
        gain = np.stack([e.gain for e in judged]).max(axis=0) - asked.price
        named: list[Pair] = []
        for i in np.argsort(-gain):
            a, b = pairs[i]
            if gain[i] <= max(0.0, best[a], best[b]) or any({a, b} & set(p) for p in named):
                continue
            way = int(np.argmax([e.gain[i] for e in judged]))
            self._blame("link", (a, b), ways[way, i], judged[way], int(i))
            self.rest[meetings[i], a] = self.rest[meetings[i], b] = np.nan
            named.append((a, b))
        return named

    def _pairs_to_judge(self, series: Floats, sigma: float) -> list[Pair]:
        """All where pairs were repeated; else those that looked slow and were measured again."""
        if self.problem.small:
            return sorted(self._met(~np.isnan(series)))
        both = np.fmin(series, np.take_along_axis(series, self.there, axis=1))
        limit = -max(5 * sigma, 2 * self.problem.least)
        odd = self._met(~self.idle & (both < limit))
        asked_again = sorted(self.problem.check & odd)
        met = {(a, b): both[self.partner[:, a] == b, a] for a, b in asked_again}
        fine = {pair for pair, figures in met.items() if np.nanmax(figures) > limit / 2}
        self.found.odd_pairs = odd - fine
        return asked_again

    def _met(self, where: Floats) -> set[Pair]:
        rounds, one = np.nonzero(where & ~self.idle)
        other = self.partner[rounds, one]
        ends = (np.minimum(one, other), np.maximum(one, other))
        return set(zip(*(end.tolist() for end in ends), strict=True))

    def _blame(
        self,
        kind: CulpritKind,
        nodes: Sequence[int],
        series: Floats,
        evidence: Evidence,
        part: int,
        *,
        rail: int = -1,
        towards: Towards = "",
    ) -> None:
        share = float(evidence.share[part])
        known = series[~np.isnan(series)]
        if share < 1:
            known = known[known < float(evidence.level[part]) / 2]
        blame = Attribution(
            kind=kind,
            nodes=tuple(nodes),
            rail=rail,
            towards=towards,
            level=float(np.median(known)) if known.size else float(evidence.level[part]),
            share=share,
            samples=tuple(known.tolist()),
            nats=float(evidence.gain[part]) - evidence.price,
        )
        self.found.blames.append(blame)


def _mean(one: Floats, other: Floats) -> Floats:
    """Of both where both are known, else of the one that is."""
    both = (one + other) / 2
    return np.where(np.isnan(one), other, np.where(np.isnan(other), one, both))


def merge(
    problem: Problem, series: Floats, blames: Sequence[Attribution], sigma: float
) -> list[Attribution]:
    """The blames, with the slow nodes that share an uplink made one.

    series: [rounds, nodes], each node's residual in the round, whatever explains it.
    """
    level = {b.nodes[0]: b.level for b in blames if b.kind == "node"}
    if len(level) < 2:
        return list(blames)
    pairs = _pair_series(problem, series, sorted(level))
    fast = {
        (a, b): float(np.mean(figures)) - max(level[a], level[b]) / 2
        > 2.5 * MEDIAN_TO_MEAN * sigma / len(figures) ** 0.5
        for (a, b), figures in pairs.items()
    }
    clusters = _joined({node: {node} for node in level}, [p for p, good in fast.items() if good])
    slow = {pair for pair, good in fast.items() if not good}
    clusters = _alike(clusters, level, slow)
    kept = [_true_members(problem, series, cluster, level) for cluster in clusters]
    return _replaced(blames, [c for c in kept if 1 < len(c) < problem.nodes / 2])


def _pair_series(problem: Problem, series: Floats, nodes: list[int]) -> dict[Pair, Floats]:
    """The figures of each pair of these nodes that met."""
    partner = problem.partner[:, nodes]
    rounds, column = np.nonzero(np.isin(partner, nodes))
    found: dict[Pair, list[float]] = {}
    for t, a, b in zip(rounds, np.array(nodes)[column], partner[rounds, column], strict=True):
        if a < b:
            found.setdefault((int(a), int(b)), []).append(float(series[t, a]))
    return {pair: np.array(figures) for pair, figures in sorted(found.items())}


def _joined(cluster: dict[int, set[int]], pairs: Sequence[Pair]) -> list[Cluster]:
    for a, b in pairs:
        if cluster[a] is not cluster[b]:
            cluster[a] |= cluster[b]
            for node in cluster[b]:
                cluster[node] = cluster[a]
    return sorted({tuple(sorted(c)) for c in cluster.values()})


def _alike(clusters: list[Cluster], level: dict[int, float], slow: set[Pair]) -> list[Cluster]:
    """Join the parts of one group that happened not to meet: as slow, and no pair of them slow."""
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


def _replaced(blames: Sequence[Attribution], clusters: Sequence[Cluster]) -> list[Attribution]:
    result = list(blames)
    for cluster in clusters:
        theirs = [b for b in result if b.kind == "node" and b.nodes[0] in cluster]
        result = [b for b in result if b not in theirs]
        nats = max(b.nats for b in theirs)
        samples = tuple(sample for b in theirs for sample in b.samples)
        level = float(np.median(samples))
        result.append(Attribution("uplink", cluster, -1, "", level, 1.0, samples, nats))
    return result
