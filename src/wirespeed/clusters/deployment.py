"""What is deployed: a cluster file with every choice made, each with its reason."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from wirespeed.clusters import CPU_IMAGE, GPU_IMAGE
from wirespeed.clusters.file import Cluster, ClusterFile, EngineName, FabricMode
from wirespeed.clusters.findings import make_finding
from wirespeed.clusters.presets import NO_PRESET, Fabric, Preset, choose_fabric, names_adapters
from wirespeed.errors import UsageError
from wirespeed.model.records import Choice, Finding

CONTAINER = "ranks"
"""Name of the container that ranks run in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One environment; `settle` makes it from a file and the options."""

    file: ClusterFile
    nodes: int
    """Pods, one a node."""
    engine: EngineName
    mode: Literal["rdma", "tcp"]
    preset: Preset = NO_PRESET
    choices: tuple[Choice, ...] = ()
    """What was chosen automatically, with the reason."""
    warnings: tuple[Finding, ...] = ()
    """What the file alone cannot settle, and what is done about it."""
    attachable: tuple[str, ...] = ()
    """Interfaces that would be there, did the cluster have network attachments of these names."""
    owner: Mapping[str, str] | None = None
    """An ownerReference: the object that all others go with when it is deleted."""

    @property
    def name(self) -> str:
        return self.file.cluster.name

    @property
    def namespace(self) -> str:
        return self.file.cluster.namespace

    @property
    def gpus(self) -> int:
        """Of each pod."""
        return self.file.gpus.per_node

    @property
    def pods(self) -> tuple[str, ...]:
        """Names of a StatefulSet's pods, in the order of their ordinals."""
        return tuple(f"{self.name}-{index}" for index in range(self.nodes))

    @property
    def service(self) -> str:
        """The headless Service: `POD.SERVICE` resolves in the namespace."""
        return self.name


def settle(
    file: ClusterFile,
    *,
    nodes: int | None = None,
    mode: str | None = None,
    engine: str | None = None,
    fallback: str | None = None,
    name: str | None = None,
    live: bool = False,
) -> Deployment:
    """Options before the file, the file before its preset, the preset before our defaults.

    nodes: pods. mode: auto, rdma or tcp. engine: what makes the pods. fallback: `tcp`, where RDMA is
    asked and not there. name: of the environment, in place of cluster.name. live: a cluster is asked
    afterwards (`operations/capabilities.py`), so that RDMA may be named by it.

    Raises UsageError for more nodes than are named, an unknown word, and RDMA that nothing names.
    """
    _one_of("--mode", mode, get_args(FabricMode))
    _one_of("--engine", engine, get_args(EngineName))
    _one_of("--fallback", fallback, ("tcp",))
    if name is not None:
        file = file.but(cluster=_renamed(file.cluster, name))
    fabric = choose_fabric(file, cast("FabricMode | None", mode), fallback, live=live)
    workload = file.workload
    if file.gpus.per_node and "image" not in workload.model_fields_set:
        workload = workload.but(image=GPU_IMAGE)
    count, counted = _nodes(file, nodes)
    security, user = file.security, root_for_locking(file)
    if user is not None:
        security = security.but(run_as_user=user)
    return Deployment(
        file=file.but(network=fabric.network, workload=workload, security=security),
        nodes=count,
        engine=cast("EngineName", engine or file.workload.engine),
        mode=fabric.mode,
        warnings=tuple(warnings_of(file, fabric)),
        attachable=fabric.attachable,
        preset=fabric.preset,
        choices=(*counted, *_choices(file, fabric, engine)),
    )


def _one_of(option: str, value: str | None, words: tuple[str, ...]) -> None:
    if value is not None and value not in words:
        raise UsageError(f"{option} {value!r} is not known", expected=", ".join(words))


def _renamed(cluster: Cluster, name: str) -> Cluster:
    from pydantic import ValidationError

    told: dict[str, Any] = {**cluster.model_dump(), "name": name}
    try:
        return Cluster.model_validate(told)
    except ValidationError:
        raise UsageError(
            f"{name!r} cannot be the name of an environment",
            expected="at most 40 of a-z, 0-9 and -, the first a letter, the last no -",
        ) from None


def _nodes(file: ClusterFile, asked: int | None) -> tuple[int, tuple[Choice, ...]]:
    """Never more pods than nodes are named: the rest could only wait."""
    named = len(set(file.nodes.gpu_nodes))
    wanted = file.gpus.default_nodes if asked is None else asked
    said = asked is not None or "default_nodes" in file.gpus.model_fields_set
    if named and wanted > named and not said:
        return named, (Choice("nodes", str(named), "as many as nodes.gpu_nodes names"),)
    if wanted < 1 or (named and wanted > named):
        origin = "gpus.default_nodes" if asked is None else "--nodes"
        raise UsageError(
            f"{origin} asks for {wanted} nodes"
            + (f", and nodes.gpu_nodes names {named}" if named else ""),
            expected=f"1 to {named}, or more names there" if named else "at least 1",
        )
    if asked is not None:
        return wanted, ()
    reason = "gpus.default_nodes in the cluster file" if said else "the smallest that has a network"
    return wanted, (Choice("nodes", str(wanted), reason),)


def _choices(file: ClusterFile, fabric: Fabric, engine: str | None) -> Iterator[Choice]:
    """What was chosen for want of a word in the options and the file."""
    made_by = engine or file.workload.engine
    if engine is None and "engine" not in file.workload.model_fields_set:
        yield Choice("engine", made_by, "it needs no operator in the cluster")
    yield from fabric.choices
    if "per_node" not in file.gpus.model_fields_set:
        reason = "the cluster file does not say gpus.per_node: ranks run on CPUs, by gloo"
        yield Choice("gpus", str(file.gpus.per_node), reason)
    if made_by != "statefulset" and file.storage.mode == "volumeClaimTemplates":
        reason = f"claims of each pod are a StatefulSet's; those of a {made_by} go with their pods"
        yield Choice("storage", "ephemeral volumes (Kubernetes 1.23 or later)", reason)
    if root_for_locking(file) is not None:
        reason = "IPC_LOCK works for root only, and the SCC privileged allows it"
        yield Choice("security.run_as_user", "0", reason)


def warnings_of(file: ClusterFile, fabric: Fabric) -> Iterator[Finding]:
    """In the order of the file's sections."""
    said, image = "image" in file.workload.model_fields_set, file.workload.image
    if file.gpus.per_node and not (said and image != CPU_IMAGE):
        title = f"workload.image is empty: {GPU_IMAGE} is taken, which the nodes must have already"
        if said:
            title = f"workload.image is {CPU_IMAGE}: it has no CUDA, and GPUs are asked"
        yield make_finding("image", title=title)
    if names := ", ".join(fabric.attachable):
        kept = "they are" if fabric.network.rdma.interfaces else "NCCL_SOCKET_IFNAME is"
        yield make_finding("interfaces", names=names, kept=kept)
    if fabric.seeks_resource:
        named = names_adapters(fabric.network.rdma, fabric.preset)
        yield make_finding("resource", refuses="" if named else " and refuses")
    # Linux gives a capability of the container's to root's processes only.
    given = file.security.run_as_user
    user = root_for_locking(file) if given is None else given
    of_preset = bool(user and fabric.preset.ipc_lock)
    if user != 0 and (file.security.ipc_lock or of_preset):
        who = f"user {user}" if user else "any user but root (the image or the namespace decides)"
        yield make_finding("lock", who=who)


def root_for_locking(file: ClusterFile) -> int | None:
    """0 where the file leaves the user open, wants IPC_LOCK, and has the SCC for any user."""
    security = file.security
    wanted = security.ipc_lock and security.requires_privileged_scc
    return 0 if wanted and security.run_as_user is None else None
