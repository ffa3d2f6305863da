"""Where ranks issued different collectives at one number of a group, and which of them is odd: pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wirespeed.diagnose.flight_read import WINDOW, Call, Dump, Group
from wirespeed.diagnose.flight_waits import by_group, kinds_of

__all__ = ["Mismatch", "mismatches"]

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


Calls = Mapping[int, Mapping[int, Call]]
"""Of one group: by rank and number."""


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
    groups, kinds = by_group(dumps), kinds_of(dumps)
    found = []
    for group, calls in groups.items():
        for seq in _compared(calls):
            parts = _parts(calls, seq)
            if len(parts) > 1:
                others = [
                    other
                    for one, other in groups.items()
                    if one != group and kinds[one] == kinds[group] and len(other) == len(calls)
                ]
                found.append(_mismatch(group, calls, seq, parts, others))
                break
    return sorted(found, key=lambda one: (one.ended, not one.odd, one.group))


def _compared(calls: Calls) -> list[int]:
    if len(calls) < 2:
        return []
    return sorted({seq for of in calls.values() for seq in sorted(of)[-WINDOW:]})


def _parts(calls: Calls, seq: int) -> dict[object, list[int]]:
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
    what = call.what
    if what.op not in _SAME_SIZE or what.sizes is None:
        return (what.name,)
    return (what.name, sum(math.prod(one) for one in what.sizes), what.dtypes)


def _mismatch(
    group: Group, calls: Calls, seq: int, parts: Mapping[object, list[int]], others: Sequence[Calls]
) -> Mismatch:
    """others: the calls of groups alike."""
    ordered = sorted(parts.items(), key=lambda item: -len(item[1]))
    sign, ranks = ordered[0]
    if 2 * len(ranks) <= sum(map(len, parts.values())):
        sign = _usual(seq, parts, others) or _before(calls, seq, parts, others)
    odd = tuple(one for key, some in ordered if key != sign for one in some) if sign else ()
    usual = calls[parts[sign][0]][seq].title if sign else ""
    told = tuple((calls[some[0]][seq].title, tuple(some)) for _, some in ordered)
    ended = all(calls[rank][seq].done for some in parts.values() for rank in some)
    later = all(max(calls[rank]) > seq for some in parts.values() for rank in some)
    return Mismatch(group, seq, told, odd, usual, ended and later)


def _usual(seq: int, parts: Mapping[object, list[int]], others: Sequence[Calls]) -> object:
    """What groups alike issue at that number, where they agree."""
    seen = {sign for calls in others if len(alike := _parts(calls, seq)) == 1 for sign in alike}
    known = [sign for sign in parts if sign in seen]
    return known[0] if len(known) == 1 else None


def _before(
    calls: Calls, seq: int, parts: Mapping[object, list[int]], others: Sequence[Calls]
) -> object:
    """What this group has called again and again, where no group alike ever called the other."""
    own = [_signature(call) for of in calls.values() for call in of.values() if call.seq < seq]
    alike = {
        _signature(call)
        for calls_there in (calls, *others)
        for of in calls_there.values()
        for call in of.values()
        if call.seq != seq
    }
    known = [sign for sign in parts if sign in alike]
    return known[0] if len(known) == 1 and own.count(known[0]) >= _USUAL else None
