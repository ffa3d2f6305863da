"""torch's flight recorder, written as JSON: which rank is behind, or runs another collective.

Each rank dumps its last collectives (`TORCH_NCCL_TRACE_BUFFER_SIZE`, torch's tutorial on the flight
recorder). Within one process group every rank must issue the same collectives in the same order, so
the first number at which ranks differ is where the job went apart.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wirespeed.diagnose.prefix import rank_in_name
from wirespeed.diagnose.sources import Source, Stream
from wirespeed.errors import InputError
from wirespeed.records import Finding, Subject

__all__ = ["Dump", "compare", "is_dump", "read_dump", "unread"]

_HEAD = 4096
_LARGEST = 64 << 20
_SHOWN = 6
Group = str


@dataclass(frozen=True, slots=True)
class Call:
    """One collective as one rank recorded it."""

    seq: int
    name: str
    sizes: str
    """Of the inputs, such as `[1024]`."""
    state: str
    """`scheduled`, `started` or `completed`."""

    @property
    def what(self) -> str:
        return f"{self.name} {self.sizes}"


@dataclass(frozen=True, slots=True)
class Dump:
    """What one rank recorded, by process group and sequence number."""

    source: str
    rank: int
    groups: Mapping[Group, Mapping[int, Call]]
    members: Mapping[Group, tuple[int, ...]]
    """Ranks of each group, where the dump tells them."""


def is_dump(source: Source) -> bool:
    """Whether it is a JSON object that looks like the recorder's, by its first bytes."""
    if source.path is None:
        return False
    stream = source.open()
    try:
        head = stream.read1(_HEAD)
    finally:
        stream.close()
    return head.lstrip()[:1] == b"{" and (b'"entries"' in head or b'"pg_config"' in head)


def read_dump(source: Source, number: int) -> Dump:
    """The dump; `number` is its rank where neither its name nor its content tells one.

    Raises InputError where it is no such dump.
    """
    stream = source.open()
    try:
        data = json.loads(_all(stream, source.name))
        entries = data["entries"]
        groups: dict[Group, dict[int, Call]] = {}
        for entry in entries:
            if not entry.get("is_p2p"):
                call = _call(entry)
                groups.setdefault(_group(entry), {})[call.seq] = call
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{source.name} is no dump of the flight recorder: {error}",
            expected='a JSON object with "entries"',
        ) from error
    finally:
        stream.close()
    told = data.get("rank", rank_in_name(source.name))
    return Dump(source.name, told if isinstance(told, int) else number, groups, _members(data))


def _all(stream: Stream, name: str) -> bytes:
    data = bytearray()
    while part := stream.read1(1 << 20):
        data += part
        if len(data) > _LARGEST:
            raise InputError(
                f"{name} is larger than {_LARGEST >> 20} MiB", expected="a rank's dump"
            )
    return bytes(data)


def _group(entry: Mapping[str, Any]) -> Group:
    named = entry.get("process_group") or [entry.get("pg_id", 0)]
    return str(named[-1] if len(named) > 1 and named[-1] else named[0])


def _call(entry: Mapping[str, Any]) -> Call:
    seq = entry.get("collective_seq_id", entry.get("seq_id", entry.get("record_id")))
    sizes = entry.get("input_sizes") or []
    return Call(
        seq=int(seq),
        name=str(entry.get("profiling_name", "a collective")),
        sizes=json.dumps(sizes[0] if len(sizes) == 1 else sizes),
        state=str(entry.get("state", "")),
    )


def _members(data: Mapping[str, Any]) -> dict[Group, tuple[int, ...]]:
    found = {}
    for name, config in (data.get("pg_config") or {}).items():
        ranks = config.get("ranks", "[]") if isinstance(config, dict) else "[]"
        ranks = json.loads(ranks) if isinstance(ranks, str) else ranks
        desc = config.get("desc") if isinstance(config, dict) else None
        found[str(desc or name)] = tuple(int(rank) for rank in ranks)
    return found


def unread(error: InputError) -> Finding:
    """A dump among others that cannot be read."""
    return Finding(
        id="FLIGHT-004", status="not_checked", title=error.saw, because=f"expected {error.expected}"
    )


def compare(dumps: Iterable[Dump]) -> list[Finding]:
    """Where the ranks of each group part: another collective, a rank behind, a dump that is missing."""
    every = {dump.rank: dump for dump in dumps}
    groups = sorted({group for dump in every.values() for group in dump.groups})
    found = [one for group in groups if (one := _of_group(group, every)) is not None]
    return found or [_alike(every)]


def _of_group(group: Group, every: Mapping[int, Dump]) -> Finding | None:
    calls = {rank: dump.groups[group] for rank, dump in every.items() if group in dump.groups}
    members = {rank for dump in every.values() for rank in dump.members.get(group, ())}
    silent = sorted(members & set(every) - set(calls))
    low = max((min(of) for of in calls.values() if of), default=0)
    high = max((max(of) for of in calls.values() if of), default=0)
    for seq in range(low, high + 1):
        there = {rank: of[seq] for rank, of in calls.items() if seq in of}
        if len({call.what for call in there.values()}) > 1:
            return _mismatch(group, seq, there, every)
        if absent := sorted(set(calls) - set(there)) + silent:
            return _behind(group, seq, there, absent, every)
        if waiting := {rank: call for rank, call in there.items() if call.state != "completed"}:
            return _stuck(group, seq, there, waiting, sorted(members - set(every)), every)
    return None


def _mismatch(
    group: Group, seq: int, there: Mapping[int, Call], every: Mapping[int, Dump]
) -> Finding:
    by_call: dict[str, list[int]] = {}
    for rank, call in sorted(there.items()):
        by_call.setdefault(call.what, []).append(rank)
    parts = sorted(by_call.items(), key=lambda item: -len(item[1]))
    most, *odd = parts
    ranks = [rank for _, some in odd for rank in some]
    told = "; ".join(f"{_ranks(some)}: {what}" for what, some in parts[:_SHOWN])
    return Finding(
        id="FLIGHT-001",
        status="fail",
        title=f"{_ranks(ranks)} run another collective than the rest: number {seq} of group {group}",
        subject=_subject(ranks),
        saw=told,
        expected=f"the same collective of the same size on every rank, such as {most[0]}",
        because="ranks took different branches: a condition on the rank, uneven data, another setting",
        costs="a collective ends only when every rank calls the same one: the job hangs, or data are "
        "wrong",
        fix="make every rank issue the same collectives in the same order",
        next="run again with TORCH_DISTRIBUTED_DEBUG=DETAIL",
        evidence=tuple(f"{every[some[0]].source}: {what}" for what, some in parts[:_SHOWN]),
        category="collective-mismatch",
        confidence="certain",
    )


def _behind(
    group: Group,
    seq: int,
    there: Mapping[int, Call],
    absent: list[int],
    every: Mapping[int, Dump],
) -> Finding:
    call = next(iter(there.values()))
    last = {rank: _last(every[rank], group) for rank in absent}
    told = "; ".join(f"rank {rank} last: {text}" for rank, text in list(last.items())[:_SHOWN])
    return Finding(
        id="FLIGHT-002",
        status="fail",
        title=f"{_ranks(absent)} never came to collective {seq} of group {group}: {call.what}",
        subject=_subject(absent),
        saw=f"{_ranks(sorted(there))} wait in it; {told}",
        expected=f"{call.what} issued by every rank of the group",
        because="a rank that is stuck or slow before the call (data loading, a checkpoint, an "
        "exception that was caught), or that left its loop early",
        costs="all others wait for it until the watchdog ends the job",
        fix=f"look at what {_ranks(absent[:1])} did at that moment: its stack and its log",
        next="py-spy dump --pid PID on that rank's node, while it hangs",
        evidence=tuple(
            f"{every[rank].source}: {text}" for rank, text in list(last.items())[:_SHOWN]
        ),
        category="rank-behind",
        confidence="certain",
    )


def _stuck(
    group: Group,
    seq: int,
    there: Mapping[int, Call],
    waiting: Mapping[int, Call],
    unseen: list[int],
    every: Mapping[int, Dump],
) -> Finding:
    call = next(iter(waiting.values()))
    some = f"; no dump of {_ranks(unseen)}: the one behind may be there" if unseen else ""
    return Finding(
        id="FLIGHT-003",
        status="warn",
        title="cannot tell why: "
        f"{_ranks(sorted(waiting))} wait in collective {seq} of group {group}: {call.what}",
        subject=_subject(sorted(waiting)),
        saw=f"state {call.state} on {_ranks(sorted(waiting))}, completed on "
        f"{len(there) - len(waiting)} ranks{some}",
        expected="completed on every rank",
        because="every rank that wrote a dump issued it, so the program is not to blame: data do not "
        "arrive, or a rank without a dump is missing",
        costs="the job hangs until the watchdog ends it",
        fix="check in this order: 1. the ranks without a dump; 2. links and NICs between these ranks "
        "(wirespeed locate); 3. Xid and NVLink errors in the kernel logs of their nodes",
        next="wirespeed locate",
        evidence=tuple(
            f"{every[rank].source}: {one.what} {one.state}" for rank, one in waiting.items()
        )[:_SHOWN],
        category="collective-stuck",
        confidence="cannot tell",
    )


def _alike(every: Mapping[int, Dump]) -> Finding:
    return Finding(
        id="FLIGHT-000",
        status="pass",
        title=f"the flight recorder's dumps of {len(every)} ranks agree: all collectives completed",
    )


def _last(dump: Dump, group: Group) -> str:
    of = dump.groups.get(group)
    if not of:
        return "nothing in this group"
    call = of[max(of)]
    return f"{call.seq} {call.what} {call.state}".rstrip()


def _ranks(ranks: list[int]) -> str:
    more = len(ranks) - _SHOWN
    text = ", ".join(map(str, ranks[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
    return ("rank " if len(ranks) == 1 else "ranks ") + text


def _subject(ranks: list[int]) -> Subject:
    return Subject("rank", f"rank {ranks[0]}") if len(ranks) == 1 else Subject("job", "job")
