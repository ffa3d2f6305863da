"""All that a deploy has to know before it makes anything, asked at once."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.file.model import EngineName
from wirespeed.clusters.kube.kubectl import Kubectl, Refused
from wirespeed.clusters.kube.refusals import finding_of, is_about
from wirespeed.clusters.life.applying import Trial, probe_pod, try_out
from wirespeed.clusters.life.fitting import ask_of, is_scarce
from wirespeed.clusters.life.nodes import holdings_from, nodes_of, pods_words
from wirespeed.clusters.life.operators import missing_for
from wirespeed.clusters.life.owned import (
    ORDINARY,
    Known,
    found,
    is_made_by_another,
    kinds_in,
    labelled,
    named,
    same_names,
)
from wirespeed.clusters.life.preflight import Room
from wirespeed.records import Finding

__all__ = ["Survey", "survey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What is there, and what the server says of what shall be."""

    trial: Trial
    live: Known
    """Objects with the names of ours, whoever made them."""
    ours: Known
    """All objects of this environment."""
    claims: Known
    """Claims that a StatefulSet would take as its pods' own."""
    room: Room | None
    """None where nobody asked."""
    operator: tuple[Finding, ...]
    """What the engine lacks in this cluster."""


def survey(
    kubectl: Kubectl,
    deployment: Deployment,
    objects: Sequence[Mapping[str, Any]],
    template: Mapping[str, Any],
    *,
    preflight: bool,
) -> Survey:
    """Raises Refused where the API server cannot be asked at all."""
    # kubectl's start costs more than the server's answer: all side by side.
    with ThreadPoolExecutor(max_workers=8) as pool:
        trial = pool.submit(try_out, kubectl, objects, _probe(deployment, template))
        live = pool.submit(named, kubectl, objects)
        ours = pool.submit(_ours, kubectl, deployment.name, deployment.engine)
        claims = pool.submit(same_names, kubectl, _claim_names(deployment))
        operator = pool.submit(missing_for, kubectl, deployment.engine)
        room = pool.submit(_room, kubectl, deployment, template) if preflight else None
        return Survey(
            trial=trial.result(),
            live=live.result(),
            ours=ours.result(),
            claims=claims.result(),
            room=room.result() if room else None,
            operator=operator.result(),
        )


def _probe(deployment: Deployment, template: Mapping[str, Any]) -> dict[str, Any] | None:
    """None where only an account that is not made yet may run such pods."""
    security = deployment.file.security
    if security.requires_privileged_scc and not security.service_account:
        return None
    return probe_pod(template, security.service_account or "default")


def _ours(kubectl: Kubectl, name: str, engine: EngineName) -> Known:
    """Which kinds a cluster has is only asked where an operator has made, or shall make, the pods."""
    if engine == "statefulset":
        known = found(kubectl, name, ORDINARY)
        makers = [one["metadata"].get("ownerReferences") or [{}] for one in known.objects]
        if all(one[0].get("kind") in (None, "StatefulSet") for one in makers):
            own = tuple(one for one in known.objects if not is_made_by_another(one))
            return Known(own, known.unseen)
    return labelled(kubectl, name, kinds_in(kubectl))


def _claim_names(deployment: Deployment) -> list[str]:
    """Of a StatefulSet's templates: VOLUME-POD."""
    from wirespeed.clusters.manifests.claims import templates

    if deployment.engine != "statefulset":
        return []
    volumes = [one["metadata"]["name"] for one in templates(deployment)]
    return [f"{volume}-{pod}" for volume in volumes for pod in deployment.pods]


def _room(kubectl: Kubectl, deployment: Deployment, template: Mapping[str, Any]) -> Room:
    """What may not be seen is left out: most users of a namespace may not list nodes.

    What other pods hold only matters to pods that ask for something.
    """
    if not is_scarce(ask_of(template)):
        return _nodes_alone(kubectl)
    with ThreadPoolExecutor(max_workers=1) as pool:
        asked = pool.submit(kubectl.ask, *pods_words())
        room = _nodes_alone(kubectl)
        answer = asked.result()
    if room.nodes is None:
        return room
    if answer.code != 0:
        if not is_about(finding_of(answer), "006"):
            raise Refused(answer)
        return Room(room.nodes, None)
    own = (deployment.namespace, deployment.name)
    return Room(room.nodes, holdings_from(answer.out, except_of=own))


def _nodes_alone(kubectl: Kubectl) -> Room:
    try:
        return Room(nodes_of(kubectl))
    except Refused as refused:
        if not is_about(finding_of(refused), "006"):
            raise
        return Room(None)
