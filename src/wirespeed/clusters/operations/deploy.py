"""Deploy: look, try out, apply, wait. Nothing is made before everything has been looked at.

Interrupted anywhere, the same call finishes the job: each step looks at what is there, and every
change is one that can be repeated.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.findings import make_finding
from wirespeed.clusters.kube import (
    Kubectl,
    Progress,
    Refused,
    exit_code,
    finding_of,
    is_about,
    patient,
    wrong_server,
)
from wirespeed.clusters.manifests.pod import pod_template, templates
from wirespeed.clusters.manifests.render import render
from wirespeed.clusters.operations import snapshot
from wirespeed.clusters.operations.apply import (
    Change,
    Trial,
    apply,
    changes,
    explained,
    probe_pod,
    try_out,
    with_rights,
)
from wirespeed.clusters.operations.capabilities import missing_for, served
from wirespeed.clusters.operations.pod_lookup import Pod, pods_of
from wirespeed.clusters.operations.schedulability import Room, room_findings, room_of
from wirespeed.clusters.operations.status import Waited, wait
from wirespeed.errors import Interrupted
from wirespeed.model.records import Finding
from wirespeed.model.units import counted

_FIRST_PATIENCE_S, _PATIENCE_S = 5.0, 60.0
"""For an API server that does not answer: before it ever did, and after."""
_MAKERS = ("StatefulSet", "MPIJob", "TrainJob", "TrainingRuntime", "JobSet")
_PAUSE_S = 0.5
_NOTHING = "nothing was made"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What is there, and what the server says of what shall be."""

    trial: Trial
    live: snapshot.Known
    """Objects with the names of ours, whoever made them."""
    ours: snapshot.Known
    """All objects of this environment."""
    claims: snapshot.Known
    """Claims that a StatefulSet would take as its pods' own."""
    room: Room | None
    """None where nobody asked."""
    operator: tuple[Finding, ...]
    """What the engine lacks in this cluster."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """How a deploy ended."""

    findings: tuple[Finding, ...]
    pods: tuple[Pod, ...] = ()
    changes: tuple[Change, ...] = ()
    """What was made, changed and removed; empty where nothing was touched."""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        return exit_code(self.findings)


def deploy(
    kubectl: Kubectl,
    deployment: Deployment,
    progress: Progress,
    *,
    within_s: float,
    preflight: bool = True,
    recreate: bool = False,
    fallback: Deployment | None = None,
) -> Deployed:
    """Bring the environment up, or say why it does not come.

    within_s: for pods to become ready. preflight: compare with what nodes have free first. recreate:
    make anew what cannot be changed. fallback: what to deploy instead where the cluster has no RDMA.

    Raises Interrupted with what is there; UsageError where the file asks for what cannot be.
    """
    work = _Deploying(kubectl, deployment, progress, within_s)
    try:
        done = work.run(preflight=preflight, recreate=recreate)
    except Refused as refused:
        return Deployed((work.lost(refused),), changes=work.changes)
    except (Interrupted, KeyboardInterrupt) as stopped:
        raise work.interrupted() from stopped
    if fallback is not None and any(is_about(one, "014") for one in done.findings):
        lacking = next(one for one in done.findings if is_about(one, "014"))
        title = f"{lacking.title}: going on over TCP"
        told = replace(lacking, status="warn", title=title, fix="", next="")
        done = deploy(
            kubectl, fallback, progress, within_s=within_s, preflight=preflight, recreate=recreate
        )
        return replace(done, findings=(told, *done.findings))
    return done


class _Deploying:
    """One deploy, and how far it has come."""

    def __init__(
        self, kubectl: Kubectl, deployment: Deployment, progress: Progress, within_s: float
    ) -> None:
        self._first = patient(kubectl, progress, _FIRST_PATIENCE_S)
        self._kubectl = patient(kubectl, progress, min(_PATIENCE_S, within_s))
        self._progress = progress
        self._within_s = within_s
        self._stage = _NOTHING
        self._render(deployment)
        self.changes: tuple[Change, ...] = ()

    def _render(self, deployment: Deployment) -> None:
        made = render(deployment)
        self._deployment = deployment
        self._namespace = [one for one in made if one["kind"] == "Namespace"]
        self._objects = [one for one in made if one["kind"] != "Namespace"]
        self._template = pod_template(deployment)

    def run(self, *, preflight: bool, recreate: bool) -> Deployed:
        """Raises Refused where the API server is lost."""
        wrong = wrong_server(self._first, self._deployment.file.cluster.api)
        if wrong:
            return Deployed((wrong,))
        self._progress.phase("looking at what is there and what is free")
        # What the file leaves open is the cluster's; what stays open is said.
        deployment, against = served(self._first, self._deployment)
        self._render(deployment)
        found = [*deployment.warnings, *against]
        if _failed(found):
            return Deployed(tuple(found))
        known = self._survey(preflight)
        foreign = snapshot.foreign_finding(
            [*known.live.objects, *known.claims.objects], deployment.name
        )
        found += known.operator
        found += [foreign] if foreign else []
        if known.room is not None:
            found += room_findings(deployment, self._template, known.room)
        trial = known.trial if _failed(found) else self._tried_again(known, recreate)
        # What was refused because of what was told already is no news.
        told = [*(["016"] if known.operator else []), *(["023", "024"] if foreign else [])]
        found += self._refusals(trial, known, told)
        if _failed(found):
            return Deployed(self._once(found))
        stale = self._make(known, trial)
        waited = wait(
            self._kubectl, deployment, self._progress, within_s=self._within_s, stale=stale
        )
        zones = {node.name: node.zone for node in (known.room and known.room.nodes) or ()}
        pods = tuple(replace(pod, zone=zones.get(pod.node, "")) for pod in waited.pods)
        return Deployed((*found, *self._end(waited)), pods, self.changes)

    def _survey(self, preflight: bool) -> Survey:
        """Raises Refused where the API server cannot be asked at all."""
        kubectl, deployment, template = self._first, self._deployment, self._template
        # kubectl's start costs more than the server's answer: all side by side.
        with ThreadPoolExecutor(max_workers=8) as pool:
            trial = pool.submit(try_out, kubectl, self._objects, _probe(deployment, template))
            live = pool.submit(snapshot.named, kubectl, self._objects)
            ours = pool.submit(_ours, kubectl, deployment)
            claims = pool.submit(snapshot.same_names, kubectl, _claim_names(deployment))
            operator = pool.submit(missing_for, kubectl, deployment.engine)
            room = pool.submit(room_of, kubectl, deployment, template) if preflight else None
            return Survey(
                trial=trial.result(),
                live=live.result(),
                ours=ours.result(),
                claims=claims.result(),
                room=room.result() if room else None,
                operator=operator.result(),
            )

    def _tried_again(self, known: Survey, recreate: bool) -> Trial:
        """The trial, repeated once what stood against it is out of the way."""
        trial = known.trial
        missing = any(is_about(one, "005") for one in (*trial.refusals, *trial.probe))
        if missing and self._namespace and "being deleted" not in str(trial.refusals):
            self._progress.phase(f"making the namespace {self._deployment.namespace}")
            apply(self._kubectl, self._namespace)
            self._stage = f"the namespace {self._deployment.namespace} is made, nothing else"
            trial = try_out(self._kubectl, self._objects, None)
        if recreate and any(is_about(one, "023") for one in trial.refusals):
            self._remove_makers(known)
            trial = try_out(self._kubectl, self._objects, None)
        # A quota that our own pods fill does not refuse them again.
        there = any(one["kind"] in _MAKERS for one in known.live.objects)
        if there and not trial.refusals and any("exceeded quota" in one.saw for one in trial.probe):
            trial = try_out(self._kubectl, self._objects, None)
        return trial

    def _refusals(self, trial: Trial, known: Survey, told: Sequence[str]) -> list[Finding]:
        """What the server refuses, with what explains it. told: ids of what explains itself."""
        found = [
            explained(one, self._objects, known.live.objects)
            for one in (*trial.refusals, *trial.probe)
            if not is_about(one, *told)
        ]
        if not found and (unseen := known.live.unseen):
            # Nothing is applied over what may be somebody else's.
            found.append(make_finding("unseen", saw=unseen[0], evidence=unseen[1:]))
        return with_rights(self._kubectl, found, self._objects)

    def _remove_makers(self, known: Survey) -> None:
        """What makes the pods, then the pods; claims stay, but for those that never had a volume."""
        there = [*known.live.objects, *known.claims.objects]
        going = [one for one in there if one["kind"] in _MAKERS or _is_empty(one)]
        if not going:
            return
        words = tuple(dict.fromkeys(map(snapshot.reference, going)))
        self._progress.phase(f"removing {', '.join(words)} to make it anew")
        self._kubectl.do("delete", *words, "--wait=false", "--ignore-not-found")
        self._stage = "what cannot be changed was removed, to be made anew"
        end = time.monotonic() + self._within_s
        while pods_of(self._kubectl, self._deployment.name) and time.monotonic() < end:
            time.sleep(_PAUSE_S)

    def _make(self, known: Survey, trial: Trial) -> frozenset[str]:
        """Apply what differs, and remove what the file no longer has; stamps of the events before."""
        found = changes(known.live.objects, trial.objects)
        wanted = {(one.kind, one.name) for one in found}
        extra = [
            one
            for one in known.ours.objects
            if (one["kind"], one["metadata"]["name"]) not in wanted
            and one["kind"] not in ("PersistentVolumeClaim", "Pod")
        ]
        gone = (Change("remove", one["kind"], one["metadata"]["name"]) for one in extra)
        before = snapshot.events_of(self._kubectl) if known.live.objects else ()
        if changed := [one for one in found if one.action != "keep"]:
            self._progress.phase(f"applying {len(changed)} objects")
            self._stage = "some of the objects may be applied"
            apply(self._kubectl, self._objects)
        self.changes = (*found, *gone)
        self._stage = "all objects are applied"
        if extra:
            words = [snapshot.reference(one) for one in extra]
            self._kubectl.do("delete", *words, "--wait=false", "--ignore-not-found")
        return frozenset(one.stamp for one in before)

    def _once(self, found: list[Finding]) -> tuple[Finding, ...]:
        """Without repetitions, and with commands that can be copied."""
        name = self._deployment.name
        named = (replace(one, next=one.next.replace(" NAME", f" {name}")) for one in found)
        return tuple({(one.id, one.title): one for one in named}.values())

    def _end(self, waited: Waited) -> tuple[Finding, ...]:
        if waited.findings:
            return waited.findings
        saw = ", ".join(f"{pod.name} on {pod.node}" for pod in waited.pods[:8])
        return (make_finding("all_ready", pods=counted(len(waited.pods), "pod"), saw=saw),)

    def lost(self, refused: Refused) -> Finding:
        """A refusal on the way, with what it leaves behind."""
        found = finding_of(refused, next=f"wirespeed cluster status {self._deployment.name}")
        if self._stage == _NOTHING:
            return finding_of(refused)
        return replace(found, fix=f"{self._stage}; the same command finishes it")

    def interrupted(self) -> Interrupted:
        name = self._deployment.name
        if self._stage == _NOTHING:
            return Interrupted(f"interrupted: {_NOTHING}")
        return Interrupted(
            f"interrupted: {self._stage}, and stay",
            expected=f"`wirespeed cluster clean {name}` removes them",
            next=f"wirespeed cluster deploy {name}    (goes on where it was)",
        )


def _probe(deployment: Deployment, template: Mapping[str, Any]) -> dict[str, Any] | None:
    """None where only an account that is not made yet may run such pods."""
    security = deployment.file.security
    if security.requires_privileged_scc and not security.service_account:
        return None
    return probe_pod(template, security.service_account or "default")


def _ours(kubectl: Kubectl, deployment: Deployment) -> snapshot.Known:
    """Which kinds a cluster has is only asked where an operator has made, or shall make, the pods."""
    name = deployment.name
    if deployment.engine == "statefulset":
        known = snapshot.found(kubectl, name, snapshot.ORDINARY)
        makers = [one["metadata"].get("ownerReferences") or [{}] for one in known.objects]
        if all(one[0].get("kind") in (None, "StatefulSet") for one in makers):
            return known.own()
    return snapshot.labelled(kubectl, name, snapshot.kinds_in(kubectl))


def _claim_names(deployment: Deployment) -> list[str]:
    """Of a StatefulSet's templates: VOLUME-POD."""
    if deployment.engine != "statefulset":
        return []
    volumes = [one["metadata"]["name"] for one in templates(deployment)]
    return [f"{volume}-{pod}" for volume in volumes for pod in deployment.pods]


def _is_empty(told: Mapping[str, Any]) -> bool:
    """A claim that was never bound holds no data."""
    pending = told.get("status", {}).get("phase") == "Pending"
    return bool(pending and told["kind"] == "PersistentVolumeClaim")


def _failed(found: list[Finding]) -> bool:
    return any(one.status == "fail" for one in found)
