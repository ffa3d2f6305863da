"""Where a node stands: region, availability zone, placement group, rack and physical host.

The environment, the metadata services of AWS, Azure and Google Cloud, Kubernetes node labels and
Slurm's topology are asked at once and within one second. Nothing here raises, and a source that
gives no clear answer becomes a reason, never a value. `gather` is imported where it is used: checks
and with them the CLI need the record only.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one node stands; an empty field is not known."""

    source: str = ""
    """Who told: `environment`, `aws`, `azure`, `gcp`, `kubernetes`, `slurm`, or several of them."""
    zone: str = ""
    """Availability zone by name. AWS and Azure give the same zone other names in other accounts."""
    zone_id: str = ""
    """Availability zone by what every account calls it, such as AWS's `use1-az4`."""
    region: str = ""
    placement_group: str = ""
    """AWS: the group's name; Azure: the scale set's placementGroupId."""
    rack: str = ""
    """The smallest known group of neighbours: leaf switch, sub-block, or AWS's `partition 3`."""
    physical_host: str = ""
    """The machine below: a dedicated host, Google's physical_host, a Kubernetes node."""
    instance_type: str = ""
    reason: str = ""
    """Why there is no zone; empty where there is one."""


FACTS = tuple(one.name for one in fields(Placement) if one.name != "reason")
"""Fields of a Placement that are facts of the node, as `placement.zone` and so on."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What every source may look at."""

    environ: Mapping[str, str]
    root: Path
    """Stands in for / in tests."""
    deadline: float
    """On the clock of time.monotonic: no source waits longer."""


class NoAnswer(Exception):
    """A source that was asked gave nothing to rely on; the message is the reason, for a user.

    It never leaves this package, and never carries a token or what a stranger sent.
    """


ZONE = re.compile(r"(?=.{1,63}\Z)[a-z][a-z0-9]*(?:-[a-z0-9]+)+")
"""`us-east-1a`, `us-west-2-lax-1a`, `use1-az4`, `us-central1-a`, and regions such as `eu-west-1`."""
NAME = re.compile(r"[A-Za-z0-9][\w ./:@+()=-]{0,254}", re.ASCII)
"""Names that people give, such as a placement group's, and ids of machines."""
LABEL = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
"""A value of a Kubernetes label."""


def valued(text: str, pattern: re.Pattern[str], what: str) -> str:
    """The stripped text, where all of it fits; NoAnswer says what is wrong with it otherwise."""
    value = text.strip()
    if not value:
        raise NoAnswer(f"{what}: the answer is empty")
    if value.startswith("<"):
        raise NoAnswer(f"{what}: the answer is HTML, as from a proxy or a login page")
    if not pattern.fullmatch(value):
        raise NoAnswer(f"{what}: the answer cannot be one ({len(value)} characters)")
    return value
