"""Objects of an environment as the cluster has them: what is ours, pods, claims and events."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wirespeed.clusters.file import EngineName
from wirespeed.clusters.findings import make_finding
from wirespeed.clusters.kube import Answer, Kubectl, Refused, items_of, meaning_of, said
from wirespeed.clusters.manifests import INSTANCE, MANAGED_BY, OURS, selector_text
from wirespeed.clusters.operations.pod_lookup import RANKS, Pod, ordered
from wirespeed.model.records import Finding

CLAIMS = "persistentvolumeclaims"
_OPERATORS = (
    "mpijobs.kubeflow.org",
    "trainjobs.trainer.kubeflow.org",
    "trainingruntimes.trainer.kubeflow.org",
    "jobsets.jobset.x-k8s.io",
)
ORDINARY = (
    "statefulsets.apps",
    "jobs.batch",
    "pods",
    "services",
    "networkpolicies.networking.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "configmaps",
    "serviceaccounts",
    CLAIMS,
)
"""Of all that any engine makes, what every cluster has."""
_KINDS = (*_OPERATORS, *ORDINARY)
"""In the order in which to remove them: first what makes pods anew."""
_UNKNOWN_KIND = re.compile(r"server doesn't have a resource type \"([^\"]+)\"")


@dataclass(frozen=True, slots=True)
class Known:
    """What a look told; where some kinds may not be seen, what the others hold."""

    objects: tuple[dict[str, Any], ...]
    unseen: tuple[str, ...] = ()
    """The server's words for kinds that this user may not list."""

    def own(self) -> "Known":
        """Without what an operator or controller made of something of ours, and removes with that."""
        kept = tuple(one for one in self.objects if not _is_controlled(one))
        return Known(kept, self.unseen)


def owner_selector(name: str) -> str:
    """For `-l`: all objects of the environment, and nothing else."""
    return f"{selector_text(name)},{MANAGED_BY}={OURS}"


def is_ours(told: Mapping[str, Any], name: str) -> bool:
    """Made by wirespeed for the environment of that name."""
    labels = told["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY) == OURS and labels.get(INSTANCE) == name


def _is_controlled(told: Mapping[str, Any]) -> bool:
    return any(one.get("controller") for one in told["metadata"].get("ownerReferences") or ())


def kinds_in(kubectl: Kubectl) -> tuple[str, ...]:
    """Those of our kinds that this cluster has. Raises Refused.

    A part of discovery that fails (an aggregated API that is down) leaves the rest.
    """
    answer = kubectl.ask("api-resources", "--namespaced", "--verbs=list,delete", "-o", "name")
    there = set(answer.out.split())
    if answer.code != 0 and "pods" not in there:
        raise Refused(answer)
    return tuple(kind for kind in _KINDS if kind in there)


def labelled(kubectl: Kubectl, name: str, kinds: Sequence[str]) -> Known:
    """Everything of those kinds with our labels for that name. Raises Refused.

    What an operator made of ours is left out: it goes with that.
    """
    return found(kubectl, name, kinds).own()


def found(kubectl: Kubectl, name: str, kinds: Sequence[str]) -> Known:
    """The same with what operators and controllers made of ours. Raises Refused.

    A kind that went meanwhile (somebody removes an operator) does not hide the others.
    """
    words = ("-l", owner_selector(name), "-o", "json")
    while True:
        answer = kubectl.ask("get", ",".join(kinds), *words)
        lost = _UNKNOWN_KIND.search(answer.err) if answer.code else None
        left = [one for one in kinds if lost is None or one.partition(".")[0] != lost[1]]
        if len(left) == len(kinds) or not left:
            return _known(answer)
        kinds = left


def named(kubectl: Kubectl, objects: Sequence[Mapping[str, Any]]) -> Known:
    """Objects that are there with the same kinds and names. Raises Refused."""
    if not objects:
        return Known(())
    words = [reference(one) for one in objects]
    answer = kubectl.ask("get", *words, "--ignore-not-found", "-o", "json")
    # A kind that the cluster does not know ends the whole call; its dry run says so.
    return Known(()) if answer.code and _UNKNOWN_KIND.search(answer.err) else _known(answer)


def same_names(kubectl: Kubectl, names: Sequence[str]) -> Known:
    """Claims with these names, whoever made them: a StatefulSet would take them as its own."""
    if not names:
        return Known(())
    wanted = set(names)
    known = _known(kubectl.ask("get", CLAIMS, "-o", "json"))
    return Known(tuple(one for one in known.objects if one["metadata"]["name"] in wanted))


def reference(told: Mapping[str, Any]) -> str:
    """KIND.GROUP/NAME, as kubectl takes it."""
    group = told["apiVersion"].rpartition("/")[0]
    kind = told["kind"].lower()
    return (
        f"{kind}.{group}/{told['metadata']['name']}"
        if group
        else f"{kind}/{told['metadata']['name']}"
    )


def foreign_finding(objects: Sequence[Mapping[str, Any]], name: str) -> Finding | None:
    """CLUSTER-012 where any of these is not ours."""
    theirs = [one for one in objects if not is_ours(one, name)]
    if not theirs:
        return None
    told = [f"{one['kind']} {one['metadata']['name']}" for one in theirs]
    return make_finding(
        "foreign_finding",
        managed_by=MANAGED_BY,
        ours=OURS,
        instance=INSTANCE,
        name=name,
        title=f"somebody else's {told[0]} has the name"
        + (f", and {len(told) - 1} more" if told[1:] else ""),
        saw=", ".join(f"{one} ({_whose(two)})" for one, two in zip(told, theirs, strict=True)),
        next=f"kubectl get {reference(theirs[0])} -o yaml",
    )


def _whose(told: Mapping[str, Any]) -> str:
    labels = told["metadata"].get("labels") or {}
    owners = told["metadata"].get("ownerReferences") or ()
    if owners:
        return f"of {owners[0].get('kind')} {owners[0].get('name')}"
    if labels.get(MANAGED_BY) == OURS:
        return f"of the environment {labels.get(INSTANCE, 'without a name')}"
    return f"managed by {labels[MANAGED_BY]}" if MANAGED_BY in labels else "without such labels"


def _known(answer: Answer) -> Known:
    """A list, one object, or nothing; a kind that is forbidden does not hide the others."""
    lines = said(answer) if answer.code != 0 else ()
    if answer.code is None or any(
        not (meaning_of([line])[0].id == "CLUSTER-006") for line in lines
    ):
        raise Refused(answer)
    return Known(tuple(items_of(answer)), lines)


_MAKER_RESOURCES: dict[EngineName, str] = {
    "statefulset": "statefulsets.apps",
    "mpijob": "mpijobs.kubeflow.org",
    "trainjob": "trainjobs.trainer.kubeflow.org",
    "jobset": "jobsets.jobset.x-k8s.io",
}


_MAKER_KINDS = ("StatefulSet", "MPIJob", "TrainJob", "JobSet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What a part of the cluster said of an object."""

    uid: str
    """Of the object that it is about."""
    kind: str
    name: str
    reason: str
    message: str
    stamp: str
    """Tells a repetition from what was there before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Raw objects: their JSON."""

    makers: tuple[Mapping[str, Any], ...] = ()
    pods: tuple[Mapping[str, Any], ...] = ()
    claims: tuple[Mapping[str, Any], ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def told(self) -> list[Pod]:
        """The pods as records, ranks' first."""
        return ordered(self.pods)

    @property
    def ranks(self) -> list[Pod]:
        """Pods that ranks run in."""
        return [pod for pod in self.told if pod.role == RANKS]

    @property
    def statefulset(self) -> Mapping[str, Any] | None:
        return next((one for one in self.makers if one["kind"] == "StatefulSet"), None)

    @property
    def revision(self) -> str:
        """Of the StatefulSet's present template; empty where there is none."""
        return str((self.statefulset or {}).get("status", {}).get("updateRevision", ""))

    @property
    def is_current(self) -> bool:
        """Whether the controller has seen the StatefulSet as it is now."""
        told = self.statefulset or {"metadata": {}}
        seen = told.get("status", {}).get("observedGeneration", 0)
        return bool(seen >= told["metadata"].get("generation", 0))

    def about(self, told: Mapping[str, Any]) -> list[Event]:
        """Events of that very object, the latest last."""
        uid = told["metadata"].get("uid")
        return [one for one in self.events if one.uid == uid]


def look(kubectl: Kubectl, name: str, engine: EngineName) -> Seen:
    """One call, without events. Raises Refused."""
    return seen_from(found(kubectl, name, (_MAKER_RESOURCES[engine], "pods", CLAIMS)).objects)


def seen_from(objects: Iterable[Mapping[str, Any]]) -> Seen:
    """Sorted by kind; of what an operator made of ours only pods count."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {"Pod": [], "PersistentVolumeClaim": []}
    makers: list[Mapping[str, Any]] = []
    for one in objects:
        by_kind.get(one["kind"], makers if one["kind"] in _MAKER_KINDS else []).append(one)
    return Seen(
        makers=tuple(makers),
        pods=tuple(by_kind["Pod"]),
        claims=tuple(by_kind["PersistentVolumeClaim"]),
    )


def events_of(kubectl: Kubectl) -> tuple[Event, ...]:
    """All of the namespace; none where this user may not see them. They only tell more."""
    answer = kubectl.ask("get", "events", "-o", "json")
    if answer.code != 0 or not answer.out.strip():
        return ()
    try:
        told = [_event(one) for one in items_of(answer)]
        return tuple(sorted(told, key=lambda one: one.stamp))
    except Refused:
        return ()


def _event(told: Mapping[str, Any]) -> Event:
    about = told.get("involvedObject") or {}
    series = told.get("series") or {}
    last = (
        series.get("lastObservedTime") or told.get("lastTimestamp") or told.get("eventTime") or ""
    )
    count = series.get("count") or told.get("count") or 1
    return Event(
        uid=str(about.get("uid", "")),
        kind=str(about.get("kind", "")),
        name=str(about.get("name", "")),
        reason=str(told.get("reason", "")),
        message=" ".join(str(told.get("message", "")).split()),
        stamp=f"{last} {count} {told['metadata'].get('name', '')}",
    )
