"""One look at an environment: its pods, its claims, what makes the pods, and what was said of them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wirespeed.clusters.file.model import EngineName
from wirespeed.clusters.kube.kubectl import Kubectl, Refused, items_of
from wirespeed.clusters.life.owned import CLAIMS, found
from wirespeed.clusters.life.pods import RANKS, Pod, ordered

__all__ = ["Event", "Seen", "events_of", "look", "seen_from"]

_MAKERS: dict[EngineName, str] = {
    "statefulset": "statefulsets.apps",
    "mpijob": "mpijobs.kubeflow.org",
    "trainjob": "trainjobs.trainer.kubeflow.org",
    "jobset": "jobsets.jobset.x-k8s.io",
}


_KINDS = ("StatefulSet", "MPIJob", "TrainJob", "JobSet")


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

    def about(self, told: Mapping[str, Any]) -> list[Event]:
        """Events of that very object, the latest last."""
        uid = told["metadata"].get("uid")
        return [one for one in self.events if one.uid == uid]


def look(kubectl: Kubectl, name: str, engine: EngineName) -> Seen:
    """One call, without events. Raises Refused."""
    return seen_from(found(kubectl, name, (_MAKERS[engine], "pods", CLAIMS)).objects)


def seen_from(objects: Iterable[Mapping[str, Any]]) -> Seen:
    """Sorted by kind; of what an operator made of ours only pods count."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {"Pod": [], "PersistentVolumeClaim": []}
    makers: list[Mapping[str, Any]] = []
    for one in objects:
        by_kind.get(one["kind"], makers if one["kind"] in _KINDS else []).append(one)
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
        return _events(items_of(answer))
    except Refused:
        return ()


def _events(items: Iterable[Mapping[str, Any]]) -> tuple[Event, ...]:
    told = (_event(one) for one in items)
    return tuple(sorted(told, key=lambda one: one.stamp))


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
