"""Pods as nodes: the only module of `clusters` that launchers import.

An environment's pods are looked up, and entered by kubectl (`Kubectl.exec_words`); an environment
that is made for one job is planned here, made and taken away by an `Ephemeral`.

Why pods were lost while ranks ran in them, as the API server knows it.

Is the shared volume shared? One pod writes, all others read it: seconds, size, and who does not.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, convert

from wirespeed.clusters.deployment import CONTAINER, Deployment, settle
from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.findings import make_finding
from wirespeed.clusters.kube import (
    Answer,
    Kubectl,
    Refused,
    finding_of,
    kubectl_of,
    wrong_server,
)
from wirespeed.clusters.manifests import hosts, master, selector_text, slots
from wirespeed.clusters.operations.lease import Ephemeral, commands_of
from wirespeed.clusters.operations.pod_lookup import RANKS, Pod, pod_from, zones_of
from wirespeed.clusters.reading import read_named
from wirespeed.errors import CannotMeasure
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import counted, format_duration, format_size

__all__ = [
    "CONTAINER",
    "WORKSPACE",
    "Answer",
    "ClusterFile",
    "Deployment",
    "Environment",
    "Kubectl",
    "Place",
    "Pod",
    "Refused",
    "commands_of",
    "environment_of",
    "ephemeral_of",
    "finding_of",
    "hosts",
    "master",
    "open_cluster",
    "settle",
    "shared_findings",
    "slots",
    "why_lost",
    "wrong_server",
    "zones_of",
]

_CALL_S = 10.0
_MOST = 8
_EVENTS = 4
Place = tuple[str, str, int]
"""A pod's uid, its node and its restarts, as they were when ranks were started there."""


def why_lost(
    kubectl: Kubectl, places: Mapping[str, Place], names: Sequence[str]
) -> tuple[Finding, ...]:
    """A finding for each of these pods that is not as it was; none where nobody can tell."""
    known = [name for name in list(names)[:_MOST] if name in places]
    told = ((name, _trouble(kubectl, name, places[name])) for name in known)
    return tuple(_lost(kubectl, name, places[name], *why) for name, why in told if why)


def _known(kubectl: Kubectl, *words: str) -> dict[str, Any] | None:
    """What the API server tells of it, soon; None where it does not."""
    try:
        return kubectl.json("get", *words, within_s=_CALL_S)
    except Refused:
        return None


def _trouble(kubectl: Kubectl, name: str, place: Place) -> tuple[str, str] | None:
    """(what happened, the cluster's words); None: the pod is as it was, or nobody can tell."""
    uid, node, restarts = place
    pod = _known(kubectl, "pod", name, "--ignore-not-found")
    if pod is None:
        return None
    if not pod:
        return "was deleted", "it is gone"
    if pod["metadata"].get("uid") != uid:
        return "was deleted", "another pod of that name has taken its place"
    return _ended(pod, restarts) or (_node_trouble(kubectl, node) if node else None)


def _ended(pod: Mapping[str, Any], restarts: int) -> tuple[str, str] | None:
    status = pod.get("status", {})
    if reason := status.get("reason"):
        return f"was lost: {reason}", status.get("message") or reason
    over = _terminated(status, restarts)
    reason = over.get("reason") or "ended"
    saw = f"container {CONTAINER}: {reason}, exit code {over.get('exitCode')}"
    if "deletionTimestamp" in pod["metadata"] and reason != "OOMKilled":
        return "is being deleted", f"by {pod['metadata']['deletionTimestamp']}"
    return (f"ended: {reason}", saw) if over else None


def _terminated(status: Mapping[str, Any], restarts: int) -> Mapping[str, Any]:
    """How the ranks' container ended since then; empty: it did not."""
    for one in status.get("containerStatuses", ()):
        if one["name"] == CONTAINER:
            again = one.get("restartCount", 0) > restarts
            last = one.get("lastState", {}).get("terminated") if again else None
            return one.get("state", {}).get("terminated") or last or {}
    return {}


def _node_trouble(kubectl: Kubectl, node: str) -> tuple[str, str] | None:
    told = _known(kubectl, "node", node, "--ignore-not-found")
    if told is None:
        return None
    if not told:
        return f"was lost with its node {node}", f"the node {node} is gone"
    for one in told.get("status", {}).get("conditions", ()):
        if one["type"] == "Ready" and one["status"] != "True":
            saw = one.get("message") or one.get("reason") or "not Ready"
            return f"was lost with its node {node}, which is not Ready", saw
    return None


def _lost(kubectl: Kubectl, name: str, place: Place, what: str, saw: str) -> Finding:
    uid, node, _ = place
    events = _events(kubectl, uid)
    return make_finding(
        "pods_lost",
        name=name,
        what=what,
        saw=saw,
        expected=f"the pod that ranks were started in, on {node}" if node else "the same pod",
        because=events[-1] if events else "",
        fix=_FIXES.get(what, "see what its node and its events tell"),
        next=kubectl.by_hand("describe", "pod", name),
        subject=Subject("node", name),
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
    found = _known(kubectl, "events", f"--field-selector=involvedObject.uid={uid}") or {}
    told = [one for one in found.get("items", ()) if one.get("reason") not in _EVERYDAY]
    told.sort(key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))
    return [f"{one.get('reason')}: {one.get('message')}" for one in told[-_EVENTS:]]


_EVERYDAY = ("Scheduled", "Pulled", "Pulling", "Created", "Started", "SuccessfulAttachVolume")


SIZE = 8 << 20
"""Bytes: enough to see that data come through, and little on any file server."""
_SEEN_WITHIN_S = 15.0
"""How long a file may take to be seen elsewhere; NFS clients believe an old listing for seconds."""
_WITHIN_S = 60.0
_AT_ONCE = 16
_WRITE = """\
import hashlib, json, os, sys, time
path, size, begin = sys.argv[1], int(sys.argv[2]), time.monotonic()
data = os.urandom(size)
handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
with open(handle, "wb") as file:
    file.write(data)
    file.flush()
    os.fsync(handle)
print(json.dumps({"seconds": time.monotonic() - begin, "hash": hashlib.sha256(data).hexdigest()}))
"""
_READ = """\
import hashlib, json, os, sys, time
path, size, bound, begin = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), time.monotonic()
seen = 0
while time.monotonic() - begin < bound:
    try:
        os.listdir(os.path.dirname(path))
        seen = os.stat(path).st_size
    except OSError:
        seen = 0
    if seen >= size:
        break
    time.sleep(0.1)
waited, begin = time.monotonic() - begin, time.monotonic()
data = open(path, "rb").read() if seen else b""
told = {"seconds": time.monotonic() - begin, "waited": waited, "bytes": len(data)}
print(json.dumps({**told, "hash": hashlib.sha256(data).hexdigest()}))
"""
_REMOVE = "import os, sys; os.unlink(sys.argv[1])"


class _Told(Struct, kw_only=True):
    """What one pod said; `why` where it said nothing that can be read."""

    pod: str
    why: str = ""
    seconds: float = 0.0
    hash: str = ""
    waited: float = 0.0
    bytes: int = 0


def shared_findings(
    kubectl: Kubectl, pods: Sequence[str], python: str, folder: str, *, size: int = SIZE
) -> list[Finding]:
    """CLUSTER-047 for a folder that all these pods share; nothing where there is one pod only.

    Bounded by a minute for writing and one for reading; the file is removed whatever happens.
    """
    if len(pods) < 2:
        return []
    first, *others = pods
    path = f"{folder.rstrip('/')}/.wirespeed-shared-{secrets.token_hex(8)}"

    def run(pod: str, program: str, *words: str) -> _Told:
        far = (python, "-I", "-c", program, path, *words)
        answer = kubectl.ask("exec", "-i", pod, "-c", CONTAINER, "--", *far, within_s=_WITHIN_S)
        return _told(pod, answer)

    wrote = run(first, _WRITE, str(size))
    if wrote.why:
        who = Subject("node", first)
        return [make_finding("unwritten", wrote=wrote, folder=folder, saw=wrote.why, subject=who)]
    try:
        with ThreadPoolExecutor(min(_AT_ONCE, len(others))) as threads:
            words = (_READ, str(size), str(_SEEN_WITHIN_S))
            read = list(threads.map(lambda pod: run(pod, *words), others))
    finally:
        run(first, _REMOVE)
    bad = [one for one in read if one.why or one.hash != wrote.hash]
    if bad:
        return [_unread(one, first, folder, size) for one in bad]
    return [_shared(wrote, read, folder, size)]


def _told(pod: str, answer: Answer) -> _Told:
    if answer.code is None:
        return _Told(pod=pod, why=f"no answer within {_WITHIN_S:.0f} s")
    try:
        if answer.code == 0:
            return convert(
                {**json.loads(answer.out.splitlines()[-1]), "pod": pod, "why": ""}, _Told
            )
    except (IndexError, RecursionError, TypeError, ValueError):
        pass
    lines = answer.err.strip().splitlines()
    return _Told(pod=pod, why=lines[-1] if lines else "it said nothing")


def _shared(wrote: _Told, read: Sequence[_Told], folder: str, size: int) -> Finding:
    slowest = max(read, key=lambda one: one.waited + one.seconds)
    return make_finding(
        "shared",
        folder=folder,
        pods=counted(len(read), "pod"),
        size=format_size(size),
        wrote=wrote,
        took=format_duration(wrote.seconds),
        last=format_duration(slowest.waited + slowest.seconds),
        slowest=slowest,
        evidence=tuple(
            f"{one.pod}: seen after {format_duration(one.waited)}, read in "
            f"{format_duration(one.seconds)}"
            for one in read
        ),
    )


def _unread(one: _Told, writer: str, folder: str, size: int) -> Finding:
    saw, because = f"no such file within {_SEEN_WITHIN_S:.0f} s", _OWN_VOLUME
    if one.why or one.bytes:
        saw, because = one.why or f"{format_size(one.bytes)} with other content", ""
    return make_finding(
        "unread",
        one=one,
        writer=writer,
        folder=folder,
        saw=saw,
        expected=f"{format_size(size)}, byte by byte the same",
        because=because,
        subject=Subject("node", one.pod),
    )


_OWN_VOLUME = "each pod has a volume of its own, or the storage class is not ReadWriteMany"
WORKSPACE = "/workspace"
"""Where `wirespeed cluster sync` brings the user's folder."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What the cluster has of an environment."""

    name: str
    pods: tuple[Pod, ...]
    """The ranks' pods by their ordinals."""
    wanted: int | None
    """How many its StatefulSet shall have; None: it has none."""

    @property
    def deployed(self) -> bool:
        return bool(self.pods) or self.wanted is not None


def environment_of(kubectl: Kubectl, name: str) -> Environment:
    """Ask the cluster, once. Raises Refused."""
    found = kubectl.items("get", "pods,statefulsets", "-l", selector_text(name))
    pods = [pod_from(one) for one in found if one["kind"] == "Pod"]
    sets = [
        one
        for one in found
        if one["kind"] == "StatefulSet" and "deletionTimestamp" not in one["metadata"]
    ]
    ranks = sorted((pod for pod in pods if pod.role == RANKS), key=lambda pod: pod.ordinal)
    wanted = int(sets[0]["spec"].get("replicas", 1)) if sets else None
    return Environment(name, tuple(ranks), wanted)


def open_cluster(name_or_path: str, *, written: bool) -> tuple[ClusterFile, Kubectl]:
    """The cluster file of that name, and what drives its cluster.

    written: a job is only written down, so kubectl need not be on this machine. Raises UsageError for
    the file, CannotMeasure without kubectl.
    """
    file = read_named(name_or_path)
    told = file.cluster
    try:
        return file, kubectl_of(told)
    except CannotMeasure:
        if not written:
            raise
        where = {"context": told.context, "kubeconfig": told.kubeconfig}
        return file, Kubectl(program="kubectl", namespace=told.namespace, **where)


def ephemeral_of(
    kubectl: Kubectl,
    deployment: Deployment,
    phase: Callable[[str], None],
    *,
    lease_s: int,
    fallback: ClusterFile | None,
) -> Ephemeral:
    """What makes the planned environment, and takes it away. fallback: over TCP, without RDMA."""
    name, nodes = deployment.name, deployment.nodes
    instead = settle(fallback, nodes=nodes, mode="tcp", name=name) if fallback else None
    return Ephemeral(kubectl, deployment, instead, lease_s, phase)
