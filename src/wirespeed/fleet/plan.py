"""Which idle nodes to check together next, so that each node and each pair is seen again in time.

A check of k nodes that measures all its pairs takes k - 1 rounds, so its cost in node-hours grows with
k², as do its pairs; what it costs to have the nodes at all is shared by more pairs the larger it is.
Nodes are taken greedily: the one with most that is due, then whoever adds most that is due with those
that are chosen, and of all sizes on the way the one with most for a node-hour. Pairs are pairs of nodes,
or of leaves, where it is enough that some node of one has met some node of the other.

Suspects come first: each with nodes that are known to be good, and one that is blamed again in other
company is to be taken out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from wirespeed.locate.localise import rounds_for_all_pairs
from wirespeed.locate.pair_figures import Floats

START_S = 90.0
"""Seconds until the nodes are there and the ranks form a world, and until all is over."""
ROUND_S = 1.0
"""Seconds of a round of pairs: three transfers of 0.15 s, the latency, and agreeing on the figures."""
DUE = 0.3
"""Share of the time allowed after which a pair counts, as much as its age: those that wait longest for
both nodes to be idle would else come too late."""
NODE_DUE = 0.6
"""The same of a node, which waits for itself alone."""
OVERDUE = 2.0
"""Times the time allowed beyond which nothing becomes more urgent."""
WORTH = 0.2
"""Of what the largest check is worth for its node-hours, were all of it due: less is not spent on."""
FEWEST = 4
"""Nodes in one check: of fewer, `locate` cannot tell which is slow."""
GOOD_PARTNERS = 3
"""Nodes known to be good beside each suspect: of two, either could be it."""
BLAMED_AGAIN = 2
"""Runs one after the other that blame a node, in other company, before it is to be taken out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Nodes to check together."""

    nodes: tuple[str, ...]
    why: Literal["due", "suspect"]
    suspect: str = ""
    pairs: int = 0
    """Pairs (of nodes, or of leaves) that were due."""

    @property
    def seconds(self) -> float:
        return seconds(len(self.nodes))

    @property
    def node_hours(self) -> float:
        return node_hours(len(self.nodes))


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen when. Days ago; infinite: never."""

    names: tuple[str, ...]
    place: Floats
    """[nodes], the number of the leaf; of the node itself where pairs of nodes are to be seen."""
    node_days: Floats
    """[nodes]."""
    pair_days: Floats
    """[places, places], symmetric."""

    @classmethod
    def nothing(cls, names: Sequence[str], leaves: Sequence[Sequence[str]] = ()) -> "Seen":
        """Never anything. leaves: where pairs of them are enough; who is in none is one by itself."""
        leaf = {name: number for number, one in enumerate(leaves) for name in one}
        keys = [leaf.get(name, name) for name in names]
        number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        place = np.array([number[key] for key in keys], int)
        pair_days = np.full((len(number), len(number)), np.inf, np.float32)
        alone = np.bincount(place, minlength=len(number)) < 2
        pair_days[alone, alone] = -np.inf  # nobody to meet
        return cls(tuple(names), place, np.full(len(names), np.inf, np.float32), pair_days)

    def met(self, nodes: Sequence[int], days: float = 0.0) -> None:
        """These were measured together, each with each."""
        which = np.array(nodes, int)
        self.node_days[which] = np.minimum(self.node_days[which], days)
        places, counts = np.unique(self.place[which], return_counts=True)
        block = np.ix_(places, places)
        alone = places[counts == 1]
        kept = self.pair_days[alone, alone]
        self.pair_days[block] = np.minimum(self.pair_days[block], days)
        self.pair_days[alone, alone] = kept  # one node of a leaf met none of its own

    def met_pair(self, a: int, b: int, days: float) -> None:
        one, other = self.place[a], self.place[b]
        least = min(float(self.pair_days[one, other]), days)
        self.pair_days[one, other] = self.pair_days[other, one] = least

    def coverage(self, within: float) -> tuple[float, float]:
        """Shares of the nodes, and of the pairs, that were seen within so many days."""
        pairs = self.pair_days[np.triu_indices(len(self.pair_days))]
        pairs = pairs[pairs > -np.inf]
        nodes = self.node_days <= within
        shares = (float(one.mean()) if one.size else 1.0 for one in (nodes, pairs <= within))
        return next(shares), next(shares)

    def later(self, days: float) -> None:
        """So much time has gone."""
        self.node_days[:] += days
        self.pair_days[:] += days


def seconds(nodes: int) -> float:
    """What a check of all pairs of so many nodes takes."""
    return START_S + ROUND_S * rounds_for_all_pairs(nodes)


def node_hours(nodes: int) -> float:
    return nodes * seconds(nodes) / 3600


def batches(
    seen: Seen,
    idle: Sequence[int],
    *,
    within: float,
    size: int,
    most_node_hours: float = np.inf,
) -> list[Batch]:
    """Disjoint ones of the idle nodes, the most urgent first, of `size` nodes at most, while anything
    is due that may be spent on."""
    node_due = _due(seen.node_days / within, NODE_DUE)
    pair_due = _due(seen.pair_days / within, DUE)
    free, found, spent = list(idle), [], 0.0
    largest = min(size, len(seen.names))
    fewest = min(FEWEST, largest)
    if len(seen.pair_days) < len(seen.names):  # whose pairs of leaves say little of each node
        node_due *= size
    least = WORTH * largest * (largest - 1) / 2 / node_hours(largest) if largest > 1 else 0.0
    while len(free) >= max(fewest, 2):
        chosen, worth = _next(seen.place, free, node_due, pair_due, fewest, size)
        if worth < least or not chosen or spent + node_hours(len(chosen)) > most_node_hours:
            break
        spent += node_hours(len(chosen))
        places = np.unique(seen.place[chosen])
        block = np.ix_(places, places)
        pairs = np.count_nonzero(np.triu(pair_due[block]))
        names = tuple(seen.names[node] for node in sorted(chosen))
        found.append(Batch(nodes=names, why="due", pairs=int(pairs)))
        node_due[chosen], pair_due[block] = 0.0, 0.0
        free = [node for node in free if node not in set(chosen)]
    return found


def _due(age: Floats, least: float) -> Floats:
    """How urgent, by the age over the time allowed."""
    result: Floats = np.where(age >= least, np.minimum(age, OVERDUE), 0.0).astype(np.float32)
    return result


def _next(
    place: Floats, free: Sequence[int], node_due: Floats, pair_due: Floats, fewest: int, size: int
) -> tuple[list[int], float]:
    """The nodes with most that is due for a node-hour, and how much that is; none where nothing is."""
    nodes = np.array(free, int)
    where = place[nodes]
    counts = np.bincount(where, minlength=len(pair_due))
    # What a node could see among all that are free, which a class of several nodes shares.
    gain = node_due[nodes] + pair_due[:, counts > 0].sum(axis=1)[where]
    chosen: list[int] = []
    inside = np.zeros(len(pair_due), int)
    with_inside = np.zeros(len(pair_due), np.float32)
    best, best_size, total = 0.0, 0, 0.0
    taken = np.zeros(len(nodes), bool)
    while len(chosen) < min(size, len(nodes)):
        if chosen:
            new = inside[where] == 0
            second = np.where(inside[where] == 1, np.diagonal(pair_due)[where], 0.0)
            gain = node_due[nodes] + np.where(new, with_inside[where], second)
        gain = np.where(taken, -1.0, gain)
        at = int(np.argmax(gain))
        total += float(gain[at]) if chosen else float(node_due[nodes[at]])
        taken[at] = True
        chosen.append(int(nodes[at]))
        if inside[where[at]] == 0:
            with_inside += pair_due[where[at]]
        inside[where[at]] += 1
        worth = total / node_hours(len(chosen))
        if len(chosen) >= fewest and worth >= best and total > 0:
            best, best_size = worth, len(chosen)
    return chosen[:best_size], best


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A node at which a failed finding is open."""

    name: str
    blamed: int
    """Runs that failed it since, without one that found it good."""
    companies: int
    """Different sets of other nodes that it was with in these."""
    looks: tuple[str, ...] = ()
    """Commands that show whether what failed is good again."""

    @property
    def take_out(self) -> bool:
        return self.blamed >= BLAMED_AGAIN and self.companies >= BLAMED_AGAIN

    @property
    def by_locate(self) -> bool:
        """Whether `locate`, which a check of the fleet runs, can show that it is good again."""
        return not self.looks or any(look.startswith("wirespeed locate") for look in self.looks)


def recheck(
    suspects: Sequence[Suspect],
    good: Sequence[str],
    idle: Sequence[str],
    leaf: Mapping[str, int],
    *,
    most_node_hours: float = np.inf,
) -> list[Batch]:
    """Each suspect that is idle with nodes known to be good, of different leaves where there are such.

    good: most recently seen to be so first. Where a fleet has fewer than are wanted, all that may be
    good come too, and at last other suspects. Nodes are in one batch at most.
    """
    free = set(idle)
    found: list[Batch] = []
    known, doubted = set(good), {one.name: one for one in suspects}
    fewest, company = GOOD_PARTNERS, list(good)
    if len(good) < GOOD_PARTNERS:
        rest = [one for one in idle if one not in known]
        company += [one for one in rest if one not in doubted]
        company += [one for one in rest if one in doubted and not doubted[one].take_out]
        fewest = 1
    for suspect in suspects:
        if (len(found) + 1) * node_hours(1 + GOOD_PARTNERS) > most_node_hours:
            break
        if suspect.take_out or suspect.name not in free or not suspect.by_locate:
            continue
        partners: list[str] = []
        for apart in (True, False):
            for name in company:
                near = {leaf.get(one, -1) for one in partners}
                fits = not apart or leaf.get(name, -1) not in near
                new = name in free and name not in (suspect.name, *partners)
                if new and fits and len(partners) < GOOD_PARTNERS:
                    partners.append(name)
        if len(partners) < fewest:
            continue
        free -= {suspect.name, *partners}
        names = (suspect.name, *partners)
        pairs = len(names) * (len(names) - 1) // 2
        found.append(Batch(nodes=names, why="suspect", suspect=suspect.name, pairs=pairs))
    return found
