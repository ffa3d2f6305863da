"""Chakra's execution trace as torch.profiler's ExecutionTraceObserver writes it: calls, no times.

Nodes stand in the order in which operators ended; their ids count in the order of their begin.
Attributes: torch/csrc/profiler/standalone/execution_trace_observer.cpp.
"""

from typing import Any

from msgspec import Raw, Struct, json

from wirespeed.diagnose.sources import Source
from wirespeed.watch.calls import Call
from wirespeed.watch.traces.json_list import DAMAGE, JsonList
from wirespeed.watch.traces.naming import dtype_known, op_named
from wirespeed.watch.traces.rank_trace import MOST_CALLS, RankTrace, count_of, elements_of

_BACKENDS = ("gloo:", "ucc:", "mpi:")
_COMMS = "record_param_comms"
_INIT = "## process_group:init ##"


class Node(Struct, gc=False):
    """One operator, as far as it is looked at."""

    id: int = 0
    name: str = ""
    inputs: Raw = Raw(b"{}")
    attrs: Raw = Raw(b"[]")


def read_chakra(source: Source) -> RankTrace:
    """Its calls in order, all at time 0. Raises InputError where it is no such trace."""
    nodes = JsonList(source, "nodes", Node)
    trace = RankTrace(source=source.name, kind="chakra")
    found: list[tuple[int, Call]] = []
    for batch in nodes.batches():
        for node in batch:
            if node.name == _INIT:
                trace.groups |= _groups(node)
            elif node.name == _COMMS or node.name.startswith(_BACKENDS):
                if len(found) >= MOST_CALLS:
                    trace.more_calls += 1
                elif (call := _call(node)) is not None:
                    found.append((node.id, call))
    trace.calls = [call for _, call in sorted(found, key=lambda one: one[0])]
    trace.cut, trace.skipped, trace.bytes = nodes.cut, nodes.skipped, nodes.bytes
    return trace


def _call(node: Node) -> Call | None:
    told, inputs = _attributes(node), _decoded(node.inputs, dict)
    op = op_named(str(told.get("collective_name") or node.name))
    if op in ("", "wait", "init", _COMMS):
        return None
    types, shapes = inputs.get("types"), inputs.get("shapes")
    first = str(types[0]) if isinstance(types, list) and types else ""
    dtype, width = dtype_known(str(told.get("dtype") or first.partition("(")[2].rstrip(")]")))
    elements = count_of(told.get("in_msg_nelems"), elements_of(shapes))
    return Call(
        rank=-1,
        op=op,
        group=(),
        group_name=str(told.get("pg_name", ""))[:200],
        seq=count_of(told.get("seq"), -1),
        size_bytes=width * elements,
        dtype=dtype if width else "",
        begin_s=0.0,
    )


def _attributes(node: Node) -> dict[str, Any]:
    return {
        str(one.get("name")): one.get("value")
        for one in _decoded(node.attrs, list)
        if isinstance(one, dict)
    }


def _groups(node: Node) -> dict[str, tuple[int, ...]]:
    """As torch tells them when they are made; of the whole world it lists no ranks."""
    values = _decoded(node.inputs, dict).get("values")
    text = values[0] if isinstance(values, list) and values else ""
    found = {}
    for one in _decoded(str(text).encode(), list):
        ranks = one.get("ranks") if isinstance(one, dict) else None
        if isinstance(ranks, list) and all(count_of(rank, -1) >= 0 for rank in ranks):
            size = min(count_of(one.get("group_size"), 0), 1 << 17)
            found[str(one.get("pg_name", ""))[:200]] = tuple(ranks) or tuple(range(size))
    return found


def _decoded(text: Raw | bytes, kind: Any) -> Any:
    try:
        value = json.decode(text)
    except DAMAGE:
        return kind()
    return value if isinstance(value, kind) else kind()
