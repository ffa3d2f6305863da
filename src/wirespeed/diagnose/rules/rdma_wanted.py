"""Sockets where RDMA was wanted, and connections that are tried again and again."""

from collections.abc import Iterator

from wirespeed.diagnose.evidence import Evidence
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Hit

__all__ = ["RULES"]

_LINKS = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#networking-issues",
)
_CHECKS = (
    "whether the container has the devices: ls /dev/infiniband; docker run --device /dev/infiniband "
    "--cap-add IPC_LOCK --ulimit memlock=-1; in Kubernetes the device plugin's resource in the pod",
    "whether NCCL_IB_HCA matches a device whose port is active: ibv_devinfo",
    "why the plugin or NET/IB gave up: NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET, the lines before "
    "'Using network Socket'",
)
_KNOWN = ("NSOCK-031", "NSOCK-032", "NSOCK-034", "NSOCK-036", "RDMA-003", "FACT-002")
"""Rules that tell why, and RDMA in use: then the hosts differ, which is told by itself."""
_LATE = r"(?:timed?[- ]?out|refused|unreachable|no route to host|failed to connect|not respond)"
_AGAIN = r"(?:retrying|will retry|trying again|re-?connecting|retry (?:\d|in\b|attempt))"
_WHOSE = r"(?:NCCL|c10d|gloo|rendezvous|rdzv|tcpstore|\bUCX|\bOFI|socket|connect)"


def _without_success(evidence: Evidence) -> Iterator[Hit]:
    """Retries, unless the job trains on after them: then they are of its start."""
    if not evidence.trains:
        seen = evidence.seen["RETRY-002"].hits
        yield from (Hit(RULES[5], hit.line, hit.groups) for hit in seen)


RULES: tuple[Rule, ...] = (
    Rule(
        id="RDMA-001",
        category="rdma-not-used",
        role="symptom",
        stage="network",
        needs=("FACT-003", "NSOCK-030"),
        absent=_KNOWN,
        sentence="RDMA is wanted (NCCL_IB_HCA or the like is set), and NCCL uses TCP sockets",
        checks=_CHECKS,
        links=_LINKS,
    ),
    Rule(
        id="RDMA-002",
        category="rdma-not-used",
        role="symptom",
        stage="network",
        needs=("FACT-003", "SAME-003"),
        absent=(*_KNOWN, "RDMA-001"),
        sentence="a net plugin is loaded, and NCCL uses TCP sockets all the same",
        checks=_CHECKS,
        links=_LINKS,
    ),
    Rule(
        id="RDMA-004",
        category="rdma-not-used",
        role="symptom",
        stage="network",
        needs=("FACT-003", "RDMA-005"),
        absent=(*_KNOWN, "RDMA-001", "RDMA-002"),
        sentence="the container was given RDMA devices ({asked}), and NCCL uses TCP sockets",
        checks=_CHECKS,
        links=_LINKS,
    ),
    Rule(
        id="RDMA-005",
        category="settings",
        role="fact",
        anchors=("/dev/infiniband", "rdma/"),
        pattern=r"(?P<asked>--device[= ]/dev/infiniband|\brdma/[\w-]+\s*[:=]\s*\"?[1-9]\d*)",
        sentence="RDMA devices asked for ({asked})",
        positive=(
            "+ docker run --device=/dev/infiniband --gpus all image",
            "      rdma/hca_shared_devices_a:  1",
        ),
        negative=("ls: cannot access '/dev/infiniband': No such file or directory",),
    ),
    Rule(
        id="RDMA-003",
        category="settings",
        role="fact",
        anchors=("NCCL_IB_DISABLE set", "NCCL_NET set"),
        pattern=r"(?P<wish>(?:NCCL_IB_DISABLE|NCCL_NET) set by environment to (?:1|Socket))\b",
        sentence="sockets by the user's own wish ({wish})",
        positive=("NCCL INFO NCCL_IB_DISABLE set by environment to 1.",),
        negative=("NCCL INFO NCCL_IB_DISABLE set by environment to 0.",),
    ),
    Rule(
        id="RETRY-001",
        category="connections-retried",
        role="symptom",
        stage="wait",
        needs=("RETRY-002",),
        derive=_without_success,
        sentence="connections fail and are tried again, and no later line shows that one succeeded",
        checks=(
            "whether the other side was started and listens: the log of rank 0, ss -ltn there",
            "whether its address and port can be reached from here: nc -vz ADDRESS PORT, firewalls",
            "whether the job went on afterwards: the logs of all ranks, to their end",
        ),
        links=_LINKS,
    ),
    Rule(
        id="RETRY-002",
        category="connections-retried",
        role="fact",
        anchors=(
            "retrying",
            "will retry",
            "trying again",
            "reconnecting",
            "client socket has failed to connect to",
        ),
        pattern=rf"{_WHOSE}.{{0,300}}{_LATE}.{{0,200}}{_AGAIN}|{_WHOSE}.{{0,200}}{_AGAIN}.{{0,200}}{_LATE}"
        r"|client socket has failed to connect to \S+ \(errno: (?:22|101|110|111|113)\b",
        unless=r"https?://|\bpip\b|max retries exceeded with url",
        until=("FACT-020", "FACT-033", "NT-004", "STORE-090", "GOOD-001", "GOOD-002", "GOOD-005"),
        sentence="a connection is tried again",
        positive=(
            "NCCL INFO socketPollConnect: connect to 10.0.0.3<33513> returned Connection refused, "
            "retrying (1/34) after sleep for 100 msec",
            "NCCL INFO Call to connect returned Connection timed out, retrying",
            "[W socket.cpp:697] [c10d] The client socket has failed to connect to [node-0]:29500 "
            "(errno: 111 - Connection refused).",
        ),
        negative=(
            "WARNING: Retrying (Retry(total=4)) after connection broken by 'ConnectTimeoutError': "
            "https://pypi.org/simple/torch",
            "[W socket.cpp:697] [c10d] The client socket has failed to connect to [localhost]:29500 "
            "(errno: 97 - Address family not supported by protocol).",
        ),
    ),
)
