"""Addresses that cannot be right for a peer, from lines of interfaces, rendezvous and connections."""

from collections.abc import Iterator

from wirespeed.diagnose.evidence import Evidence
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Hit

__all__ = ["RULES"]

_FIX = (
    "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME set on all ranks to an interface that all nodes share "
    "(ip -br addr); MASTER_ADDR or --rdzv-endpoint with rank 0's address there; containers of several "
    "hosts need --network host or a network that spans them"
)
_LINKS = ("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname",)
_WHERE = (
    r"(?:bootstrap|NET/\w+|\bNET|\bOOB|(?:master|rdzv)[_-](?:addr|endpoint)|client socket|remote=|addr="
    r"|connect(?:ing|ion)?(?: to)?|tcp://)\b.{0,160}?(?<![\w.])"
)
_NOWHERE = r"(?:255\.\d+\.\d+\.\d+|0\.0\.0\.0|169\.254\.\d+\.\d+)"
_OWN = r"(?:127\.\d+\.\d+\.\d+|172\.17\.0\.\d+|192\.168\.122\.\d+)"
_VIRTUAL = r"(?:docker\d*|veth\w+|virbr\d+|lxcbr\d+|podman\d+|br-[0-9a-f]{12}|lo)"
_FAILED = (
    r"fail|refused|timed out|time-?out|no route|unreachable|cannot|could not|unable|exceeded|error"
)
_WELL = ("FACT-020", "FACT-033", "NT-004", "STORE-090", "GOOD-001", "GOOD-002", "GOOD-005")
"""Who connected has shown that its addresses are right."""


def _several_hosts(evidence: Evidence) -> bool:
    told = evidence.seen.get("ADDR-003")
    nodes = (int(hit.groups["nodes"]) for hit in told.hits) if told else ()
    return len(evidence.hosts) > 1 or any(count > 1 for count in nodes)


def _between_hosts(evidence: Evidence) -> Iterator[Hit]:
    """Addresses that lead to the own machine, where there are several."""
    if evidence.trains or not _several_hosts(evidence):
        return
    for hit in evidence.seen["ADDR-002"].hits:
        interface = hit.groups.get("interface", "")
        address = hit.groups.get("address") or hit.groups.get("at", "")
        told = f"{address} of {interface}" if interface else address
        yield Hit(RULES[2], hit.line, {**hit.groups, "told": told})


RULES: tuple[Rule, ...] = (
    Rule(
        id="ADDR-001",
        category="impossible-address",
        role="cause",
        stage="setup",
        anchors=("255.255", "0.0.0.0", "169.254."),
        pattern=rf"{_WHERE}(?P<address>{_NOWHERE})\b.{{0,200}}(?:{_FAILED})",
        unless=r"\bbind\b|listen|server socket|169\.254\.169\.254|btl_tcp|oob_tcp",
        sentence="a rank connects to {address}, which is no address of a peer, and fails",
        because="255.x is a mask or a broadcast, 0.0.0.0 means every interface of the own node, and "
        "169.254.x is what an interface without DHCP gives itself",
        costs="the ranks cannot connect",
        fix=_FIX,
        next="ip -br addr; echo $MASTER_ADDR on every node",
        explains=(
            "master-unreachable",
            "connection-timeout",
            "connection-refused",
            "no-route-to-host",
        ),
        links=_LINKS,
        positive=(
            "misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 255.255.255.0<45763> failed : "
            "Network is unreachable",
            "[c10d] The client socket has failed to connect to [0.0.0.0]:29500 (errno: 111 - Connection "
            "refused).",
            "Gloo connectFullMesh failed with timed out connecting: remote=[169.254.3.7]:14215, error",
        ),
        negative=(
            "[c10d] The server socket has failed to bind to 0.0.0.0:29500 (errno: 98 - Address in use).",
            "NCCL WARN Connect to 10.0.0.2<45763> failed : Connection refused",
        ),
    ),
    Rule(
        id="ADDR-002",
        category="addresses",
        role="fact",
        anchors=(
            "Bootstrap : Using",
            "Bootstrap: Using",
            "NET/Socket : Using",
            "NET/Socket: Using",
            "NET/IB : Using",
            "NET/IB: Using",
            "Using interface ",
            "master_addr",
            "master-addr",
            "tcp://127.",
            "tcp://localhost",
            "tcp://0.0.0.0",
            "tcp://169.254.",
            "rdzv_endpoint",
            "rdzv-endpoint",
            "client socket has",
            "remote=[",
        ),
        pattern=rf"{_WHERE}(?:\[\d+\])?(?:(?P<interface>{_VIRTUAL}):(?P<at>[\w.:%-]+)|(?:[\w.-]+:)?"
        rf"(?P<address>{_NOWHERE}|{_OWN}|localhost))(?![\w.-])",
        unless=r"169\.254\.169\.254|server socket|\bbind\b",
        sentence="an address that other hosts cannot reach",
        positive=(
            "NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>",
            "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0> [1]virbr0:192.168.122.1<0>",
            "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB veth12ab:fe80::1%veth12ab<0>",
            "  master_addr=127.0.0.1",
            "  rdzv_endpoint    : localhost:29500",
        ),
        negative=("NCCL INFO Bootstrap : Using eth0:10.17.0.1<0>", "  master_addr=node-0"),
    ),
    Rule(
        id="ADDR-010",
        category="address-of-own-host",
        role="symptom",
        stage="setup",
        needs=("ADDR-002",),
        absent=_WELL,
        derive=_between_hosts,
        sentence="a job of several hosts uses {told}, which other hosts cannot reach",
        checks=(
            f"whether all nodes share that interface and address range: {_FIX}",
            "whether a connection failed later on: the logs of all ranks, to their end",
        ),
        explains=("connection-refused", "connection-timeout", "connections-retried"),
        links=_LINKS,
    ),
    Rule(
        id="ADDR-003",
        category="addresses",
        role="fact",
        anchors=("group_world_size=", "nNodes ", "max_nodes", "nnodes="),
        pattern=r"(?:group_world_size=|nNodes |max_nodes\s*:\s*|\bnnodes=)(?P<nodes>\d{1,6})\b",
        sentence="{nodes} nodes",
        positive=("  group_world_size=2", "comm 0x56 rank 0 nRanks 16 nNodes 2 localRanks 8"),
        negative=("role_world_sizes=[8, 8]",),
    ),
)
