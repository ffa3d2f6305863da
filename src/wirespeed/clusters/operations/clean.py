"""Clean: remove what carries our labels for one name, and nothing else. Claims only if asked."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wirespeed.clusters.findings import make_finding
from wirespeed.clusters.kube import Kubectl, Progress, exit_code, patient
from wirespeed.clusters.operations import snapshot
from wirespeed.clusters.operations.status import Course
from wirespeed.model.records import Finding
from wirespeed.model.units import format_duration

_FIRST_PATIENCE_S, _PATIENCE_S = 5.0, 60.0
_PAUSE_S = 0.5
_CLAIM = "PersistentVolumeClaim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What a clean would remove."""

    name: str
    namespace: str
    kinds: tuple[str, ...]
    """Of what goes; pods among them, though what makes them takes them along."""
    objects: tuple[str, ...]
    """`KIND NAME` of what goes, in the order of removal."""
    kept: tuple[str, ...] = ()
    """Names of claims that stay."""
    claims: bool = False
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How a clean ended."""

    findings: tuple[Finding, ...]
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Claims that stay."""

    @property
    def exit_code(self) -> int:
        return exit_code(self.findings)


def removal(kubectl: Kubectl, name: str, progress: Progress, *, claims: bool) -> Removal:
    """What is there to remove; changes nothing. Raises Refused."""
    kubectl = patient(kubectl, progress, _FIRST_PATIENCE_S)
    known = snapshot.labelled(kubectl, name, snapshot.kinds_in(kubectl))
    own = [one for one in known.objects if one["kind"] != _CLAIM]
    held = [one for one in known.objects if one["kind"] == _CLAIM]
    going = [*own, *held] if claims else own
    kinds = (snapshot.reference(one).partition("/")[0] for one in going)
    return Removal(
        name=name,
        namespace=kubectl.namespace,
        kinds=tuple(dict.fromkeys([*kinds, "pod"])),
        objects=_names(going),
        kept=() if claims else tuple(one["metadata"]["name"] for one in held),
        claims=claims,
        unseen=known.unseen,
    )


def clean(
    kubectl: Kubectl,
    name: str,
    progress: Progress,
    *,
    claims: bool,
    within_s: float,
    planned: Removal | None = None,
) -> Cleaned:
    """Remove it and wait until it is gone; nothing to remove is as well. Raises Refused.

    planned: of `removal`, where the user has agreed to it.
    """
    plan = planned or removal(kubectl, name, progress, claims=claims)
    kubectl = patient(kubectl, progress, min(_PATIENCE_S, within_s))
    if not plan.objects:
        return Cleaned(_warned(plan), (), plan.kept)
    progress.phase(f"removing {', '.join(plan.objects)}")
    # By label, not by name: what somebody else made since under one of these names stays.
    words = ("delete", ",".join(plan.kinds), "-l", snapshot.owner_selector(name), "--wait=false")
    kubectl.do(*words, "--ignore-not-found", within_s=60.0)
    left = _until_gone(kubectl, name, plan.kinds, progress, within_s)
    late = (_left(left, within_s),) if left else ()
    return Cleaned((*_warned(plan), *late), plan.objects, plan.kept)


def _until_gone(
    kubectl: Kubectl, name: str, kinds: Sequence[str], progress: Progress, within_s: float
) -> Sequence[Mapping[str, Any]]:
    """What is still there when the time is over."""
    course = Course(progress)
    while left := snapshot.found(kubectl, name, kinds).objects:
        if course.now > within_s:
            return left
        verb = "is" if len(left) == 1 else "are"
        course.tell(f"waiting until {', '.join(_names(left)[:4])} {verb} gone")
        time.sleep(_PAUSE_S)
    return ()


def _names(objects: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(f"{one['kind']} {one['metadata']['name']}" for one in objects)


def _left(left: Sequence[Mapping[str, Any]], within_s: float) -> Finding:
    pods = [one for one in left if one["kind"] == "Pod"]
    nodes = sorted({one["spec"].get("nodeName", "") for one in pods} - {""})
    return make_finding(
        "left",
        count=len(left),
        after=format_duration(within_s),
        saw=", ".join(_names(left)[:6]),
        because=f"nodes that may not answer: {', '.join(nodes)}" if nodes else "",
        next=f"kubectl describe pod {pods[0]['metadata']['name']}" if pods else "",
    )


def _warned(plan: Removal) -> tuple[Finding, ...]:
    if not plan.unseen:
        return ()
    return (make_finding("kinds_unseen", saw=plan.unseen[0], evidence=plan.unseen[1:]),)
