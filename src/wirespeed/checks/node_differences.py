"""What should be the same on every node, and which node is the odd one out.

Each compared fact is a row of a table. The value of most nodes is what is expected of the others;
two nodes that differ have no majority, and the finding says so.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wirespeed.model.node_facts import FACT_NAMES
from wirespeed.model.records import Finding, NodeFacts, Subject, World
from wirespeed.model.units import format_size

Read = Callable[[NodeFacts], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that should be equal on all nodes."""

    name: str
    """What it is called in a sentence, such as `CPU model`."""
    read: Read
    """Its value on a node: hashable, None where it is not known."""
    key: str = ""
    """The fact's name in `NodeFacts.unknown`, for the reason why it is not known."""
    status: Literal["warn", "fail"] = "warn"
    tolerance: float = 0.0
    """Numbers this share apart count as equal."""
    show: Callable[[Any], str] = str
    costs: str
    fix: str


@dataclass(frozen=True, slots=True)
class _Family:
    id: str
    name: str
    because: str
    """Why nodes usually come to differ in this."""
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class _Compared:
    """One fact over all nodes: the nodes of each value, most nodes first."""

    fact: Fact
    groups: list[tuple[Any, list[NodeFacts]]]
    unknown: list[NodeFacts]


def difference_findings(world: World) -> list[Finding]:
    """NODE-001 to NODE-005 and NODE-008: a finding a node and fact that differ, else one a family."""
    families = (*_FAMILIES, _environment(world.nodes))
    return [finding for family in families for finding in _of_family(family, world.nodes)]


def _of_family(family: _Family, nodes: Sequence[NodeFacts]) -> list[Finding]:
    if len(nodes) < 2:
        return [_not_compared(family, "one node")]
    compared = [_compare(fact, nodes) for fact in family.facts]
    known = [one for one in compared if sum(len(hosts) for _, hosts in one.groups) > 1]
    odd = [finding for one in known for finding in _odd_nodes(family, one)]
    odd += [finding for one in compared if one.groups for finding in _blind_nodes(family.id, one)]
    if odd:
        return odd
    if family.facts and not known:
        return [_not_compared(family, _reasons(family, nodes))]
    return [_alike(family, known, len(nodes))]


def _compare(fact: Fact, nodes: Sequence[NodeFacts]) -> _Compared:
    values = [(node, fact.read(node)) for node in nodes]
    known = [(node, value) for node, value in values if value is not None]
    groups = _close(known, fact.tolerance) if fact.tolerance else _equal(known)
    # max() and sort keep the first of equals: in a tie the group of the first node leads.
    ordered = sorted(groups, key=lambda group: -len(group[1]))
    return _Compared(fact, ordered, [node for node, value in values if value is None])


def _equal(known: Iterable[tuple[NodeFacts, Hashable]]) -> list[tuple[Any, list[NodeFacts]]]:
    groups: dict[Hashable, list[NodeFacts]] = defaultdict(list)
    for node, value in known:
        groups[value].append(node)
    return list(groups.items())


def _close(
    known: Sequence[tuple[NodeFacts, float]], tolerance: float
) -> list[tuple[Any, list[NodeFacts]]]:
    """Groups of numbers of which each is at most `tolerance` above the next smaller one."""
    groups: list[tuple[float, list[NodeFacts]]] = []
    last = 0.0
    for node, value in sorted(known, key=lambda pair: pair[1]):
        if groups and value <= last * (1 + tolerance):
            groups[-1][1].append(node)
        else:
            groups.append((value, [node]))
        last = value
    first = known[0][0] if known else None
    return sorted(groups, key=lambda group: first not in group[1])


def _odd_nodes(family: _Family, compared: _Compared) -> list[Finding]:
    if len(compared.groups) < 2:
        return []
    fact = compared.fact
    expected, most = compared.groups[0]
    total = sum(len(nodes) for _, nodes in compared.groups)
    split = len(compared.groups[1][1]) == len(most)
    return [
        Finding(
            id=family.id,
            status=fact.status,
            title=f"{node.host} has another {fact.name} than {_others(most, total)}",
            subject=Subject("node", node.host),
            saw=f"{fact.name}: {fact.show(value)}",
            expected=_expected(fact, expected, most, total, split),
            because=family.because,
            costs=fact.costs,
            fix=fact.fix,
            next=f"wirespeed check --only {family.id}",
        )
        for value, nodes in compared.groups[1:]
        for node in nodes
    ]


def _others(most: Sequence[NodeFacts], total: int) -> str:
    return most[0].host if total == 2 else f"{len(most)} of {total} nodes"


def _expected(fact: Fact, value: Any, most: Sequence[NodeFacts], total: int, split: bool) -> str:
    if split:
        return (
            f"{fact.show(value)}, as on {most[0].host}; without a majority among {total} nodes "
            "either may be the one to change"
        )
    return f"{fact.show(value)}, as on {len(most)} of {total} nodes ({most[0].host}, …)"


def _blind_nodes(id: str, compared: _Compared) -> list[Finding]:
    """Nodes on which something could not be read that others tell: unknown is not alike."""
    fact = compared.fact
    return [
        Finding(
            id=id,
            status="not_checked",
            title=f"{node.host}: {fact.name} not compared",
            subject=Subject("node", node.host),
            expected=f"{fact.show(compared.groups[0][0])}, as on {compared.groups[0][1][0].host}",
            because=_why_unknown(node, fact.key),
        )
        for node in compared.unknown
    ]


def _why_unknown(node: NodeFacts, key: str) -> str:
    return node.unknown.get(key) or node.unknown.get(key.partition(".")[0] + "s") or "not reported"


def _reasons(family: _Family, nodes: Sequence[NodeFacts]) -> str:
    """Why a whole family is unknown, in as few words as it takes."""
    reasons = {_why_unknown(node, fact.key) for fact in family.facts for node in nodes}
    return "; ".join(sorted(reasons)[:3])


def _not_compared(family: _Family, because: str) -> Finding:
    return Finding(
        id=family.id,
        status="not_checked",
        title=f"{family.name} not compared between nodes",
        because=because,
    )


def _alike(family: _Family, known: Sequence[_Compared], nodes: int) -> Finding:
    values = [f"{one.fact.name} {one.fact.show(one.groups[0][0])}" for one in known]
    return Finding(
        id=family.id,
        status="pass",
        title=f"{family.name} identical on {nodes} nodes",
        saw=", ".join(values) or "none set",
        expected="the same on every node",
    )


# The table.


def _fact(key: str) -> Read:
    return lambda node: getattr(node.facts, FACT_NAMES[key])


def _version(name: str, key: str, costs: str, fix: str) -> Fact:
    return Fact(name=name, key=key, read=_fact(key), status="fail", costs=costs, fix=fix)


def _setting(name: str, key: str, costs: str, fix: str) -> Fact:
    return Fact(name=name, key=key, read=_fact(key), costs=costs, fix=fix)


def _gpu_values(key: str) -> Read:
    """The values of all GPUs of a node, sorted; None where it has no GPU that tells."""

    def read(node: NodeFacts) -> tuple[Any, ...] | None:
        return tuple(sorted({gpu[key] for gpu in node.gpus if key in gpu})) or None

    return read


def _used_nics(node: NodeFacts) -> list[dict[str, Any]]:
    """Interfaces that can carry training: with an address; real ones where there are any."""
    addressed = [nic for nic in node.nics if nic.get("families") and not nic.get("loopback")]
    return [nic for nic in addressed if nic.get("virtual") is False] or addressed


def _nic_values(key: str) -> Read:
    def read(node: NodeFacts) -> tuple[Any, ...] | None:
        return tuple(sorted(nic[key] for nic in _used_nics(node) if key in nic)) or None

    return read


def _active_rates(node: NodeFacts) -> tuple[float, ...] | None:
    active = [port for port in node.rdma if port.get("state") == "ACTIVE"]
    return tuple(sorted({port["rate_Gbitps"] for port in active if "rate_Gbitps" in port})) or None


def _rdma_ports(node: NodeFacts) -> int | None:
    return None if "rdma" in node.unknown else len(node.rdma)


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def _sizes(values: Iterable[int]) -> str:
    return ", ".join(format_size(value) for value in values)


def _size(value: int | str) -> str:
    return value if isinstance(value, str) else format_size(value)


_IMAGE = "use one image, or install the same version, on every node"
_HANG = "ranks that hang in the first collective, or fail with errors that name neither version"
_SLOWEST = "every collective and every step runs at the speed of the slowest node"
_SAME_KIND = "give the job nodes of one kind (a node selector or a partition)"

_SOFTWARE = (
    _version("torch", "torch", _HANG, _IMAGE),
    _version("NCCL", "nccl", _HANG, _IMAGE),
    _version("CUDA", "cuda", _HANG, _IMAGE),
    _version("NVIDIA driver", "gpu.driver", _HANG, "install one driver version on every node"),
    _setting("Python", "python", "objects that one rank pickles fail to load on another", _IMAGE),
    _setting("kernel", "kernel", "network and scheduling that differ", "update the node's kernel"),
    _setting("operating system", "os", "libraries that differ", _IMAGE),
)
_MACHINE = (
    _setting("CPU model", "cpu.model", _SLOWEST, _SAME_KIND),
    _setting("number of CPUs", "cpu.logical", _SLOWEST, _SAME_KIND),
    _setting("number of usable CPUs", "cpu.allowed", _SLOWEST, "bind ranks alike on every node"),
    _setting("CPU quota", "cpu.quota", _SLOWEST, "give every container the same CPU limit"),
    _setting("CPU governor", "cpu.governor", _SLOWEST, "cpupower frequency-set -g performance"),
    _setting("number of NUMA nodes", "numa.nodes", _SLOWEST, "set NPS or SNC alike in the BIOS"),
    Fact(
        name="memory",
        key="memory.total_bytes",
        read=_fact("memory.total_bytes"),
        tolerance=0.02,  # firmware and kernel reserve a little differently
        show=_size,
        costs="the smallest memory bounds batch, cache and offloading of the whole job",
        fix="look for a memory module that is missing or disabled (dmidecode -t memory)",
    ),
    Fact(
        name="memory limit",
        key="memory.limit_bytes",
        read=_fact("memory.limit_bytes"),
        show=_size,
        costs="a rank that is killed for memory on this node only",
        fix="give every container the same memory limit",
    ),
)
_GPUS = (
    Fact(
        name="number of GPUs",
        key="gpu.count",
        read=_fact("gpu.count"),
        status="fail",
        costs="ranks without a GPU of their own, or GPUs that are paid for and idle",
        fix="look for `fallen off the bus` (Xid 79) in dmesg, and for a node of another kind",
    ),
    Fact(
        name="GPU",
        key="gpu.0.name",
        read=_gpu_values("name"),
        show=_listed,
        costs=_SLOWEST,
        fix=_SAME_KIND,
    ),
    Fact(
        name="GPU memory",
        key="gpu.0.memory_bytes",
        read=_gpu_values("memory_bytes"),
        show=_sizes,
        costs="the smallest GPU memory bounds the batch size of all",
        fix="set ECC and MIG alike, or use GPUs of one kind",
    ),
    Fact(
        name="ECC mode",
        key="gpu.0.ecc",
        read=_gpu_values("ecc"),
        show=lambda modes: _listed("on" if mode else "off" for mode in modes),
        costs="without ECC memory errors go unseen; with it there is a little less memory",
        fix="nvidia-smi -e 1, then reset the GPUs",
    ),
    Fact(
        name="power limit in W",
        key="gpu.0.power_limit_W",
        read=_gpu_values("power_limit_W"),
        show=_listed,
        costs=_SLOWEST,
        fix="nvidia-smi -pl WATTS, the same on every node",
    ),
)
_NICS = (
    Fact(
        name="speed of network interfaces in Gbit/s",
        key="nics",
        read=_nic_values("speed_Gbitps"),
        show=_listed,
        costs="a ring or tree over all nodes runs at the slowest interface's speed",
        fix="look at the cable, the switch port and `ethtool NAME` of this node",
    ),
    Fact(
        name="MTU",
        key="nics",
        read=_nic_values("mtu"),
        show=_listed,
        costs="large packets that are dropped without a word: small messages pass, bulk stalls",
        fix="ip link set NAME mtu N, the same on every node and switch port",
    ),
)
_RDMA = (
    Fact(
        name="number of RDMA ports",
        key="rdma",
        read=_rdma_ports,
        costs="NCCL uses fewer rails, or falls back to sockets, on the whole job",
        fix="look for the device in lspci and dmesg, and in a container for /dev/infiniband",
    ),
    Fact(
        name="rate of active RDMA ports in Gbit/s",
        key="rdma",
        read=_active_rates,
        show=_listed,
        costs="a ring or tree over all nodes runs at the slowest port's rate",
        fix="look at cable and switch port: ibstatus, iblinkinfo, mlxlink -d DEVICE",
    ),
)
_FAMILIES = (
    _Family("NODE-001", "software", "another image, or a node updated apart", _SOFTWARE),
    _Family("NODE-002", "CPUs and memory", "a node of another kind, or set up apart", _MACHINE),
    _Family("NODE-003", "GPUs", "a GPU that is lost, or a node of another kind", _GPUS),
    _Family("NODE-004", "network interfaces", "another card, cable, port or setting", _NICS),
    _Family("NODE-005", "RDMA devices", "another card, cable, port or firmware", _RDMA),
)

_OF_A_NODE = ("CUDA_VISIBLE_DEVICES", "NCCL_HOSTID", "OMPI_MCA_orte_", "OMPI_MCA_ess_")
"""Variables that may well differ: chosen by a scheduler or a launcher for each node."""


def _environment(nodes: Sequence[NodeFacts]) -> _Family:
    names = sorted({name for node in nodes for name in node.environment})
    facts = tuple(_variable(name) for name in names if not name.startswith(_OF_A_NODE))
    return _Family("NODE-008", "environment", "set in one node's shell, image or unit only", facts)


def _variable(name: str) -> Fact:
    return Fact(
        name=name,
        read=lambda node: node.environment.get(name, "(not set)"),
        costs="ranks that choose different transports or algorithms: slow at best, a hang at worst",
        fix=f"set {name} alike on every node (mpirun -x {name}, srun --export=ALL, one image)",
    )
