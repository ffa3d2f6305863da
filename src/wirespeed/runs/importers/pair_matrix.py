"""Matrices of copies between GPUs: a row or a column that is slow belongs to one GPU."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from wirespeed.model.bench_records import ToolFigure
from wirespeed.model.records import Finding
from wirespeed.model.units import counted, format_figure
from wirespeed.runs.findings import make_finding
from wirespeed.statistics import MAD_TO_SIGMA

_PAIR = re.compile(r"(.*\d+) (<?->) (.*\d+)")
_FAR, _SIGMAS = 0.1, 6.0
_LEAST_OWN, _LEAST_REST = 2, 6
"""Pairs of the one GPU and of all others: four GPUs have six pairs without the slow one."""
_MOST_EVIDENCE = 20


@dataclass(frozen=True, slots=True)
class _Pair:
    first: str
    second: str
    figure: ToolFigure


def find_slow_gpus(figures: Iterable[ToolFigure]) -> tuple[list[Finding], list[ToolFigure]]:
    """Return a finding per GPU all of whose copies in one way are slow, and the other figures.

    It is named where each of its pairs (those it sends in, receives in, or both) is worse than the
    usual pair without it by more than 10 % and six robust sigmas, and no other GPU is.
    """
    tests: dict[tuple[object, ...], list[_Pair]] = {}
    rest: list[ToolFigure] = []
    for one in figures:
        found = _PAIR.fullmatch(one.place)
        if found and found[1] != found[3] and one.unit and one.value > 0:
            key = (one.tool, one.test, one.settings, one.size_bytes, one.unit)
            tests.setdefault(key, []).append(_Pair(found[1], found[3], one))
        else:
            rest.append(one)
    slow: dict[str, list[str]] = {}
    for pairs in tests.values():
        name, how, own = _slow_one(pairs)
        if name:
            slow.setdefault(name, []).append(_line(name, how, own, pairs))
        taken = {id(pair) for pair in own}
        rest += [pair.figure for pair in pairs if id(pair) not in taken]
    return [_finding(name, lines) for name, lines in slow.items()], rest


def _slow_one(pairs: Sequence[_Pair]) -> tuple[str, str, list[_Pair]]:
    """Return (GPU, which of its copies, its pairs) of the one that is slow; empty where none is."""
    places = dict.fromkeys(name for pair in pairs for name in (pair.first, pair.second))
    for how in ("both ways", "from it", "to it"):
        found = []
        for name in places:
            own = [pair for pair in pairs if _is_own(pair, name, how)]
            others = [pair for pair in pairs if not _is_own(pair, name, how)]
            if _is_slow(own, others):
                found.append((name, how, own))
        if len(found) == 1:
            return found[0]
    return "", "", []


def _is_own(pair: _Pair, name: str, how: str) -> bool:
    if how == "from it":
        return pair.first == name
    return pair.second == name or (how == "both ways" and pair.first == name)


def _is_slow(own: Sequence[_Pair], others: Sequence[_Pair]) -> bool:
    if len(own) < _LEAST_OWN or len(others) < _LEAST_REST:
        return False
    values = [pair.figure.value for pair in others]
    usual = median(values)
    sigma = MAD_TO_SIGMA * median(abs(value - usual) for value in values)
    reach = max(_FAR * usual, _SIGMAS * sigma)
    sign = 1 if own[0].figure.unit == "s" else -1
    return all(sign * (pair.figure.value - usual) > reach for pair in own)


def _line(name: str, how: str, own: Sequence[_Pair], pairs: Sequence[_Pair]) -> str:
    unit, test = own[0].figure.unit, own[0].figure.test
    mine = {id(pair) for pair in own}
    others = median(pair.figure.value for pair in pairs if id(pair) not in mine)
    inside = median(pair.figure.value for pair in own)
    return (
        f"{name}: {format_figure(inside, unit)} {how} in {test}, "
        f"median of the others {format_figure(others, unit)}"
    )


def _finding(name: str, lines: Sequence[str]) -> Finding:
    more = f"; {counted(len(lines) - 1, 'more test')}" if len(lines) > 1 else ""
    return make_finding(
        "behind_others", about=name, saw=f"{lines[0]}{more}", evidence=lines[:_MOST_EVIDENCE]
    )


def gpu_of(place: str) -> str:
    """Return `GPU 3` of a copy between a host and one GPU; empty for every other place."""
    names = list(_names(place))
    gpus = [name for name in names if name.startswith("GPU ")]
    return gpus[0] if len(gpus) == 1 and len(names) == len(gpus) + 1 else ""


def _names(place: str) -> Iterator[str]:
    if found := _PAIR.fullmatch(place):
        yield from (found[1], found[3])
