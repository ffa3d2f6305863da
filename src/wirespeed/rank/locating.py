"""Look for the culprit on real ranks; rank 0 tells the session what was measured and found.

Every rank runs the localiser: it sees gathered figures only, so that all ask for the same rounds.
"""

import math
from collections.abc import Sequence
from statistics import median_low
from typing import cast

from wirespeed.locate.localise import localise
from wirespeed.locate.pair_figures import Diagnosis, Pair, Reading, Worked
from wirespeed.locate.simulator import culprit_json, pair_figures
from wirespeed.model.codec import to_json
from wirespeed.model.records import Located, PairedOver
from wirespeed.plan import PairPlan
from wirespeed.rank.faulty_engine import Fault, strike
from wirespeed.rank.pairs.fabric import RankFabric
from wirespeed.rank.place import Place
from wirespeed.rank.steps import Reporter, Tell, teller


class _Watched:
    """A fabric whose rounds are told as they end, so that none is lost when the run breaks off."""

    def __init__(self, fabric: RankFabric, tell: "_Teller", faults: Sequence[Fault]) -> None:
        self._fabric, self._tell, self._faults = fabric, tell, faults
        self.nodes, self.rails, self.groups = fabric.nodes, fabric.rails, fabric.groups

    def round(self, pairs: Sequence[Pair]) -> list[Reading]:
        for fault in self._faults:
            if fault.after == self._tell.rounds:
                strike(fault)
        self._tell.begins(pairs)
        readings = self._fabric.round(pairs)
        self._tell.ended(readings)
        return readings

    def compute(self) -> Worked:
        worked = self._fabric.compute()
        self._tell.worked(worked.seconds)
        return worked


class _Teller:
    """Rank 0's voice; silent on the others."""

    def __init__(self, fabric: RankFabric, tell: Tell, rounds: int) -> None:
        self._cut, self._record, self._most = fabric.cut, tell, rounds
        self._seen: set[Pair] = set()
        self.rounds = 0
        self._seconds: list[list[float]] = []

    def worked(self, seconds: list[float]) -> None:
        self._seconds.append(seconds)

    def begins(self, pairs: Sequence[Pair]) -> None:
        label = "nobody is left to pair"
        if pairs:
            a, b = (self._cut.names[node] for node in pairs[0])
            label = f"{a} with {b}" + (f" and {len(pairs) - 1} more" if len(pairs) > 1 else "")
        of = max(self._most, self.rounds + 1)
        self._record("progress", {"index": self.rounds, "of": of, "label": label})

    def ended(self, readings: Sequence[Reading]) -> None:
        figures = [
            to_json(one)
            for reading in readings
            for one in pair_figures(reading, self._cut.names, self.rounds)
        ]
        self._seen.update(reading.pair for reading in readings)
        self.rounds += 1
        self._record("pairs", {"pairs": figures})
        self._record("located", to_json(self._located("the run broke off")))

    def _located(self, stopped: str) -> Located:
        """Without the pairs, which are told as they come."""
        nodes = len(self._cut.names)
        return Located(
            over=cast("PairedOver", self._cut.over),
            nodes=self._cut.names,
            rounds=self.rounds,
            pairs_measured=len(self._seen),
            pairs_possible=nodes * (nodes - 1) // 2,
            stopped=stopped,
            compute=self._compute(),
            pairs=(),
        )

    def _compute(self) -> tuple[float, ...]:
        """The median of each node's times."""
        by_node = zip(*self._seconds, strict=True)
        middle = (median_low(times) for times in by_node)
        return tuple(one if math.isfinite(one) else -1.0 for one in middle)

    def close(self, found: Diagnosis) -> None:
        self._record("located", to_json(self._located(found.stopped)))
        self._record("culprits", {"culprits": [culprit_json(one) for one in found.culprits]})


def run_pairs(
    place: Place, plan: PairPlan, seed: int, heartbeat: Reporter, faults: Sequence[Fault] = ()
) -> None:
    """Measure pairs until the localiser knows enough; collective.

    faults: what this rank acts out, each when `after` rounds are over.
    """
    fabric = RankFabric(place, plan.over, heartbeat.enter)
    rounds = max(plan.most_rounds, fabric.nodes) if plan.exhaustive else plan.most_rounds
    tell = _Teller(fabric, teller(place, heartbeat), rounds)
    try:
        found = localise(
            _Watched(fabric, tell, faults),
            exhaustive=plan.exhaustive,
            most_rounds=plan.most_rounds,
            threshold=plan.threshold,
            seed=seed,
        )
    finally:
        fabric.close()
    tell.close(found)
