"""Waiting for readiness within a bound, and saying why a pod does not come."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.kube.kubectl import Kubectl
from wirespeed.clusters.life.cause import Cause
from wirespeed.clusters.life.causes import cause_findings, causes
from wirespeed.clusters.life.pods import Pod
from wirespeed.clusters.life.seen import Event, Seen, events_of, look
from wirespeed.clusters.telling import Progress
from wirespeed.records import Finding
from wirespeed.units import format_duration

__all__ = ["Waited", "ready_pods", "wait"]

_EVENTS_FROM_S, _EVENTS_EVERY_S = 2.0, 2.0
"""Most pods are ready before anybody needs to ask why not."""
_WAKE_S, _WOKEN = 1.0, "wirespeed/woken"
_OPERATOR_S = 20.0
"""An operator that runs has made the first pod by then."""


@dataclass(frozen=True, slots=True)
class Waited:
    """How it ended: no findings, when all pods are ready."""

    pods: tuple[Pod, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True)
class _Course:
    """What is remembered from look to look; times are seconds since the start."""

    began: float = field(default_factory=time.monotonic)
    events: tuple[Event, ...] = ()
    asked_at: float = 0.0
    since: dict[str, float] = field(default_factory=dict)
    """When each cause was first seen, of those that are there still."""
    replaced: set[str] = field(default_factory=set)
    woken: bool = False
    text: str = ""

    @property
    def now(self) -> float:
        return time.monotonic() - self.began


def wait(
    kubectl: Kubectl,
    deployment: Deployment,
    progress: Progress,
    *,
    within_s: float,
    stale: frozenset[str] = frozenset(),
) -> Waited:
    """Until all pods are ready, a cause is final, or the time is over. Raises Refused.

    stale: stamps of events that are older than what was just applied.
    """
    course = _Course()
    while True:
        seen = look(kubectl, deployment.name, deployment.engine)
        ready = ready_pods(seen, deployment)
        if len(ready) >= deployment.nodes:
            return Waited(tuple(ready))
        _replace_old(kubectl, seen, course, progress)
        _wake(kubectl, seen, deployment, course)
        found = _why(kubectl, seen, deployment, course, stale)
        final = [one for one in found if course.now - course.since[one.key] >= one.patience_s]
        if final or course.now >= within_s:
            told = cause_findings(kubectl, final or found) or (_late(deployment, seen, within_s),)
            return Waited(tuple(seen.told), told)
        _tell(progress, course, seen, deployment, ready, found)
        time.sleep(min(_pause(course.now), max(0.0, within_s - course.now)))


def ready_pods(seen: Seen, deployment: Deployment) -> list[Pod]:
    """Pods of the present template that are ready; none before the controller has seen it."""
    maker = next((one for one in seen.makers if one["kind"] == "StatefulSet"), None)
    ready = [pod for pod in seen.ranks if pod.ready]
    if deployment.engine != "statefulset":
        return ready
    if maker is None or not _is_current(maker):
        return []
    revision = maker["status"].get("updateRevision", "")
    return [
        pod
        for pod in ready
        if pod.revision == revision and 0 <= pod.ordinal < maker["spec"]["replicas"]
    ]


def _is_current(maker: Any) -> bool:
    status = maker.get("status", {})
    return bool(status.get("observedGeneration", 0) >= maker["metadata"].get("generation", 0))


def _replace_old(kubectl: Kubectl, seen: Seen, course: _Course, progress: Progress) -> None:
    """A StatefulSet replaces one pod after the other, and each of the new ones waits for its ranks.

    All at once is as well: no rank can work while another's pod is replaced.
    """
    for maker in seen.makers:
        revision = maker.get("status", {}).get("updateRevision")
        if maker["kind"] != "StatefulSet" or not revision or not _is_current(maker):
            continue
        old = [
            pod.name
            for pod in seen.ranks
            if pod.revision not in ("", revision)
            and not pod.terminating
            and pod.uid not in course.replaced
        ]
        course.replaced.update(pod.uid for pod in seen.ranks if pod.name in old)
        if old:
            progress.phase(f"replacing {_named(old)}: the template has changed")
            kubectl.do("delete", "pods", *old, "--wait=false", "--ignore-not-found")


def _wake(kubectl: Kubectl, seen: Seen, deployment: Deployment, course: _Course) -> None:
    """A controller that was refused pods asks again ever more seldom; a change makes it ask at once."""
    makers = [one for one in seen.makers if one["kind"] == "StatefulSet"]
    if course.woken or course.now < _WAKE_S or not makers or len(seen.pods) >= deployment.nodes:
        return
    course.woken = True
    stamp = f"{_WOKEN}={int(time.time())}"
    kubectl.ask("annotate", "--overwrite", f"statefulsets.apps/{deployment.name}", stamp)


def _why(
    kubectl: Kubectl,
    seen: Seen,
    deployment: Deployment,
    course: _Course,
    stale: frozenset[str],
) -> list[Cause]:
    """What holds pods up now, with the time since when in `course`."""
    if course.now >= _EVENTS_FROM_S and course.now - course.asked_at >= _EVENTS_EVERY_S:
        course.events = tuple(one for one in events_of(kubectl) if one.stamp not in stale)
        course.asked_at = course.now
    found = causes(replace(seen, events=course.events), deployment.nodes)
    if not seen.pods and not found and deployment.engine != "statefulset":
        found = [_no_operator(deployment)]
    keys = {one.key for one in found}
    course.since = {key: when for key, when in course.since.items() if key in keys}
    for key in keys:
        course.since.setdefault(key, course.now)
    return found


def _no_operator(deployment: Deployment) -> Cause:
    finding = Finding(
        id="CLUSTER-016",
        status="fail",
        title=f"nothing makes pods of the {deployment.engine}",
        saw=f"no pod of {deployment.name}",
        expected="the operator's first pod within seconds",
        because="the operator does not run or watch this namespace, or a queue holds the job back",
        next=f"kubectl describe {deployment.engine} {deployment.name}",
    )
    return Cause(finding, float("inf") if deployment.file.workload.queue else _OPERATOR_S)


def _late(deployment: Deployment, seen: Seen, within_s: float) -> Finding:
    states = [f"{pod.name}: {pod.status}" for pod in seen.ranks if not pod.ready]
    ready = sum(pod.ready for pod in seen.ranks)
    return Finding(
        id="CLUSTER-017",
        status="fail",
        title=f"{ready} of {deployment.nodes} pods are ready after {format_duration(within_s)}",
        saw=", ".join(states[:5]) or "no pods",
        expected=f"{deployment.nodes} ready pods within --timeout",
        because="no cause is known: an image may still be pulled, or nodes are slow",
        fix="the same command goes on waiting",
        next=f"wirespeed cluster status {deployment.name}",
    )


def _tell(
    progress: Progress,
    course: _Course,
    seen: Seen,
    deployment: Deployment,
    ready: Sequence[Pod],
    found: Sequence[Cause],
) -> None:
    names = {pod.name for pod in ready}
    waiting = [pod for pod in seen.ranks if pod.name not in names]
    state = f"; {waiting[0].name}: {waiting[0].status}" if waiting else ""
    if found:
        state = f"; {found[0].finding.title}"
    text = f"{len(ready)} of {deployment.nodes} pods are ready{state}"
    if text != course.text:
        progress.phase(text)
        course.text = text


def _pause(elapsed_s: float) -> float:
    return 0.25 if elapsed_s < 10 else 0.5 if elapsed_s < 60 else 2.0


def _named(names: Sequence[str]) -> str:
    more = len(names) - 4
    return ", ".join(names[:4]) + (f" and {more} more" if more > 0 else "")
