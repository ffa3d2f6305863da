"""JSON Lines of NCCL Inspector: a line per collective and rank of a job.

{"header": {id, rank, n_ranks, nnodes}, "metadata": {hostname, pid, dump_timestamp_us, …}, "coll_perf":
{coll, coll_sn, coll_msg_size_bytes, coll_exec_time_us, coll_timing_source, coll_algobw_gbs,
coll_busbw_gbs}}. The time is that of the kernel on one rank, so it holds the wait for ranks that come
later; by the GPU's clock, or by the host's, which is another series. Source: the plugin
`inspector` of NVIDIA/nccl.
"""

from collections import Counter
from collections.abc import Iterator
from statistics import median
from typing import Any

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Measurement, NodeFacts, Run
from wirespeed.runs.importers.repeats import once
from wirespeed.runs.importers.table import operation_in
from wirespeed.runs.importers.told import (
    GIGA,
    MICRO,
    check_number,
    moment,
    number,
    part,
    tool_run,
    unique_documents,
    words,
)
from wirespeed.statistics import time_stats

_Key = tuple[str, int, int, str]
"""Operation, ranks of the communicator, bytes as nccl-tests counts them, the clock of its times."""
_GPU_CLOCK = "kernel_gpu"
_AGREES = 0.05


def runs_of_inspector(text: str, name: str) -> Iterator[Run]:
    """Yield one run of all lines."""
    calls: dict[_Key, list[tuple[float, float | None]]] = {}
    hosts: dict[str, set[int]] = {}
    times = Counter[int]()
    first = None
    header: dict[str, Any] = {}
    about: dict[str, Any] = {}
    for data in unique_documents(text, source=name, times=times):
        # Newer versions write both once, for all lines up to the next such.
        header, about = part(data, "header") or header, part(data, "metadata") or about
        call = part(data, "coll_perf")
        op, ranks = operation_in(words(call.get("coll"))), int(number(header.get("n_ranks")) or 0)
        size, time = number(call.get("coll_msg_size_bytes")), number(call.get("coll_exec_time_us"))
        if op not in CATALOGUE or not ranks or not size or not time:
            continue
        moved = _moved(int(size), ranks, time, number(call.get("coll_algobw_gbs")))
        clock = words(call.get("coll_timing_source"), 40) or _GPU_CLOCK
        calls.setdefault((op, ranks, moved, clock), []).append(
            (time * MICRO, number(call.get("coll_busbw_gbs")))
        )
        host, rank = words(about.get("hostname")), number(header.get("rank"))
        if host and rank is not None:
            hosts.setdefault(host, set()).add(int(rank))
        first = first or number(about.get("dump_timestamp_us"))
        check_number(len(calls), name)
    nodes = [
        NodeFacts(host=one, ranks=tuple(sorted(of)), facts=Facts()) for one, of in hosts.items()
    ]
    run = tool_run(
        "nccl-inspector",
        name=name,
        measurements=[_measurement(key, alike) for key, alike in calls.items()],
        nodes=nodes,
        started=moment(first * MICRO if first else None),
        ranks=max((ranks for _, ranks, _, _ in calls), default=0),
    )
    yield once(run, max(times.values(), default=0))


def _moved(size: int, ranks: int, time_us: float, algbw: float | None) -> int:
    """Return the bytes as nccl-tests counts them: of all_gather and reduce_scatter all ranks' together.

    The file's own bandwidth says which it is.
    """
    ratio = (algbw or 0.0) * GIGA * time_us * MICRO / size
    return size * ranks if abs(ratio / ranks - 1) <= _AGREES else size


def _measurement(key: _Key, calls: list[tuple[float, float | None]]) -> Measurement:
    """calls: (seconds, busbw in GB/s as printed) of each."""
    op, ranks, size, clock = key
    known = CATALOGUE[op]
    times = [time for time, _ in calls]
    stats = time_stats(times)
    printed = [busbw for _, busbw in calls if busbw is not None]
    computed = size / stats.median * known.bus_factor(ranks)
    return Measurement(
        op=op,
        engine="nccl-inspector" if clock == _GPU_CLOCK else f"nccl-inspector {clock}",
        dtype="unknown",
        redop="unknown" if known.reduces else "none",
        root=0 if known.rooted else -1,
        in_place=False,
        size_bytes=size,
        count=0,
        ranks=ranks,
        timing="each",
        blocking=False,
        iterations=len(times),
        time=stats,
        algbw=size / stats.median,
        busbw=median(printed) * GIGA if len(printed) == len(calls) else computed,
    )
