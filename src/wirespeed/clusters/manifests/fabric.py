"""What of the preset goes into a pod, with what the file says of its network on top."""

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.presets.fabric import NETWORKS
from wirespeed.clusters.presets.preset import Preset

__all__ = ["extended_resources", "network_annotations", "preset_of"]

_NONE = Preset(name="none", summary="", why="", source="", mode="tcp")


def preset_of(deployment: Deployment) -> Preset:
    """The preset, or one that asks for nothing."""
    return deployment.preset or _NONE


def extended_resources(deployment: Deployment) -> dict[str, int]:
    """Count of each pod by name, GPUs left out."""
    rdma = deployment.file.network.rdma
    found = dict(preset_of(deployment).resources)
    if deployment.mode == "rdma" and rdma.resource:
        found[rdma.resource] = rdma.count
    return found


def network_annotations(deployment: Deployment) -> dict[str, str]:
    """Of pods: the preset's, and the attachments to networks that the file names."""
    found = dict(preset_of(deployment).annotations)
    if deployment.mode == "rdma" and (networks := deployment.file.network.rdma.networks):
        found[NETWORKS] = ",".join(networks)
    return found
