"""A dump of torch's flight recorder as calls; who is to blame for a hang `diagnose/flight.py` tells."""

from collections.abc import Mapping
from typing import Any

from wirespeed.diagnose.flight_read import TRANSFER, Dump, decoded, read_dump
from wirespeed.diagnose.sources import Source
from wirespeed.watch.calls import Call
from wirespeed.watch.traces.naming import dtype_known, op_named
from wirespeed.watch.traces.rank_trace import MOST_CALLS, RankTrace, count_of, elements_of


def read_recorder(source: Source, number: int) -> tuple[RankTrace, Dump]:
    """number: its rank where nothing tells one. Raises InputError where it is no such dump."""
    dump = read_dump(source, number)
    trace = RankTrace(
        source=source.name,
        kind="recorder",
        rank=dump.rank if dump.sure else -1,
        groups={one.name: one.members for one in dump.told},
        described={one.name: one.desc for one in dump.told},
    )
    entries = decoded(source, lambda known: list(known.get("entries") or []))
    trace.more_calls = max(0, len(entries) - MOST_CALLS)
    told = {one.name: one.members for one in dump.told}
    calls = [_call(one, told) for one in entries[-MOST_CALLS:] if isinstance(one, dict)]
    trace.calls = sorted(calls, key=lambda one: one.begin_s)
    return trace, dump


def _call(entry: Mapping[str, Any], groups: Mapping[str, tuple[int, ...]]) -> Call:
    named = entry.get("process_group")
    name = named[0] if isinstance(named, (list, tuple)) and named else entry.get("pg_name", "")
    op = op_named(str(entry.get("profiling_name", "")).partition(" ")[0])
    types = entry.get("input_dtypes")
    dtype, width = dtype_known(str(types[0]) if isinstance(types, (list, tuple)) and types else "")
    # On NCCL the host hands it in ahead of the GPU, and notices its end up to a tenth of a second later.
    noticed = "nccl" in str(entry.get("profiling_name"))
    ended = 0 if noticed else count_of(entry.get("time_discovered_completed_ns"), 0)
    return Call(
        rank=-1,
        op=op,
        group=(),
        group_name=str(name)[:200],
        seq=-1 if entry.get("is_p2p") else count_of(entry.get("collective_seq_id"), -1),
        size_bytes=width * elements_of(_plain(entry.get("input_sizes"))),
        dtype=dtype if width else "",
        begin_s=count_of(entry.get("time_created_ns"), 0) * 1e-9,
        end_s=ended * 1e-9 if ended else None,
        peer=_peer(str(entry.get("profiling_name", "")), groups.get(str(name), ())),
    )


def _peer(name: str, members: tuple[int, ...]) -> int:
    """Of `nccl:send 0->1`, whose numbers are those of the group; -1: not told."""
    match = TRANSFER.search(name)
    place = int(match[2]) if match else -1
    return members[place] if 0 <= place < len(members) else -1


def _plain(sizes: object) -> object:
    return (
        [list(one) for one in sizes if isinstance(one, (list, tuple))]
        if isinstance(sizes, (list, tuple))
        else None
    )
