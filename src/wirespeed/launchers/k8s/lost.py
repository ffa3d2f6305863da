"""Why pods were lost while ranks ran in them, as the API server knows it."""

from collections.abc import Mapping, Sequence
from typing import Any

from wirespeed.clusters.deployment import CONTAINER
from wirespeed.clusters.kube.kubectl import Kubectl
from wirespeed.launchers.k8s.words import by_hand
from wirespeed.records import Finding, Subject

__all__ = ["Place", "why_lost"]

_CALL_S = 10.0
_MOST = 8
_EVENTS = 4
Place = tuple[str, str, int]
"""A pod's uid, its node and its restarts, as they were when ranks were started there."""


def why_lost(
    kubectl: Kubectl, places: Mapping[str, Place], names: Sequence[str]
) -> tuple[Finding, ...]:
    """A finding for each of these pods that is not as it was; none where nobody can tell."""
    found = []
    for name in list(names)[:_MOST]:
        if name in places and (one := _look(kubectl, name, places[name])):
            found.append(one)
    return tuple(found)


def _look(kubectl: Kubectl, name: str, place: Place) -> Finding | None:
    uid, node, restarts = place
    answer = kubectl.ask("get", "pod", name, "--ignore-not-found", "-o", "json", within_s=_CALL_S)
    if answer.code != 0:
        return None
    pod = _json(answer.out)
    if not pod or pod["metadata"].get("uid") != uid:
        what = "it is gone" if not pod else "another pod of that name has taken its place"
        return _lost(kubectl, name, uid, node, "was deleted", what)
    if why := _ended(pod, restarts):
        return _lost(kubectl, name, uid, node, why[0], why[1])
    if node and (why := _node_trouble(kubectl, node)):
        return _lost(kubectl, name, uid, node, why[0], why[1])
    return None


def _ended(pod: Mapping[str, Any], restarts: int) -> tuple[str, str] | None:
    """(what happened, the cluster's words); None: the pod is as it was."""
    status = pod.get("status") or {}
    if status.get("reason"):
        return f"was lost: {status['reason']}", str(status.get("message") or status["reason"])
    over = _terminated(status, restarts)
    reason = over.get("reason") or "ended"
    saw = f"container {CONTAINER}: {reason}, exit code {over.get('exitCode')}"
    if over and reason == "OOMKilled":
        return f"ended: {reason}", saw
    if "deletionTimestamp" in pod["metadata"]:
        return "is being deleted", f"by {pod['metadata']['deletionTimestamp']}"
    return (f"ended: {reason}", saw) if over else None


def _terminated(status: Mapping[str, Any], restarts: int) -> Mapping[str, Any]:
    """How the ranks' container ended since then; empty: it did not."""
    for one in status.get("containerStatuses") or ():
        if one.get("name") == CONTAINER:
            again = one.get("restartCount", 0) > restarts
            last = (one.get("lastState") or {}).get("terminated") if again else None
            return (one.get("state") or {}).get("terminated") or last or {}
    return {}


def _node_trouble(kubectl: Kubectl, node: str) -> tuple[str, str] | None:
    answer = kubectl.ask("get", "node", node, "--ignore-not-found", "-o", "json", within_s=_CALL_S)
    if answer.code != 0:
        return None
    told = _json(answer.out)
    if not told:
        return f"was lost with its node {node}", f"the node {node} is gone"
    for one in (told.get("status") or {}).get("conditions") or ():
        if one.get("type") == "Ready" and one.get("status") != "True":
            saw = one.get("message") or one.get("reason") or "not Ready"
            return f"was lost with its node {node}, which is not Ready", str(saw)
    return None


def _lost(kubectl: Kubectl, name: str, uid: str, node: str, what: str, saw: str) -> Finding:
    events = _events(kubectl, uid)
    return Finding(
        id="CLUSTER-013",
        status="fail",
        title=f"pod {name} {what}",
        subject=Subject("node", name),
        saw=saw,
        expected=f"the pod that ranks were started in, on {node}" if node else "the same pod",
        because=events[-1] if events else "",
        costs="its ranks are gone, and the others were ended",
        fix=_FIXES.get(what, "see what its node and its events tell"),
        next=by_hand(kubectl, "describe", "pod", name),
        evidence=tuple(events[:-1]),
    )


_FIXES = {
    "ended: OOMKilled": "a higher limit of memory (resources.limits.memory; /dev/shm counts), or "
    "smaller sizes",
    "was lost: Evicted": "ask for what the pod needs (resources.requests), so that its node is not "
    "overfull",
}


def _events(kubectl: Kubectl, uid: str) -> list[str]:
    """What the cluster noted of that pod, the last one last, without the everyday ones."""
    which = f"involvedObject.uid={uid}"
    answer = kubectl.ask(
        "get", "events", f"--field-selector={which}", "-o", "json", within_s=_CALL_S
    )
    if answer.code != 0:
        return []
    found = _json(answer.out).get("items") or []
    told = [one for one in found if one.get("reason") not in _EVERYDAY]
    told.sort(key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))
    return [f"{one.get('reason')}: {one.get('message')}" for one in told[-_EVENTS:]]


_EVERYDAY = ("Scheduled", "Pulled", "Pulling", "Created", "Started", "SuccessfulAttachVolume")


def _json(text: str) -> dict[str, Any]:
    import json

    try:
        told = json.loads(text or "{}")
    except (RecursionError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}
