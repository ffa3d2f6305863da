"""What is ours in a namespace, and what is somebody else's."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wirespeed.clusters.kube.kubectl import Answer, Kubectl, Refused, items_of
from wirespeed.clusters.kube.refusals import meaning_of, said
from wirespeed.clusters.manifests.labels import INSTANCE, MANAGED_BY, OURS, selector_text
from wirespeed.records import Finding

__all__ = [
    "CLAIMS",
    "ORDINARY",
    "Known",
    "foreign_finding",
    "found",
    "is_made_by_another",
    "is_ours",
    "kinds_in",
    "labelled",
    "named",
    "owner_selector",
    "reference",
    "same_names",
]

CLAIMS = "persistentvolumeclaims"
_OPERATORS = (
    "mpijobs.kubeflow.org",
    "trainjobs.trainer.kubeflow.org",
    "trainingruntimes.trainer.kubeflow.org",
    "jobsets.jobset.x-k8s.io",
)
ORDINARY = (
    "statefulsets.apps",
    "jobs.batch",
    "pods",
    "services",
    "networkpolicies.networking.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "configmaps",
    "serviceaccounts",
    CLAIMS,
)
"""Of all that any engine makes, what every cluster has."""
_KINDS = (*_OPERATORS, *ORDINARY)
"""In the order in which to remove them: first what makes pods anew."""
_UNKNOWN_KIND = re.compile(r"server doesn't have a resource type \"([^\"]+)\"")


@dataclass(frozen=True, slots=True)
class Known:
    """What a look told; where some kinds may not be seen, what the others hold."""

    objects: tuple[dict[str, Any], ...]
    unseen: tuple[str, ...] = ()
    """The server's words for kinds that this user may not list."""


def owner_selector(name: str) -> str:
    """For `-l`: all objects of the environment, and nothing else."""
    return f"{selector_text(name)},{MANAGED_BY}={OURS}"


def is_ours(told: Mapping[str, Any], name: str) -> bool:
    """Made by wirespeed for the environment of that name."""
    labels = told["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY) == OURS and labels.get(INSTANCE) == name


def is_made_by_another(told: Mapping[str, Any]) -> bool:
    """An operator or controller made it of something of ours, and removes it with that."""
    return any(one.get("controller") for one in told["metadata"].get("ownerReferences") or ())


def kinds_in(kubectl: Kubectl) -> tuple[str, ...]:
    """Those of our kinds that this cluster has. Raises Refused.

    A part of discovery that fails (an aggregated API that is down) leaves the rest.
    """
    answer = kubectl.ask("api-resources", "--namespaced", "--verbs=list,delete", "-o", "name")
    there = set(answer.out.split())
    if answer.code != 0 and "pods" not in there:
        raise Refused(answer)
    return tuple(kind for kind in _KINDS if kind in there)


def labelled(kubectl: Kubectl, name: str, kinds: Sequence[str]) -> Known:
    """Everything of those kinds with our labels for that name. Raises Refused.

    What an operator made of ours is left out: it goes with that.
    """
    known = found(kubectl, name, kinds)
    own = tuple(one for one in known.objects if not is_made_by_another(one))
    return Known(own, known.unseen)


def found(kubectl: Kubectl, name: str, kinds: Sequence[str]) -> Known:
    """The same with what operators and controllers made of ours. Raises Refused.

    A kind that went meanwhile (somebody removes an operator) does not hide the others.
    """
    words = ("-l", owner_selector(name), "-o", "json")
    while True:
        answer = kubectl.ask("get", ",".join(kinds), *words)
        lost = _UNKNOWN_KIND.search(answer.err) if answer.code else None
        left = [one for one in kinds if lost is None or one.partition(".")[0] != lost[1]]
        if len(left) == len(kinds) or not left:
            return _known(answer)
        kinds = left


def named(kubectl: Kubectl, objects: Sequence[Mapping[str, Any]]) -> Known:
    """Objects that are there with the same kinds and names. Raises Refused."""
    if not objects:
        return Known(())
    words = [reference(one) for one in objects]
    answer = kubectl.ask("get", *words, "--ignore-not-found", "-o", "json")
    # A kind that the cluster does not know ends the whole call; its dry run says so.
    return Known(()) if answer.code and _UNKNOWN_KIND.search(answer.err) else _known(answer)


def same_names(kubectl: Kubectl, names: Sequence[str]) -> Known:
    """Claims with these names, whoever made them: a StatefulSet would take them as its own."""
    if not names:
        return Known(())
    wanted = set(names)
    known = _known(kubectl.ask("get", CLAIMS, "-o", "json"))
    return Known(tuple(one for one in known.objects if one["metadata"]["name"] in wanted))


def reference(told: Mapping[str, Any]) -> str:
    """KIND.GROUP/NAME, as kubectl takes it."""
    group = told["apiVersion"].rpartition("/")[0]
    kind = told["kind"].lower()
    return (
        f"{kind}.{group}/{told['metadata']['name']}"
        if group
        else f"{kind}/{told['metadata']['name']}"
    )


def foreign_finding(objects: Sequence[Mapping[str, Any]], name: str) -> Finding | None:
    """CLUSTER-012 where any of these is not ours."""
    theirs = [one for one in objects if not is_ours(one, name)]
    if not theirs:
        return None
    told = [f"{one['kind']} {one['metadata']['name']}" for one in theirs]
    return Finding(
        id="CLUSTER-012",
        status="fail",
        title=f"somebody else's {told[0]} has the name"
        + (f", and {len(told) - 1} more" if told[1:] else ""),
        saw=", ".join(f"{one} ({_whose(two)})" for one, two in zip(told, theirs, strict=True)),
        expected=f"nothing of that name, or labels {MANAGED_BY}={OURS} and {INSTANCE}={name}",
        because="it was made by somebody else, or by hand; it was not touched",
        fix="another cluster.name, or another namespace",
        next=f"kubectl get {reference(theirs[0])} -o yaml",
    )


def _whose(told: Mapping[str, Any]) -> str:
    labels = told["metadata"].get("labels") or {}
    owners = told["metadata"].get("ownerReferences") or ()
    if owners:
        return f"of {owners[0].get('kind')} {owners[0].get('name')}"
    if labels.get(MANAGED_BY) == OURS:
        return f"of the environment {labels.get(INSTANCE, 'without a name')}"
    return f"managed by {labels[MANAGED_BY]}" if MANAGED_BY in labels else "without such labels"


def _known(answer: Answer) -> Known:
    """A list, one object, or nothing; a kind that is forbidden does not hide the others."""
    lines = said(answer) if answer.code != 0 else ()
    if answer.code is None or any(not _is_partial(line) for line in lines):
        raise Refused(answer)
    return Known(tuple(items_of(answer)), lines)


def _is_partial(line: str) -> bool:
    return meaning_of([line])[0].id == "CLUSTER-006"
