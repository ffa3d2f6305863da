"""Where ranks issued different collectives at one number of a group, and which of them is odd: pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wirespeed.diagnose.flight_read import Call, Dump, Group
from wirespeed.diagnose.flight_waits import by_group

__all__ = ["Mismatch", "mismatches"]

_WINDOW = 256
"""Of each group, the newest numbers in which ranks are compared."""

_USUAL = 4
"""Calls before, over all ranks, that make one usual for its group."""

_SAME_SIZE = (
    "all_reduce",
    "allreduce",
    "_all_gather_base",
    "_allgather_base",
    "broadcast",
    "reduce",
    "_reduce_scatter_base",
    "reduce_scatter",
)
"""Calls whose size and type must be alike on all ranks; others may differ, such as all_to_all."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One number of one group at which ranks issued different collectives."""

    group: Group
    seq: int
    parts: tuple[tuple[str, tuple[int, ...]], ...]
    """What each set of ranks issued; the largest first."""
    odd: tuple[int, ...]
    """Ranks that differ from most, here or in groups alike; empty where nothing tells."""
    usual: str
    ended: bool
    """Whether all of them came through it."""


def mismatches(dumps: Mapping[int, Dump]) -> list[Mismatch]:
    """The first of each group."""
    groups = by_group(dumps)
    found = []
    for group, calls in groups.items():
        for seq in _compared(calls):
            parts = _parts(calls, seq)
            if len(parts) > 1:
                found.append(_mismatch(groups, group, seq, parts))
                break
    return sorted(found, key=lambda one: (one.ended, not one.odd, one.group))


def _compared(calls: Mapping[int, Mapping[int, Call]]) -> list[int]:
    if len(calls) < 2:
        return []
    return sorted({seq for of in calls.values() for seq in sorted(of)[-_WINDOW:]})


def _parts(calls: Mapping[int, Mapping[int, Call]], seq: int) -> dict[object, list[int]]:
    """Ranks by what they issued at that number."""
    parts: dict[object, list[int]] = {}
    for rank, of in calls.items():
        call = of.get(seq)
        if call is not None:
            if call.many:
                return {}
            parts.setdefault(_signature(call), []).append(rank)
    return parts


def _signature(call: Call) -> object:
    """What must be alike on all ranks."""
    entry = call.entry
    op = call.op
    if op not in _SAME_SIZE:
        return (call.name,)
    dtypes = entry.get("input_dtypes")
    return (call.name, _elements(entry.get("input_sizes")), str(dtypes)[:80] if dtypes else "")


def _elements(sizes: object) -> int:
    """Of all inputs; -1 where the dump does not say it as torch does."""
    total = 0
    for one in sizes if isinstance(sizes, list | tuple) else ():
        if not isinstance(one, list | tuple) or len(one) > 64:
            return -1
        count = 1
        for size in one:
            if not isinstance(size, int):
                return -1
            count *= size
        total += count
    return total


def _mismatch(
    groups: Mapping[Group, Mapping[int, Mapping[int, Call]]],
    group: Group,
    seq: int,
    parts: Mapping[object, list[int]],
) -> Mismatch:
    calls = groups[group]
    ordered = sorted(parts.items(), key=lambda item: -len(item[1]))
    sign, ranks = ordered[0]
    if 2 * len(ranks) <= sum(map(len, parts.values())):
        sign = _usual(groups, group, seq, parts) or _before(groups, group, seq, parts)
    odd = tuple(one for key, some in ordered if key != sign for one in some) if sign else ()
    usual = calls[parts[sign][0]][seq].what if sign else ""
    told = tuple((calls[some[0]][seq].what, tuple(some)) for _, some in ordered)
    ended = all(calls[rank][seq].done for some in parts.values() for rank in some)
    later = all(max(calls[rank]) > seq for some in parts.values() for rank in some)
    return Mismatch(group, seq, told, odd, usual, ended and later)


def _usual(
    groups: Mapping[Group, Mapping[int, Mapping[int, Call]]],
    group: Group,
    seq: int,
    parts: Mapping[object, list[int]],
) -> object:
    """What groups of the same description and size issue at that number, where they agree."""
    seen: Counter[object] = Counter()
    for other, calls in _alike(groups, group):
        alike = _parts(calls, seq)
        if other != group and len(alike) == 1:
            seen.update(alike.keys())
    known = [sign for sign in parts if seen[sign]]
    return known[0] if len(known) == 1 else None


def _before(
    groups: Mapping[Group, Mapping[int, Mapping[int, Call]]],
    group: Group,
    seq: int,
    parts: Mapping[object, list[int]],
) -> object:
    """What this group has called again and again, where no group alike ever called the other."""
    own = [
        _signature(call) for of in groups[group].values() for call in of.values() if call.seq < seq
    ]
    alike = {
        _signature(call)
        for _, calls in _alike(groups, group)
        for of in calls.values()
        for call in of.values()
        if call.seq != seq
    }
    known = [sign for sign in parts if sign in alike]
    return known[0] if len(known) == 1 and own.count(known[0]) >= _USUAL else None


def _alike(
    groups: Mapping[Group, Mapping[int, Mapping[int, Call]]], group: Group
) -> Iterator[tuple[Group, Mapping[int, Mapping[int, Call]]]]:
    for other, calls in groups.items():
        same = (other.backend, other.desc) == (group.backend, group.desc)
        sizes = len(other.members), len(group.members)
        if same and (sizes[0] == sizes[1] if all(sizes) else len(calls) == len(groups[group])):
            yield other, calls
