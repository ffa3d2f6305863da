"""The pods of an environment, looked at and entered: which of them ranks can be started in."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wirespeed.clusters.kube.kubectl import Kubectl, Refused
from wirespeed.clusters.kube.refusals import finding_of
from wirespeed.clusters.life.pods import RANKS, Pod, pod_from, zones_of
from wirespeed.clusters.manifests.labels import selector_text
from wirespeed.errors import UsageError
from wirespeed.launchers.base import Host, Job, Prepared
from wirespeed.launchers.k8s.findings import Asking, missing_pods, not_ready, trouble_of
from wirespeed.launchers.k8s.lost import Place
from wirespeed.launchers.k8s.words import KUBECTL, exec_words, kubectl_text
from wirespeed.launchers.node import torchrun
from wirespeed.launchers.node.probe import Facts, ask_all
from wirespeed.launchers.node.words import probe_words
from wirespeed.launchers.rank_wrapper import DIRECTORY
from wirespeed.records import Choice, Finding

__all__ = [
    "PLACES",
    "WORKSPACE",
    "Environment",
    "could_not_look",
    "environment_of",
    "looked",
    "places_of",
]

ASK_S = 30.0
"""For all pods together: kubectl of many pods at once needs some seconds of this machine's time."""
PLACES = "places"
"""Key of a prepared job's options: `Place` of each pod, as JSON."""
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
    sets = [one for one in found if one["kind"] == "StatefulSet" and not _going(one)]
    ranks = sorted((pod for pod in pods if pod.role == RANKS), key=lambda pod: pod.ordinal)
    wanted = int(sets[0]["spec"].get("replicas", 1)) if sets else None
    return Environment(name, tuple(ranks), wanted)


def looked(job: Job, kubectl: Kubectl, environment: Environment) -> Prepared:
    """The job on the pods that can be used, and a finding for each that cannot.

    UsageError for names that are no pods of it.
    """
    pods, findings = _chosen(job, environment)
    findings += [not_ready(kubectl, pod, "") for pod in pods if not pod.ready]
    ready = [pod for pod in pods if pod.ready]
    directory = job.options.get("directory", WORKSPACE)
    asking = Asking(kubectl, job.python, min(job.startup_s, ASK_S))
    good, troubles = _asked(ready, asking, directory)
    zones = zones_of(kubectl)
    for pod in ready:
        if pod.name in good:
            good[pod.name] = replace(good[pod.name], zone=zones.get(pod.node, ""))
    options = {
        **job.options,
        KUBECTL: kubectl_text(kubectl),
        PLACES: json.dumps({pod.name: (pod.uid, pod.node, pod.restarts) for pod in ready}),
    }
    environ = {**job.environment, DIRECTORY: directory}
    slots = {host.name: host.slots for host in job.hosts}
    placed = replace(
        job,
        hosts=tuple(Host(pod.name, slots.get(pod.name)) for pod in pods),
        nodes=None,
        options=options,
        environment=environ,
        directory=directory,
    )
    seen = torchrun.prepared(placed, asking, findings + troubles, good)
    by_node = {pod.name: pod.node for pod in ready}
    where = ", ".join(f"{host.name} on {by_node.get(host.name, '?')}" for host in seen.job.hosts)
    choices = (Choice("pods", where or "none", f"of the environment {environment.name}"),)
    return replace(seen, choices=(*choices, *seen.choices))


def could_not_look(job: Job, why: Refused | Finding) -> Prepared:
    """The cluster could not be asked: nothing is known, and so nothing has failed."""
    told = (
        finding_of(why, doing="the pods cannot be looked at") if isinstance(why, Refused) else why
    )
    unknown = replace(told, status="not_checked", because=told.because or told.saw)
    return Prepared(job=replace(job, hosts=()), findings=(unknown,))


def places_of(job: Job) -> dict[str, Place]:
    """What `why_lost` compares with, by pod, of a prepared job."""
    told: dict[str, Any] = json.loads(job.options.get(PLACES, "{}"))
    return {name: (uid, node, restarts) for name, (uid, node, restarts) in told.items()}


def _chosen(job: Job, environment: Environment) -> tuple[list[Pod], list[Finding]]:
    """The pods that are meant: by name, or the first of them."""
    if job.hosts:
        return _named(job, environment), []
    wanted = job.nodes or environment.wanted or len(environment.pods)
    pods = list(environment.pods[:wanted])
    if len(pods) < wanted:
        return pods, [missing_pods(environment.name, len(pods), wanted)]
    return pods, []


def _named(job: Job, environment: Environment) -> list[Pod]:
    by_name = {pod.name: pod for pod in environment.pods}
    for host in job.hosts:
        if host.name not in by_name:
            raise UsageError(
                f"{environment.name} has no pod {host.name!r}",
                expected=", ".join(by_name) or "a pod of it; there is none now",
                next=f"wirespeed cluster status {environment.name}",
            )
    names = [host.name for host in job.hosts]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is named twice", expected=f"once, with slots: {name}:2")
    return [by_name[name] for name in names]


def _asked(
    pods: Sequence[Pod], asking: Asking, directory: str
) -> tuple[dict[str, Facts], list[Finding]]:
    """All pods at once; what they told, and what is wrong with the others."""
    words = probe_words(asking.pythons)
    commands = {pod.name: exec_words(asking.kubectl, pod.name, words) for pod in pods}
    answers = ask_all(commands, directory, asking.within_s)
    good: dict[str, Facts] = {}
    findings: list[Finding] = []
    for pod in pods:
        answer = answers[pod.name]
        trouble = trouble_of(pod.name, answer, asking)
        if trouble is not None:
            findings.append(trouble)
        elif answer.facts is not None:
            good[pod.name] = replace(answer.facts, reached=pod.ip, gpus=pod.gpus)
    return good, findings


def _going(told: dict[str, Any]) -> bool:
    return "deletionTimestamp" in told["metadata"]
