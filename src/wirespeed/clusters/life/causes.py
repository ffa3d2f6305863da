"""Why pods are not ready: from what the cluster shows of them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from wirespeed.clusters.kube.kubectl import Answer, Kubectl
from wirespeed.clusters.kube.refusals import finding_of
from wirespeed.clusters.life.cause import FOREVER, LONG_S, SOON_S, WHILE_S, Cause
from wirespeed.clusters.life.containers import container_cause, held_container
from wirespeed.clusters.life.scheduling import finding_id, reasons
from wirespeed.clusters.life.seen import Event, Seen
from wirespeed.records import Finding

__all__ = ["Cause", "cause_findings", "causes", "last_lines", "merged"]

_MOST_NAMED, _MOST_TOLD, _MOST_LOGS, _LINES = 4, 5, 2, 5
_GOING_S = 120.0
"""How long a node that answers may take to remove a pod, before that is taken for final."""


def causes(seen: Seen, wanted: int) -> list[Cause]:
    """Of every pod and claim that is not as it should be; nothing for what merely takes its time.

    Nothing is asked of the cluster.
    """
    found = [*_makers(seen, wanted), *_claims(seen)]
    waiting = bool(found)
    ready = {pod.uid for pod in seen.told if pod.ready}
    for pod in seen.pods:
        if pod["metadata"].get("uid") in ready:
            continue
        cause = _pod(pod, seen.about(pod))
        if cause is not None and not (waiting and cause.finding.id == "CLUSTER-004"):
            found.append(replace(cause, pods=(pod["metadata"]["name"],)))
    return merged(found)


def cause_findings(kubectl: Kubectl, found: Sequence[Cause]) -> tuple[Finding, ...]:
    """With all pods that each concerns, and the last lines of some that crashed."""
    return tuple(_with_more(kubectl, one) for one in found[:_MOST_TOLD])


def last_lines(kubectl: Kubectl, pod: str) -> tuple[str, ...]:
    """What a pod's process wrote last, before its end if it was started again; empty if unknown."""
    words = ("logs", pod, "--all-containers", f"--tail={_LINES}")
    for more in (("--previous",), ()):
        answer = kubectl.ask(*words, *more, within_s=10.0)
        if answer.code == 0 and answer.out.strip():
            return tuple(line.rstrip()[:300] for line in answer.out.splitlines()[-_LINES:])
    return ()


def _with_more(kubectl: Kubectl, cause: Cause) -> Finding:
    more = [
        f"{pod}: {line}"
        for pod in (cause.pods[:_MOST_LOGS] if cause.crashed else ())
        for line in last_lines(kubectl, pod)
    ]
    if others := cause.pods[1:]:
        rest = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        more.append(f"the same holds for {', '.join(others[:_MOST_NAMED])}{rest}")
    return replace(cause.finding, evidence=(*cause.finding.evidence, *more))


def merged(found: Sequence[Cause]) -> list[Cause]:
    """One for all pods that the same holds up."""
    by_key: dict[str, Cause] = {}
    for one in found:
        known = by_key.get(one.key)
        by_key[one.key] = replace(known, pods=known.pods + one.pods) if known else one
    return list(by_key.values())


def _makers(seen: Seen, wanted: int) -> Iterator[Cause]:
    """What makes the pods says that it cannot: quota, policies, a missing account."""
    if len(seen.pods) >= wanted:
        return
    for maker in seen.makers:
        failed = [one for one in seen.about(maker) if one.reason.startswith("FailedCreate")]
        if failed:
            answer = Answer((), 1, "", failed[-1].message)
            told = finding_of(answer, next=f"kubectl describe {maker['kind']} {failed[-1].name}")
            saw = f"{len(seen.pods)} of {wanted} pods were made: {told.saw}"
            known = told if told.id != "CLUSTER-026" else replace(told, id="CLUSTER-008")
            yield Cause(replace(known, saw=saw), SOON_S)


def _claims(seen: Seen) -> Iterator[Cause]:
    for claim in seen.claims:
        phase = claim.get("status", {}).get("phase")
        if phase == "Bound":
            continue
        name = claim["metadata"]["name"]
        if phase == "Lost":
            yield _claim(name, "its volume is gone", "", 0.0)
        elif (told := [one for one in seen.about(claim) if one.kind]) and (
            cause := _unbound(claim, name, told[-1])
        ):
            yield cause


def _unbound(claim: Mapping[str, Any], name: str, event: Event) -> Cause | None:
    wanted = claim.get("spec", {}).get("storageClassName", "")
    if re.search(r"storageclass\S* \"[^\"]*\" not found", event.message):
        fix = "storage.class_rwx or storage.class_rwo names one that exists"
        cause = _claim(name, f"there is no storage class {wanted}", event.message, 0.0)
        return replace(cause, finding=replace(cause.finding, fix=fix))
    if event.reason == "FailedBinding":
        return _claim(name, "no storage class is set, and no volume fits", event.message, SOON_S)
    if event.reason == "ProvisioningFailed":
        return _claim(name, "its volume could not be made", event.message, WHILE_S)
    if event.reason == "ExternalProvisioning":
        because = f"nothing has provisioned it so far (class {wanted})"
        return _claim(name, because, event.message, 2 * LONG_S)
    return None


def _claim(name: str, because: str, saw: str, patience_s: float) -> Cause:
    found = Finding(
        id="CLUSTER-004",
        status="fail",
        title=f"the claim {name} is not bound: {because}",
        saw=saw,
        expected="bound, or waiting for its first pod",
        next="kubectl get storageclasses",
    )
    return Cause(found, patience_s, (name,))


def _pod(pod: Mapping[str, Any], events: Sequence[Event]) -> Cause | None:
    status, name = pod.get("status", {}), pod["metadata"]["name"]
    silent = any(one.reason in ("NodeNotReady", "TaintManagerEviction") for one in events[-3:])
    if "deletionTimestamp" in pod["metadata"]:
        return _stuck(pod, silent)
    if status.get("phase") == "Failed" and status.get("reason"):
        return _lost(name, pod, f"{status['reason']}: {status.get('message', '')}", WHILE_S)
    if silent:
        return _lost(name, pod, "its node does not answer", WHILE_S)
    if not pod.get("spec", {}).get("nodeName"):
        return _unscheduled(pod, events)
    held = held_container(status)
    if held is not None:
        return container_cause(pod, held, events)
    return _unhealthy(name, events) if status.get("phase") == "Running" else None


def _stuck(pod: Mapping[str, Any], silent: bool) -> Cause | None:
    """A pod is gone soon after its grace, of which `deletionTimestamp` is the end.

    Soon is a matter of the node: a healthy kubelet keeps a pod whose image never came for 45 s more.
    """
    try:
        end = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])
    except ValueError:
        return None
    if (datetime.now(UTC) - end).total_seconds() < (LONG_S if silent else 2 * LONG_S):
        return None
    why = "it is being removed, and its node does not say that it is gone"
    name = pod["metadata"]["name"]
    return _lost(name, pod, why, WHILE_S) if silent else _slow(name, pod, why)


def _slow(name: str, pod: Mapping[str, Any], why: str) -> Cause:
    """Its node answers: something on it holds the pod."""
    cause = _lost(name, pod, why, _GOING_S)
    because = "a volume that cannot be unmounted or a process that cannot be ended holds it there"
    fix = "read what the node's kubelet says of it; the pod is replaced as soon as it is gone"
    return replace(cause, finding=replace(cause.finding, because=because, fix=fix))


def _lost(name: str, pod: Mapping[str, Any], why: str, patience_s: float) -> Cause:
    node = pod.get("spec", {}).get("nodeName", "")
    found = Finding(
        id="CLUSTER-013",
        status="fail",
        title=f"{name} is lost: {why.strip(' :')}",
        saw=f"on node {node}" if node else "",
        because="the node went down or was cut off, or had too little memory or disk",
        fix="mend the node, or leave it out: it is replaced as soon as the cluster gives the node up",
        next=f"kubectl describe node {node}" if node else "kubectl get nodes",
    )
    return Cause(found, patience_s)


def _unscheduled(pod: Mapping[str, Any], events: Sequence[Event]) -> Cause | None:
    name, spec = pod["metadata"]["name"], pod.get("spec", {})
    told = next(
        (one for one in pod["status"].get("conditions") or () if one["type"] == "PodScheduled"),
        None,
    )
    if any(one.reason in ("TriggeredScaleUp", "Nominated") for one in events):
        return None
    if told is None:
        scheduler = spec.get("schedulerName", "default-scheduler")
        text = f"no scheduler has looked at it: does {scheduler} run (workload.scheduler)?"
        return _schedule("CLUSTER-009", f"{name}: {text}", "", (), LONG_S)
    if told.get("reason") == "SchedulingGated":
        text = "it waits to be let in (Kueue: workload.queue)"
        return _schedule("CLUSTER-009", f"{name}: {text}", told.get("message", ""), (), FOREVER)
    message = told.get("message", "")
    found = reasons(message)
    short = ", ".join(f"{one.nodes} {one.words}" for one in found) or message
    evidence = tuple(str(one) for one in found)
    title = f"{name} cannot be scheduled: {short}"
    return _schedule(finding_id(found), title, message, evidence, LONG_S)


def _schedule(
    ident: str, title: str, saw: str, evidence: tuple[str, ...], patience_s: float
) -> Cause:
    found = Finding(
        id=ident,
        status="fail",
        title=title,
        saw=saw,
        expected="a node for each pod",
        next="kubectl get nodes",
        evidence=evidence,
    )
    return Cause(found, patience_s)


def _unhealthy(name: str, events: Sequence[Event]) -> Cause | None:
    told = [one for one in events if one.reason == "Unhealthy" and "eadiness" in one.message]
    if not told:
        return None
    found = Finding(
        id="CLUSTER-017",
        status="fail",
        title=f"{name} runs and is not ready",
        saw=told[-1].message,
        next=f"kubectl describe pod {name}",
    )
    return Cause(found, FOREVER)
