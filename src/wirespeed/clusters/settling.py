"""From a cluster file and the options to a deployment: every choice made, each with its reason."""

from typing import Any, cast, get_args

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.file.model import Cluster, ClusterFile, EngineName, FabricMode, Security
from wirespeed.clusters.presets.fabric import choose_fabric
from wirespeed.clusters.warnings import root_for_locking, warnings_of, workload_of
from wirespeed.errors import UsageError
from wirespeed.records import Choice

__all__ = ["settle"]


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
    afterwards (`life/serving.py`), so that RDMA may be named by it.

    Raises UsageError for more nodes than are named, an unknown word, and RDMA that nothing names.
    """
    _one_of("--mode", mode, get_args(FabricMode))
    _one_of("--engine", engine, get_args(EngineName))
    _one_of("--fallback", fallback, ("tcp",))
    if name is not None:
        file = file.model_copy(update={"cluster": _renamed(file.cluster, name)})
    fabric = choose_fabric(file, cast("FabricMode | None", mode), fallback, live=live)
    workload = workload_of(file)
    count, counted = _nodes(file, nodes)
    return Deployment(
        file=file.model_copy(
            update={"network": fabric.network, "workload": workload, "security": _security(file)}
        ),
        nodes=count,
        engine=cast("EngineName", engine or file.workload.engine),
        mode=fabric.mode,
        warnings=warnings_of(file, fabric),
        attachable=fabric.attachable,
        seeks_resource=fabric.seeks_resource,
        names_adapters=fabric.names_adapters,
        preset=fabric.preset,
        choices=(
            *(*counted, *_engine(file, engine), *fabric.choices, *_gpus(file)),
            *_claims(file, engine or file.workload.engine),
            *_user(file),
        ),
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


def _engine(file: ClusterFile, asked: str | None) -> tuple[Choice, ...]:
    if asked is not None or "engine" in file.workload.model_fields_set:
        return ()
    reason = "it needs no operator in the cluster"
    return (Choice("engine", file.workload.engine, reason),)


def _gpus(file: ClusterFile) -> tuple[Choice, ...]:
    if "per_node" in file.gpus.model_fields_set:
        return ()
    reason = "the cluster file does not say gpus.per_node: ranks run on CPUs, by gloo"
    return (Choice("gpus", str(file.gpus.per_node), reason),)


def _security(file: ClusterFile) -> Security:
    if (user := root_for_locking(file)) is None:
        return file.security
    return file.security.model_copy(update={"run_as_user": user})


def _user(file: ClusterFile) -> tuple[Choice, ...]:
    if root_for_locking(file) is None:
        return ()
    reason = "IPC_LOCK works for root only, and the SCC privileged allows it"
    return (Choice("security.run_as_user", "0", reason),)


def _claims(file: ClusterFile, engine: str) -> tuple[Choice, ...]:
    if engine == "statefulset" or file.storage.mode != "volumeClaimTemplates":
        return ()
    reason = f"claims of each pod are a StatefulSet's; those of a {engine} go with their pods"
    return (Choice("storage", "ephemeral volumes (Kubernetes 1.23 or later)", reason),)
