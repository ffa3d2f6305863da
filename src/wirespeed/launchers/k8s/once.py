"""An environment that is made for one job alone, and goes with it."""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.file.model import ClusterFile
from wirespeed.clusters.kube.kubectl import Kubectl, Refused, items_of
from wirespeed.clusters.kube.refusals import finding_of
from wirespeed.clusters.manifests.addresses import hosts, master, slots
from wirespeed.clusters.manifests.labels import selector_text
from wirespeed.clusters.manifests.render import render
from wirespeed.errors import UsageError
from wirespeed.launchers.base import Held, Host, Job, Piece, Prepared
from wirespeed.launchers.k8s.lease import Lease, lease_name
from wirespeed.launchers.k8s.looking import WORKSPACE, environment_of, looked
from wirespeed.launchers.k8s.words import KUBECTL, ONCE, by_hand, kubectl_text, kubectl_told
from wirespeed.launchers.node.slots import with_slots
from wirespeed.launchers.node.torchrun import FOUND, NodeFound, found_text
from wirespeed.launchers.rank_wrapper import DIRECTORY
from wirespeed.records import Choice, Finding, Subject

__all__ = ["LEASE_S", "READY_S", "around_once", "hold_once", "name_of", "planned"]

LEASE_S, READY_S = 300, 900
_LONGEST_NAME = 40
_GONE_S = 10.0
_LOOK_S = 0.5
Say = Callable[[str], None]


def planned(job: Job, file: ClusterFile, kubectl: Kubectl) -> Prepared:
    """The job on pods that are not there yet; nothing is asked of the cluster."""
    if job.hosts:
        raise UsageError(
            f"{file.cluster.name} is not deployed: it has no pod {job.hosts[0].name!r}",
            expected="--nodes, for pods that are made for this job alone",
            next=f"wirespeed cluster deploy {file.cluster.name}",
        )
    deployment = _deployment(job, file, name_of(file.cluster.name, job.token))
    placed = _placed(job, deployment)
    names = {host.name for host in placed}
    found = found_text(
        master(deployment) if len(placed) > 1 else "127.0.0.1",
        int(job.options.get("port", file.network.port)),
        {name: NodeFound(job.python, address, "") for name, address in _addresses(deployment)
         if name in names},
    )  # fmt: skip
    directory = job.options.get("directory", WORKSPACE)
    told = {ONCE: deployment.name, KUBECTL: kubectl_text(kubectl), FOUND: found}
    ready = replace(
        job,
        hosts=placed,
        nodes=None,
        ranks=None,
        options={**job.options, **told},
        environment={**job.environment, DIRECTORY: directory},
        directory=directory,
    )
    why = f"{file.cluster.name} is not deployed: made for this job alone, and gone with it"
    choices = (Choice("environment", deployment.name, why), *deployment.choices)
    return Prepared(job=ready, choices=choices)


def name_of(name: str, token: str) -> str:
    """NAME-xxxx: an environment's name, of at most 40 letters, that no other job has."""
    mark = hashlib.sha256(token.encode()).hexdigest()[:4]
    return f"{name[: _LONGEST_NAME - len(mark) - 1].rstrip('-')}-{mark}"


@dataclass
class _Making:
    """One environment between its making and its end."""

    kubectl: Kubectl
    deployment: Deployment
    fallback: Deployment | None
    """Where the cluster has no RDMA."""
    lease: Lease
    say: Say

    def make(self, ready_s: float) -> tuple[Finding, ...]:
        """Everything, until all pods are ready; findings where they are not."""
        from wirespeed.clusters.life.deploy import deploy

        try:
            _make_namespace(self.kubectl, self.deployment)
            owner = self.lease.take()
        except Refused as refused:
            return (finding_of(refused, doing=f"{self.deployment.name} cannot be made"),)
        done = deploy(
            self.kubectl,
            replace(self.deployment, owner=owner),
            _Told(self.say),
            within_s=ready_s,
            fallback=replace(self.fallback, owner=owner) if self.fallback else None,
        )
        return () if done.ok else done.findings

    def take_down(self) -> list[Finding]:
        """Delete all of it, and see that this is under way; a warning where it is not."""
        self.say(f"taking {self.deployment.name} away")
        if self.lease.give_back() and _going(self.kubectl, self.deployment.name):
            return []
        return [_left(self.kubectl, self.deployment.name)]


@dataclass
class _Told:
    """Where `deploy` is, said by us."""

    say: Say

    def phase(self, text: str) -> None:
        self.say(text)


@contextmanager
def hold_once(job: Job, file: ClusterFile, kubectl: Kubectl, say: Say) -> Iterator[Held]:
    """The planned job's environment, from before its first piece until after the last."""
    deployment = _deployment(job, file, job.options[ONCE])
    lease = Lease(kubectl, deployment, int(job.options.get("lease", LEASE_S)))
    fallback = _over_sockets(file, deployment) if "fallback" in job.options else None
    making = _Making(kubectl, deployment, fallback, lease, say)
    held = Held(prepared=Prepared(job=job))
    try:
        say(f"making {deployment.name}: {deployment.nodes} pods for this job alone")
        trouble = making.make(float(job.options.get("ready", READY_S)))
        if trouble:
            held.prepared = Prepared(job=replace(job, hosts=()), findings=trouble)
        else:
            say(f"entering the pods of {deployment.name}")
            held.prepared = _entered(job, kubectl, deployment)
        yield held
    finally:
        held.after += making.take_down()


def around_once(job: Job, file: ClusterFile, folder: str) -> tuple[list[Piece], list[Piece]]:
    """For a dry run: what makes the environment, and what takes it away. A namespace stays."""
    from wirespeed.clusters.manifests.text import as_yaml

    kubectl = kubectl_told(job)
    deployment = _deployment(job, file, job.options[ONCE])
    objects = render(deployment)
    spaces = [one for one in objects if one["kind"] == "Namespace"]
    files = {
        f"{folder}/namespace.yaml": spaces,
        f"{folder}/{deployment.name}.yaml": [one for one in objects if one not in spaces],
    }
    before = [
        Piece(
            name="make it",
            command=kubectl.words("apply", "--server-side", "-f", path),
            files={path: as_yaml(made)},
        )
        for path, made in files.items()
        if made
    ]
    before.append(Piece(name="wait for it", command=kubectl.words(*_wait_words(job, deployment))))
    gone = ("delete", "--ignore-not-found", "--wait=false", "-f", list(files)[-1])
    return before, [Piece(name="take it away", command=kubectl.words(*gone))]


def _wait_words(job: Job, deployment: Deployment) -> tuple[str, ...]:
    """kubectl's own way to wait: only a StatefulSet's pods may be asked for before they are made."""
    within = f"--timeout={int(job.options.get('ready', READY_S))}s"
    if deployment.engine == "statefulset":
        return ("rollout", "status", f"statefulset/{deployment.name}", within)
    selected = selector_text(deployment.name)
    return ("wait", "--for=condition=Ready", "pods", "-l", selected, within)


# What is planned.


def _deployment(job: Job, file: ClusterFile, name: str) -> Deployment:
    """As many pods as the planned job has hosts, or as it asks."""
    from wirespeed.clusters.settling import settle

    mode, fallback = job.options.get("mode"), job.options.get("fallback")
    nodes = len(job.hosts) or job.nodes
    return settle(file, nodes=nodes, mode=mode, fallback=fallback, name=name, live=True)


def _over_sockets(file: ClusterFile, deployment: Deployment) -> Deployment:
    from wirespeed.clusters.settling import settle

    return settle(file, nodes=deployment.nodes, mode="tcp", name=deployment.name)


def _placed(job: Job, deployment: Deployment) -> tuple[Host, ...]:
    """The pods by the names that a StatefulSet gives them, with their ranks."""
    bare = tuple(Host(name) for name, _ in _addresses(deployment))
    each = job.ranks_per_node or (slots(deployment) if job.ranks is None else None)
    told = replace(job, hosts=tuple(Host(host.name, each) for host in bare))
    return tuple(with_slots(told, {}))


def _addresses(deployment: Deployment) -> list[tuple[str, str]]:
    """Name of each pod, and where others find it."""
    return [(one.partition(".")[0], one) for one in hosts(deployment)]


# What is there.


def _entered(job: Job, kubectl: Kubectl, deployment: Deployment) -> Prepared:
    """The planned ranks in the pods as they are now; findings that fail: all or nothing."""
    options = {k: v for k, v in job.options.items() if k != FOUND}
    environment = environment_of(kubectl, deployment.name)
    pairs = zip(environment.pods, job.hosts, strict=False)
    named = tuple(Host(pod.name, planned.slots) for pod, planned in pairs)
    seen = looked(replace(job, hosts=named, options=options), kubectl, environment)
    if any(one.status == "fail" for one in seen.findings):
        return replace(seen, job=replace(seen.job, hosts=()))
    return seen


def _make_namespace(kubectl: Kubectl, deployment: Deployment) -> None:
    """Where the file says that it may be made: the lease has to be in it."""
    from wirespeed.clusters.life.applying import apply

    if made := [one for one in render(deployment) if one["kind"] == "Namespace"]:
        apply(kubectl, made)


def _going(kubectl: Kubectl, name: str) -> bool:
    """Whether all that had the environment's labels is gone or being deleted, within a bound."""
    until = time.monotonic() + _GONE_S
    kinds = "pods,persistentvolumeclaims,services,configmaps"
    while time.monotonic() < until:
        answer = kubectl.ask("get", kinds, "-l", selector_text(name), "-o", "json")
        if answer.code == 0:
            left = items_of(answer)
            if all("deletionTimestamp" in one["metadata"] for one in left):
                return True
        time.sleep(_LOOK_S)
    return False


def _left(kubectl: Kubectl, name: str) -> Finding:
    return Finding(
        id="CLUSTER-042",
        status="warn",
        title=f"the environment {name}, made for this job alone, may still be there",
        subject=Subject("job", name),
        saw=f"its lease could not be deleted, or its objects are still there {_GONE_S:g} s later",
        expected="everything that was made for the job to go with it",
        because="the API server cannot be reached, or has much to do",
        fix="wait: its lease ends by itself and takes it away; or delete it by hand",
        next=by_hand(kubectl, "delete", "job", lease_name(name)),
    )
