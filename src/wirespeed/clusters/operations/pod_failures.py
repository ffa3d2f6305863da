"""Why pods are not ready: from the snapshot, and from the words of the scheduler.

The scheduler writes `0/3 nodes are available: 2 Insufficient cpu, 1 node(s) …`:
https://kubernetes.io/docs/concepts/scheduling-eviction/ and pkg/scheduler/framework of Kubernetes;
the words are those of 1.20 to 1.33.

Why a container does not run: image, settings, volumes, network, or its own end.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from wirespeed.clusters.findings import Trouble, make_finding, meanings
from wirespeed.clusters.kube import Answer, Kubectl, finding_of
from wirespeed.clusters.operations.snapshot import Event, Seen
from wirespeed.model.records import Finding
from wirespeed.model.units import counted, listed

FOREVER = float("inf")
SOON_S, WHILE_S, LONG_S = 3.0, 15.0, 30.0


@dataclass(frozen=True, slots=True)
class Cause:
    """Why one pod is not ready."""

    finding: Finding
    patience_s: float
    """How long it may last before it is taken for final."""
    pods: tuple[str, ...] = ()
    crashed: str = ""
    """The pod whose last lines tell more."""

    @property
    def key(self) -> str:
        """Equal for pods that the same holds up."""
        text = self.finding.title + self.finding.because
        for pod in self.pods:
            text = text.replace(pod, "POD")
        return f"{self.finding.id} {text}"


def _cause(
    entry: str, patience_s: float, *, pods: tuple[str, ...] = (), crashed: str = "", **values: Any
) -> Cause:
    """Of an entry of findings.yaml."""
    return Cause(make_finding(entry, **values), patience_s, pods, crashed)


IMAGE_REASONS = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        *("ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"),
    }
)
"""Of a waiting container, as kubelets tell them."""


def _fitting(rows: Sequence[Trouble], words: str) -> list[Trouble]:
    """The first row counts."""
    return [row for row in rows if re.search(row.says, words)]


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
    return _creating(pod["metadata"]["name"], events) if reason in _CREATING else None


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
    trouble = _fitting(meanings().images, f"{reason} {words}")[0]
    name, image = pod["metadata"]["name"], held.get("image", "")
    texts: dict[str, Any] = {"why": trouble.because, "saw": words or reason, "fix": trouble.fix}
    return _cause("image_pull", trouble.patience_s, name=name, image=image, **texts)


def _unstarted(pod: Mapping[str, Any], reason: str, message: str) -> Cause:
    name, why = pod["metadata"]["name"], message or reason
    if missing := _MISSING.search(message):
        return _cause("no_object", WHILE_S / 2, name=name, missing=missing, saw=why)
    user = "an image with a user of its own, or security.run_as_user with another one than 0"
    fix = user if "runAsNonRoot" in message else ""
    return _cause("unstarted", WHILE_S / 2, name=name, saw=why, why=why, fix=fix)


def _creating(name: str, events: Sequence[Event]) -> Cause | None:
    """Volumes that do not come and networks that cannot be made are only told as events."""
    for event in reversed(events):
        saw = event.message
        if event.reason in ("FailedMount", "FailedAttachVolume"):
            if "sync secret cache" in saw or "sync configmap cache" in saw:
                continue
            if missing := _MISSING.search(saw):
                return _cause("no_object", WHILE_S / 2, name=name, missing=missing, saw=saw)
            return _cause("unmounted", 2 * LONG_S, name=name, saw=saw)
        if event.reason in ("FailedCreatePodSandBox", "NetworkNotReady"):
            # Mostly the network's fault; else the runtime's, such as limits below what it needs.
            of_network = re.search(r"network|cni|plugin type|multus", saw, re.IGNORECASE)
            return _cause("no_network" if of_network else "no_sandbox", LONG_S, name=name, saw=saw)
    return None


def _crashed(pod: Mapping[str, Any], held: Mapping[str, Any]) -> Cause:
    name = pod["metadata"]["name"]
    last = held["state"].get("terminated") or (held.get("lastState") or {}).get("terminated") or {}
    code, reason = last.get("exitCode", 0), last.get("reason", "")
    said = last.get("message", "").strip()
    trouble = _fitting(meanings().ends, reason)[0]
    again = held.get("restartCount", 0)
    words = said.rpartition("unable to start container process: ")[2] or said
    return _cause(
        "crashed",
        0.0 if again else trouble.patience_s,
        crashed=name,
        name=name,
        how=_ending(code, reason),
        saw=f"started {again + 1} times, {reason or 'ended'}",
        because=trouble.because.format(said=words),
        fix=trouble.fix,
        evidence=tuple(said.splitlines()[-5:]),
    )


def _ending(code: int, reason: str) -> str:
    signal = f" (signal {code - 128})" if 128 < code < 192 and reason != "StartError" else ""
    return f"exit code {code}{signal}" + (", killed for memory" if reason == "OOMKilled" else "")


_HEAD = re.compile(r"\d+/\d+ nodes are available:? ?(.*)", re.DOTALL)
_TAIL = re.compile(r"\.? (?:preemption|no new claims to deallocate).*", re.DOTALL)
_ONE = re.compile(r"(\d+) (.+?)(?=, \d+ |$)")
_GRAVEST = tuple(f"CLUSTER-{number}" for number in ("004", "001", "009", "013", "002"))
"""Which id names a mixture: nodes that our own pods take are no cause while others could take one."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why so many nodes take the pod not."""

    nodes: int
    words: str
    meaning: str
    id: str

    def __str__(self) -> str:
        told = f": {self.meaning}" if self.meaning else ""
        return f"{counted(self.nodes, 'node')}: {self.words}{told}"


def reasons(message: str) -> tuple[Reason, ...]:
    """Empty where the message has another form."""
    match = _HEAD.search(" ".join(message.split()))
    if match is None:
        return ()
    told = _TAIL.sub("", match[1]).rstrip(". ")
    return tuple(_reason(int(count), words.strip()) for count, words in _ONE.findall(told))


def finding_id(found: tuple[Reason, ...]) -> str:
    """Of the finding that tells them together."""
    there = {one.id for one in found}
    return next((one for one in _GRAVEST if one in there), "CLUSTER-009")


def _reason(nodes: int, words: str) -> Reason:
    for row in meanings().scheduling:
        if match := re.search(row.says, words):
            return Reason(nodes, words, row.because.format(*match.groups()), row.id)
    return Reason(nodes, words, "", "CLUSTER-009")


_MOST_TOLD, _MOST_LOGS, _LINES = 5, 2, 5
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
        more.append(f"the same holds for {listed(others)}")
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
        elif told := [one for one in seen.about(claim) if one.kind]:
            words = f"{told[-1].reason} {told[-1].message}"
            for trouble in _fitting(meanings().claims, words)[:1]:
                wanted = claim.get("spec", {}).get("storageClassName", "")
                why = trouble.because.format(storage_class=wanted)
                yield _claim(name, why, told[-1].message, trouble.patience_s, trouble.fix)


def _claim(name: str, why: str, saw: str, patience_s: float, fix: str = "") -> Cause:
    return _cause("claim", patience_s, pods=(name,), name=name, why=why, saw=saw, fix=fix)


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
    if silent:
        return _lost(name, pod, why, WHILE_S)
    # Its node answers: something on it holds the pod.
    return _lost(name, pod, why, _GOING_S, "slow")


def _lost(
    name: str, pod: Mapping[str, Any], why: str, patience_s: float, entry: str = "lost"
) -> Cause:
    node = pod.get("spec", {}).get("nodeName", "")
    return _cause(
        entry,
        patience_s,
        name=name,
        why=why.strip(" :"),
        saw=f"on node {node}" if node else "",
        next=f"kubectl describe node {node}" if node else "kubectl get nodes",
    )


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
    cause = _cause("unscheduled", patience_s, title=title, saw=saw, evidence=evidence)
    return replace(cause, finding=replace(cause.finding, id=ident))


def _unhealthy(name: str, events: Sequence[Event]) -> Cause | None:
    told = [one for one in events if one.reason == "Unhealthy" and "eadiness" in one.message]
    return _cause("unhealthy", FOREVER, name=name, saw=told[-1].message) if told else None
