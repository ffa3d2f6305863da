"""The localiser: decides which pairs talk next, when enough was seen, and who is to blame.

Deterministic: the same readings and seed give the same decisions, so that every rank can run it on
the gathered figures and all take the same next step. Nothing absolute is known of any rate: all is
relative to the fleet. docs/localisation.md says how, and what was measured.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.locate.evidence import (
    dead_culprit,
    dead_nodes,
    from_blames,
    only_pair,
    stragglers,
    without_echoes,
)
from wirespeed.locate.explain import explain
from wirespeed.locate.pair_figures import (
    SMALL,
    Attribution,
    Culprit,
    Diagnosis,
    Fabric,
    Findings,
    Ints,
    Pair,
    Problem,
    Reading,
    Table,
    Worked,
)


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


THRESHOLD = 1.1
"""Slower than the fleet by less than this factor is not named."""
LATENCY_THRESHOLD = 2.0
"""The same for latencies, which differ by the number of switches between two healthy nodes."""
MOST_ROUNDS = 24
FIRST_ROUNDS = 12
"""Random rounds before the first look at a large world: what is slow in every third round is then
seen at least twice with a chance of 94 %."""
STEP = 4
"""Rounds between two looks."""
FEWEST_ROUNDS = 8
"""In the smallest worlds: from 6 figures on, the median has a 95 % interval."""
FEWEST_REPEATS = 3
"""How often each pair of a small world is measured at least."""
MEETINGS = 5
"""How often a pair is measured that looked slow while its nodes do not."""
EXTRA_ROUNDS = 12
"""Beyond all pairs, to measure again what looked slow."""
FIRST_COMPUTE, MOST_COMPUTE = 5, 25
"""How often the work without traffic is timed: it takes no rounds, and all nodes do it at once."""


def localise(
    fabric: Fabric,
    *,
    exhaustive: bool = False,
    most_rounds: int = MOST_ROUNDS,
    threshold: float = THRESHOLD,
    seed: int = 0,
) -> Diagnosis:
    """Find the slow parts in at most `most_rounds` rounds of pairs.

    exhaustive: measure all pairs, in n - 1 rounds or more (a fault of one pair shows only where that
    pair was measured). Raises CannotMeasure for fewer than 2 nodes, UsageError for impossible limits.
    """
    if fabric.nodes < 2:
        raise CannotMeasure(
            f"{fabric.nodes} node: there is no pair to compare",
            expected="at least 2 nodes",
            next="start one rank on each of several nodes, or use `wirespeed check` on this one",
        )
    if most_rounds < 1 or threshold <= 1:
        raise UsageError(
            f"{most_rounds} rounds, thresholds {threshold:g} and {LATENCY_THRESHOLD:g}",
            expected="at least 1 round, thresholds (factors of slow-down) above 1",
        )
    search = _Search(fabric, threshold, seed)
    search.run(exhaustive, most_rounds)
    return search.diagnosis()


class _Search:
    def __init__(self, fabric: Fabric, threshold: float, seed: int) -> None:
        self.fabric, self.random = fabric, Random(seed)
        # Whoever asks for culprits of 5× wants none of 3×, whatever is slow about them.
        self.least_latency = math.log(max(threshold, LATENCY_THRESHOLD))
        self.least = math.log(threshold)
        self.table = Table(fabric.nodes, fabric.rails)
        self.readings: list[Reading] = []
        self.met: set[Pair] = set()
        self.again: set[Pair] = set()
        self.findings, self.latency = Findings(), Findings()
        self.order = self.random.sample(range(fabric.nodes), fabric.nodes)
        self.worked: list[Worked] = []
        self.slow_workers: list[Culprit] = []
        self.dead: set[int] = set()
        self.stopped = ""

    @property
    def small(self) -> bool:
        return self.fabric.nodes <= SMALL

    def run(self, exhaustive: bool, most: int) -> None:
        self._work()
        every = rounds_for_all_pairs(self.fabric.nodes)
        if exhaustive:
            most = max(most, every + EXTRA_ROUNDS)
        if self.small:
            first = min(most, max(FEWEST_REPEATS * every, FEWEST_ROUNDS))
        else:
            first = min(most, every if exhaustive else FIRST_ROUNDS)
        for turn in range(first):
            self._measure(circle_round(self.order, turn))
        self._look()
        while self.table.rounds < most and self._open():
            for _ in range(min(STEP if not self.small else every, most - self.table.rounds)):
                self._measure(self._next_round())
            self._look()
        if self._perhaps_stopped() and not self.slow_workers:
            self._work_again()
        self.stopped = self._why(most)

    def _work(self) -> None:
        """Time the work without traffic until each node is clear."""
        unclear = True
        while len(self.worked) < FIRST_COMPUTE or (unclear and len(self.worked) < MOST_COMPUTE):
            self.worked.append(self.fabric.compute())
            if len(self.worked) >= FIRST_COMPUTE:
                unclear = self._judge_work()
        last = np.array(self.worked[-1].seconds)
        self.dead = set(np.flatnonzero(~np.isfinite(last)).tolist())

    def _perhaps_stopped(self) -> bool:
        """Whether somebody was slow in traffic, and not each time: what stops a node so densely that
        each of its transfers is hit would have hit its work, which takes longer than a transfer."""
        blames = self._blamed("node", "direction")
        return any(
            blame.share < 1 or max(blame.samples, default=0) > blame.level / 2 for blame in blames
        )

    def _work_again(self) -> None:
        """Who is slow in traffic may be so at work now and then, which few timings miss: a node that
        is stopped for moments makes its partners wait, and they start together when it goes on."""
        while len(self.worked) < MOST_COMPUTE:
            self.worked.append(self.fabric.compute())
        self._judge_work()
        self._look()

    def _judge_work(self) -> bool:
        """Who is slow by the clock, or by its own time alone, in which other work makes no noise;
        whether more timings could change that."""
        late, unclear = stragglers([one.seconds for one in self.worked], self.least)
        slow, open_ = stragglers([one.own for one in self.worked], self.least)
        known = {culprit.nodes for culprit in late}
        self.slow_workers = [*late, *(one for one in slow if one.nodes not in known)]
        return unclear or open_

    def _measure(self, pairs: Sequence[Pair]) -> None:
        """One round; whoever is dead already is left out."""
        readings = self.fabric.round([p for p in pairs if not self.dead.intersection(p)])
        self.table.add(readings)
        self.readings += readings
        self.met.update(reading.pair for reading in readings)
        if self.fabric.nodes > 2:
            self.dead |= dead_nodes(self.table)

    def _look(self) -> None:
        """Explain what was seen so far; of two nodes, `only_pair` says all that can be said."""
        if self.fabric.nodes == 2:
            return
        partner = self._living(self.table.partner)
        resting = (partner < 0)[..., None]
        rates = Problem(
            partner=partner,
            figures=np.where(resting, np.nan, self.table.sent),
            groups=self._groups(),
            least=self.least,
            both_ways=True,
            cycle=rounds_for_all_pairs(self.fabric.nodes) if self.small else 0,
            doubtful=frozenset(c.nodes[0] for c in self.slow_workers),
            check=frozenset(self.again),
        )
        self.findings = explain(rates)
        if not self.again:  # once: each look finds new pairs that were slow by chance
            self.again = self.findings.odd_pairs
        latency = self.table.latency
        if not np.isnan(latency).all():
            latencies = replace(
                rates,
                figures=np.where(resting, np.nan, latency),
                least=self.least_latency,
                both_ways=False,
                doubtful=frozenset(),
                check=frozenset(),
            )
            self.latency = explain(latencies)

    def _groups(self) -> tuple[tuple[int, ...], ...]:
        return self.fabric.groups if len(self.fabric.groups) > 1 else ()

    def _living(self, partner: Ints) -> Ints:
        gone = sorted(self.dead)
        partner = np.where(np.isin(partner, gone), -1, partner)
        partner[:, gone] = -1
        return partner

    def _open(self) -> bool:
        """Whether another round could change the answer."""
        unknown_groups = not self.small and not self._groups() and len(self._slow_parts()) > 1
        return bool(self._suspects() or self._untested() or self.findings.inside or unknown_groups)

    def _blamed(self, *kinds: str) -> list[Attribution]:
        return [blame for blame in self.findings.blames if blame.kind in kinds]

    def _slow_parts(self) -> list[Attribution]:
        return self._blamed("node", "uplink")

    def _suspects(self) -> set[int]:
        return self.findings.unsettled | self.latency.unsettled

    def _untested(self) -> set[Pair]:
        """Pairs that looked slow and were not measured again often enough to tell."""
        partner, odd = self.table.partner, self.again & self.findings.odd_pairs
        return {(a, b) for a, b in odd if (partner[:, a] == b).sum() < MEETINGS}

    def _next_round(self) -> list[Pair]:
        """Small: the circle goes on. Large: odd pairs again; what may share an uplink among itself in
        every other round; suspects with nodes that are known to be good; the rest at random."""
        turn = self.table.rounds
        if self.small:
            return circle_round(self.order, turn)
        # Half at a time: pairs that were slow for being together in a round must not meet again.
        odd = sorted(self._untested())
        wanted = self.random.sample(odd, (len(odd) + 1) // 2)
        blamed = {node for blame in self.findings.blames for node in blame.nodes}
        if turn % 2 == 0:
            wanted += self._joining()
            for group in self._inner_groups():
                wanted += circle_round(self.random.sample(group, len(group)), turn)
        suspects = sorted(self._suspects() | blamed)
        good = sorted(set(range(self.fabric.nodes)) - set(suspects) - self.dead)
        self.random.shuffle(suspects)
        wanted += across(suspects, good, self.random)
        return fill(wanted, sorted(set(range(self.fabric.nodes)) - self.dead), self.random)

    def _inner_groups(self) -> list[list[int]]:
        """Known groups whose uplink is slow; without known groups, all slow nodes together."""
        if self._groups():
            slow = [list(blame.nodes) for blame in self._blamed("uplink")]
            return slow + [list(self._groups()[g]) for g in sorted(self.findings.inside)]
        return [sorted({node for blame in self._slow_parts() for node in blame.nodes})]

    def _joining(self) -> list[Pair]:
        """Without known groups: what is slow with the larger cluster that is about as slow."""
        if self._groups():
            return []
        wanted: list[Pair] = []
        for blame in self._slow_parts():
            larger = [b for b in self._slow_parts() if len(b.nodes) > max(2, len(blame.nodes))]
            if larger:
                nearest = min(larger, key=lambda b: (abs(b.level - blame.level), b.nodes))
                wanted += across(blame.nodes, nearest.nodes, self.random)
        return wanted

    def _why(self, most: int) -> str:
        if self.table.rounds >= most and self._open():
            return f"the limit of {most} rounds was reached; {len(self._suspects())} nodes are not clear"
        clear = f"every node is clear after {self.table.rounds} rounds"
        every = self.fabric.nodes * (self.fabric.nodes - 1) // 2
        return f"all pairs were measured, and {clear}" if len(self.met) == every else clear

    def diagnosis(self) -> Diagnosis:
        nodes = self.fabric.nodes
        return Diagnosis(
            culprits=self._culprits(),
            readings=tuple(self.readings),
            compute=tuple(np.median([one.seconds for one in self.worked], axis=0).tolist()),
            rounds=self.table.rounds,
            pairs_measured=len(self.met),
            pairs=nodes * (nodes - 1) // 2,
            stopped=self.stopped,
        )

    def _culprits(self) -> tuple[Culprit, ...]:
        dead = [dead_culprit(node, self.table.rounds) for node in sorted(self.dead)]
        if self.fabric.nodes == 2 and not dead:
            return without_echoes([*self.slow_workers, *only_pair(self.table, self.least)])
        rates = from_blames(self.findings.blames, "rate")
        latencies = from_blames(self.latency.blames, "latency")
        return without_echoes([*dead, *self.slow_workers, *rates, *latencies])
