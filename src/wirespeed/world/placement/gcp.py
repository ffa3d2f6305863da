"""Google Cloud: the metadata server (Compute Engine's documentation, "About VM metadata").

Single values are asked for, never the whole tree: that holds start-up scripts and keys. A server
whose answer has no `Metadata-Flavor: Google` is not the metadata server.
"""

import re

from wirespeed.world.placement.clouds import address_of
from wirespeed.world.placement.http import Service
from wirespeed.world.placement.model import Asked, NoAnswer, Placement
from wirespeed.world.placement.values import NAME, ZONE, valued

__all__ = ["ask_gcp"]

_FLAVOR = {"Metadata-Flavor": "Google"}
_PREFIX = re.compile(r"projects/[\w.:-]+/(?:zones|machineTypes)/", re.ASCII)
_HOST = re.compile(r"/?[\w.-]+(?:/[\w.-]+){0,5}", re.ASCII)


def ask_gcp(asked: Asked) -> Placement | None:
    """What the VM's server says; None: this is not Google Cloud. Raises NoAnswer."""
    url = address_of(asked, "gcp", ("WIRESPEED_GCP_METADATA", "GCE_METADATA_HOST"))
    if url is None:
        return None
    service = Service(url, asked.deadline)
    zone = _value(service, "zone", ZONE)
    host = _optional(service, "attributes/physical_host", _HOST)
    return Placement(
        source="gcp",
        zone=zone,
        region=zone.rpartition("-")[0],  # a zone is the region and a letter
        rack=_rack(host),
        physical_host=host,
        instance_type=_optional(service, "machine-type", NAME),
    )


def _value(service: Service, path: str, pattern: re.Pattern[str]) -> str:
    answer = service.ask(f"/computeMetadata/v1/instance/{path}", _FLAVOR)
    if answer.headers.get("metadata-flavor") != "Google":
        valued(answer.text, re.compile(".*", re.DOTALL), path)  # says where it is empty or HTML
        raise NoAnswer(f"{path}: the answer does not come from Google's metadata server")
    if answer.status != 200:
        raise NoAnswer(f"{path}: status {answer.status}")
    return valued(_PREFIX.sub("", answer.text.strip(), count=1), pattern, path)


def _optional(service: Service, path: str, pattern: re.Pattern[str]) -> str:
    try:
        return _value(service, path, pattern)
    except NoAnswer:
        return ""


def _rack(host: str) -> str:
    """Of `/block/sub-block/host` all but the host."""
    return host.rpartition("/")[0] if host.count("/") >= 2 else ""
