"""What the Ray driver is told by the console, as one line of JSON on its stdin."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from wirespeed.errors import WirespeedError
from wirespeed.launchers.base import Job
from wirespeed.launchers.frames import VARIABLE

__all__ = ["LOCAL", "Bundle", "Orders", "bundles_of"]

LOCAL = "local"
"""The address that stands for a cluster of this job alone, on this machine."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Ranks that Ray must place on one node together."""

    ranks: int
    host: str = ""
    """The node that it must be: its address, host name or Ray's name for it; empty: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """One job, as the driver needs it."""

    command: tuple[str, ...]
    python: str
    """Interpreter of the ranks; empty: the one that runs Ray on their node."""
    environment: Mapping[str, str]
    address: str
    """`local`, `auto`, `HOST:PORT` or `ray://HOST:PORT`."""
    bundles: tuple[Bundle, ...]
    strategy: str
    """Ray's: `STRICT_SPREAD`, `SPREAD`, `PACK` or `STRICT_PACK` of the bundles over nodes."""
    cpus: float | None
    """For each rank; None: 1, of which a local cluster is given as many as there are ranks."""
    gpus: float | None
    """For each rank; None: 1 where the cluster has one for every rank, else 0."""
    place_s: float
    """How long to wait for room."""
    grace_s: float
    interface: str = ""
    """Whose address ranks meet at; empty: the address by which Ray knows rank 0's node."""

    @property
    def token(self) -> str:
        """Of the ranks' frames; empty where they shall not frame."""
        return self.environment.get(VARIABLE, "").partition(",")[0]

    @property
    def size(self) -> int:
        """World size."""
        return sum(bundle.ranks for bundle in self.bundles)

    def to_json(self) -> str:
        """One line, ASCII only: also what is no text in the environment passes unharmed."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Orders":
        """WirespeedError where the line is none that `to_json` wrote."""
        try:
            data: dict[str, Any] = json.loads(text)
            bundles = tuple(Bundle(**bundle) for bundle in data.pop("bundles"))
            return cls(command=tuple(data.pop("command")), bundles=bundles, **data)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise WirespeedError(f"the Ray driver cannot read its orders: {error}") from error


def bundles_of(job: Job, *, local: bool) -> tuple[Bundle, ...]:
    """One bundle a node. Where nothing tells how many ranks a node takes: all of them on a local
    cluster, else each by itself, so that Ray places them as they fit.
    """
    if job.hosts:
        each = job.ranks_per_node or 1
        return tuple(Bundle(host.slots or each, host.name) for host in job.hosts)
    whole = -(-job.size // job.nodes) if job.nodes else (job.size if local else 1)
    each = job.ranks_per_node or whole
    full, rest = divmod(job.size, each)
    return (Bundle(each),) * full + ((Bundle(rest),) if rest else ())
