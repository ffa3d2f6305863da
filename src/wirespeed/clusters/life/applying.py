"""Trying objects out on the server, and applying them: server-side apply, so that it can be repeated."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wirespeed.clusters.kube.kubectl import Answer, Kubectl, Refused, items_of
from wirespeed.clusters.kube.refusals import findings_of, is_about
from wirespeed.clusters.kube.rights import Right, missing_rights
from wirespeed.clusters.life.differences import Difference, differences, frozen_part
from wirespeed.records import Finding

__all__ = ["Trial", "apply", "explained", "probe_pod", "try_out", "with_rights"]

_APPLY = ("apply", "--server-side", "--force-conflicts", "--field-manager=wirespeed", "-f", "-")
"""Only objects with our labels are applied; of those the cluster file is the truth, so that a replica
count that somebody has changed by `kubectl scale` is put back (and shown)."""
_APPLY_S = 60.0
_PROBE = "wirespeed-try"


@dataclass(frozen=True, slots=True)
class Trial:
    """What the server says of objects without keeping them."""

    objects: tuple[dict[str, Any], ...] = ()
    """As they would be kept, without the probe; empty where any was refused."""
    refusals: tuple[Finding, ...] = ()
    probe: tuple[Finding, ...] = ()
    """Of the probe pod: what would stop the pods themselves."""


def probe_pod(template: Mapping[str, Any], account: str) -> dict[str, Any]:
    """A pod that is only tried out: quotas and policies look at pods, not at what makes them.

    account: one that is there already, since ours may not be made yet.
    """
    spec = {**template["spec"], "serviceAccountName": account}
    mounted = {"workspace", "datasets"}
    have = {one["name"] for one in spec.get("volumes", ())}
    # A StatefulSet adds the volumes of its claims itself.
    lacking = [{"name": name, "emptyDir": {}} for name in sorted(mounted - have)]
    spec["volumes"] = [*spec.get("volumes", ()), *lacking]
    metadata = {**template["metadata"], "name": _PROBE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def try_out(
    kubectl: Kubectl, objects: Sequence[Mapping[str, Any]], probe: Mapping[str, Any] | None
) -> Trial:
    """Server-side dry run of all in one call; nothing is kept. Never raises for a refusal."""
    wanted = [*objects, probe] if probe else list(objects)
    answer = kubectl.ask(
        *_APPLY, "--dry-run=server", "-o", "json", stdin=_list(wanted), within_s=_APPLY_S
    )
    if answer.code != 0:
        found = findings_of(answer)
        of_probe = tuple(one for one in found if _is_of_probe(one))
        refusals = tuple(one for one in found if one not in of_probe)
        # A user who may not make pods directly may still make what makes them.
        probed = tuple(one for one in of_probe if not is_about(one, "006"))
        if refusals or probed or not of_probe or probe is None:
            return Trial((), refusals, probed)
        return try_out(kubectl, objects, None)
    return Trial(tuple(one for one in _items(answer) if one["metadata"]["name"] != _PROBE))


def apply(kubectl: Kubectl, objects: Sequence[Mapping[str, Any]]) -> None:
    """Make them so. Raises Refused."""
    answer = kubectl.ask(*_APPLY, stdin=_list(objects), within_s=_APPLY_S)
    if answer.code != 0:
        raise Refused(answer)


def explained(
    finding: Finding,
    objects: Sequence[Mapping[str, Any]],
    live: Sequence[Mapping[str, Any]],
) -> Finding:
    """The finding with what only we can add: what it is that cannot be changed."""
    return _frozen(finding, objects, live) if is_about(finding, "023") else finding


def with_rights(
    kubectl: Kubectl, found: Sequence[Finding], objects: Sequence[Mapping[str, Any]]
) -> list[Finding]:
    """One finding for all rights that are missing, in place of one for each object refused."""
    refused = [one for one in found if is_about(one, "006")]
    if not refused:
        return list(found)
    listed = ", ".join(str(one) for one in missing_rights(kubectl, _rights(objects)))
    whole = replace(
        refused[0],
        because=f"missing in namespace {kubectl.namespace}: {listed}" if listed else "",
        next=f"kubectl auth can-i --list --namespace {kubectl.namespace}",
        evidence=tuple(one.saw for one in refused[1:]),
    )
    return [whole, *(one for one in found if one not in refused)]


def _frozen(
    finding: Finding, objects: Sequence[Mapping[str, Any]], live: Sequence[Mapping[str, Any]]
) -> Finding:
    """Which fields, and the way out that loses no data."""
    there = {(one["kind"], one["metadata"]["name"]): one for one in live}
    found: list[Difference] = []
    claims = False
    for one in objects:
        old = there.get((one["kind"], one["metadata"]["name"]))
        if old is None or f'{one["kind"]} "{one["metadata"]["name"]}"' not in finding.saw:
            continue
        claims = one["kind"] == "PersistentVolumeClaim"
        found += differences(frozen_part(old), frozen_part(one), only_of_new=True)
    fix = (
        "set it back; or `clean --claims`, which deletes the data, and deploy again"
        if claims
        else "deploy again with --recreate: pods are made anew, claims and their data stay"
    )
    told = tuple(str(one) for one in found)
    because = f"Kubernetes does not change {told[0]}" if told else finding.because
    return replace(finding, because=because, fix=fix, evidence=(*told, *finding.evidence))


def _rights(objects: Sequence[Mapping[str, Any]]) -> list[Right]:
    """To deploy and look after it: each kind's, and those for pods."""
    kinds: dict[tuple[str, str], None] = {}
    for one in objects:
        group = one["apiVersion"].rpartition("/")[0]
        kinds[(_plural(one["kind"]), group)] = None
    found = [
        Right(verb, plural, group)
        for plural, group in kinds
        for verb in ("get", "list", "create", "patch", "delete")
    ]
    looking = [Right("list", "pods"), Right("list", "events"), Right("get", "pods", "")]
    inside = [Right("get", "pods/log"), Right("create", "pods/exec")]
    return [*found, *looking, *inside]


def _plural(kind: str) -> str:
    """Of the kinds that we make."""
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


def _is_of_probe(finding: Finding) -> bool:
    return f'"{_PROBE}"' in finding.saw


def _list(objects: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def _items(answer: Answer) -> list[dict[str, Any]]:
    return items_of(answer)
