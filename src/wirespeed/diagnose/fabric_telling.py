"""What NCCL connected, in words: a line for people, each ring and pair for those who ask."""

from collections.abc import Iterable, Sequence

from wirespeed.diagnose.fabric import Comm, Fabric, Pair
from wirespeed.records import Finding

__all__ = [
    "SHOWN",
    "counted",
    "crossed",
    "ends_of",
    "pair_told",
    "ranks_told",
    "ring_told",
    "some",
    "summary",
]

SHOWN = 6
"""Names in a sentence, lines of evidence."""
_PAIRS_TOLD = 64
_RINGS_TOLD = 32
_RING_LONG = 40
"""Ranks of a ring that are shown."""


def summary(comm: Comm, comms: Sequence[Comm], fabric: Fabric) -> Finding | None:
    if not comm.links and not comm.channels():
        return None
    count = len(comms)
    more = f"; {count - 1} more communicator{'s' if count > 2 else ''}" if count > 1 else ""
    told = list(_details(comms, fabric))
    return Finding(
        id="DIAG-003",
        status="pass",
        title=", ".join(filter(None, (_who(comm), _shape(comm), _transports(comm)))) + more,
        saw=told[0] if told else "",  # -v shows what has something seen
        evidence=tuple(told[1:]),
        category="connections",
    )


def _who(comm: Comm) -> str:
    ranks = comm.size or len(comm.hosts) or len({rank for pair in comm.pairs for rank in pair})
    hosts = len(set(comm.hosts.values()))
    nodes = comm.nodes or (hosts if comm.is_known() else 0)
    return f"NCCL connected {ranks} ranks" + (f" on {counted(nodes, 'node')}" if nodes else "")


def _shape(comm: Comm) -> str:
    rings = comm.channels()
    if not rings:
        return ""
    times_of = {
        times for ring in rings if (times := crossed(comm, comm.order_of(ring))) is not None
    }
    told = counted(len(rings), "ring")
    if comm.trees:
        told += " and trees" if comm.trees == len(rings) else f" and {comm.trees} trees"
    if len(times_of) == 1 and times_of != {0}:
        told += f" (each crosses nodes {counted(times_of.pop(), 'time')})"
    return told


def _transports(comm: Comm) -> str:
    """`NET/IB with GPUDirect RDMA (32 connections), P2P/CUMEM (224)`."""
    words = [f"{_named(*key)} ({count:,}" for key, count in comm.links.most_common()]
    return ", ".join(f"{one}{' connections' if one is words[0] else ''})" for one in words)


def _named(kind: str, gdr: bool) -> str:
    """A transport; for what can do it, whether GPUDirect RDMA is used."""
    if not kind.startswith(("NET/", "COLLNET/")) or kind == "NET/Socket":
        return kind
    return f"{kind} with GPUDirect RDMA" if gdr else f"{kind} through host memory"


def _details(comms: Sequence[Comm], fabric: Fabric) -> Iterable[str]:
    for comm in comms[:SHOWN]:
        yield from _details_of(comm, f"communicator {comm.name}: " if len(comms) > 1 else "")
    if len(comms) > SHOWN:
        yield f"{len(comms) - SHOWN} more communicators"
    if fabric.unplaced:
        told = ", ".join(f"{_named(*key)} {n:,}" for key, n in fabric.unplaced.most_common())
        yield f"connections that could be of several communicators: {told}"
    if fabric.more_lines or fabric.more_pairs:
        yield f"not kept: {fabric.more_lines:,} lines, {fabric.more_pairs:,} connections of pairs"


def _details_of(comm: Comm, name: str) -> Iterable[str]:
    if comm.is_known():
        on: dict[str, list[int]] = {}
        for rank, host in sorted(comm.hosts.items()):
            on.setdefault(host, []).append(rank)
        told = [f"{host}: {_spans(ranks)}" for host, ranks in list(on.items())[:_PAIRS_TOLD]]
        yield f"{name}ranks on nodes: {'; '.join(told)}"
    elif comm.hosts:
        yield f"{name}ranks cannot be put on nodes: several runs or communicators, or one host name"
    for channel in comm.channels()[:_RINGS_TOLD]:
        order = comm.order_of(channel)
        if order:
            times = crossed(comm, order) if comm.is_known() else None
            far = "" if times is None else f", crosses nodes {counted(times, 'time')}"
            yield f"{name}ring {channel:02d}: {ring_told(order)}{far}"
    for (one, other), pair in sorted(comm.pairs.items())[:_PAIRS_TOLD]:
        yield f"{name}{ends_of(comm, one, other)}: {pair_told(pair)}"
    if len(comm.pairs) > _PAIRS_TOLD:
        yield f"{name}{len(comm.pairs) - _PAIRS_TOLD:,} more pairs"


def pair_told(pair: Pair) -> str:
    kinds = sorted({_named(kind, gdr) for kind, gdr, _ in pair.kinds})
    return f"{', '.join(kinds)}, {counted(pair.channels.bit_count(), 'channel')}"


def ends_of(comm: Comm, one: int, other: int) -> str:
    if not comm.is_known() or one not in comm.hosts or other not in comm.hosts:
        return f"{one} -> {other}"
    mine, theirs = comm.hosts[one], comm.hosts[other]
    return (
        f"{one} -> {other} ({mine})" if mine == theirs else f"{one} -> {other} ({mine} -> {theirs})"
    )


def ring_told(order: Sequence[int]) -> str:
    return " ".join(map(str, order[:_RING_LONG])) + (" …" if len(order) > _RING_LONG else "")


def crossed(comm: Comm, order: Sequence[int]) -> int | None:
    """How often a ring goes from one host to another; None where a host is not known."""
    if not order or not comm.is_known() or any(rank not in comm.hosts for rank in order):
        return None
    after = (*order[1:], order[0])
    return sum(comm.hosts[a] != comm.hosts[b] for a, b in zip(order, after, strict=True))


def ranks_told(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + _spans(ranks)


def _spans(ranks: Sequence[int]) -> str:
    """`0-7, 12` of sorted numbers."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return some([f"{a}-{b}" if a != b else str(a) for a, b in spans])


def some(values: Sequence[str]) -> str:
    more = len(values) - SHOWN
    return ", ".join(values[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "s")
