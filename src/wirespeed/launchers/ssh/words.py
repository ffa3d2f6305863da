"""Words for ssh and torchrun, and the order that the far side reads from its stdin; all pure."""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wirespeed import __version__
from wirespeed.errors import UsageError
from wirespeed.launchers.rank_wrapper import wrapped

__all__ = [
    "CONNECT_S",
    "Place",
    "agent_words",
    "check_host",
    "order",
    "probe_words",
    "rank_places",
    "ssh_words",
    "torchrun_words",
]

CONNECT_S = 7
"""For each address of a host: with two of them ssh still tells its own words before we give up."""
_OPTIONS = (
    "BatchMode=yes",
    f"ConnectTimeout={CONNECT_S}",
    # A connection that is dead is noticed after 15 to 20 s.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "RemoteCommand=none",
)
_FIRST_THERE = (
    'for python in "$@"; do command -v "$python" >/dev/null 2>&1 && '
    'exec env WIRESPEED_ASKED="$python" "$python" -; done; '
    'echo "not there: $*" >&2; exit 127'
)
_AGENT = "wirespeed.launchers.node.agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
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


def check_host(name: str) -> None:
    """UsageError for what can be no host of ssh; a name that starts with a dash would be an option."""
    odd = not name or name.startswith("-") or not name.isprintable() or any(map(str.isspace, name))
    if odd or "@-" in name:
        raise UsageError(
            f"{name!r} is no host name",
            expected="a host, user@host, an address, or an alias of ssh's configuration",
        )


def ssh_words(config: str, host: str, far: Sequence[str]) -> tuple[str, ...]:
    """The system's ssh, with the user's configuration and agent, running `far` on that host.

    The far side's login shell sees `far` quoted as POSIX shells read it.
    """
    check_host(host)
    told = [word for option in _OPTIONS for word in ("-o", option)]
    own = ["-F", config] if config else []
    return ("ssh", *own, "-T", *told, "--", host, f"exec {shlex.join(far)}")


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
    place: Place, command: Sequence[str], *, rendezvous: str, token: str
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
    run = [place.python, "-m", "torch.distributed.run"]
    return [*run, *meet, "--log-dir=/dev/null", "--no-python", *rank]


def rank_places(place: Place) -> list[dict[str, str]]:
    """What each rank of a node must know where no torchrun tells it."""
    common = {
        "WORLD_SIZE": str(place.size),
        "LOCAL_WORLD_SIZE": str(place.slots),
        "MASTER_ADDR": place.master,
        "MASTER_PORT": str(place.port),
        "NNODES": str(place.nodes),
        "NODE_RANK": str(place.index),
    }
    return [
        {**common, "RANK": str(place.first_rank + local), "LOCAL_RANK": str(local)}
        for local in range(place.slots)
    ]


def _endpoint(place: Place) -> str:
    return (
        f"[{place.master}]:{place.port}" if ":" in place.master else f"{place.master}:{place.port}"
    )
