"""Several stored runs by one reference: `last:3`, `last~5..last~3`, `7f3c..91ae`.

`last~N` and `last:N` count runs of the same kind as the newest one that has figures: the same command,
backend and nodes, and mostly the same figures. Between them may lie runs of any other kind.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wirespeed.errors import UsageError
from wirespeed.model.units import counted
from wirespeed.runs.index import RunFilter
from wirespeed.runs.rows import RunRow
from wirespeed.runs.source import RUNS_LIST, folder_of, opened

_NEWEST = re.compile(r"last(?:~(?P<before>\d{1,6})|:(?P<number>\d{1,6}))")
_LONGEST = 200
"""Characters of a reference."""
_AT_ONCE = 200
"""Runs whose figures are read at first; ten times as many while these do not suffice."""
EXPECTED = "ids, the starts of ids, `last`, `last~2`, `last:3`, `last~5..last~3`, or paths"


def is_selection(reference: str) -> bool:
    """Return whether it is one of this module's forms: no id, no `last` alone and no path is."""
    if "/" in reference or len(reference) > _LONGEST:
        return False
    first, dots, last = reference.partition("..")
    has_form = _NEWEST.fullmatch(reference) or (dots and first and last)
    return bool(has_form) and not Path(reference).exists()


def find_selection(reference: str) -> list[Path]:
    """Return the folders of the runs that `reference` names, oldest first.

    UsageError where there are not so many, or an end of a range is no run of that kind.
    """
    first, dots, last = reference.partition("..")
    if not dots:
        return [folder_of(run.row.run) for run in _newest(reference)]
    ends = [_end(first), _end(last)]
    kind = next((end for end in ends if isinstance(end, _Stored)), None)
    runs: list[_Stored] = []
    wanted = {end.row.run for end in ends if isinstance(end, _Stored)}
    depth = max((end for end in ends if isinstance(end, int)), default=-1)
    for run in _alike(kind):
        runs.append(run)
        wanted.discard(run.row.run)
        if not wanted and len(runs) > depth:
            break
    places = [_place(end, runs, reference) for end in ends]
    newest, oldest = min(places), max(places)
    return [folder_of(run.row.run) for run in runs[newest : oldest + 1][::-1]]


def ids_before(id: str, most: int) -> list[str]:
    """Return the ids of the newest runs of the same kind before that run, oldest first."""
    found: list[str] = []
    run = _end(id)
    if isinstance(run, int):
        return found
    passed = False
    for other in _alike(run):
        if passed and len(found) < most:
            found.append(other.row.id)
        passed = passed or other.row.run == run.row.run
        if len(found) == most:
            break
    return found[::-1]


@dataclass(frozen=True, slots=True)
class _Stored:
    """A run and what it measured."""

    row: RunRow
    figures: frozenset[str]
    earlier: frozenset[str]
    """The figures by the names that earlier versions gave them."""

    def is_like(self, other: "_Stored") -> bool:
        mine, theirs = self.row, other.row
        if (mine.command, mine.backend) != (theirs.command, theirs.backend):
            return False
        if (mine.world_size, mine.nodes) != (theirs.world_size, theirs.nodes):
            return False
        if _mostly_same(self.figures, other.figures):
            return True
        # An import of an earlier version beside one of today.
        one_is_earlier = (self.figures == self.earlier) != (other.figures == other.earlier)
        return one_is_earlier and _mostly_same(self.earlier, other.earlier)

    @property
    def kind(self) -> str:
        """`bench on 2 ranks`."""
        return f"{self.row.command} on {counted(self.row.world_size, 'rank')}"


def _mostly_same(one: frozenset[str], other: frozenset[str]) -> bool:
    return 2 * len(one & other) > len(one | other)


def _newest(reference: str) -> list[_Stored]:
    """Return the runs of `last:3`, or the one of `last~2`; oldest first."""
    match = _NEWEST.fullmatch(reference)
    if match is None:
        raise ValueError(reference)
    before, number = match["before"], match["number"]
    needed = int(number) if number else int(before) + 1
    if needed < 1:
        raise UsageError(f"{reference!r} names no run", expected=EXPECTED, next=RUNS_LIST)
    runs: list[_Stored] = []
    for run in _alike(None):
        runs.append(run)
        if len(runs) == needed:
            return runs[::-1] if number else [run]
    raise _too_few(reference, runs)


def _end(reference: str) -> "_Stored | int":
    """Return one end of a range: how many runs lie after it, or the run."""
    if reference == "last":
        return 0
    match = _NEWEST.fullmatch(reference)
    if match is not None and match["before"]:
        return int(match["before"])
    found = [run for run in _stored() if reference in (run.row.run, run.row.id)]
    if not found and re.fullmatch(r"[0-9a-f]{2,}", reference):
        found = [run for run in _stored() if run.row.id.startswith(reference)]
    if len(found) != 1:
        saw = f"{reference[:80]!r} names {'several runs' if found else 'no run with figures'}"
        raise UsageError(saw, expected="one stored run at each end of `..`", next=RUNS_LIST)
    return found[0]


def _place(end: "_Stored | int", runs: list[_Stored], reference: str) -> int:
    """Return the place of an end among the runs, newest first."""
    if isinstance(end, int):
        if end < len(runs):
            return end
        raise _too_few(reference, runs)
    for place, run in enumerate(runs):
        if run.row.run == end.row.run:
            return place
    raise UsageError(
        f"run {end.row.id} is not of the same kind as the other end of {reference}",
        expected="two runs of the same command, backend and nodes that measured the same",
        next=RUNS_LIST,
    )


def _too_few(reference: str, runs: list[_Stored]) -> UsageError:
    if not runs:
        return UsageError("no stored run has figures", next="wirespeed bench all_reduce --repeat 3")
    return UsageError(
        f"{reference}: there {'are' if len(runs) > 1 else 'is'} only "
        f"{counted(len(runs), 'run')} of the same kind as the newest ({runs[0].kind})",
        expected="as many runs that measured the same",
        next=RUNS_LIST,
    )


def _alike(kind: _Stored | None) -> Iterator[_Stored]:
    """Give the runs of a kind, newest first; None: that of the newest run that has figures."""
    for run in _stored():
        kind = kind or run
        if run.is_like(kind):
            yield run


def _stored() -> Iterator[_Stored]:
    """Give the runs that ended and have figures, newest first; read in ever larger parts."""
    seen, last = 0, _AT_ONCE
    with opened() as index:
        while True:
            which = RunFilter(finished=True, last=last)
            rows = index.runs(which)
            figures: dict[str, set[str]] = {}
            earlier: dict[str, set[str]] = {}
            for figure in index.figures(which=which):
                figures.setdefault(figure.run, set()).add(figure.what)
                earlier.setdefault(figure.run, set()).add(figure.earlier_what)
            for row in rows[: len(rows) - seen][::-1]:
                if row.run in figures and not row.damaged:
                    yield _Stored(row, frozenset(figures[row.run]), frozenset(earlier[row.run]))
            if len(rows) < last:
                return
            seen, last = len(rows), 10 * last
