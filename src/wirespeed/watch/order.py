"""The blocks of all ranks in one order that agrees with each rank's own."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.errors import InputError
from wirespeed.watch.blocks import RECORD_MORE, Group, Issued, RankSteps, size_of

_NAMED = 4


class What(NamedTuple):
    """What ranks must agree in."""

    op: str
    size_bytes: int
    dtype: str
    ranks: int


@dataclass(slots=True)
class Entry:
    """Calls of one step that are alike, in groups side by side."""

    what: What
    groups: list[Group]
    places: list[tuple[int, int]] = field(default_factory=list)
    """(rank, which call of its block)."""

    @property
    def members(self) -> set[int]:
        return {rank for key in self.groups for rank in key.ranks}


def refuse_unknown(ranks: Sequence[RankSteps]) -> None:
    unknown = Counter(call.op for rank in ranks for call in rank.block if not _can_replay(call.op))
    if unknown:
        named = ", ".join(sorted(unknown)[:_NAMED])
        raise InputError(
            f"a step of the job has calls that cannot be replayed: {named}",
            expected="collectives of all members of a group: "
            + ", ".join(name for name in CATALOGUE if _can_replay(name)),
        )


def _can_replay(op: str) -> bool:
    return op in CATALOGUE and not CATALOGUE[op].point_to_point


def _what(call: Issued) -> What:
    return What(call.op, size_of(call), call.dtype, len(call.group.ranks))


_Node = tuple[Group, int]
"""A call of a step: its group, and the how many-th of that group it is."""


def in_one_order(ranks: Sequence[RankSteps]) -> list[Entry]:
    """Of all ranks' newest steps. InputError where members of a group do not issue the same."""
    orders = {one.rank: _nodes(one) for one in ranks}
    _refuse_differences(ranks, orders)
    groups = {group for nodes in orders.values() for group, _ in nodes}
    present = {group: [rank for rank in group.ranks if rank in orders] for group in groups}
    waiting: Counter[_Node] = Counter()
    ready: dict[What, list[_Node]] = defaultdict(list)
    at = dict.fromkeys(orders, 0)
    blocks = {one.rank: one.block for one in ranks}

    def arrive(rank: int) -> None:
        if at[rank] < len(orders[rank]):
            node = orders[rank][at[rank]]
            waiting[node] += 1
            if waiting[node] == len(present[node[0]]):
                ready[_what(blocks[rank][at[rank]])].append(node)

    for rank in orders:
        arrive(rank)
    entries = []
    while ready:
        what = max(ready, key=lambda one: (len(ready[one]), -min(map(_first, ready[one]))))
        entry = Entry(what, [group for group, _ in sorted(ready.pop(what), key=_first)])
        entries.append(entry)
        for rank in (rank for group in entry.groups for rank in present[group]):
            entry.places.append((rank, at[rank]))
            at[rank] += 1
            arrive(rank)
    stuck = [rank for rank in orders if at[rank] < len(orders[rank])]
    if stuck:
        raise _disagree(stuck[:2], {rank: blocks[rank][at[rank]] for rank in stuck[:2]})
    return entries


def _first(node: _Node) -> int:
    return node[0].ranks[0]


def _nodes(one: RankSteps) -> list[_Node]:
    seen: Counter[Group] = Counter()
    nodes = []
    for call in one.block:
        nodes.append((call.group, seen[call.group]))
        seen[call.group] += 1
    return nodes


def _refuse_differences(ranks: Sequence[RankSteps], orders: Mapping[int, list[_Node]]) -> None:
    """InputError where members of a group differ in how many calls a step has, or in what they are."""
    first: dict[_Node, tuple[int, Issued]] = {}
    for one in ranks:
        for call, node in zip(one.block, orders[one.rank], strict=True):
            other, known = first.setdefault(node, (one.rank, call))
            if _what(known) != _what(call) and not CATALOGUE[call.op].rooted:
                raise _disagree([other, one.rank], {other: known, one.rank: call})
    many = {one.rank: Counter(key for key, _ in orders[one.rank]) for one in ranks}
    for key in {key for of in many.values() for key in of}:
        counts = {rank: many[rank][key] for rank in key.ranks if rank in many}
        if len(set(counts.values())) > 1:
            low, high = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
            raise InputError(
                f"a step of rank {low} has {counts[low]} collectives of group {key.name!r}, and one of "
                f"rank {high} {counts[high]}",
                expected="the same of all members of a group; with fewer steps than the others a "
                "rank's block may be cut short",
                next=RECORD_MORE,
            )


def _disagree(ranks: Sequence[int], calls: Mapping[int, Issued]) -> InputError:
    said = "; ".join(
        f"rank {rank}: {calls[rank].op} of {calls[rank].size_bytes} bytes of {calls[rank].dtype} in "
        f"group {calls[rank].group.name!r}"
        for rank in ranks
    )
    return InputError(
        f"the ranks' records do not agree on the order of collectives: {said}",
        expected="within a group the same collectives in the same order on every member",
        next="wirespeed diagnose with the same files, where the job has hung",
    )
