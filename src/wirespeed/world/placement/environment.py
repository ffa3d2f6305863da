"""What whoever started this node says of it: WIRESPEED_ZONE and the like.

For clusters that no source knows, and for pods, whose manifest can hand node labels on. The value
must be given on each node for itself; one that a launcher copies to all nodes says nothing.
"""

from wirespeed.world.placement.model import Asked, Placement
from wirespeed.world.placement.values import NAME, valued

__all__ = ["ask_environment"]

_VARIABLES = {
    "zone": "WIRESPEED_ZONE",
    "zone_id": "WIRESPEED_ZONE_ID",
    "region": "WIRESPEED_REGION",
    "placement_group": "WIRESPEED_PLACEMENT_GROUP",
    "rack": "WIRESPEED_RACK",
    "physical_host": "WIRESPEED_PHYSICAL_HOST",
}


def ask_environment(asked: Asked) -> Placement | None:
    """The variables that are set; None: none is. Raises NoAnswer."""
    found = {
        field: valued(asked.environ[name], NAME, name)
        for field, name in _VARIABLES.items()
        if asked.environ.get(name)
    }
    if not found:
        return None
    known = "zone" in found or "zone_id" in found
    return Placement(
        source="environment", reason="" if known else "WIRESPEED_ZONE is not set", **found
    )
