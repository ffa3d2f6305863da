"""Who is not connected as most are: rings, networks, GPUDirect RDMA, transports within nodes."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from wirespeed.diagnose.findings import make_finding, one_node, ranks_told
from wirespeed.diagnose.nccl_fabric import Comm, Fabric, Pair
from wirespeed.model.records import Finding
from wirespeed.model.units import counted, listed, spans

SHOWN = 6
"""Names in a sentence, lines of evidence."""
_PAIRS_TOLD = 64
_RINGS_TOLD = 32
_RING_LONG = 40
"""Ranks of a ring that are shown."""


def _summary(comm: Comm, comms: Sequence[Comm], fabric: Fabric) -> Finding | None:
    if not comm.links and not comm.channels():
        return None
    more = f"; {counted(len(comms) - 1, 'more communicator')}" if len(comms) > 1 else ""
    told = list(_details(comms, fabric))
    return make_finding(
        "connections",
        evidence=told[1:],
        title=", ".join(filter(None, (_who(comm), _shape(comm), _transports(comm)))) + more,
        saw=told[0] if told else "",  # -v shows what has something seen
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
        told = [f"{host}: {spans(ranks)}" for host, ranks in list(on.items())[:_PAIRS_TOLD]]
        yield f"{name}ranks on nodes: {'; '.join(told)}"
    elif comm.hosts:
        yield f"{name}ranks cannot be put on nodes: several runs or communicators, or one host name"
    for channel in comm.channels()[:_RINGS_TOLD]:
        order = comm.order_of(channel)
        if order:
            times = crossed(comm, order)
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


_FEWEST = 3
"""Ranks or hosts from which on there is a majority."""
_MAJORITY = 0.6
_Wanted = Callable[[str, bool], bool]


def fabric_findings(fabric: Fabric, told: str = "") -> list[Finding]:
    """One passing finding with all that was learned, warnings for what stands out; pure.

    told: `network` where it is told already that hosts use different ones.
    """
    comms = fabric.all()
    first = _summary(comms[0], comms, fabric) if comms else None
    found = [first] if first else []
    judges = [_crossings, _net_in_node, _without_gdr, _other_in_node]
    judges += [] if told == "network" else [_other_network]
    for judge in judges:
        odd = [one for comm in comms if comm.is_known() and (one := judge(comm)) is not None]
        found += odd[:1]
    return found


def _crossings(comm: Comm) -> Finding | None:
    """A ring over k nodes needs k crossings. GPUs joined over NVLink across hosts are as one node."""
    if any(
        comm.hosts.get(a) != comm.hosts.get(b)
        and any(k.startswith("P2P/") for k, _, _ in pair.kinds)
        for (a, b), pair in comm.pairs.items()
    ):
        return None
    worst: tuple[int, int, int, tuple[int, ...]] | None = None
    bad = 0
    for channel in comm.channels():
        order = comm.order_of(channel)
        times = crossed(comm, order)
        hosts = len({comm.hosts[rank] for rank in order}) if times else 0
        if times is None or hosts < 2 or times <= hosts:
            continue
        bad += 1
        if worst is None or times > worst[0]:
            worst = times, hosts, channel, order
    if worst is None:
        return None
    times, hosts, channel, order = worst
    return make_finding(
        "ring_order",
        evidence=(
            f"ring {one:02d}: {ring_told(comm.order_of(one))}" for one in comm.channels()[:SHOWN]
        ),
        channel=channel,
        times=times,
        hosts=hosts,
        ring=ring_told(order),
        places=" ".join(comm.hosts[rank] for rank in order[:_RING_LONG]),
        more=f"; {bad} of {len(comm.channels())} rings cross too often" if bad > 1 else "",
    )


def _net_in_node(comm: Comm) -> Finding | None:
    """Pairs of ranks of one host whose collectives go over the network."""
    odd = [
        ((a, b), pair)
        for (a, b), pair in sorted(comm.pairs.items())
        if a in comm.hosts and comm.hosts[a] == comm.hosts.get(b) and a != b
        if any(kind.startswith("NET/") for kind in pair.of_collectives())
    ]
    if not odd:
        return None
    hosts = sorted({comm.hosts[a] for (a, _), _ in odd})
    kinds = sorted({kind for _, pair in odd for kind in pair.of_collectives() if "NET/" in kind})
    return make_finding(
        "network_within_node",
        subject=one_node(hosts),
        evidence=(pair.where for _, pair in odd[:SHOWN]),
        saw="; ".join(f"{ends_of(comm, a, b)}: {pair_told(pair)}" for (a, b), pair in odd[:SHOWN]),
        pairs=counted(len(odd), "pair"),
        kinds=", ".join(kinds),
        ranks=listed([f"{a} -> {b}" for (a, b), _ in odd], SHOWN),
        hosts=listed(hosts, SHOWN),
    )


def _other_network(comm: Comm) -> Finding | None:
    """Ranks that reach other nodes over sockets while others use something faster."""
    kinds = {
        rank: {kind for side in ("send", "receive") for kind, _ in comm.net.get((rank, side), ())}
        for rank in sorted({rank for rank, _ in comm.net})
    }
    slow = [rank for rank, told in kinds.items() if "NET/Socket" in told]
    quick = sorted({kind for told in kinds.values() for kind in told} - {"NET/Socket"})
    if not slow or not quick or len(slow) == len(kinds):
        return None
    # The odd ones are named; of two halves those that are slow.
    less = len(slow) <= len(kinds) / 2
    odd = slow if less else sorted(set(kinds) - set(slow))
    hosts = sorted({comm.hosts[rank] for rank in odd if rank in comm.hosts})
    mine, usual = ("sockets", ", ".join(quick)) if less else (", ".join(quick), "sockets")
    return make_finding(
        "network_differs",
        subject=one_node(hosts),
        evidence=_lines(comm, slow, lambda kind, gdr: kind == "NET/Socket"),
        odd=ranks_told(odd),
        hosts=listed(hosts, SHOWN),
        mine=mine,
        usual=usual,
        others=len(kinds) - len(odd),
        slow=ranks_told(slow),
        quick=", ".join(quick),
        most=f", as on {len(kinds) - len(odd)} of {len(kinds)}" if less else "",
    )


def _without_gdr(comm: Comm) -> Finding | None:
    """Ranks whose network connections go through host memory where most ranks' do not.

    Sending and receiving are judged apart: without NVLink, NCCL receives with GPUDirect RDMA and
    sends without it (NCCL_NET_GDR_READ).
    """
    odd: set[int] = set()
    asked = 0
    for side in ("send", "receive"):
        used = {
            rank: told
            for (rank, of), told in comm.net.items()
            if of == side and any(kind != "NET/Socket" for kind, _ in told)
        }
        without = {rank for rank, told in used.items() if not all(gdr for _, gdr in told)}
        most = len(used) >= _FEWEST and len(used) - len(without) >= _MAJORITY * len(used)
        if without and (most or _halves(comm, set(used), without)):
            odd |= without
            asked = max(asked, len(used))
    if not odd:
        return None
    hosts = sorted({comm.hosts[rank] for rank in odd if rank in comm.hosts})
    return make_finding(
        "gdr_differs",
        subject=one_node(hosts),
        evidence=_lines(comm, odd, lambda kind, gdr: kind.startswith("NET/") and not gdr),
        odd=ranks_told(sorted(odd)),
        hosts=listed(hosts, SHOWN),
        others=asked - len(odd),
        asked=asked,
    )


def _halves(comm: Comm, used: set[int], without: set[int]) -> bool:
    """Whether all ranks of half of the hosts do without it, and none of the others."""
    lacking = {comm.hosts.get(rank) for rank in without}
    having = {comm.hosts.get(rank) for rank in used - without}
    return bool(having) and len(lacking) == len(having) and not lacking & having


def _other_in_node(comm: Comm) -> Finding | None:
    """Hosts whose own ranks are connected otherwise than on most hosts."""
    found: dict[str, set[str]] = {}
    for (a, b), pair in comm.pairs.items():
        host = comm.hosts.get(a)
        if host is not None and host == comm.hosts.get(b):
            found.setdefault(host, set()).update(k.partition("/")[0] for k in pair.of_collectives())
    on = {host: " and ".join(sorted(kinds)) for host, kinds in found.items()}
    values = Counter(on.values())
    if len(on) < _FEWEST or len(values) < 2:
        return None
    usual, times = values.most_common(1)[0]
    odd = sorted(host for host, kinds in on.items() if kinds != usual)
    if times < _MAJORITY * len(on) or all("NET" in found[host] for host in odd):
        return None  # the network within a node is told already
    told = "; ".join(f"{host}: {on[host]}" for host in odd[:SHOWN])
    return make_finding(
        "transport_differs",
        subject=one_node(odd),
        evidence=[pair.where for (a, _), pair in comm.pairs.items() if comm.hosts.get(a) in odd][
            :SHOWN
        ],
        odd=listed(odd, SHOWN),
        times=times,
        nodes=len(on),
        told=told,
        usual=usual,
    )


def _lines(comm: Comm, ranks: Iterable[int], wanted: _Wanted) -> tuple[str, ...]:
    """First lines of pairs that these ranks are part of, with such a connection."""
    chosen = set(ranks)
    return tuple(
        pair.where
        for pair_of, pair in sorted(comm.pairs.items())
        if chosen & set(pair_of) and any(wanted(kind, gdr) for kind, gdr, _ in pair.kinds)
    )[:SHOWN]
