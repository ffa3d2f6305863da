"""Collectives of several ranks at one number of one process group, from the lines of their watchdogs.

The line of a timeout names rank, number, operation and sizes; the group stands in the next line of that
rank that tells at which number it stopped. Numbers count within a group, so only ranks of one group and
number are compared.
"""

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from wirespeed.diagnose.scan import Hit
from wirespeed.model.units import spans

_SAME_SIZES = frozenset({
    "ALLREDUCE", "BROADCAST", "REDUCE", "BARRIER", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE",
})  # fmt: skip
"""Operations that are called with the same number of elements by each rank."""
_BETWEEN_TWO = frozenset({"SEND", "RECV", "COALESCED", "UNKNOWN"})
"""Operations that ranks may call apart from each other, or whose name says nothing."""

RECORDER_FIELDS = ("{recorder}", "{dumps}")
"""Stand in a rule's `next` and `checks` for what `recorder_words` returns."""
_DEFAULT_DUMPS = "~/.cache/torch/comm_lib_trace_rank_* /tmp/nccl_trace_rank_*"
"""Where torch writes dumps unless it is told otherwise, in new and older versions."""
_ONE_AND_UNKNOWN = 2
_NUMBER_AT_END = re.compile(r"\d+$")


@dataclass(frozen=True, slots=True)
class Call:
    """What one rank was in when its watchdog gave up."""

    rank: int
    group: str
    """The group's own id; empty where the rank's lines name none."""
    group_name: str
    number: int
    operation: str
    sizes: str
    hit: Hit

    @property
    def kind(self) -> tuple[str, str]:
        """Return what must be the same for all ranks of the group at this number."""
        return self.operation, self.sizes if self.operation in _SAME_SIZES else ""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks of one group that are in different collectives at one number."""

    calls: tuple[Call, ...]
    """One of each rank, the kind that fewest ranks are in first."""

    @property
    def words(self) -> dict[str, str]:
        """Return what the sentences of a rule name."""
        first = self.calls[0]
        differ = "operation" if len({call.operation for call in self.calls}) > 1 else "size"
        return {
            "who": "; ".join(_who(same) for same in _by_kind(self.calls)),
            "number": str(first.number),
            "group": first.group_name or first.group or "one group",
            "differ": differ,
        }


def calls_of(timeouts: Iterable[Hit], stops: Iterable[Hit]) -> list[Call]:
    """Return the call of each timeout whose rank is known, with its group where a line names it.

    timeouts: lines with `seq`, `op`, `size` and perhaps `out`; stops: lines with `group`, `name`, `seq`.
    """
    places: dict[tuple[int | None, int], list[Hit]] = {}
    for hit in stops:
        places.setdefault((_rank(hit), int(hit.groups["seq"])), []).append(hit)
    calls = []
    for hit in timeouts:
        rank = _rank(hit)
        if rank is None:
            continue
        near = places.get((rank, int(hit.groups["seq"])), [])
        stop = _nearest(near, hit)
        sizes = dict.fromkeys((hit.groups.get("size", ""), hit.groups.get("out", "")))
        call = Call(
            rank=rank,
            group=stop.groups.get("group", "") if stop else "",
            group_name=stop.groups.get("name", "") if stop else "",
            number=int(hit.groups["seq"]),
            operation=hit.groups["op"].upper(),
            sizes=" → ".join(filter(None, sizes)),
            hit=hit,
        )
        calls.append(call)
    return calls


def mismatches(calls: Sequence[Call], *, grouped: bool) -> list[Mismatch]:
    """Return the groups and numbers at which ranks are in different collectives.

    grouped: whether to compare the calls whose group is known, or those at numbers where the group of
    some is not, and no two groups are.
    """
    known: dict[int, set[str]] = {}
    for call in calls:
        known.setdefault(call.number, set()).add(call.group)
    places: dict[tuple[str, int], dict[int, Call]] = {}
    twice = set()
    for call in calls:
        groups = known[call.number]
        compared = call.group if grouped else "" in groups and len(groups) <= _ONE_AND_UNKNOWN
        if not compared or call.operation in _BETWEEN_TWO:
            continue
        place = (call.group if grouped else "", call.number)
        ranks = places.setdefault(place, {})
        if ranks.setdefault(call.rank, call).kind != call.kind:
            # The rank was started again, or it stands for two ranks of different groups.
            twice.add(place)
    found = []
    for place, ranks in places.items():
        if place not in twice and len({call.kind for call in ranks.values()}) > 1:
            kinds = sorted(_by_kind(ranks.values()), key=len)
            found.append(Mismatch(tuple(call for same in kinds for call in same)))
    return sorted(found, key=lambda one: one.calls[0].hit.line.order)


def _nearest(hits: Iterable[Hit], to: Hit) -> Hit | None:
    def distance(hit: Hit) -> int:
        return abs(hit.line.order - to.line.order)

    return min(hits, key=distance, default=None)


def _rank(hit: Hit) -> int | None:
    if hit.line.rank is not None:
        return hit.line.rank
    named = hit.groups.get("group_rank", "")
    return int(named) if named.isdecimal() else None


def _by_kind(calls: Iterable[Call]) -> list[list[Call]]:
    kinds: dict[tuple[str, str], list[Call]] = {}
    for call in sorted(calls, key=lambda one: one.rank):
        kinds.setdefault(call.kind, []).append(call)
    return list(kinds.values())


def _who(same: Sequence[Call]) -> str:
    name = "rank" if len(same) == 1 else "ranks"
    sizes = f" of {same[0].sizes} elements" if same[0].kind[1] else ""
    ranks = spans(call.rank for call in same)
    return f"{name} {ranks} in {same[0].operation}{sizes}"


def recorder_words(seen: Container[str], file: str = "") -> dict[str, str]:
    """Return what a rule says of torch's flight recorder, by the names that its texts use.

    `recorder` is the command that reads its dumps, or makes the next run write some; `dumps` is what to
    check with them. seen: ids of the rules that matched. file: a dump that the log names.
    TORCH_FR_BUFFER_SIZE replaced TORCH_NCCL_TRACE_BUFFER_SIZE in torch 2.9; where the log does not show
    which one its torch reads, both are named.
    """
    if "WD-021" in seen and "WD-022" not in seen:
        written = _NUMBER_AT_END.sub("*", file) if file else ""
        where = f"wirespeed diagnose {written}" if written else f"ls {_DEFAULT_DUMPS}"
        check = (
            "the flight recorder's dumps that torch wrote: wirespeed diagnose reads them and names"
        )
        return {"recorder": where, "dumps": f"{check} the rank that is behind"}
    if "WD-020" in seen:
        variables = "TORCH_FR_BUFFER_SIZE=2000"
    elif "WD-022" in seen:
        variables = "TORCH_NCCL_TRACE_BUFFER_SIZE=2000"
    else:
        variables = "TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000"
    command = f"export {variables} TORCH_NCCL_DUMP_ON_TIMEOUT=1"
    check = "the flight recorder's dumps of another run: wirespeed diagnose reads them and names"
    return {"recorder": command, "dumps": f"{check} the rank that is behind ({command})"}
