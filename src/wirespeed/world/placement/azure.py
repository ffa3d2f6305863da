"""Azure: the instance metadata service (Microsoft Learn, "Azure Instance Metadata Service").

Zones of Azure are numbers, and each subscription numbers them anew; they are given here with the
region in front, as Azure's nodes in Kubernetes are labelled (`eastus-1`).
"""

import json
import re
from typing import Any

from wirespeed.world.placement.clouds import address_of
from wirespeed.world.placement.http import Service
from wirespeed.world.placement.model import Asked, NoAnswer, Placement
from wirespeed.world.placement.values import NAME, valued

__all__ = ["ask_azure"]

_PATH = "/metadata/instance/compute?api-version=2023-07-01&format=json"
_REGION = re.compile(r"[a-z][a-z0-9]{1,62}", re.ASCII)
_ZONE = re.compile(r"\d{1,2}", re.ASCII)


def ask_azure(asked: Asked) -> Placement | None:
    """What the VM's service says; None: this is not Azure. Raises NoAnswer."""
    url = address_of(asked, "azure", ("WIRESPEED_AZURE_METADATA",))
    if url is None:
        return None
    answer = Service(url, asked.deadline).ask(_PATH, {"Metadata": "true"})
    if answer.status != 200:
        raise NoAnswer(f"compute: status {answer.status}")
    compute = _parsed(answer.text)
    region = valued(_text(compute, "location"), _REGION, "location")
    zone, reason = "", ""
    try:
        zone = f"{region}-{valued(_text(compute, 'zone'), _ZONE, 'zone')}"
    except NoAnswer as why:
        reason = f"{why}; the VM may be in no availability zone (region {region})"
    return Placement(
        source="azure",
        zone=zone,
        region=region,
        placement_group=_name(compute, "placementGroupId"),
        instance_type=_name(compute, "vmSize"),
        reason=reason,
    )


def _parsed(text: str) -> dict[str, Any]:
    if not text.strip() or text.lstrip().startswith("<"):
        valued(text, NAME, "compute")  # says which of the two
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise NoAnswer("compute: the answer is no JSON object")
    return found


def _text(compute: dict[str, Any], key: str) -> str:
    value = compute.get(key)
    return value if isinstance(value, str) else ""


def _name(compute: dict[str, Any], key: str) -> str:
    value = _text(compute, key).strip()
    return value if NAME.fullmatch(value) else ""
