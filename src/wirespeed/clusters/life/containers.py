"""What holds a container up: its image, its settings, its volumes, its network, or its own end."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from wirespeed.clusters.life.cause import LONG_S, SOON_S, WHILE_S, Cause
from wirespeed.clusters.life.images import IMAGE_REASONS, image_trouble
from wirespeed.clusters.life.seen import Event
from wirespeed.records import Finding

__all__ = ["container_cause", "held_container"]

_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_MISSING = re.compile(r"(secret|configmap) \"([^\"]+)\" not found", re.IGNORECASE)
_CREATING = ("ContainerCreating", "PodInitializing")


def held_container(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The first container that waits for a reason, or ended; init containers are started before."""
    told = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for one in told:
        state = one.get("state") or {}
        ended = state.get("terminated")
        if state.get("waiting") or (ended and ended.get("exitCode")):
            return dict(one)
    return None


def container_cause(
    pod: Mapping[str, Any], held: Mapping[str, Any], events: Sequence[Event]
) -> Cause | None:
    waiting = held["state"].get("waiting") or {}
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in IMAGE_REASONS:
        return _image(pod, held, reason, message, events)
    if reason in _CONFIG:
        return _unstarted(pod, reason, message)
    if reason == "CrashLoopBackOff" or held["state"].get("terminated"):
        return _crashed(pod, held)
    if reason in _CREATING:
        return _creating(pod, events)
    return None


def _image(
    pod: Mapping[str, Any],
    held: Mapping[str, Any],
    reason: str,
    message: str,
    events: Sequence[Event],
) -> Cause:
    """While it backs off a kubelet no longer says why: the event of the last try does."""
    tried = [one.message for one in events if one.message.startswith("Failed to pull image")]
    words = tried[-1] if reason == "ImagePullBackOff" and tried else message
    because, fix, patience_s = image_trouble(reason, words)
    found = Finding(
        id="CLUSTER-003",
        status="fail",
        title=f"the image {held.get('image', '')} cannot be pulled: {because}",
        saw=words or reason,
        fix=fix,
        next=f"kubectl describe pod {pod['metadata']['name']}",
    )
    return Cause(found, patience_s)


def _unstarted(pod: Mapping[str, Any], reason: str, message: str) -> Cause:
    name = pod["metadata"]["name"]
    missing = _MISSING.search(message)
    ident, title = "CLUSTER-010", f"the container of {name} cannot be started: {message or reason}"
    fix = ""
    if missing:
        ident, title = "CLUSTER-025", f"there is no {missing[1]} {missing[2]} in the namespace"
        fix = "make it, or correct its name in the cluster file"
    elif "runAsNonRoot" in message:
        fix = "an image with a user of its own, or security.run_as_user with another one than 0"
    found = Finding(
        id=ident, status="fail", title=title, saw=message or reason, fix=fix,
        next=f"kubectl describe pod {name}",
    )  # fmt: skip
    return Cause(found, WHILE_S / 2)


def _crashed(pod: Mapping[str, Any], held: Mapping[str, Any]) -> Cause:
    name = pod["metadata"]["name"]
    last = held["state"].get("terminated") or (held.get("lastState") or {}).get("terminated") or {}
    code, reason = last.get("exitCode", 0), last.get("reason", "")
    said = last.get("message", "").strip()
    because, fix = "", "see its last lines"
    if reason == "OOMKilled":
        because = "it needed more memory than resources.limits.memory"
        fix = "a larger resources.limits.memory; /dev/shm (workload.shm_size) counts too"
    elif reason in ("StartError", "ContainerCannotRun"):
        because = said.rpartition("unable to start container process: ")[2] or said
        fix = "the image must have a shell and what the pod starts with"
    found = Finding(
        id="CLUSTER-010",
        status="fail",
        title=f"the process of {name} ended with {_ending(code, reason)}",
        saw=f"started {held.get('restartCount', 0) + 1} times, {reason or 'ended'}",
        expected="a process that waits for ranks",
        because=because,
        fix=fix,
        next=f"kubectl logs {name} --previous",
        evidence=tuple(said.splitlines()[-5:]),
    )
    return Cause(found, SOON_S if held.get("restartCount", 0) == 0 else 0.0, crashed=name)


def _ending(code: int, reason: str) -> str:
    signal = f" (signal {code - 128})" if 128 < code < 192 and reason != "StartError" else ""
    return f"exit code {code}{signal}" + (", killed for memory" if reason == "OOMKilled" else "")


def _creating(pod: Mapping[str, Any], events: Sequence[Event]) -> Cause | None:
    """Volumes that do not come and networks that cannot be made are only told as events."""
    name = pod["metadata"]["name"]
    for event in reversed(events):
        if event.reason in ("FailedMount", "FailedAttachVolume"):
            if "sync secret cache" in event.message or "sync configmap cache" in event.message:
                continue
            return _unmounted(name, event)
        if event.reason in ("FailedCreatePodSandBox", "NetworkNotReady"):
            return _no_sandbox(name, event)
    return None


def _no_sandbox(name: str, event: Event) -> Cause:
    """Mostly the network's fault; else the runtime's, such as limits below what it needs itself."""
    if not re.search(r"network|cni|plugin type|multus", event.message, re.IGNORECASE):
        found = Finding(
            id="CLUSTER-010",
            status="fail",
            title=f"the runtime of its node cannot start {name}",
            saw=event.message,
            fix="limits in `resources` that leave it room; else the node's runtime is to be mended",
            next=f"kubectl describe pod {name}",
        )
        return Cause(found, LONG_S)
    found = Finding(
        id="CLUSTER-022",
        status="fail",
        title=f"the network of {name} cannot be made",
        saw=event.message,
        because="the network plugin of the node, or a Multus network that does not exist",
        next="kubectl get network-attachment-definitions --all-namespaces",
    )
    return Cause(found, LONG_S)


def _unmounted(name: str, event: Event) -> Cause:
    missing = _MISSING.search(event.message)
    if missing:
        found = Finding(
            id="CLUSTER-025",
            status="fail",
            title=f"there is no {missing[1]} {missing[2]} in the namespace",
            saw=event.message,
            fix="make it, or correct its name in the cluster file",
            next=f"kubectl describe pod {name}",
        )
        return Cause(found, WHILE_S / 2)
    found = Finding(
        id="CLUSTER-004",
        status="fail",
        title=f"a volume of {name} cannot be mounted",
        saw=event.message,
        because="the file server does not answer, the volume is held by another node, or its driver "
        "does not run on this one",
        next=f"kubectl describe pod {name}",
    )
    return Cause(found, 2 * LONG_S)
