"""Sides of runs against the first of them, and one figure over many runs: what differs, and verdicts."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from statistics import fmean, variance

from wirespeed.compare.estimate import (
    LEAST,
    LEAST_RUNS,
    LEVEL,
    Cut,
    Figure,
    Floor,
    benjamini_hochberg,
    cuts,
    estimate,
    quantile,
    runs_needed,
)
from wirespeed.compare.figures import FIELDS, Facts, differences, facts_of, figures_of, same_series
from wirespeed.errors import UsageError
from wirespeed.model.derived_records import (
    Change,
    CompareVerdict,
    Comparison,
    Row,
    Series,
    Side,
    Trend,
    Unpaired,
    Versus,
    What,
)
from wirespeed.model.records import Run
from wirespeed.statistics import FAR, lies_outside


@dataclass(frozen=True, slots=True)
class SideRuns:
    """One side: repeats of the same, at least one."""

    runs: tuple[Run, ...]
    name: str = ""
    """Empty: named after its first run."""


Figures = Mapping[What, Sequence[Figure]]


def compare(
    sides: Sequence[SideRuns],
    fail_on: float = 0.05,
    *,
    only: Collection[str] = (),
    across: Collection[str] = (),
    floors: Mapping[What, Floor] | None = None,
    stated: float | None = None,
    strict: bool = False,
) -> Comparison:
    """Each side against the first.

    fail_on: the change of the time that matters, above 0. only: operations or strategies, all if empty.
    across: fields that need not be alike. floors: noise between runs known from stored repeats.
    stated: the same as the user says, relative (0.03 is 3 %), for every figure.
    UsageError for fewer than two sides, an empty one, or a run that stands twice.
    """
    _refuse_overlap(sides)
    names = _names(sides)
    figures = _by_name_of_today([_figures(side.runs, only, across) for side in sides])
    facts = [facts_of(side.runs) for side in sides]
    versus = []
    for index in range(1, len(sides)):
        different, alike, unknown = differences(facts[0], facts[index])
        versus.append(
            Versus(
                before=_side(sides[0], names[0]),
                after=_side(sides[index], names[index]),
                differences=different,
                alike=alike,
                unknown=unknown,
                rows=rows_of(figures[0], figures[index], fail_on, floors=floors, stated=stated),
                unpaired=_unpaired(figures[0], figures[index]),
            )
        )
    return Comparison(fail_on=fail_on, versus=_corrected(versus, fail_on), strict=strict)


def rows_of(
    before: Figures,
    after: Figures,
    fail_on: float,
    *,
    floors: Mapping[What, Floor] | None = None,
    stated: float | None = None,
) -> tuple[Row, ...]:
    """A row for everything that both measured, corrected for the number of these rows."""
    rows = []
    for what in sorted(before.keys() & after.keys(), key=_order):
        floor = (floors or {}).get(what)
        if stated is not None:
            floor = Floor(math.log1p(stated) ** 2, math.inf, "stated")
        rows.append(_row(what, before[what], after[what], fail_on, floor))
    return _judged(rows, fail_on)


def _row(
    what: What,
    before: Sequence[Figure],
    after: Sequence[Figure],
    fail_on: float,
    floor: Floor | None,
) -> Row:
    one = estimate(before, after, floor)
    reach = one.reach(0.95)
    wrong = any(f.wrong for f in (*before, *after))
    margin = math.log1p(fail_on)
    return Row(
        what=what,
        before=math.exp(fmean(f.log for f in before)),
        after=math.exp(fmean(f.log for f in after)),
        busbw_before=_busbw(before),
        busbw_after=_busbw(after),
        ratio=math.exp(one.change),
        low=math.exp(one.change - reach),
        high=_exp(one.change + reach),
        p=one.p,
        runs=(len(before), len(after)),
        samples=(sum(f.samples for f in before), sum(f.samples for f in after)),
        noise=math.expm1(one.spread) if one.spread < 100 else math.inf,
        noise_from=one.source,
        # What no correction changes is settled here; the rest follows in `_judged`.
        verdict="wrong data" if wrong else "same" if one.same_within(margin) else "not enough runs",
        runs_needed=runs_needed(one, fail_on),
        outside=_outside(before, after, fail_on),
    )


def _outside(before: Sequence[Figure], after: Sequence[Figure], fail_on: float) -> int:
    """Return how many runs of one side the few of the other all lie outside of, and far; else 0."""
    few, many = sorted((before, after), key=len)
    if len(few) >= LEAST_RUNS or len(many) < LEAST_RUNS:
        return 0
    return len(many) if lies_outside(_ends(few), _ends(many), max(fail_on, FAR)) else 0


def _ends(figures: Sequence[Figure]) -> tuple[float, float]:
    """Return the least and the greatest time that the intervals of the runs reach to."""
    reach = [quantile(0.95, math.inf) * (f.within or 0.0) for f in figures]
    lows = (f.log - own for f, own in zip(figures, reach, strict=True))
    highs = (f.log + own for f, own in zip(figures, reach, strict=True))
    return math.exp(min(lows)), _exp(max(highs))


def _judged(rows: Sequence[Row], fail_on: float) -> tuple[Row, ...]:
    """With the p-values corrected for the number of rows, and the verdicts that hang on them."""
    right = [row for row in rows if row.verdict != "wrong data"]
    adjusted = iter(benjamini_hochberg([row.p for row in right]))
    return tuple(
        row if row.verdict == "wrong data" else _with_p(row, next(adjusted), fail_on)
        for row in rows
    )


def _with_p(row: Row, adjusted: float, fail_on: float) -> Row:
    """WORSE or better: surely different, by runs enough, and by `fail_on` or more as far as is known."""
    verdict: CompareVerdict = row.verdict if row.verdict == "same" else "not enough runs"
    far = abs(math.log(row.ratio)) >= math.log1p(fail_on)
    enough = min(row.runs) >= LEAST_RUNS or row.noise_from == "stated"
    if verdict != "same" and enough and far and adjusted < LEVEL:
        verdict = "WORSE" if row.ratio > 1 else "better"
    return replace(row, adjusted_p=adjusted, verdict=verdict)


def _corrected(versus: Sequence[Versus], fail_on: float) -> tuple[Versus, ...]:
    """One correction over the rows of all sides."""
    if len(versus) < 2:
        return tuple(versus)
    judged = iter(_judged([row for one in versus for row in one.rows], fail_on))
    return tuple(replace(one, rows=tuple(next(judged) for _ in one.rows)) for one in versus)


def _busbw(figures: Sequence[Figure]) -> float:
    if any(f.busbw <= 0 for f in figures):
        return 0.0
    return math.exp(fmean(math.log(f.busbw) for f in figures))


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _order(what: What) -> tuple[object, ...]:
    """Operations together, sizes ascending."""
    how = [f"{value}" for name, value in what.fields if name not in ("op", "size_bytes")]
    size = what.get("size_bytes")
    return what.kind, str(what.get("op") or ""), how, size if isinstance(size, int) else 0


def _figures(runs: Sequence[Run], only: Collection[str], across: Collection[str]) -> Figures:
    found: dict[What, list[Figure]] = {}
    for run in runs:
        for what, figure in figures_of(run, across).items():
            if _wanted(what, only):
                found.setdefault(what, []).append(figure)
    return found


def _by_name_of_today(sides: Sequence[Figures]) -> list[Figures]:
    """Return the sides' figures, those of earlier versions by the names that other sides have."""
    names = same_series(what for side in sides for what in side)
    found: list[Figures] = []
    for side in sides:
        own: dict[What, list[Figure]] = {}
        for what, figures in side.items():
            own.setdefault(names.get(what, what), []).extend(figures)
        found.append(own)
    return found


def _wanted(what: What, only: Collection[str]) -> bool:
    return not only or any(what.get(name) in only for name in ("op", "strategy", "tool"))


def _unpaired(before: Figures, after: Figures) -> Unpaired:
    first = [what for what in before if what not in after]
    second = [what for what in after if what not in before]
    # Few are looked at: thousands of sizes against thousands would take their product.
    pairs = [(a, b) for a in first[:50] for b in second[:50] if a.kind == b.kind]
    near = [_differing(a, b) for a, b in pairs]
    names = {only[0] for only in near if len(only) == 1} & set(FIELDS)
    example = (first or second)[0] if first or second else None
    return Unpaired(
        before=len(first),
        after=len(second),
        differ_in=tuple(sorted(names - {"figure", "op", "size_bytes", "strategy"})),
        example=" ".join(str(v) for _, v in example.fields[:1]) if example else "",
    )


def _differing(a: What, b: What) -> list[str]:
    other = dict(b.fields)
    return [name for name, value in a.fields if other.get(name) != value]


def _refuse_overlap(sides: Sequence[SideRuns]) -> None:
    if len(sides) < 2 or not all(side.runs for side in sides):
        raise UsageError(
            "there is one side only",
            expected="two sides of runs, or one and --baseline",
            next="wirespeed runs list",
        )
    seen: set[str] = set()
    for run in (run for side in sides for run in side.runs):
        if run.id in seen:
            raise UsageError(
                f"run {run.id} stands twice: a run says nothing about itself",
                expected="different runs",
                next="wirespeed runs list",
            )
        seen.add(run.id)


def _names(sides: Sequence[SideRuns]) -> list[str]:
    """As short as they stay different; the first run of each side."""
    ids = [side.runs[0].id for side in sides]
    length = next((n for n in range(4, 65) if len({i[:n] for i in ids}) == len(ids)), 64)
    return [
        side.name or ids[k][:length] + (f" ({len(side.runs)} runs)" if len(side.runs) > 1 else "")
        for k, side in enumerate(sides)
    ]


def _side(side: SideRuns, name: str) -> Side:
    return Side(
        name=name,
        runs=tuple(run.id for run in side.runs),
        started=min(run.started for run in side.runs),
    )


_Signature = tuple[tuple[tuple[str, str], frozenset[str]], ...]


def floors_of(stored: Iterable[Run], across: Collection[str] = ()) -> dict[What, Floor]:
    """The noise between runs by what was measured, pooled over groups of alike runs.

    Alike: everything recorded beside the figures is the same (versions, environment, hosts, …), and
    the hosts are known. Give it no run that is being compared: the change itself would count as noise.
    """
    groups: dict[_Signature, dict[What, list[Figure]]] = {}
    for run in stored:
        facts = facts_of([run])
        if ("hosts", "hosts") in facts:
            group = groups.setdefault(tuple(sorted(facts.items(), key=itemgetter(0))), {})
            for what, figure in figures_of(run, across).items():
                group.setdefault(what, []).append(figure)
    squares: dict[What, tuple[float, int]] = {}
    for group in groups.values():
        for what, figures in group.items():
            if len(figures) > 1:
                freedom = len(figures) - 1
                total, before = squares.get(what, (0.0, 0))
                more = variance(f.log for f in figures) * freedom
                squares[what] = total + more, before + freedom
    return {
        what: Floor(total / freedom, freedom, "history")
        for what, (total, freedom) in squares.items()
    }


# One figure over many runs: its levels, and what was different when a level changed.


@dataclass(frozen=True, slots=True)
class Point:
    """One figure of one run, of a series."""

    run: str
    """The run's id."""
    started: str
    world: tuple[str, int]
    """Backend and nodes."""
    what: What
    figure: Figure
    facts: Callable[[], Facts]
    """What is recorded of the run beside its figures (`facts_of`); asked for where a level changed."""


_Points = Sequence[Point]


def points_of(runs: Iterable[Run]) -> list[Point]:
    """The figures of whole runs."""
    found = []
    for run in runs:
        world = (run.world.backend, run.world.node_count)
        facts = partial(facts_of, [run])
        for what, figure in figures_of(run).items():
            found.append(Point(run.id, run.started, world, what, figure, facts))
    return found


def trend(
    points: Iterable[Point], only: Collection[str] = (), fail_on: float | None = None
) -> Trend:
    """Series of everything that at least two runs measured, in the order in which the runs started.

    only: operations or strategies that are shown, all if empty. The correction is over the series of
    all points whatever is shown, so that a figure shown alone has the same changes as among all.
    Figures of wrong data are left out. Runs of other backends and numbers of nodes are series of
    their own.
    """
    found: dict[tuple[What, tuple[str, int]], list[Point]] = {}
    ordered = sorted(points, key=lambda point: (point.started, point.run))
    names = same_series(point.what for point in ordered)
    for point in ordered:
        if not point.figure.wrong:
            what = names.get(point.what, point.what)
            found.setdefault((what, point.world), []).append(replace(point, what=what))
    several = [series for series in found.values() if len(series) > 1]
    series = [
        _series(points, places)
        for points, places in zip(several, _located(several), strict=True)
        if _wanted(points[0].what, only)
    ]
    return Trend(series=tuple(series), fail_on=fail_on, family=len(several))


def _located(all_points: Sequence[_Points]) -> list[list[Cut]]:
    """The cuts of each series that remain when all series are allowed for."""
    found = [cuts([point.figure.log for point in points]) for points in all_points]
    judged = [k for k, points in enumerate(all_points) if len(points) >= LEAST]
    first = [min((cut.p for cut in found[k]), default=1.0) for k in judged]
    kept: list[list[Cut]] = [[] for _ in all_points]
    for k, own, adjusted in zip(judged, first, benjamini_hochberg(first), strict=True):
        factor = adjusted / own
        kept[k] = [Cut(c.at, c.p * factor) for c in found[k] if c.p * factor < LEVEL]
    return kept


def _series(points: _Points, found: Sequence[Cut]) -> Series:
    edges = [0, *(cut.at for cut in found), len(points)]
    return Series(
        what=points[0].what,
        backend=points[0].world[0],
        runs=tuple(point.run for point in points),
        at=tuple(point.started for point in points),
        times=tuple(math.exp(point.figure.log) for point in points),
        busbw=tuple(point.figure.busbw for point in points),
        changes=tuple(_change(points, edges[k], cut, edges[k + 2]) for k, cut in enumerate(found)),
        judged=len(points) >= LEAST,
    )


def _change(points: _Points, start: int, cut: Cut, end: int) -> Change:
    """The levels on both sides, up to the neighbouring changes, compared as `compare` does."""
    before, after = (
        [one.figure for one in part] for part in (points[start : cut.at], points[cut.at : end])
    )
    one = estimate(before, after)
    reach = one.reach(0.95)
    last, first = points[cut.at - 1], points[cut.at]
    different, _, _ = differences(last.facts(), first.facts())
    return Change(
        run=first.run,
        at=first.started,
        last_before=last.run,
        ratio=math.exp(one.change),
        low=math.exp(one.change - reach),
        high=math.exp(one.change + reach),
        p=cut.p,
        runs=(len(before), len(after)),
        differences=different,
    )
