"""Which cloud this machine is of, by its DMI table, and where the metadata service is.

Off a cloud 169.254.169.254 mostly does not answer at all, so it is asked only where the firmware
says which cloud this is, or where the environment names an address.
"""

from collections.abc import Sequence
from pathlib import Path

from wirespeed.world.placement.http import is_address
from wirespeed.world.placement.model import Asked, NoAnswer
from wirespeed.world.reading import read_text

__all__ = ["LINK_LOCAL", "address_of", "cloud_of"]

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
