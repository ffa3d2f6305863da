"""Pods of an environment, what they request, and commands that enter one; nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wirespeed.clusters.deployment import CONTAINER
from wirespeed.clusters.file.kinds import quantity
from wirespeed.clusters.kube import Kubectl
from wirespeed.clusters.manifests import COMPONENT, selector_text
from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.model.units import listed


def amounts(told: Mapping[str, object] | None) -> dict[str, float]:
    """A resource list as numbers."""
    return {key: quantity(value) for key, value in (told or {}).items()}


def together(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sum of resource lists."""
    total: dict[str, float] = {}
    for part in parts:
        for key, value in part.items():
            total[key] = total.get(key, 0.0) + value
    return total


def format_amount(resource: str, value: float) -> str:
    """A figure of that resource for people: memory in GiB, cores with two digits, else a count."""
    if resource.endswith(("memory", "storage")) or resource.startswith("hugepages-"):
        return f"{value / 2**30:.3g} GiB"
    return f"{value:.2f}".rstrip("0").rstrip(".")


RANKS = "ranks"
"""Value of `component` on the pods that ranks run in; an MPIJob has a launcher beside them."""
ZONE = "topology.kubernetes.io/zone"
_ORDINALS = (
    "apps.kubernetes.io/pod-index",
    "training.kubeflow.org/replica-index",
    "batch.kubernetes.io/job-completion-index",
)
"""Labels that tell a pod's number; a StatefulSet's from 1.28 on, an MPIJob's, an indexed Job's."""
_ORDINARY = ("cpu", "memory", "ephemeral-storage", "pods")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod."""

    name: str
    uid: str = ""
    node: str = ""
    """Empty while it is not scheduled."""
    zone: str = ""
    """Of its node; empty where nobody asked, or the node tells none."""
    phase: str = ""
    """Pending, Running, Succeeded, Failed or Unknown."""
    ready: bool = False
    """All containers pass their readiness probe, and it is not being deleted."""
    restarts: int = 0
    """Of container `ranks`."""
    gpus: int = 0
    """Extended resources whose name ends in /gpu, of all containers."""
    devices: Mapping[str, int]
    """All extended resources it holds, by name."""
    ip: str = ""
    ordinal: int = -1
    """Its number among the ranks' pods; -1: not one of these."""
    role: str = RANKS
    created: str = ""
    """ISO 8601, UTC."""
    revision: str = ""
    """Of the StatefulSet's template that it was made from."""
    terminating: bool = False
    status: str = ""
    """One word, as `kubectl get pods` has it: Running, ImagePullBackOff, Terminating …"""


def pods_of(kubectl: Kubectl, name: str) -> list[Pod]:
    """The environment's pods, ranks' first, in the order of their ordinals. Raises Refused."""
    return ordered(kubectl.items("get", "pods", "-l", selector_text(name)))


def ordered(items: Iterable[Mapping[str, Any]]) -> list[Pod]:
    """Pods from their JSON, the ranks' first, in the order of their ordinals."""
    pods = (pod_from(one) for one in items)
    return sorted(pods, key=lambda pod: (pod.role != RANKS, pod.ordinal, pod.name))


def zones_of(kubectl: Kubectl) -> dict[str, str]:
    """Zone by node; empty where the user may not list nodes."""
    path = (
        '{range .items[*]}{.metadata.name}{"\\t"}'
        '{.metadata.labels.topology\\.kubernetes\\.io/zone}{"\\n"}{end}'
    )
    answer = kubectl.ask("get", "nodes", "-o", f"jsonpath={path}")
    if answer.code != 0:
        return {}
    pairs = (line.partition("\t") for line in answer.out.splitlines())
    return {name: zone for name, _, zone in pairs if name}


def is_true(status: Mapping[str, Any], *kinds: str) -> bool:
    """Whether one of these conditions holds."""
    told = status.get("conditions") or ()
    return any(one.get("type") in kinds and one.get("status") == "True" for one in told)


def pod_from(told: Mapping[str, Any]) -> Pod:
    """A pod from its JSON."""
    meta, spec, status = told["metadata"], told.get("spec", {}), told.get("status", {})
    labels = meta.get("labels", {})
    role = labels.get(COMPONENT, RANKS)
    devices = {
        key: int(amount)
        for key, amount in effective_requests(spec).items()
        if key not in _ORDINARY and not key.startswith("hugepages-")
    }
    going = "deletionTimestamp" in meta
    return Pod(
        name=meta["name"],
        uid=meta.get("uid", ""),
        node=spec.get("nodeName", ""),
        phase=status.get("phase", ""),
        ready=not going and is_true(status, "Ready"),
        restarts=_ranks_container(status).get("restartCount", 0),
        gpus=sum(count for key, count in devices.items() if key.endswith("/gpu")),
        devices=devices,
        ip=status.get("podIP", ""),
        ordinal=_ordinal(meta["name"], labels) if role == RANKS else -1,
        role=role,
        created=meta.get("creationTimestamp") or "",
        revision=labels.get("controller-revision-hash", ""),
        terminating=going,
        status=_word(status, going),
    )


def effective_requests(spec: Mapping[str, Any]) -> dict[str, float]:
    """What the scheduler counts for a pod: containers together, or the largest init container.

    https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
    """

    first = list(spec.get("initContainers", ()))
    sidecars = [one for one in first if one.get("restartPolicy") == "Always"]
    asked = [*spec.get("containers", ()), *sidecars]
    total = together(amounts(_requests(one)) for one in asked)
    for one in first:
        if one not in sidecars:
            for key, amount in amounts(_requests(one)).items():
                total[key] = max(total.get(key, 0.0), amount)
    total.update(amounts(_requests(spec)))
    return together([total, amounts(spec.get("overhead", {}))])


def _requests(part: Mapping[str, Any]) -> dict[str, str]:
    """Requests of a container; what is limited only is requested as much."""
    told = part.get("resources") or {}
    return {**(told.get("limits") or {}), **(told.get("requests") or {})}


def _ranks_container(status: Mapping[str, Any]) -> Mapping[str, Any]:
    told: list[Mapping[str, Any]] = status.get("containerStatuses") or [{}]
    return next((one for one in told if one.get("name") == CONTAINER), told[0])


def _word(status: Mapping[str, Any], going: bool) -> str:
    if going:
        return "Terminating"
    for one in [*(status.get("initContainerStatuses") or ()), _ranks_container(status)]:
        state = one.get("state") or {}
        held = state.get("waiting") or state.get("terminated") or {}
        if held.get("reason") and held["reason"] != "Completed":
            return str(held["reason"])
    return str(status.get("reason") or status.get("phase") or "Unknown")


def _ordinal(name: str, labels: Mapping[str, str]) -> int:
    told = next((labels[key] for key in _ORDINALS if key in labels), name.rpartition("-")[2])
    return int(told) if told.isascii() and told.isdigit() else -1


_OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What the scheduler looks at."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    ready: bool = True
    cordoned: bool = False
    allocatable: Mapping[str, float] = field(default_factory=dict)

    @property
    def zone(self) -> str:
        return self.labels.get(ZONE, "") or self.labels.get(_OLD_ZONE, "")


def node_from(told: Mapping[str, Any]) -> Node:
    """A node from its JSON."""
    meta, spec, status = told["metadata"], told.get("spec", {}), told.get("status", {})
    return Node(
        name=meta["name"],
        labels=meta.get("labels", {}),
        taints=tuple(
            {part: one[part] for part in ("key", "value", "effect") if one.get(part)}
            for one in spec.get("taints", ())
        ),
        ready=is_true(status, "Ready"),
        cordoned=bool(spec.get("unschedulable")),
        allocatable=amounts(status.get("allocatable", {})),
    )


def nodes_of(kubectl: Kubectl) -> list[Node]:
    """All nodes. Raises Refused."""
    return [node_from(one) for one in kubectl.items("get", "nodes")]


_THERE = 'cd "$1" 2>/dev/null; shift; '
_COMMAND = _THERE + 'exec "$@"'
_SHELL = _THERE + "command -v bash >/dev/null 2>&1 && exec bash; exec sh"
_MOST_NAMED = 20


def pick_pod(pods: Sequence[Pod], wanted: str, name: str) -> Pod:
    """The pod of that number or name; "": the first one. UsageError for none, CannotMeasure where
    it does not run; name: of the environment."""
    if not pods:
        raise CannotMeasure(
            f"there are no pods of {name}",
            expected="pods that run",
            next=f"wirespeed cluster deploy {name}",
        )
    fits = [
        pod
        for pod in pods
        if wanted in ("", pod.name)
        or (wanted.isascii() and wanted.isdigit() and pod.ordinal == int(wanted))
    ]
    if not fits:
        expected = listed([pod.name for pod in pods], _MOST_NAMED)
        raise UsageError(f"--pod {wanted!r} is none of {name}", expected=expected)
    return fits[0]


def shell_words(
    kubectl: Kubectl, pod: Pod, command: Sequence[str], *, terminal: bool, folder: str
) -> tuple[str, ...]:
    """terminal: pass it through. folder: where it begins, if the pod has it.

    Without a command it is the pod's bash, or its sh, which takes commands from stdin where there is
    no terminal. CannotMeasure where the pod does not run.
    """
    if pod.phase != "Running":
        raise CannotMeasure(
            f"{pod.name} does not run: {pod.status or pod.phase}",
            expected="a pod that runs",
            next=f"{' '.join(kubectl.words('describe', 'pod', pod.name))}",
        )
    flags = ("-i", "-t") if terminal else ("-i",)
    script = (_COMMAND, "sh", folder, *command) if command else (_SHELL, "sh", folder)
    return kubectl.words("exec", *flags, pod.name, "-c", CONTAINER, "--", "sh", "-c", *script)
