"""AWS, Azure and Google Cloud: the metadata service of the cloud that the DMI table names.

Off a cloud 169.254.169.254 mostly does not answer at all, so it is asked only where the
firmware says which cloud this is, or where the environment names an address.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wirespeed.node.placement.http import Service, is_address
from wirespeed.node.placement.located import NAME, ZONE, Asked, NoAnswer, Placement, valued
from wirespeed.node.reading import read_text

LINK_LOCAL = "http://169.254.169.254"
_DMI = "sys/class/dmi/id"
_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
"""Chassis asset tag of every Azure VM; the vendor alone would be any Hyper-V machine."""


def cloud_of(root: Path) -> str:
    """`aws`, `azure`, `gcp`, or nothing where the firmware names none of them."""
    vendor, product, version, tag = (
        read_text(root / _DMI / name) or ""
        for name in ("sys_vendor", "product_name", "product_version", "chassis_asset_tag")
    )
    if vendor == "Amazon EC2" or version.endswith(".amazon"):  # the latter: instances on Xen
        return "aws"
    if tag == _AZURE_TAG:
        return "azure"
    return "gcp" if vendor == "Google" or product == "Google Compute Engine" else ""


def address_of(asked: Asked, cloud: str, variables: Sequence[str]) -> str | None:
    """The service's URL: from the first variable that is set, else where the firmware is of `cloud`.

    None: there is no reason to ask. A variable may also be `HOST[:PORT]`, as Google's own is.
    """
    for name in variables:
        if value := asked.environ.get(name, "").strip():
            url = (value if "://" in value else f"http://{value}").rstrip("/")
            if not is_address(url):
                raise NoAnswer(f"{name} is not an address such as http://127.0.0.1:8080")
            return url
    return LINK_LOCAL if cloud_of(asked.root) == cloud else None


_VARIABLES = ("WIRESPEED_AWS_METADATA", "AWS_EC2_METADATA_SERVICE_ENDPOINT")
_TOKEN = re.compile(r"[\w+/=.-]{1,1024}", re.ASCII)
_NUMBER = re.compile(r"\d{1,4}", re.ASCII)
_PATHS = {
    "zone": ("placement/availability-zone", ZONE),
    "zone_id": ("placement/availability-zone-id", ZONE),
    "region": ("placement/region", ZONE),
    "placement_group": ("placement/group-name", NAME),
    "rack": ("placement/partition-number", _NUMBER),
    "physical_host": ("placement/host-id", NAME),
    "instance_type": ("instance-type", NAME),
}


def ask_aws(asked: Asked) -> Placement | None:
    """What the instance's service says; None: this is not AWS. Raises NoAnswer."""
    disabled = asked.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
    if disabled and not asked.environ.get(_VARIABLES[0]):
        return None
    url = address_of(asked, "aws", _VARIABLES)
    if url is None:
        return None
    service = Service(url, asked.deadline)
    headers = {"X-aws-ec2-metadata-token": _token(service)}
    found, missing = {}, {}
    for name, (path, pattern) in _PATHS.items():
        try:
            found[name] = _value(service, path, headers, pattern)
        except NoAnswer as why:
            missing[name] = str(why)
    if "rack" in found:
        found["rack"] = f"partition {found['rack']}"
    reason = "" if "zone" in found or "zone_id" in found else missing["zone"]
    return Placement(source="aws", reason=reason, **found)


def _token(service: Service) -> str:
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    try:
        answer = service.ask("/latest/api/token", lifetime, method="PUT")
    except NoAnswer as why:
        raise NoAnswer(f"IMDSv2 token: {why} (in a container: is the hop limit 1?)") from None
    if answer.status != 200:
        off = "; the service is switched off" if answer.status == 403 else ""
        raise NoAnswer(f"IMDSv2 token: refused with status {answer.status}{off}")
    return valued(answer.text, _TOKEN, "IMDSv2 token")


def _value(service: Service, path: str, headers: dict[str, str], pattern: re.Pattern[str]) -> str:
    what = path.rpartition("/")[2]
    answer = service.ask(f"/latest/meta-data/{path}", headers)
    if answer.status == 401:
        raise NoAnswer(f"{what}: the IMDSv2 token was refused (status 401)")
    if answer.status != 200:
        raise NoAnswer(f"{what}: status {answer.status}")
    return valued(answer.text, pattern, what)


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


_FLAVOR = {"Metadata-Flavor": "Google"}
_PREFIX = re.compile(r"projects/[\w.:-]+/(?:zones|machineTypes)/", re.ASCII)
_HOST = re.compile(r"/?[\w.-]+(?:/[\w.-]+){0,5}", re.ASCII)


def ask_gcp(asked: Asked) -> Placement | None:
    """What the VM's server says; None: this is not Google Cloud. Raises NoAnswer."""
    url = address_of(asked, "gcp", ("WIRESPEED_GCP_METADATA", "GCE_METADATA_HOST"))
    if url is None:
        return None
    service = Service(url, asked.deadline)
    zone = _gcp_value(service, "zone", ZONE)
    host = _optional(service, "attributes/physical_host", _HOST)
    return Placement(
        source="gcp",
        zone=zone,
        region=zone.rpartition("-")[0],  # a zone is the region and a letter
        rack=_rack(host),
        physical_host=host,
        instance_type=_optional(service, "machine-type", NAME),
    )


def _gcp_value(service: Service, path: str, pattern: re.Pattern[str]) -> str:
    answer = service.ask(f"/computeMetadata/v1/instance/{path}", _FLAVOR)
    if answer.headers.get("metadata-flavor") != "Google":
        valued(answer.text, re.compile(".*", re.DOTALL), path)  # says where it is empty or HTML
        raise NoAnswer(f"{path}: the answer does not come from Google's metadata server")
    if answer.status != 200:
        raise NoAnswer(f"{path}: status {answer.status}")
    return valued(_PREFIX.sub("", answer.text.strip(), count=1), pattern, path)


def _optional(service: Service, path: str, pattern: re.Pattern[str]) -> str:
    try:
        return _gcp_value(service, path, pattern)
    except NoAnswer:
        return ""


def _rack(host: str) -> str:
    """Of `/block/sub-block/host` all but the host."""
    return host.rpartition("/")[0] if host.count("/") >= 2 else ""
