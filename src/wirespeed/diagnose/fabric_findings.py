"""Who is not connected as most are: rings, networks, GPUDirect RDMA, transports within nodes."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from wirespeed.diagnose.nccl_fabric import Comm, Fabric, Pair
from wirespeed.model.records import Finding, Subject

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


_FEWEST = 3
"""Ranks or hosts from which on there is a majority."""
_MAJORITY = 0.6
_Wanted = Callable[[str, bool], bool]


def fabric_findings(fabric: Fabric, told: str = "") -> list[Finding]:
    """One passing finding with all that was learned, warnings for what stands out; pure.

    told: `network` where it is told already that hosts use different ones.
    """
    comms = list(fabric.all())
    found = [one for comm in comms[:1] for one in (summary(comm, comms, fabric),) if one]
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
    return Finding(
        id="DIAG-004",
        status="warn",
        title=f"ring {channel:02d} crosses nodes {times} times, where {hosts} nodes need {hosts}",
        saw=f"ring {channel:02d}: {ring_told(order)}, on "
        + " ".join(comm.hosts[rank] for rank in order[:40])
        + (f"; {bad} of {len(comm.channels())} rings cross too often" if bad > 1 else ""),
        expected=f"{hosts} crossings: the ring enters and leaves each node once",
        because="the order of ranks puts neighbours on different nodes, or NCCL takes the containers "
        "of one machine for several (their host names or boot ids differ)",
        costs="each crossing beyond that loads the network instead of NVLink, PCIe or shared memory",
        fix="number the ranks of one node one after the other: mpirun --map-by ppr:8:node "
        "--rank-by slot, srun --distribution=block, torchrun's own numbering",
        next="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH, and wirespeed diagnose -v",
        evidence=tuple(
            f"ring {one:02d}: {ring_told(comm.order_of(one))}" for one in comm.channels()[:SHOWN]
        ),
        category="ring-order",
        confidence="likely",
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
    return Finding(
        id="DIAG-005",
        status="warn",
        title=f"{counted(len(odd), 'pair')} of ranks of one node use the network ({', '.join(kinds)}): "
        + some([f"{a} -> {b}" for (a, b), _ in odd])
        + f" on {some(hosts)}",
        subject=_subject(hosts),
        saw="; ".join(f"{ends_of(comm, a, b)}: {pair_told(pair)}" for (a, b), pair in odd[:SHOWN]),
        expected="P2P or SHM between GPUs of one node",
        because="peer access and shared memory are both not possible or switched off: containers that "
        "share no /dev/shm or IPC namespace, NCCL_P2P_DISABLE with NCCL_SHM_DISABLE",
        costs="the network adapter carries what NVLink, PCIe or memory would, in both directions",
        fix="run the node's ranks in one container, or with --ipc=host and a shared /dev/shm; unset "
        "NCCL_SHM_DISABLE and NCCL_P2P_DISABLE",
        next="nvidia-smi topo -p2p r; wirespeed check --only nodes",
        evidence=tuple(pair.where for _, pair in odd[:SHOWN]),
        category="network-within-node",
        confidence="likely",
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
    return Finding(
        id="DIAG-006",
        status="warn",
        title=f"{ranks_told(odd)} on {some(hosts)} use {mine}, {len(kinds) - len(odd)} others {usual}",
        subject=_subject(hosts),
        saw=f"NET/Socket on {ranks_told(slow)}",
        expected=f"{', '.join(quick)} on every rank"
        + (f", as on {len(kinds) - len(odd)} of {len(kinds)}" if less else ""),
        because="the plug-in or the RDMA devices are not there on that node, or a setting differs",
        costs="a ring is as slow as its slowest connection: the whole job runs at the speed of TCP",
        fix="give the container /dev/infiniband and the libraries of the others; same NCCL_IB_HCA, "
        "NCCL_IB_DISABLE and NCCL_NET everywhere",
        next="wirespeed check --only nodes",
        evidence=_lines(comm, slow, lambda kind, gdr: kind == "NET/Socket"),
        category="network-differs",
        confidence="likely",
    )


def _without_gdr(comm: Comm) -> Finding | None:
    """Ranks whose network connections go through host memory where most ranks' do not.

    Sending and receiving are judged apart: without NVLink, NCCL receives with GPUDirect RDMA and
    sends without it (NCCL_NET_GDR_READ).
    """
    odd: set[int] = set()
    asked = 0
    for side in ("send", "receive"):
        used = {rank: told for (rank, of), told in comm.net.items() if of == side}
        used = {
            rank: told
            for rank, told in used.items()
            if any(kind != "NET/Socket" for kind, _ in told)
        }
        without = {rank for rank, told in used.items() if not all(gdr for _, gdr in told)}
        most = len(used) >= _FEWEST and len(used) - len(without) >= _MAJORITY * len(used)
        if without and (most or _halves(comm, set(used), without)):
            odd |= without
            asked = max(asked, len(used))
    if not odd:
        return None
    hosts = sorted({comm.hosts[rank] for rank in odd if rank in comm.hosts})
    return Finding(
        id="DIAG-007",
        status="warn",
        title=f"{ranks_told(sorted(odd))} on {some(hosts)} use the network without GPUDirect RDMA, "
        f"{asked - len(odd)} others with it",
        subject=_subject(hosts),
        saw=f"connections through host memory on {ranks_told(sorted(odd))}",
        expected=f"GDRDMA, as on {asked - len(odd)} of {asked} ranks",
        because="on that node nvidia-peermem (or DMA-BUF) is not loaded, or the adapter that serves "
        "these GPUs is far from them in the PCIe tree",
        costs="data are copied through host memory: often half the bandwidth, for the whole ring",
        fix="modprobe nvidia-peermem there; look at nvidia-smi topo -m; NCCL_NET_GDR_LEVEL says how "
        "far an adapter may be",
        next="wirespeed check --only nodes",
        evidence=_lines(comm, odd, lambda kind, gdr: kind.startswith("NET/") and not gdr),
        category="gdr-differs",
        confidence="likely",
    )


def _halves(comm: Comm, used: set[int], without: set[int]) -> bool:
    """Whether all ranks of half of the hosts do without it, and none of the others."""
    lacking = {comm.hosts.get(rank) for rank in without}
    having = {comm.hosts.get(rank) for rank in used - without}
    return bool(having) and len(lacking) == len(having) and not lacking & having


def _other_in_node(comm: Comm) -> Finding | None:
    """Hosts whose own ranks are connected otherwise than on most hosts."""
    on: dict[str, set[str]] = {}
    for (a, b), pair in comm.pairs.items():
        host = comm.hosts.get(a)
        if host is not None and host == comm.hosts.get(b):
            on.setdefault(host, set()).update(k.partition("/")[0] for k in pair.of_collectives())
    values = Counter(" and ".join(sorted(kinds)) for kinds in on.values())
    if len(on) < _FEWEST or len(values) < 2:
        return None
    usual, times = values.most_common(1)[0]
    odd = sorted(host for host, kinds in on.items() if " and ".join(sorted(kinds)) != usual)
    if times < _MAJORITY * len(on) or all("NET" in on[host] for host in odd):
        return None  # the network within a node is told already
    told = "; ".join(f"{host}: {' and '.join(sorted(on[host]))}" for host in odd[:SHOWN])
    return Finding(
        id="DIAG-008",
        status="warn",
        title=f"{some(odd)}: GPUs are connected otherwise than on {times} of {len(on)} nodes ({told})",
        subject=_subject(odd),
        saw=told,
        expected=f"{usual}, as on most nodes",
        because="an NVLink that is down, PCIe peer access that is blocked (ACS, IOMMU), or a setting",
        costs="the slowest node sets the pace of every ring",
        fix="compare nvidia-smi topo -m and nvidia-smi nvlink -s with a good node",
        next="wirespeed check --only nodes",
        evidence=tuple(
            pair.where for (a, _), pair in comm.pairs.items() if comm.hosts.get(a) in odd
        )[:SHOWN],
        category="transport-differs",
        confidence="likely",
    )


def _lines(comm: Comm, ranks: Iterable[int], wanted: _Wanted) -> tuple[str, ...]:
    """First lines of pairs that these ranks are part of, with such a connection."""
    chosen = set(ranks)
    return tuple(
        pair.where
        for pair_of, pair in sorted(comm.pairs.items())
        if chosen & set(pair_of) and any(wanted(kind, gdr) for kind, gdr, _ in pair.kinds)
    )[:SHOWN]


def _subject(names: Sequence[str]) -> Subject:
    return Subject("node", names[0]) if len(names) == 1 else Subject("job", "job")
