"""Words that start ranks on one node: torchrun or places, and the order of the node agent; all pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wirespeed import __version__
from wirespeed.launchers.rank_wrapper import wrapped

__all__ = [
    "NodePlace",
    "agent_words",
    "order",
    "probe_words",
    "rank_places",
    "torchrun_words",
]

_FIRST_THERE = (
    'for python in "$@"; do command -v "$python" >/dev/null 2>&1 && '
    'exec env PYTHONSAFEPATH=1 WIRESPEED_ASKED="$python" "$python" -; done; '
    'echo "not there: $*" >&2; exit 127'
)
_AGENT = "wirespeed.launchers.node.agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """One node of a job, with all that its ranks must know."""

    host: str
    index: int
    """Its place among the nodes."""
    slots: int
    first_rank: int
    nodes: int
    size: int
    """Of the world."""
    python: str
    address: str
    """By which other nodes reach it."""
    master: str
    """Address of the first node."""
    port: int


def probe_words(pythons: Sequence[str]) -> list[str]:
    """The first of these Pythons that is there, with its program on stdin."""
    return ["sh", "-c", _FIRST_THERE, "sh", *pythons]


def agent_words(python: str) -> list[str]:
    """The node agent. -P: what lies in the home folder is no module."""
    return [python, "-P", "-m", _AGENT]


def order(
    starts: Sequence[tuple[Sequence[str], Mapping[str, str]]],
    environment: Mapping[str, str],
    *,
    grace_s: float,
    silence_s: float,
) -> str:
    """One line for the node agent: what to start, each with variables of its own, and in what."""
    told = {
        "version": __version__,
        "grace_s": grace_s,
        "silence_s": silence_s,
        "environment": dict(sorted(environment.items())),
        "start": [{"words": list(words), "environment": dict(own)} for words, own in starts],
    }
    return json.dumps(told) + "\n"


def torchrun_words(
    place: NodePlace, command: Sequence[str], *, rendezvous: str, token: str
) -> list[str]:
    """torchrun for the ranks of one node, without any file of its own.

    torchrun fills in `${local_rank}` in the words of a rank and makes `$$` of them `$`
    (string.Template in torch/distributed/elastic), so words with a dollar go encoded.
    """
    meet = [f"--nnodes={place.nodes}", f"--nproc-per-node={place.slots}"]
    if rendezvous == "c10d":
        # Its id is seen by `ps`, and the token asks for trust.
        id = hashlib.sha256(token.encode()).hexdigest()[:16]
        meet += ["--rdzv-backend=c10d", f"--rdzv-endpoint={_endpoint(place)}", f"--rdzv-id={id}"]
        meet += [f"--rdzv-conf=is_host={int(place.index == 0)}", f"--local-addr={place.address}"]
    else:
        meet += [f"--node-rank={place.index}"]
        meet += [f"--master-addr={place.master}", f"--master-port={place.port}"]
    rank = wrapped(place.python, command, encoded=any("$" in word for word in command))
    run = [place.python, "-P", "-m", "torch.distributed.run"]
    return [*run, *meet, "--log-dir=/dev/null", "--no-python", *rank]


def rank_places(place: NodePlace) -> list[dict[str, str]]:
    """What each rank of a node must know where no torchrun tells it."""
    common = {
        "WORLD_SIZE": str(place.size),
        "LOCAL_WORLD_SIZE": str(place.slots),
        "MASTER_ADDR": place.master,
        "MASTER_PORT": str(place.port),
        "NNODES": str(place.nodes),
        "NODE_RANK": str(place.index),
        "GROUP_RANK": str(place.index),
    }
    return [
        {**common, "RANK": str(place.first_rank + local), "LOCAL_RANK": str(local)}
        for local in range(place.slots)
    ]


def _endpoint(place: NodePlace) -> str:
    return (
        f"[{place.master}]:{place.port}" if ":" in place.master else f"{place.master}:{place.port}"
    )
