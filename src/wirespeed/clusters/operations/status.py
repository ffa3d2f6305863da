"""How an environment stands, waiting within a bound until it is ready, and why a pod does not come."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.file import Cluster
from wirespeed.clusters.findings import make_finding
from wirespeed.clusters.kube import (
    Answer,
    Kubectl,
    Progress,
    Refused,
    finding_of,
    patient,
    wrong_server,
)
from wirespeed.clusters.operations import snapshot
from wirespeed.clusters.operations.pod_failures import FOREVER, Cause, cause_findings, causes
from wirespeed.clusters.operations.pod_lookup import RANKS, Pod, zones_of
from wirespeed.model.records import Finding
from wirespeed.model.units import counted, format_duration, listed

_EVENTS_FROM_S, _EVENTS_EVERY_S = 2.0, 2.0
"""Most pods are ready before anybody needs to ask why not."""
_WAKE_S, _WOKEN = 1.0, "wirespeed/woken"
OPERATOR_S = 20.0
"""An operator that runs has made the first pod by then."""


@dataclass(frozen=True, slots=True)
class Waited:
    """How it ended: no findings, when all pods are ready."""

    pods: tuple[Pod, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True)
class Course:
    """A wait: what is remembered from look to look; times are seconds since its start."""

    progress: Progress
    since: dict[str, float] = field(default_factory=dict)
    """When each cause was first seen, of those that are there still."""
    _began: float = field(default_factory=time.monotonic)
    _told: str = ""

    @property
    def now(self) -> float:
        return time.monotonic() - self._began

    def final(self, found: Sequence[Cause]) -> list[Cause]:
        """Those that have been there for longer than they may be; to be called at each look."""
        self.since = {one.key: self.since.get(one.key, self.now) for one in found}
        return [one for one in found if self.now - self.since[one.key] >= one.patience_s]

    def tell(self, text: str) -> None:
        """Where it is, if that is news."""
        if text != self._told:
            self.progress.phase(text)
            self._told = text


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
    return _Wait(kubectl, deployment, Course(progress), within_s, stale).run()


@dataclass(slots=True)
class _Wait:
    kubectl: Kubectl
    deployment: Deployment
    course: Course
    within_s: float
    stale: frozenset[str]
    events: tuple[snapshot.Event, ...] = ()
    asked_at: float = 0.0
    replaced: set[str] = field(default_factory=set)
    woken: bool = False

    def run(self) -> Waited:
        course, wanted = self.course, self.deployment.nodes
        while True:
            seen = snapshot.look(self.kubectl, self.deployment.name, self.deployment.engine)
            ready = ready_pods(seen, self.deployment)
            if len(ready) >= wanted:
                return Waited(tuple(ready))
            self._replace_old(seen)
            self._wake(seen)
            found = self._why(seen)
            final = course.final(found)
            if final or course.now >= self.within_s:
                told = cause_findings(self.kubectl, final or found) or (self._late(seen),)
                return Waited(tuple(seen.told), told)
            waiting = [pod for pod in seen.ranks if pod not in ready]
            state = f"; {waiting[0].name}: {waiting[0].status}" if waiting else ""
            state = f"; {found[0].finding.title}" if found else state
            course.tell(f"{len(ready)} of {wanted} pods are ready{state}")
            # A look is work, too, for us and for the cluster.
            pause = 0.5 if course.now < 5 else 1.0 if course.now < 60 else 2.0
            time.sleep(min(pause, max(0.0, self.within_s - course.now)))

    def _replace_old(self, seen: snapshot.Seen) -> None:
        """A StatefulSet replaces one pod after the other, and each new one waits for its ranks.

        All at once is as well: no rank can work while another's pod is replaced.
        """
        revision = seen.revision
        if not revision or not seen.is_current:
            return
        old = [
            pod
            for pod in seen.ranks
            if pod.revision not in ("", revision)
            and not pod.terminating
            and pod.uid not in self.replaced
        ]
        self.replaced.update(pod.uid for pod in old)
        if names := [pod.name for pod in old]:
            self.course.progress.phase(f"replacing {listed(names)}: the template has changed")
            self.kubectl.do("delete", "pods", *names, "--wait=false", "--ignore-not-found")

    def _wake(self, seen: snapshot.Seen) -> None:
        """A controller that was refused pods asks again ever more seldom; a change makes it ask."""
        late = self.course.now >= _WAKE_S and len(seen.pods) < self.deployment.nodes
        if self.woken or not late or seen.statefulset is None:
            return
        self.woken = True
        stamp = f"{_WOKEN}={int(time.time())}"
        name = f"statefulsets.apps/{self.deployment.name}"
        self.kubectl.ask("annotate", "--overwrite", name, stamp)

    def _why(self, seen: snapshot.Seen) -> list[Cause]:
        """What holds pods up now."""
        now = self.course.now
        if now >= _EVENTS_FROM_S and now - self.asked_at >= _EVENTS_EVERY_S:
            events = snapshot.events_of(self.kubectl)
            self.events = tuple(one for one in events if one.stamp not in self.stale)
            self.asked_at = now
        found = causes(replace(seen, events=self.events), self.deployment.nodes)
        if not seen.pods and not found and self.deployment.engine != "statefulset":
            finding = make_finding("readiness_no_operator", deployment=self.deployment)
            queued = self.deployment.file.workload.queue
            return [Cause(finding, FOREVER if queued else OPERATOR_S)]
        return found

    def _late(self, seen: snapshot.Seen) -> Finding:
        states = [f"{pod.name}: {pod.status}" for pod in seen.ranks if not pod.ready]
        ready, wanted = sum(pod.ready for pod in seen.ranks), self.deployment.nodes
        return make_finding(
            "late",
            deployment=self.deployment,
            title=f"{ready} of {wanted} pods are ready after {format_duration(self.within_s)}",
            saw=", ".join(states[:5]) or "no pods",
        )


def ready_pods(seen: snapshot.Seen, deployment: Deployment) -> list[Pod]:
    """Pods of the present template that are ready; none before the controller has seen it."""
    ready = [pod for pod in seen.ranks if pod.ready]
    if deployment.engine != "statefulset":
        return ready
    if seen.statefulset is None or not seen.is_current:
        return []
    most = seen.statefulset["spec"]["replicas"]
    return [pod for pod in ready if pod.revision == seen.revision and 0 <= pod.ordinal < most]


_PATIENCE_S = 5.0
_UNKNOWN, _WRONG = 3, 2
_NOTHING = "nothing with its labels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One environment."""

    name: str
    namespace: str
    asked: int = 0
    """Pods that ranks run in, as the cluster was told."""
    pods: tuple[Pod, ...] = ()
    claims: Mapping[str, str]
    """Phase by name."""
    findings: tuple[Finding, ...] = ()
    exit_code: int = 0
    """0 all ready, 1 not, 2 another cluster than the file's, 3 nobody could see."""

    @property
    def ready(self) -> int:
        return sum(pod.ready for pod in self.pods if pod.role == RANKS)


def status(kubectl: Kubectl, cluster: Cluster, progress: Progress) -> Status:
    """Never raises for what the cluster answers."""
    kubectl = patient(kubectl, progress, _PATIENCE_S)
    plain = Status(name=cluster.name, namespace=cluster.namespace, claims={})
    if wrong := wrong_server(kubectl, cluster.api):
        return replace(plain, findings=(wrong,), exit_code=_WRONG)
    try:
        seen, zones, unseen = _asked(kubectl, cluster.name)
        if unseen and not seen.makers:
            told = finding_of(Answer((), 1, "", "\n".join(unseen)))
            return replace(plain, pods=tuple(seen.told), findings=(told,), exit_code=_UNKNOWN)
        if not (seen.makers or seen.pods):
            claims = _phases(seen)
            saw = f"only its claims: {', '.join(list(claims)[:4])}" if claims else _NOTHING
            told = make_finding("absent", cluster=cluster, saw=saw)
            return replace(plain, claims=claims, findings=(told,), exit_code=1)
        return _judged(kubectl, plain, seen, zones)
    except Refused as refused:
        told = finding_of(refused)
        code = _WRONG if told.id == "CLUSTER-019" else 1 if told.id == "CLUSTER-005" else _UNKNOWN
        return replace(plain, findings=(told,), exit_code=code)


def asked_pods(maker: Mapping[str, Any]) -> int:
    """How many pods for ranks an object asks for; 0 for what makes none."""
    spec = maker.get("spec", {})
    match maker["kind"]:
        case "StatefulSet":
            return int(spec.get("replicas", 1))
        case "MPIJob":
            return int(spec.get("mpiReplicaSpecs", {}).get("Worker", {}).get("replicas", 0))
        case "TrainJob":
            return int(spec.get("trainer", {}).get("numNodes", 0))
        case "JobSet":
            jobs = spec.get("replicatedJobs", ())
            return sum(int(one["template"]["spec"].get("parallelism", 1)) for one in jobs)
    return 0


def _asked(kubectl: Kubectl, name: str) -> tuple[snapshot.Seen, dict[str, str], tuple[str, ...]]:
    """What is there, the nodes' zones, and the words for kinds that may not be seen."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        zones = pool.submit(zones_of, kubectl)
        known = snapshot.found(kubectl, name, snapshot.kinds_in(kubectl))
        return snapshot.seen_from(known.objects), zones.result(), known.unseen


def _judged(
    kubectl: Kubectl, plain: Status, seen: snapshot.Seen, zones: Mapping[str, str]
) -> Status:
    asked = max((asked_pods(one) for one in seen.makers), default=0)
    pods = tuple(replace(pod, zone=zones.get(pod.node, "")) for pod in seen.told)
    whole = replace(plain, asked=asked, pods=pods, claims=_phases(seen))
    told = _drift(plain.name, seen, pods, asked)
    waits = any(not pod.ready for pod in pods if pod.role == RANKS)
    if waits or whole.ready < asked or any(one != "Bound" for one in whole.claims.values()):
        seen = replace(seen, events=snapshot.events_of(kubectl))
        told = [*cause_findings(kubectl, causes(seen, asked)), *told]
    if whole.ready < asked and not told:
        states = [f"{pod.name}: {pod.status}" for pod in pods if not pod.ready]
        saw = ", ".join(states[:5]) or "no further pods"
        told = [make_finding("starting", whole=whole, saw=saw)]
    if any(one.status == "fail" for one in told):
        return replace(whole, findings=tuple(told), exit_code=1)
    good = make_finding("all_ready", pods=counted(asked, "pod"))
    return replace(whole, findings=(good, *told))


def _phases(seen: snapshot.Seen) -> dict[str, str]:
    return {
        one["metadata"]["name"]: one.get("status", {}).get("phase", "Unknown")
        for one in seen.claims
    }


def _drift(name: str, seen: snapshot.Seen, pods: Sequence[Pod], asked: int) -> list[Finding]:
    """Fewer or more pods than asked, or pods of an older template."""
    here = [pod for pod in pods if pod.role == RANKS and not pod.terminating]
    revision = seen.revision
    old = [pod.name for pod in here if revision and pod.revision not in ("", revision)]
    told = []
    if len(here) != asked:
        told.append(f"{len(here)} pods, {asked} asked")
    if old:
        told.append(f"made from an older template: {', '.join(old[:5])}")
    what = "; ".join(told)
    return [make_finding("drift", asked=asked, name=name, what=what)] if told else []
