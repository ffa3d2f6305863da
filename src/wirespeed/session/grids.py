"""A grid: worlds of other sizes, backends or batches, one after the other, in one run.

A point that cannot run costs its own rows and says why; the rest go on. The largest world comes first,
since the run's facts (nodes, versions, findings about them) are those of the first that joins.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import dtype_named
from wirespeed.errors import Interrupted
from wirespeed.model.bench_records import GridPoint, Missing
from wirespeed.model.records import Finding
from wirespeed.plan import Case, Plan
from wirespeed.session.backends import Backend, ManyWorlds, StartWorld
from wirespeed.session.findings import make_finding
from wirespeed.session.recording import Session, TurnRecorder
from wirespeed.watchdog import Outcome

_PLACE = ("op", "dtype", "redop", "in_place")

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridWorld:
    """A point with what it takes to run it."""

    point: GridPoint
    plan: Plan | None = None
    """None: it cannot run, and `point.reason` says why."""
    backend: Backend | None = None


class Grid(ManyWorlds):
    """A `Workload`: all points. A signal ends it; what was measured stays."""

    def __init__(self, session: Session, worlds: Sequence[GridWorld]) -> None:
        self._session, self._worlds = session, worlds
        self._done: dict[GridPoint, GridPoint] = {}

    def run(self, start: StartWorld | None) -> Outcome:
        """Each point has a backend of its own."""
        begin = time.monotonic()
        ended = Outcome(kind="never_joined")
        largest_first = sorted(self._worlds, key=lambda one: -one.point.ranks)
        for number, one in enumerate(largest_first):
            if self.word:
                raise Interrupted(f"interrupted by {self.word}")
            if one.plan is None or one.backend is None:
                self._done[one.point] = one.point
                continue
            plan = _with_share(one.plan, time.monotonic() - begin, len(largest_first) - number)
            if plan is None:
                self._done[one.point] = replace(
                    one.point, reason="not measured: --max-time was over"
                )
                continue
            outcome = self._world(one, plan, one.backend, number)
            if outcome.kind == "interrupted":
                return outcome
            ended = outcome if outcome.ok or not ended.ok else ended
        return ended

    def _world(self, one: GridWorld, plan: Plan, backend: Backend, number: int) -> Outcome:
        recorder = _PointRecorder(
            self._session, one.point, number, trains=plan.training is not None
        )
        self._session.phase(one.point.name)
        begin = time.monotonic()
        with backend(self._session) as start:
            outcome = Outcome(kind="never_joined") if start is None else start(recorder, plan, {})
        reason = recorder.refused
        if not outcome.ok and not reason:
            self._session.note([_of(one.point, finding) for finding in outcome.findings])
            reason = outcome.findings[0].title if outcome.findings else "nothing was measured"
        self._done[one.point] = replace(
            one.point,
            backend=recorder.backend or one.point.backend,
            seconds=time.monotonic() - begin,
            reason=reason,
            missing=tuple(recorder.missing(plan, reason)),
        )
        # What ended is in the point's row and findings: the others are judged without it.
        return (
            outcome if outcome.ok or outcome.kind == "interrupted" else Outcome(kind="never_joined")
        )

    def settle(self, outcome: Outcome) -> None:
        points = [self._done.get(one.point, one.point) for one in self._worlds]
        self._session.keep_grid(points)
        self._session.note(_unmeasured(points))


def _with_share(plan: Plan, spent_s: float, worlds: int) -> Plan | None:
    """Return the plan with this world's share of --max-time; None where that is over.

    spent_s: since the first world began, start-ups of worlds included.
    """
    if plan.max_time_s is None:
        return plan
    left_s = plan.max_time_s - spent_s
    if left_s <= 0:
        return None
    share_s = left_s / worlds
    training = plan.training and replace(plan.training, max_time_s=share_s / 2)
    return replace(plan, max_time_s=share_s, training=training)


def _of(point: GridPoint, finding: Finding) -> Finding:
    return replace(finding, title=f"{point.name}: {finding.title}")


def _unmeasured(points: Sequence[GridPoint]) -> list[Finding]:
    bad = [one for one in points if one.reason]
    if not bad:
        return []
    found = make_finding(
        "not_whole",
        bad=len(bad),
        points=len(points),
        names="; ".join(one.name for one in bad),
        because="; ".join(dict.fromkeys(one.reason for one in bad)),
    )
    return [found]


class _PointRecorder(TurnRecorder):
    """The recorder of one point: figures go to the session with their backend, facts only once."""

    def __init__(self, session: Session, point: GridPoint, number: int, *, trains: bool) -> None:
        super().__init__(session, session.logs / f"point-{number}")
        self._point, self._number, self._trains = point, number, trains
        self.refused = ""
        self.backend = ""
        """What its ranks have joined over; empty until then."""
        self._measured: set[Key] = set()
        self._reasons: dict[Key, str] = {}
        self._short: list[tuple[str, int, str]] = []
        """(label of the step, bytes asked for, why memory does not do)."""
        if not session.joined:
            session.stands_for(point.ranks)
        self.logs.mkdir(parents=True, exist_ok=True)

    def phase(self, text: str) -> None:
        super().phase(f"{self._point.name}: {text}")

    def on_record(self, rank: int, kind: str, data: dict[str, Any]) -> None:
        if kind == "refusal":
            self.refused = self.refused or str(data["saw"])
            return
        if kind == "joined":
            self.backend = data["backend"]
        if kind == "trace" or self.session.has_facts(kind, self._number):
            return
        if kind == "measurement":
            if self._trains:
                return  # of that world's cost model alone; TRAIN-006 tells what it comes to
            data = {**data, "backend": self.backend}
            self._measured.add(_key(data))
        elif kind == "verification" and data.get("reason"):
            self._reasons[_key(data)] = data["reason"]
        elif kind == "training":
            self._measured.add((data["strategy"], data["bucket_mb"]))
        elif kind == "memory":
            need, free = data["need_bytes"], data["free_bytes"]
            why = f"it needs {need / 2**30:.3g} GiB of {free / 2**30:.3g} that may be taken"
            self._short.append((data["label"], data["size_bytes"], why))
        if kind in ("progress", "memory"):
            data = {**data, "label": f"{self._point.name}: {data['label']}"}
        elif kind == "trouble":
            data = {**data, "title": f"{self._point.name}: {data['title']}"}
        elif kind == "not_measured":
            data = {**data, "labels": [f"{self._point.name}: {one}" for one in data["labels"]]}
        super().on_record(rank, kind, data)

    def missing(self, plan: Plan, reason: str) -> list[Missing]:
        """The rows that did not come, each with why."""
        if plan.training is not None:
            return [
                Missing(what=_strategy(one.strategy, one.bucket_mb), reason=reason or "left out")
                for one in plan.training.cases
                if (one.strategy, one.bucket_mb) not in self._measured
            ]
        return [
            Missing(
                what=f"{one.op} {one.dtype} {one.redop}".removesuffix(" none"),
                size_bytes=one.size_bytes,
                reason=self._why(one) or reason or "not measured",
            )
            for one in (step.case for step in plan.steps if step.measure)
            if _key_of(one, self._point.ranks) not in self._measured
        ]

    def _why(self, case: Case) -> str:
        for label, size, why in self._short:
            if label.split()[:2] == [case.op, case.dtype] and case.size_bytes >= size:
                return why
        return self._reasons.get(_key_of(case, self._point.ranks), "")


def _strategy(name: str, bucket_mb: float | None) -> str:
    return name if bucket_mb is None else f"{name} {bucket_mb:g} MB"


def _key(data: dict[str, Any]) -> Key:
    return (*(data[name] for name in _PLACE), data["size_bytes"])


def _key_of(case: Case, ranks: int) -> Key:
    """With the size that it comes to, in whole elements and ranks."""
    collective, itemsize = CATALOGUE[case.op], dtype_named(case.dtype).itemsize
    count = collective.count_for(case.size_bytes, itemsize, ranks)
    size = collective.size_bytes(count, itemsize, ranks)
    return (*(getattr(case, name) for name in _PLACE), size)
