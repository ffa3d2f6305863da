"""Findings of a sync: what stood in the way, and what to do."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from wirespeed.clusters.kube.kubectl import Answer
from wirespeed.clusters.kube.refusals import finding_of, may_pass
from wirespeed.clusters.life.pods import Pod
from wirespeed.clusters.life.syncing.session import Brought
from wirespeed.clusters.life.syncing.tree import Tree
from wirespeed.clusters.life.syncing.wire import Lost, Refusal
from wirespeed.records import Finding, Subject
from wirespeed.units import format_size

__all__ = ["lost_finding", "of_pod", "of_tree", "refusal_finding", "skipped_finding"]

_NO_PROGRAM = re.compile(
    r"OCI runtime exec failed|unable to start container process|executable file not found"
    r"|no such file or directory|exec format error"
)
_SERVER = re.compile(r"^(?:error|Error from server).*", re.MULTILINE)
_NAMED = 5


def of_tree(tree: Tree, unreadable: Sequence[tuple[str, str]]) -> list[Finding]:
    """What of the folder here cannot be brought, and what would mean something else there."""
    found = []
    refused = [*tree.refused, *unreadable]
    if refused:
        named = tuple(f"{shown(path)}: {why}" for path, why in refused)
        found.append(
            Finding(
                id="CLUSTER-035",
                status="fail",
                title=f"{_counted(refused, 'path')} of the folder cannot be brought; nothing was sent",
                saw="; ".join(named[:_NAMED]),
                expected="files, folders and links that this user can read",
                fix="leave them out: --exclude PATTERN, or a line in .wirespeedignore",
                evidence=named[_NAMED:],
            )
        )
    if tree.outside:
        found.append(
            Finding(
                id="CLUSTER-034",
                status="warn",
                title=f"{_counted(tree.outside, 'link')} to somewhere outside the folder",
                saw=_some(tree.outside),
                because="links are brought as links, and are never followed: there they lead to "
                "whatever the pod has at that path, or to nothing",
            )
        )
    return found


def of_pod(brought: Brought, target: str, *, delete: bool, dry: bool) -> list[Finding]:
    """What a pod's folder could not take, or lost."""
    subject = Subject("node", brought.pod)
    found = []
    if brought.unsteady:
        found.append(
            Finding(
                id="CLUSTER-033",
                status="fail",
                title=f"{brought.pod}: {_counted(brought.unsteady, 'file')} changed each time it was "
                "read, or went; left there as it was",
                subject=subject,
                saw=_some(brought.unsteady),
                expected="a file that holds still while it is read",
                fix="call again when nothing writes to it, or --exclude it",
            )
        )
    if brought.way:
        found.append(_way(brought, target, subject, delete=delete))
    if brought.replaced_count or brought.kept_count:
        found.append(_own_changes(brought, subject, dry=dry))
    return found


def _way(brought: Brought, target: str, subject: Subject, *, delete: bool) -> Finding:
    return Finding(
        id="CLUSTER-036",
        status="fail",
        title=f"{brought.pod}: something else lies at {brought.way_count} paths"
        if brought.way_count > 1
        else f"{brought.pod}: something else lies at a path",
        subject=subject,
        saw=f"in {target}: {_some(brought.way)}",
        expected="nothing, or what a former sync brought; a link in the pod is not written through",
        because="a folder there is a file here, or the other way round, or the pod has a link there",
        fix="look at it and remove it there"
        if delete
        else "--delete, if a former sync brought it; else look at it and remove it there",
    )


def _own_changes(brought: Brought, subject: Subject, *, dry: bool) -> Finding:
    replaced, kept = brought.replaced_count, brought.kept_count
    would = "would be" if dry else "were"
    parts = [f"{replaced} files of the pod's own {would} replaced"] if replaced else []
    parts += [f"{kept} that were changed there stay"] if kept else []
    return Finding(
        id="CLUSTER-038",
        status="warn",
        title=f"{brought.pod}: {', '.join(parts)}",
        subject=subject,
        saw=_some((*brought.replaced, *brought.kept)),
        because="they were not what a sync had brought: somebody changed or made them in the pod",
        fix="change files here, or work there in another folder than the one that is synced",
    )


def refusal_finding(pod: Pod, refusal: Refusal, target: str) -> Finding:
    """The pod's side told of trouble."""
    told, text = refusal.told, str(refusal)
    base = Finding(
        id="CLUSTER-037",
        status="fail",
        title=f"{pod.name}: the sync ended: {text}",
        subject=Subject("node", pod.name),
        fix="call again: it goes on where it ended",
    )
    if refusal.kind == "space":
        needed, free = told.get("needed"), told.get("free")
        if isinstance(needed, int) and isinstance(free, int):
            text = f"{format_size(free)} free, {format_size(needed)} needed"
        return replace(
            base,
            id="CLUSTER-031",
            title=f"{pod.name}: no room in {target}",
            saw=text,
            expected="room for all that is new beside the old: it takes its place when it is whole",
            fix="make room there, leave out more (--exclude), or a larger storage.workspace_size",
        )
    if refusal.kind == "readonly":
        return replace(
            base,
            id="CLUSTER-032",
            title=f"{pod.name}: {target} cannot be written to",
            saw=text,
            expected="a folder that the container's user may write to",
            fix="another --to, or security.fs_group or run_as_user for whom the storage belongs to",
        )
    if refusal.kind == "busy":
        return replace(
            base,
            id="CLUSTER-039",
            title=f"{pod.name}: {text}, of {target}",
            expected="one sync of a folder at a time",
            fix="wait until it has ended, or end it",
        )
    return base


def lost_finding(pod: Pod, lost: Lost, python: str) -> Finding:
    """kubectl ended, or fell silent."""
    match = _SERVER.search(lost.said)
    if _NO_PROGRAM.search(lost.said) or lost.code in (126, 127):
        return _no_python(pod, lost, python)
    if match:
        answer = Answer(("kubectl", "exec"), lost.code or 1, "", lost.said)
        told = finding_of(answer, doing=f"sync to {pod.name}")
        # An interruption is told below: here it may as well be the pod's.
        if told.id != "CLUSTER-026" and not may_pass(answer):
            return replace(told, subject=Subject("node", pod.name))
    how = "fell silent" if lost.code is None else f"ended with {lost.code}"
    return Finding(
        id="CLUSTER-037",
        status="fail",
        title=f"{pod.name} was lost while it was synced",
        subject=Subject("node", pod.name),
        saw=f"kubectl exec {how}: {lost.said}" if lost.said else f"kubectl exec {how}",
        expected="the pod's side to say that all is in its place",
        because="the pod or its node went down, or the connection to it broke",
        fix="call again: no file there is half written, and what was brought is not sent again",
    )


def _no_python(pod: Pod, lost: Lost, python: str) -> Finding:
    return Finding(
        id="CLUSTER-030",
        status="fail",
        title=f"{pod.name} has no {python}",
        subject=Subject("node", pod.name),
        saw=lost.said or f"exit code {lost.code}",
        expected="Python 3.8 or newer in the pod, at workload.python of the cluster file",
        fix="workload.python: its path in the image",
        next=f"kubectl exec {pod.name} -- sh -c 'command -v python3'",
    )


def skipped_finding(pod: Pod) -> Finding:
    """A pod that does not run."""
    return Finding(
        id="CLUSTER-039",
        status="fail",
        title=f"{pod.name} was not brought up to date: it does not run",
        subject=Subject("node", pod.name),
        saw=pod.status or pod.phase,
        expected="Running",
        fix="call again when it runs",
    )


def shown(path: str) -> str:
    """A path for a message; quoted where it could be misread."""
    plain = path.isprintable() and path == path.strip() and not path.startswith(("-", "'"))
    return path if plain else ascii(os.fsencode(path))[1:]


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(map(shown, paths[:_NAMED])) + more


def _counted(found: Sequence[object], word: str) -> str:
    return f"{len(found)} {word}{'' if len(found) == 1 else 's'}"
