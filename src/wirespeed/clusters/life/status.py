"""How an environment stands: one look, with why what is not ready is not."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from wirespeed.clusters.file.model import Cluster
from wirespeed.clusters.kube.kubectl import Answer, Kubectl, Refused
from wirespeed.clusters.kube.patience import patient
from wirespeed.clusters.kube.refusals import finding_of
from wirespeed.clusters.kube.server import wrong_server
from wirespeed.clusters.life.causes import cause_findings, causes
from wirespeed.clusters.life.owned import found, kinds_in
from wirespeed.clusters.life.pods import RANKS, Pod, zones_of
from wirespeed.clusters.life.seen import Seen, events_of, seen_from
from wirespeed.clusters.telling import Progress
from wirespeed.records import Finding

__all__ = ["Status", "asked_pods", "status"]

_PATIENCE_S = 5.0
_UNKNOWN, _WRONG = 3, 2


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
            return replace(
                plain,
                claims=_phases(seen),
                findings=(_absent(cluster, seen),),
                exit_code=1,
            )
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


def _asked(kubectl: Kubectl, name: str) -> tuple[Seen, dict[str, str], tuple[str, ...]]:
    """What is there, the nodes' zones, and the words for kinds that may not be seen."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        zones = pool.submit(zones_of, kubectl)
        known = found(kubectl, name, kinds_in(kubectl))
        return seen_from(known.objects), zones.result(), known.unseen


def _judged(kubectl: Kubectl, plain: Status, seen: Seen, zones: Mapping[str, str]) -> Status:
    asked = max((asked_pods(one) for one in seen.makers), default=0)
    pods = tuple(replace(pod, zone=zones.get(pod.node, "")) for pod in seen.told)
    whole = replace(plain, asked=asked, pods=pods, claims=_phases(seen))
    told = _drift(plain.name, seen, pods, asked)
    waits = any(not pod.ready for pod in pods if pod.role == RANKS)
    if waits or whole.ready < asked or any(one != "Bound" for one in whole.claims.values()):
        seen = replace(seen, events=events_of(kubectl))
        told = [*cause_findings(kubectl, causes(seen, asked)), *told]
    if whole.ready < asked and not told:
        told = [_starting(whole)]
    if any(one.status == "fail" for one in told):
        return replace(whole, findings=tuple(told), exit_code=1)
    count = f"{asked} pod{'' if asked == 1 else 's'} ready"
    good = Finding(id="CLUSTER-015", status="pass", title=count)
    return replace(whole, findings=(good, *told))


def _phases(seen: Seen) -> dict[str, str]:
    return {
        one["metadata"]["name"]: one.get("status", {}).get("phase", "Unknown")
        for one in seen.claims
    }


def _absent(cluster: Cluster, seen: Seen) -> Finding:
    claims = [one["metadata"]["name"] for one in seen.claims]
    return Finding(
        id="CLUSTER-028",
        status="fail",
        title=f"{cluster.name} is not deployed in namespace {cluster.namespace}",
        saw=f"only its claims: {', '.join(claims[:4])}" if claims else "nothing with its labels",
        expected="an environment of that name",
        next=f"wirespeed cluster deploy {cluster.name}",
    )


def _starting(whole: Status) -> Finding:
    states = [f"{pod.name}: {pod.status}" for pod in whole.pods if not pod.ready]
    return Finding(
        id="CLUSTER-017",
        status="fail",
        title=f"{whole.ready} of {whole.asked} pods are ready",
        saw=", ".join(states[:5]) or "no further pods",
        because="no cause is known: pods may still be starting",
        next=f"wirespeed cluster deploy {whole.name}",
    )


def _drift(name: str, seen: Seen, pods: Sequence[Pod], asked: int) -> list[Finding]:
    """Fewer or more pods than asked, or pods of an older template."""
    here = [pod for pod in pods if pod.role == RANKS and not pod.terminating]
    revisions = {
        one["status"]["updateRevision"]
        for one in seen.makers
        if one["kind"] == "StatefulSet" and one.get("status", {}).get("updateRevision")
    }
    old = [pod.name for pod in here if revisions and pod.revision not in ("", *revisions)]
    told = []
    if len(here) != asked:
        told.append(f"{len(here)} pods, {asked} asked")
    if old:
        told.append(f"made from an older template: {', '.join(old[:5])}")
    if not told:
        return []
    return [
        Finding(
            id="CLUSTER-027",
            status="fail",
            title=f"the pods are not those that are asked: {'; '.join(told)}",
            expected=f"{asked} pods of the present template",
            next=f"wirespeed cluster deploy {name}",
        )
    ]
