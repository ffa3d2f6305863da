"""AWS: the instance metadata service, version 2 (AWS EC2 User Guide, "Instance metadata").

A token is fetched with PUT and shown with every GET; version 1, without one, is never tried. In a
container the answer to the PUT is lost where the instance's hop limit is 1.
"""

import re

from wirespeed.world.placement.clouds import address_of
from wirespeed.world.placement.http import Service
from wirespeed.world.placement.model import Asked, NoAnswer, Placement
from wirespeed.world.placement.values import NAME, ZONE, valued

__all__ = ["ask_aws"]

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
