"""What a cluster file leaves open, as `validate`, `render` and `deploy` all say it."""

from collections.abc import Iterator

from wirespeed.clusters.file.model import ClusterFile, Workload
from wirespeed.clusters.images import CPU_IMAGE, GPU_IMAGE
from wirespeed.clusters.presets.fabric import Fabric
from wirespeed.records import Finding

__all__ = ["root_for_locking", "warnings_of", "workload_of"]


def workload_of(file: ClusterFile) -> Workload:
    """With an image for GPUs where GPUs are asked and no image is named."""
    if not file.gpus.per_node or "image" in file.workload.model_fields_set:
        return file.workload
    return file.workload.model_copy(update={"image": GPU_IMAGE})


def warnings_of(file: ClusterFile, fabric: Fabric) -> tuple[Finding, ...]:
    """In the order of the file's sections."""
    return (*_image(file), *_interfaces(fabric), *_resource(fabric), *_lock(file, fabric))


def _image(file: ClusterFile) -> Iterator[Finding]:
    if not file.gpus.per_node:
        return
    said = "image" in file.workload.model_fields_set
    if said and file.workload.image != CPU_IMAGE:
        return
    yield Finding(
        id="CLUSTER-043",
        status="warn",
        title=f"workload.image is {CPU_IMAGE}: it has no CUDA, and GPUs are asked"
        if said
        else f"workload.image is empty: {GPU_IMAGE} is taken, which the nodes must have already",
        expected="an image with wirespeed and CUDA that the nodes can pull",
        fix="images/build cuda, push it to your registry, and name it in workload.image",
    )


def _interfaces(fabric: Fabric) -> Iterator[Finding]:
    if not fabric.attachable:
        return
    names, kept = ", ".join(fabric.attachable), fabric.network.rdma.interfaces
    yield Finding(
        id="CLUSTER-044",
        status="warn",
        title=f"nothing attaches {names}: {'they are' if kept else 'NCCL_SOCKET_IFNAME is'} left out",
        saw="network.rdma.interfaces, and no network.rdma.networks",
        because="such interfaces come from Multus attachments; deploy takes those of the same names, "
        "where the cluster has them, and else RDMA goes by the device plugin's resource",
        fix=f"network.rdma.networks with an attachment for each of {names} "
        "(kubectl get network-attachment-definitions)",
    )


def _resource(fabric: Fabric) -> Iterator[Finding]:
    if not fabric.seeks_resource:
        return
    yield Finding(
        id="CLUSTER-045",
        status="warn",
        title="network.rdma.resource is empty: no RDMA device is asked of a device plugin",
        because="deploy takes the one that nodes advertise, where it is one; render cannot know it"
        + ("" if fabric.names_adapters else " and refuses"),
        fix="network.rdma.resource, such as rdma/ib: what kubectl describe node has under Allocatable",
    )


def root_for_locking(file: ClusterFile) -> int | None:
    """0 where the file leaves the user open, wants IPC_LOCK, and has the SCC for any user."""
    security = file.security
    wanted = security.ipc_lock and security.requires_privileged_scc
    return 0 if wanted and security.run_as_user is None else None


def _lock(file: ClusterFile, fabric: Fabric) -> Iterator[Finding]:
    """Linux gives a capability of the container's to root's processes only."""
    user = (
        root_for_locking(file) if file.security.run_as_user is None else file.security.run_as_user
    )
    of_preset = bool(user and fabric.preset and fabric.preset.ipc_lock)
    if user == 0 or not (file.security.ipc_lock or of_preset):
        return
    who = f"user {user}" if user else "any user but root (the image or the namespace decides)"
    yield Finding(
        id="CLUSTER-046",
        status="warn",
        title=f"IPC_LOCK does nothing for {who}: such processes in a pod have no capability",
        saw="CapEff 0 where the process is not root's; `ulimit -l` stays the container runtime's",
        because="Kubernetes has no ambient capabilities",
        costs="RDMA registers memory up to that limit only, often 8 MiB or 64 KiB",
        fix="security.run_as_user: 0, or LimitMEMLOCK=infinity for the nodes' container runtime "
        "(systemctl edit containerd, or crio)",
        next="wirespeed check --only nodes --on k8s --cluster NAME",
    )
