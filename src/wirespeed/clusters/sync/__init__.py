"""`cluster sync`: a folder of this machine to folders of pods, by content, over `kubectl exec`.

Here: all pods, once or again after each change, and findings: what stood in the way.

local_tree.py  what lies in the folder here, what of it is left out (patterns as in .gitignore), and
               what cannot be brought
transfer.py    frames through one kubectl process, with bounds; one pod brought up to date
remote/        the pod's side: its text is sent there and run by the pod's Python
"""

import os
import posixpath
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.findings import make_finding
from wirespeed.clusters.kube import Answer, Kubectl, Progress, finding_of, may_pass
from wirespeed.clusters.operations.pod_lookup import Pod, pods_of
from wirespeed.clusters.sync.local_tree import Hashes, Tree, ignore_for, scan
from wirespeed.clusters.sync.transfer import Brought, Lost, Order, Refusal, bring, python_words
from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.model.records import Finding, Subject
from wirespeed.model.units import counted, format_size

_NO_PROGRAM = re.compile(
    r"OCI runtime exec failed|unable to start container process|executable file not found"
    r"|no such file or directory|exec format error"
)
_SERVER = re.compile(r"^(?:error|Error from server).*", re.MULTILINE)
_NAMED = 5


def of_tree(tree: Tree, unreadable: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """What of the folder here cannot be brought, and what would mean something else there."""
    if refused := [*tree.refused, *unreadable]:
        named = tuple(f"{shown(path)}: {why}" for path, why in refused)
        count, rest = counted(len(refused), "path"), named[_NAMED:]
        yield make_finding("of_tree", count=count, saw="; ".join(named[:_NAMED]), evidence=rest)
    if tree.outside:
        count = counted(len(tree.outside), "link")
        yield make_finding("links_outside", count=count, saw=_some(tree.outside))


def of_pod(brought: Brought, order: Order) -> Iterator[Finding]:
    """What a pod's folder could not take, or lost."""
    told: dict[str, Any] = {"subject": Subject("node", brought.pod), "pod": brought.pod}
    if brought.unsteady:
        count = counted(len(brought.unsteady), "file")
        yield make_finding("unsteady", count=count, saw=_some(brought.unsteady), **told)
    if brought.way:
        where = f"{brought.way_count} paths" if brought.way_count > 1 else "a path"
        first = "" if order.delete else "--delete, if a former sync brought it; else "
        saw = f"in {order.target}: {_some(brought.way)}"
        yield make_finding("in_the_way", where=where, first=first, saw=saw, **told)
    replaced, kept = brought.replaced_count, brought.kept_count
    if replaced or kept:
        would = "would be" if order.dry else "were"
        parts = [f"{replaced} files of the pod's own {would} replaced"] if replaced else []
        parts += [f"{kept} that were changed there stay"] if kept else []
        saw = _some((*brought.replaced, *brought.kept))
        yield make_finding("own_changes", what=", ".join(parts), saw=saw, **told)


_REFUSALS = {"space": "sync_space", "readonly": "sync_readonly", "busy": "sync_busy"}


def _of(pod: Pod, entry: str, **values: Any) -> Finding:
    return make_finding(entry, pod=pod, subject=Subject("node", pod.name), **values)


def refusal_finding(pod: Pod, refusal: Refusal, target: str) -> Finding:
    """The pod's side told of trouble."""
    text, needed, free = str(refusal), refusal.told.get("needed"), refusal.told.get("free")
    if refusal.kind == "space" and isinstance(needed, int) and isinstance(free, int):
        text = f"{format_size(free)} free, {format_size(needed)} needed"
    return _of(pod, _REFUSALS.get(refusal.kind, "sync_other"), target=target, text=text)


def lost_finding(pod: Pod, lost: Lost, python: str) -> Finding:
    """kubectl ended, or fell silent."""
    if _NO_PROGRAM.search(lost.said) or lost.code in (126, 127):
        return _of(pod, "no_python", python=python, saw=lost.said or f"exit code {lost.code}")
    if _SERVER.search(lost.said):
        answer = Answer(("kubectl", "exec"), lost.code or 1, "", lost.said)
        told = finding_of(answer, doing=f"sync to {pod.name}")
        # An interruption is told below: here it may as well be the pod's.
        if told.id != "CLUSTER-026" and not may_pass(answer):
            return replace(told, subject=Subject("node", pod.name))
    how = "fell silent" if lost.code is None else f"ended with {lost.code}"
    saw = f"kubectl exec {how}" + (f": {lost.said}" if lost.said else "")
    return _of(pod, "lost_finding", saw=saw)


def shown(path: str) -> str:
    """A path for a message; quoted where it could be misread."""
    plain = path.isprintable() and path == path.strip() and not path.startswith(("-", "'"))
    return path if plain else ascii(os.fsencode(path))[1:]


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(map(shown, paths[:_NAMED])) + more


WORKSPACE = "/workspace"
DATASETS = "/datasets"
_AT_ONCE = 8
"""Pods that are written to at the same time; all of it goes through the API server."""
_SHOW_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncOptions:
    folder: Path
    to: str = WORKSPACE
    excludes: tuple[str, ...] = ()
    delete: bool = False
    """Also what former calls brought and is not here any more."""
    dry: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """One call."""

    pods: tuple[Brought, ...] = ()
    findings: tuple[Finding, ...] = ()
    shared: str = ""
    """The claim's storage mode, where one pod was written to for all."""

    @property
    def ok(self) -> bool:
        return not any(one.status == "fail" for one in self.findings)


@dataclass(slots=True)
class Syncer:
    """Calls for one folder; what was read for one need not be read for the next."""

    kubectl: Kubectl
    file: ClusterFile
    options: SyncOptions
    progress: Progress
    _hashes: Hashes = field(init=False)
    _moved: int = 0

    def __post_init__(self) -> None:
        refuse_bad_folder(self.options.folder)
        self._hashes = Hashes(self.options.folder)

    def run(self) -> Synced:
        """One call. Raises CannotMeasure without pods, Refused, and UsageError for the folder."""
        order, found = self._order()
        if any(one.status == "fail" for one in found):
            return Synced(findings=tuple(found))
        self.progress.phase("asking for the pods")
        pods = pods_of(self.kubectl, self.file.cluster.name)
        running = [pod for pod in pods if pod.phase == "Running" and not pod.terminating]
        shared = self._shared()
        if not running:
            raise _no_pods(self.file.cluster.name, pods)
        if not shared:
            found += [
                _of(pod, "skipped_finding", saw=pod.status or pod.phase)
                for pod in pods
                if pod not in running
            ]
        brought, more = self._all(running[:1] if shared else running, order)
        return Synced(pods=tuple(brought), findings=(*found, *more), shared=shared)

    def _order(self) -> tuple[Order, list[Finding]]:
        options = self.options
        self.progress.phase(f"reading {options.folder}")
        tree = scan(options.folder, ignore_for(options.folder, options.excludes))
        self._moved = 0
        hashes = self._hashes.of(tree, self._read)
        order = Order(
            folder=options.folder,
            tree=tree,
            hashes=hashes,
            target=target_of(options.to),
            delete=options.delete,
            dry=options.dry,
        )
        return order, list(of_tree(tree, self._hashes.unreadable))

    def _read(self, size: int) -> None:
        before, self._moved = self._moved, self._moved + size
        if before >> 28 != self._moved >> 28:
            self.progress.phase(f"reading {self.options.folder}: {format_size(self._moved)}")

    def _shared(self) -> str:
        """`rwx` where all pods see the same target."""
        storage, target = self.file.storage, target_of(self.options.to)
        places = [WORKSPACE] + ([DATASETS] if storage.datasets_size else [])
        inside = any(target == place or target.startswith(f"{place}/") for place in places)
        return storage.mode if storage.mode == "rwx" and inside else ""

    def _all(self, pods: list[Pod], order: Order) -> tuple[list[Brought], list[Finding]]:
        stop, moved = threading.Event(), _Moved()
        with ThreadPoolExecutor(min(_AT_ONCE, len(pods))) as pool:
            try:
                calls = [pool.submit(self._one, pod, order, stop, moved) for pod in pods]
                told = -1
                while waiting := wait(calls, _SHOW_S).not_done:
                    if moved.bytes != told:
                        told = moved.bytes
                        left = f"{len(calls) - len(waiting)} of {len(calls)} pods are done"
                        self.progress.phase(f"{left}, {format_size(told)} sent")
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        results = [call.result() for call in calls]
        brought = [one for one, _ in results if one is not None]
        return brought, [finding for _, found in results for finding in found]

    def _one(self, pod: Pod, order: Order, stop: threading.Event, moved: "_Moved") -> "_Result":
        python = self.file.workload.python
        words = self.kubectl.exec_words(pod.name, python_words(python))
        try:
            brought = bring(words, pod.name, order, stop, moved.add)
        except Refusal as refusal:
            return None, [refusal_finding(pod, refusal, order.target)]
        except Lost as lost:
            return None, [lost_finding(pod, lost, python)]
        return brought, list(of_pod(brought, order))


_Result = tuple[Brought | None, list[Finding]]


class _Moved:
    """Bytes of content handed over to all pods together."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self.bytes += size


def target_of(to: str) -> str:
    """The folder in the pods; UsageError unless it is a plain absolute path below the root."""
    plain = posixpath.normpath(to).replace("//", "/")
    if not to.startswith("/") or ".." in to.split("/") or plain == "/" or not to.isprintable():
        raise UsageError(
            f"--to {to!r} is no folder to sync to",
            expected="an absolute path in the pods without .., such as /workspace or /workspace/src",
        )
    return plain


def refuse_bad_folder(folder: Path) -> None:
    """UsageError where it is none, or is one that is never meant."""
    if not folder.is_dir():
        raise UsageError(
            f"{str(folder)!r} is no folder", expected="the folder to bring to the pods"
        )
    place, homes = folder.resolve(), [Path("/")]
    with suppress(RuntimeError):  # a user without a home
        homes.append(Path.home().resolve())
    if place in homes:
        raise UsageError(
            f"{place} as a whole is not synced: it holds keys and logins",
            expected="the folder of one project",
        )


def _no_pods(name: str, pods: list[Pod]) -> CannotMeasure:
    seen = ", ".join(f"{pod.name} {pod.status or pod.phase}" for pod in pods[:5])
    return CannotMeasure(
        f"no pod of {name} runs: {seen}" if pods else f"there are no pods of {name}",
        expected="pods that run",
        next=f"wirespeed cluster {'status' if pods else 'deploy'} {name}",
    )


_LOOK_S = 0.5
_REST_S = 0.3
"""No change for so long: an editor or a checkout is done."""
_LONGEST_REST_S = 5.0
"""A folder that never comes to rest is synced all the same."""
_AGAIN_S = 5.0
"""After a call that did not bring all."""
_SHARE = 10.0
"""Looking takes a tenth of the time at most."""


def watch(folder: Path, excludes: tuple[str, ...], sync: Callable[[], bool]) -> None:
    """Sync, and again after each change, until KeyboardInterrupt.

    sync: whether all was brought; where not, it is called again after some seconds.
    """

    def looked() -> Tree:
        """The patterns are read anew, since they may be what changed."""
        return scan(folder, ignore_for(folder, excludes))

    while True:
        before = looked()
        good = sync()
        _wait(looked, before, float("inf") if good else _AGAIN_S)


def _wait(looked: Callable[[], Tree], before: Tree, seconds: float) -> None:
    """Until the folder differs from `before` and rests, or for `seconds`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        now = looked()
        if now != before:
            return _rest(looked, now)
        time.sleep(max(_LOOK_S, _SHARE * (time.monotonic() - began)))
    return None


def _rest(looked: Callable[[], Tree], seen: Tree) -> None:
    until = time.monotonic() + _LONGEST_REST_S
    while time.monotonic() < until:
        time.sleep(_REST_S)
        now = looked()
        if now == seen:
            return
        seen = now
