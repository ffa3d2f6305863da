"""Which nodes stand behind one switch, from what pairs of nodes showed to each other.

Two nodes behind one switch answer each other sooner than two behind different ones. Where no latency
was measured, rates tell as much if uplinks carry less than the nodes can send; beside latencies they
would mislead, since they depend on who else talks in a round. Each pair is near or far, in noise; the
groups are the partition that makes the figures likeliest (a stochastic block model with Gaussian
figures), found from a spectral start and from single nodes by moves of one node and by joining two
groups. It is believed only where it gains more nats than it costs to write the partition down, which
bounds the chance that noise makes groups, however many partitions are tried. A node is assigned only
where its group leads the next best by `SURE` nats.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from wirespeed.errors import CannotMeasure
from wirespeed.locate.evidence import FLUKE, MEDIAN_TO_MEAN, OUTLIER, spread
from wirespeed.locate.levels import readings
from wirespeed.locate.pair_figures import Floats, Reading
from wirespeed.model.records import Located

SURE = math.log(100)
"""Nats by which a node's group must lead the next best: a hundred to one."""
FAR = {"latency": 0.2, "rate": 0.5}
"""Quantile of a node's figures that is taken as far: in latency most of its partners may be near; in
rate many may stand behind a slow uplink, which is no distance."""
FAR_OFF = 3.0
"""Sigmas from which a node's own figures say nothing of its place among others that are off as well."""
MOST_REPEATS = 4
"""Readings of one pair that count: the rest of the noise is the pair's own."""
PASSES = 12
LEAST_NOISE = 1e-3
"""Sigma below which no figure is believed to be."""
EDGE = 0.9
"""Of the largest eigenvalue that noise alone would have: what is kept too much, the moves set right."""
USUAL_SWITCH = 32
"""Nodes behind a switch, of which is said what gap would have shown."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Nodes by switch. A node is in one of `groups` or in `unsure`."""

    groups: tuple[tuple[int, ...], ...]
    """Largest first; one group of all where no difference stands out."""
    unsure: tuple[int, ...]
    """Nodes of which too few pairs were measured, or whose pairs contradict each other."""
    by: Literal["latency", "rate"]
    """What tells it."""
    apart: float
    """By what factor pairs behind one switch are better; 1 where no two groups are known."""
    pairs: int
    """Pairs that were measured."""
    would_show: float
    """Factor between near and far that could have shown, with `USUAL_SWITCH` nodes (or half of them) a
    switch; infinite where no pair was measured."""


@dataclass(slots=True)
class _Channel:
    """Figures of one kind: ln [nodes, nodes], symmetric, more is nearer; NaN where not known."""

    kind: Literal["latency", "rate"]
    figures: Floats
    repeats: Floats
    """How much a pair's figure weighs: its readings, over the mean of all pairs."""
    gap: float = 0.0
    """How much nearer near pairs are."""
    sigma: float = 1.0

    def nats(self, same: Floats) -> Floats:
        """By how much "near" explains each pair better than "far"; fits gap and noise to the groups."""
        known = ~np.isnan(self.figures)
        far, near = self.figures[known & ~same], self.figures[known & same]
        middle = float(np.median(far if far.size else near))
        if near.size:
            self.gap = max(float(np.median(near)) - middle, 0.0)
            self.sigma = _noise(self.figures - middle - self.gap * same)
        else:
            self.sigma = _noise(self.figures)
            self.gap = 2 * self.sigma
        gain = self.gap / self.sigma**2 * (self.figures - middle - self.gap / 2)
        bounded: Floats = np.clip(np.where(known, gain, 0.0), -OUTLIER, OUTLIER) * self.repeats
        return bounded

    def standardised(self) -> Floats:
        """In sigmas, 0 where not known."""
        middle, sigma = np.nanmean(self.figures), _noise(self.figures)
        scaled = np.clip((self.figures - middle) / sigma, -FAR_OFF, FAR_OFF)
        return np.where(np.isnan(scaled), 0.0, scaled * np.sqrt(self.repeats))


def group(nodes: int, readings: Iterable[Reading]) -> Grouping:
    """The groups that these readings show, of one search or of many."""
    channel, pairs = _channel(nodes, readings)
    if channel is None:
        return Grouping((), tuple(range(nodes)), "latency", 1.0, pairs, math.inf)
    alone, one = np.arange(nodes), np.zeros(nodes, int)
    found, gain = one, 0.0
    for start in (_spectral(channel), alone):
        label, nats = _refined(channel, start)
        worth = _worth(nats, label)
        if worth > gain:
            found, gain = label, worth
    return _told(channel, found, pairs)


def _told(channel: _Channel, label: Floats, pairs: int) -> Grouping:
    """The groups less the nodes that are not clear."""
    nodes, limit = len(label), _would_show(channel)
    if label.max() == 0:
        return Grouping((tuple(range(nodes)),), (), channel.kind, 1.0, pairs, limit)
    nats = _nats(channel, label)
    sums = nats @ np.eye(label.max() + 1)[label]
    ahead = sums[np.arange(nodes), label]
    others = sums.copy()
    others[np.arange(nodes), label] = -np.inf
    alone = np.bincount(label)[label] == 1
    # To be alone is an answer as well, of which a node that met few others is not sure.
    lead = np.where(alone, 0.0, ahead) - np.maximum(others.max(axis=1), np.where(alone, -np.inf, 0))
    met = (channel.repeats > 0).mean(axis=1)
    unsure = (lead < SURE) | (alone & (met < 0.5))
    kept = np.bincount(label[~unsure], minlength=label.max() + 1)
    unsure |= (kept <= np.bincount(label) / 2)[label]  # what is left of a group is no group
    groups = [np.flatnonzero((label == one) & ~unsure) for one in range(label.max() + 1)]
    known = sorted((tuple(one.tolist()) for one in groups if one.size), key=lambda g: (-len(g), g))
    return Grouping(
        groups=tuple(known),
        unsure=tuple(np.flatnonzero(unsure).tolist()),
        by=channel.kind,
        apart=math.exp(channel.gap),
        pairs=pairs,
        would_show=limit,
    )


def _channel(nodes: int, readings: Iterable[Reading]) -> tuple[_Channel | None, int]:
    """Latencies, or else rates, and of how many pairs."""
    late: list[tuple[int, int, float]] = []
    fast: list[tuple[int, int, float]] = []
    met = set()
    for one in readings:
        met.add(one.pair)
        late += [(*one.pair, -math.log(s)) for s in one.latency if 0 < s < math.inf]
        both = [(f, b) for f, b in zip(one.forth, one.back, strict=True) if f > 0 and b > 0]
        fast += [(*one.pair, (math.log(f) + math.log(b)) / 2) for f, b in both]
    kind: Literal["latency", "rate"] = "latency" if late else "rate"
    if not late and not fast:
        return None, len(met)
    figures, repeats = _medians(nodes, late or fast)
    figures = _without_own(figures, FAR[kind])
    known = ~np.isnan(figures)
    return _Channel(kind, figures, np.where(known, repeats, 0.0)) if known.any() else None, len(met)


def _without_own(figures: Floats, share: float) -> Floats:
    """Without what a node adds to all its pairs, where that stands out of the noise.

    It is not told again when groups are known: a slow uplink is then no group of all the others.
    """
    counts = (~np.isnan(figures)).sum(axis=1)
    rows = np.full(len(figures), np.nan)
    rows[counts > 0] = np.nanquantile(figures[counts > 0], share, axis=1)
    own = rows - np.nanmedian(rows)
    sigma = _noise(figures - own[:, None] - own[None])
    error = 2 * MEDIAN_TO_MEAN * sigma / np.sqrt(np.maximum(counts, 1))
    own = np.where(np.abs(own) > FAR_OFF * error, own, 0.0)
    off = np.abs(own) > FAR_OFF * sigma
    rest: Floats = figures - own[:, None] - own[None]
    rest[off[:, None] & off[None]] = np.nan  # the slower of two hides what the other is
    return rest


def _noise(figures: Floats) -> float:
    return max(spread(figures), LEAST_NOISE)


def _medians(nodes: int, rows: list[tuple[int, int, float]]) -> tuple[Floats, Floats]:
    """[nodes, nodes], symmetric: the median of each pair's figures, and its weight."""
    table = np.array(rows)
    pair, value = (table[:, 0] * nodes + table[:, 1]).astype(np.int64), table[:, 2]
    order = np.lexsort((value, pair))
    keys, first, count = np.unique(pair[order], return_index=True, return_counts=True)
    value = value[order]
    middle = (value[first + (count - 1) // 2] + value[first + count // 2]) / 2
    figures, repeats = np.full((nodes, nodes), np.nan), np.zeros((nodes, nodes))
    a, b = keys // nodes, keys % nodes
    figures[a, b] = figures[b, a] = middle
    counted = np.minimum(count, MOST_REPEATS)
    repeats[a, b] = repeats[b, a] = counted / counted.mean()
    return figures, repeats


def _spectral(channel: _Channel) -> Floats:
    """Groups as the leading eigenvectors tell them: nodes of one group point the same way there.

    Of noise alone no eigenvalue is above 2 sigma sqrt(nodes) (Wigner); m nodes that are nearer to each
    other by a gap make one of m * gap.
    """
    matrix = channel.standardised()
    np.fill_diagonal(matrix, 0.0)
    values, vectors = np.linalg.eigh(matrix)
    edge = 2 * math.sqrt((matrix**2).sum() / max(len(matrix), 1))
    kept = values > edge * EDGE
    if not kept.any():
        return np.zeros(len(matrix), int)
    placed = vectors[:, kept] * np.sqrt(values[kept])
    lengths = np.maximum(np.linalg.norm(placed, axis=1, keepdims=True), 1e-12)
    alike = (placed / lengths) @ (placed / lengths).T
    np.fill_diagonal(alike, 0.5)
    return _moved(alike - 0.5, np.arange(len(matrix)))


def _refined(channel: _Channel, label: Floats) -> tuple[Floats, Floats]:
    """The groups that are likeliest near this start, and the nats of each pair given them."""
    nats = _nats(channel, label)
    for _ in range(PASSES):
        better = _moved(nats, label)
        if np.array_equal(better, label):
            break
        label = better
        nats = _nats(channel, label)
    return label, nats


def _nats(channel: _Channel, label: Floats) -> Floats:
    same = label[:, None] == label[None]
    np.fill_diagonal(same, False)
    return channel.nats(same)


def _moved(nats: Floats, label: Floats) -> Floats:
    """The groups after all moves that gain: a node to where it is nearest, or alone; two into one."""
    label = _numbered(label)
    for _ in range(PASSES):
        before = label.copy()
        label = _joined(nats, _each_moved(nats, label))
        if np.array_equal(label, before):
            break
    return label


def _each_moved(nats: Floats, label: Floats) -> Floats:
    nodes = len(label)
    label = label.copy()
    sums = np.zeros((nodes, nodes))  # [node, group]; as many groups as nodes may come to be
    sums[:, : label.max() + 1] = nats @ np.eye(label.max() + 1)[label]
    sizes = np.bincount(label, minlength=nodes)
    for _ in range(PASSES):
        moves = 0
        for node in range(nodes):
            here = label[node]
            there = int(np.argmax(sums[node]))
            if sums[node, there] <= 0:
                there = here if sizes[here] == 1 else int(np.argmin(sizes))
            if sums[node, there] > sums[node, here] + 1e-9:
                sums[:, here] -= nats[node]
                sums[:, there] += nats[node]
                sizes[here], sizes[there] = sizes[here] - 1, sizes[there] + 1
                label[node] = there
                moves += 1
        if not moves:
            break
    return _numbered(label)


def _joined(nats: Floats, label: Floats) -> Floats:
    """Two groups at a time, those first that gain most by being one."""
    member = np.eye(label.max() + 1)[label]
    between = member.T @ nats @ member
    np.fill_diagonal(between, -np.inf)
    while True:
        one, other = divmod(int(np.argmax(between)), len(between))
        if between[one, other] <= 0:
            return _numbered(label)
        label = np.where(label == other, one, label)
        between[one] += between[other]
        between[:, one] += between[:, other]
        between[one, one] = -np.inf
        between[other] = between[:, other] = -np.inf


def _numbered(label: Floats) -> Floats:
    return np.unique(label, return_inverse=True)[1]


def _worth(nats: Floats, label: Floats) -> float:
    """Nats of these groups over one group of all, less what it costs to write the groups down.

    One group of all is fitted too: its level lies between near and far, which takes the share of near
    pairs from the gain.
    """
    same = label[:, None] == label[None]
    known = nats != 0
    near = float((same & known).sum()) / max(float(known.sum()), 1.0)
    gain = float(nats[same].sum()) / 2 * (1 - near)
    return gain - _price(np.bincount(label)) - FLUKE


def _price(sizes: Floats) -> float:
    """ln of the number of partitions into groups of these sizes, and of the sizes."""
    nodes, groups = int(sizes.sum()), len(sizes)
    ways = math.lgamma(nodes + 1) - sum(math.lgamma(size + 1) for size in sizes.tolist())
    alike = sum(math.lgamma(count + 1) for count in np.bincount(sizes).tolist())
    return ways - alike + min(groups, nodes - groups + 1) * math.log(nodes)


def _would_show(channel: _Channel) -> float:
    """The factor whose gain pays the price, were the nodes on switches of the usual size."""
    nodes = len(channel.figures)
    size = max(2, min(USUAL_SWITCH, nodes // 2))
    price = _price(np.array([size] * (nodes // size))) + FLUKE
    measured = float(np.count_nonzero(channel.repeats)) / 2
    share = (size - 1) / (nodes - 1)
    near = measured * share * (1 - share)
    return math.exp(min(math.sqrt(2 * price / max(near, 1e-9)) * _noise(channel.figures), 30.0))


# From what runs of `locate` stored to readings, and from numbers to names.

_PARTS = re.compile(r"(\D*)(\d*)", re.ASCII)
ENOUGH = 1.1
"""One switch is said of all nodes only where so small a factor between far and near would have shown."""


@dataclass(frozen=True, slots=True)
class Switches:
    """Names of nodes by switch, and what it is known from."""

    leaves: tuple[tuple[str, ...], ...]
    unsure: tuple[str, ...]
    grouping: Grouping


def switches(located: Sequence[Located]) -> Switches:
    """What these runs show together; CannotMeasure where that is too little.

    The level of a day, or of another size of message, is no distance.
    """
    names = sorted({name for one in located for name in one.nodes}, key=natural)
    number = {name: place for place, name in enumerate(names)}
    found = group(len(names), readings(located, number))
    every = len(names) * (len(names) - 1) // 2
    if len(found.unsure) > len(names) / 2 or (len(found.groups) == 1 and found.would_show > ENOUGH):
        raise CannotMeasure(
            f"{found.pairs:,} of {every:,} pairs do not tell which of {len(names):,} nodes share a "
            "switch",
            expected="each node measured with several of its own switch, as often as the noise needs",
            next="wirespeed locate --exhaustive, then name all such runs: topo --from RUN --from RUN",
        )
    leaves = sorted(found.groups)  # by the first node, so that names stay when sizes change
    named = [tuple(names[node] for node in one) for one in leaves]
    return Switches(tuple(named), tuple(names[node] for node in found.unsure), found)


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """Sorts node-9 before node-10."""
    return tuple((text, int(digits or 0)) for text, digits in _PARTS.findall(name))
