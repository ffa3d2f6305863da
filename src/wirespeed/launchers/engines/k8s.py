"""Ranks in the pods of a cluster file's environment: one `kubectl exec` a pod, torchrun inside.

The environment is one that is deployed, whose pods are looked at first (`looked`), or one that is made
for the job alone and goes with it (`planned`, `hold_once`).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from wirespeed.clusters import pods as cluster
from wirespeed.clusters.pods import WORKSPACE
from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.launchers.base import Engine, Held, Host, Job, Piece, Prepared
from wirespeed.launchers.node import probe, torchrun
from wirespeed.launchers.node.torchrun import Found, NodeFound, NodesPrepared, probe_words
from wirespeed.launchers.rank_wrapper import DIRECTORY
from wirespeed.launchers.texts import make_error, make_finding
from wirespeed.model.records import Choice, Finding, Subject

CLUSTER = "cluster"
"""Key of a job's options: the cluster file's name or path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsPrepared(NodesPrepared):
    """Pods are entered by `kubectl exec`."""

    file: cluster.ClusterFile
    kubectl: cluster.Kubectl
    places: Mapping[str, cluster.Place] = field(default_factory=dict)
    """By pod: to tell why one was lost."""
    once: str = ""
    """Name of the environment that is made for the job alone."""

    def enter(self, host: str, far: Sequence[str]) -> Sequence[str]:
        return self.kubectl.exec_words(host, far)

    def look(self, host: str) -> str:
        return self.kubectl.by_hand("describe", "pod", host)

    def pieces(self, scratch: Path) -> list[Piece]:
        if not self.job.hosts:
            raise CannotMeasure("no pod can be used", expected="one that ranks can run in")
        return NodesPrepared.pieces(self, scratch)

    @contextmanager
    def hold(self, say: Callable[[str], None]) -> Iterator[Held]:
        with hold_once(self, say) if self.once else NodesPrepared.hold(self, say) as held:
            held.lost = self._why_lost
            if isinstance(held.prepared, PodsPrepared):
                held.lost = held.prepared._why_lost
            yield held

    def _why_lost(self, names: Sequence[str]) -> Sequence[Finding]:
        """Asks the API server."""
        return cluster.why_lost(self.kubectl, self.places, names)

    def shared(self, say: Callable[[str], None]) -> Sequence[Finding]:
        if self.file.storage.mode != "rwx" or len(self.job.hosts) < 2:
            return []
        say(f"looking whether all pods share {WORKSPACE}")
        pods = [host.name for host in self.job.hosts]
        return cluster.shared_findings(self.kubectl, pods, self.job.python, WORKSPACE)

    def around(self, scratch: Path) -> tuple[list[Piece], list[Piece]]:
        return around_once(self, str(scratch)) if self.once else ([], [])


_ENDED = "command terminated with exit code"
"""What kubectl says where the command itself failed."""
_STARTED_BADLY = (
    "OCI runtime exec failed",
    "executable file not found",
    "no such file or directory",
)


class PodAsking(probe.Asking):
    """How pods were asked (`node.software.Asking`)."""

    other_python = (
        "name a Python of the image, 3.11 or later, as workload.python in the cluster file"
        ", or by --python"
    )

    def __init__(self, kubectl: cluster.Kubectl, python: str, within_s: float) -> None:
        super().__init__([python], within_s)
        self.kubectl = kubectl

    def by_hand(self, host: str, *words: str) -> str:
        far = ("sh", "-c", *words) if len(words) == 1 and " " in words[0] else words
        return self.kubectl.by_hand("exec", "-it", host, "-c", cluster.CONTAINER, "--", *far)

    def install(self, host: str, python: str, package: str) -> str:
        return f"an image with {package} for {python} (workload.image), and deploy again"

    def not_entered(self, host: str, answer: probe.Answer) -> Finding:
        """Where kubectl itself failed: by what its words mean, as far as they are known."""
        if answer.code is None:
            look = self.kubectl.by_hand("get", "nodes")
            return probe.node_finding("silent", host, asking=self, next=look, said=answer.said)
        text = "\n".join(answer.said)
        if _ENDED in text or any(words in text for words in _STARTED_BADLY):
            own = tuple(line for line in answer.said if _ENDED not in line)
            return self.no_python(host, replace(answer, said=own))
        told = cluster.finding_of(cluster.Answer(("exec", host), answer.code, "", text))
        known = told.id not in ("CLUSTER-026", "CLUSTER-008", "CLUSTER-024")
        found = probe.node_finding(
            "not_entered",
            host,
            title=f"pod {host} cannot be entered" + (f": {told.title}" if known else ""),
            saw=probe.last_words(answer) or "kubectl exec failed without a word",
            because=told.because,
            fix=told.fix or "see what kubectl says",
            next=self.by_hand(host, "true"),
            said=answer.said,
        )
        return replace(found, id=told.id) if known else found


ASK_S = 30.0
"""For all pods together: kubectl of many pods at once needs some seconds of this machine's time."""


def looked(asked: PodsPrepared, environment: cluster.Environment) -> PodsPrepared:
    """The job on the pods that can be used, and a finding for each that cannot.

    UsageError for names that are no pods of it.
    """
    pods, findings = _chosen(asked.job, environment)
    findings += [_not_ready(asked.kubectl, pod) for pod in pods if not pod.ready]
    ready = [pod for pod in pods if pod.ready]
    slots = {host.name: host.slots for host in asked.job.hosts}
    job = _in_pods(asked.job, tuple(Host(pod.name, slots.get(pod.name)) for pod in pods))
    asking = PodAsking(asked.kubectl, job.python, min(job.startup_s, ASK_S))
    good, troubles = _asked(ready, asking, job.directory)
    places = {pod.name: (pod.uid, pod.node, pod.restarts) for pod in ready}
    on_pods = replace(asked, job=job, places=places)
    seen = torchrun.prepared(on_pods, asking, findings + troubles, good)
    by_node = {pod.name: pod.node for pod in ready}
    where = ", ".join(f"{host.name} on {by_node.get(host.name, '?')}" for host in seen.job.hosts)
    choices = (Choice("pods", where or "none", f"of the environment {environment.name}"),)
    return replace(seen, choices=(*choices, *seen.choices))


def _in_pods(job: Job, hosts: tuple[Host, ...]) -> Job:
    directory = job.options.get("directory", WORKSPACE)
    environment = {**job.environment, DIRECTORY: directory}
    return replace(job, hosts=hosts, nodes=None, environment=environment, directory=directory)


def could_not_look(asked: PodsPrepared, why: cluster.Refused | Finding) -> PodsPrepared:
    """The cluster could not be asked: nothing is known, and so nothing has failed."""
    told = (
        cluster.finding_of(why, doing="the pods cannot be looked at")
        if isinstance(why, cluster.Refused)
        else why
    )
    unknown = replace(told, status="not_checked", because=told.because or told.saw)
    return replace(asked, job=replace(asked.job, hosts=()), findings=(unknown,))


def _chosen(job: Job, environment: cluster.Environment) -> tuple[list[cluster.Pod], list[Finding]]:
    """The pods that are meant: by name, or the first of them."""
    name, by_name = environment.name, {pod.name: pod for pod in environment.pods}
    for host in job.hosts:
        if host.name not in by_name:
            there = ", ".join(by_name) or "a pod of it; there is none now"
            raise make_error("no_pod", name=name, pod=host.name, expected=there)
    if job.hosts:
        return [by_name[host.name] for host in job.hosts], []
    wanted = job.nodes or environment.wanted or len(environment.pods)
    pods = list(environment.pods[:wanted])
    if len(pods) == wanted:
        return pods, []
    subject, found = Subject("job", name), len(pods)
    missing = make_finding("missing_pods", name=name, found=found, wanted=wanted, subject=subject)
    return pods, [missing]


def _not_ready(kubectl: cluster.Kubectl, pod: cluster.Pod) -> Finding:
    where = f"on {pod.node}" if pod.node else "on no node"
    return probe.node_finding(
        "not_ready",
        pod.name,
        pod=pod,
        saw=f"{pod.status}, {where}, {pod.restarts} restarts",
        next=kubectl.by_hand("describe", "pod", pod.name),
    )


def _asked(
    pods: Sequence[cluster.Pod], asking: PodAsking, directory: str
) -> tuple[dict[str, probe.Facts], list[Finding]]:
    """All pods at once; what they told, and what is wrong with the others."""
    words = probe_words(asking.pythons)
    commands = {pod.name: asking.kubectl.exec_words(pod.name, words) for pod in pods}
    good, findings = asking.ask(commands, directory)
    zones = cluster.zones_of(asking.kubectl)
    for pod in pods:
        if pod.name in good:
            zone = zones.get(pod.node, "")
            good[pod.name] = replace(good[pod.name], reached=pod.ip, gpus=pod.gpus, zone=zone)
    return good, findings


LEASE_S, READY_S = 300, 900
_LONGEST_NAME = 40
Say = Callable[[str], None]


def planned(asked: PodsPrepared) -> PodsPrepared:
    """The job on pods that are not there yet; nothing is asked of the cluster."""
    job, file = asked.job, asked.file
    if job.hosts:
        raise make_error("not_deployed", file=file, pod=job.hosts[0].name)
    deployment = _deployment(job, file, name_of(file.cluster.name, job.token))
    # The pods by the names that a StatefulSet gives them, with their ranks.
    each = job.ranks_per_node or (cluster.slots(deployment) if job.ranks is None else None)
    bare = replace(job, hosts=tuple(Host(name, each) for name, _ in _addresses(deployment)))
    placed = tuple(probe.with_slots(bare, {}))
    names = {host.name for host in placed}
    nodes = {name: address for name, address in _addresses(deployment) if name in names}
    found = Found(
        cluster.master(deployment) if len(placed) > 1 else "127.0.0.1",
        int(job.options.get("port", file.network.port)),
        {name: NodeFound(job.python, address, "") for name, address in nodes.items()},
    )
    ready = replace(_in_pods(job, placed), ranks=None)
    why = f"{file.cluster.name} is not deployed: made for this job alone, and gone with it"
    choices = (Choice("environment", deployment.name, why), *deployment.choices)
    return replace(asked, job=ready, choices=choices, found=found, once=deployment.name)


def name_of(name: str, token: str) -> str:
    """NAME-xxxx: an environment's name, of at most 40 letters, that no other job has."""
    mark = hashlib.sha256(token.encode()).hexdigest()[:4]
    return f"{name[: _LONGEST_NAME - len(mark) - 1].rstrip('-')}-{mark}"


@contextmanager
def hold_once(planned: PodsPrepared, say: Say) -> Iterator[Held]:
    """The planned job's environment, from before its first piece until after the last."""
    job, file = planned.job, planned.file
    deployment = _deployment(job, file, planned.once)
    making = cluster.ephemeral_of(
        planned.kubectl,
        deployment,
        say,
        lease_s=int(job.options.get("lease", LEASE_S)),
        fallback=file if "fallback" in job.options else None,
    )
    held = Held(prepared=replace(planned, findings=(), choices=()))
    try:
        say(f"making {deployment.name}: {deployment.nodes} pods for this job alone")
        trouble = making.make(float(job.options.get("ready", READY_S)))
        if trouble:
            held.prepared = replace(held.prepared, job=replace(job, hosts=()), findings=trouble)
        else:
            say(f"entering the pods of {deployment.name}")
            held.prepared = _entered(planned, deployment)
        yield held
    finally:
        held.after += making.take_down()


def around_once(planned: PodsPrepared, folder: str) -> tuple[list[Piece], list[Piece]]:
    """For a dry run: what makes the environment, and what takes it away. A namespace stays."""
    deployment = _deployment(planned.job, planned.file, planned.once)
    ready_s = int(planned.job.options.get("ready", READY_S))
    before, after = (
        [Piece(name=name, command=command, files=files) for name, command, files in commands]
        for commands in cluster.commands_of(planned.kubectl, deployment, folder, ready_s)
    )
    return before, after


def _deployment(job: Job, file: cluster.ClusterFile, name: str) -> cluster.Deployment:
    """As many pods as the planned job has hosts, or as it asks."""
    mode, fallback = job.options.get("mode"), job.options.get("fallback")
    nodes = len(job.hosts) or job.nodes
    return cluster.settle(file, nodes=nodes, mode=mode, fallback=fallback, name=name, live=True)


def _addresses(deployment: cluster.Deployment) -> list[tuple[str, str]]:
    """Name of each pod, and where others find it."""
    return [(one.partition(".")[0], one) for one in cluster.hosts(deployment)]


def _entered(planned: PodsPrepared, deployment: cluster.Deployment) -> PodsPrepared:
    """The planned ranks in the pods as they are now; findings that fail: all or nothing."""
    environment = cluster.environment_of(planned.kubectl, deployment.name)
    pairs = zip(environment.pods, planned.job.hosts, strict=False)
    named = tuple(Host(pod.name, planned.slots) for pod, planned in pairs)
    seen = looked(replace(planned, job=replace(planned.job, hosts=named)), environment)
    if any(one.status == "fail" for one in seen.findings):
        return replace(seen, job=replace(seen.job, hosts=()))
    return seen


def _look(job: Job) -> Prepared:
    _check(job)
    # The file that `--cluster` names, and what drives its cluster.
    file, kubectl = cluster.open_cluster(job.options[CLUSTER], written=job.written)
    job = replace(job, python=job.python or file.workload.python)
    asked = PodsPrepared(job=job, file=file, kubectl=kubectl)
    if not job.written and (wrong := cluster.wrong_server(kubectl, file.cluster.api)):
        return could_not_look(asked, wrong)
    try:
        there = _environment(job, file, kubectl)
        if there is not None and there.deployed and "own" not in job.options:
            return looked(asked, there)
    except cluster.Refused as refused:
        if not job.written:
            return could_not_look(asked, refused)
        return _planned_unseen(asked, f"{cluster.finding_of(refused).title}")
    if there is None:
        return _planned_unseen(asked, "nobody can ask the cluster from here")
    return planned(asked)


def _planned_unseen(asked: PodsPrepared, why: str) -> PodsPrepared:
    """Write the job down as for pods that are not there yet, or for the pods that it names."""
    name = asked.file.cluster.name
    note = f"not known here: whether {name} is deployed ({why})"
    if not asked.job.hosts:
        note += "; written for pods of this job alone"
        return replace(planned(asked), notes=(note,))
    python = asked.job.python
    good: dict[str, probe.Facts] = {
        host.name: probe.UnknownFacts.of(host.name, python) for host in asked.job.hosts
    }
    named = replace(asked, job=_in_pods(asked.job, asked.job.hosts), notes=(note,))
    asking = PodAsking(asked.kubectl, python, ASK_S)
    return torchrun.prepared(named, asking, [], good)


def _environment(
    job: Job, file: cluster.ClusterFile, kubectl: cluster.Kubectl
) -> cluster.Environment | None:
    """What is deployed; None: nobody can be asked, and the job is only to be written down."""
    try:
        return cluster.environment_of(kubectl, file.cluster.name)
    except CannotMeasure:
        if job.written:
            return None
        raise


def _check(job: Job) -> None:
    """UsageError for what cannot be meant."""
    if CLUSTER not in job.options:
        raise make_error("no_cluster_file")
    torchrun.check_options(job)
    directory = job.options.get("directory", "/")
    if not directory.startswith("/") or not directory.isprintable():
        raise UsageError(f"--with directory={directory!r}", expected="an absolute path in the pods")


ENGINE = Engine("k8s", _look)
