"""`cluster sync`: a folder of this machine to all pods."""

import posixpath
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from wirespeed.clusters.file.model import ClusterFile
from wirespeed.clusters.kube.kubectl import Kubectl
from wirespeed.clusters.life.pods import Pod, pods_of
from wirespeed.clusters.life.syncing.session import Brought, Order, bring, python_words
from wirespeed.clusters.life.syncing.telling import (
    lost_finding,
    of_pod,
    of_tree,
    refusal_finding,
    skipped_finding,
)
from wirespeed.clusters.life.syncing.tree import Hashes, ignore_for, scan
from wirespeed.clusters.life.syncing.wire import Lost, Refusal
from wirespeed.clusters.telling import Progress
from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.records import Finding
from wirespeed.units import format_size

__all__ = ["SyncOptions", "Synced", "Syncer", "target_of"]

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
            found += [skipped_finding(pod) for pod in pods if pod not in running]
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
        return order, of_tree(tree, self._hashes.unreadable)

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
                self._follow(calls, moved)
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        results = [call.result() for call in calls]
        brought = [one for one, _ in results if one is not None]
        return brought, [finding for _, found in results for finding in found]

    def _follow(self, calls: "list[Future[_Result]]", moved: "_Moved") -> None:
        told = -1
        while waiting := wait(calls, _SHOW_S).not_done:
            if moved.bytes != told:
                told = moved.bytes
                left = f"{len(calls) - len(waiting)} of {len(calls)} pods are done"
                self.progress.phase(f"{left}, {format_size(told)} sent")

    def _one(self, pod: Pod, order: Order, stop: threading.Event, moved: "_Moved") -> "_Result":
        python = self.file.workload.python
        inside = ("exec", "-i", pod.name, "-c", pod.container, "--", *python_words(python))
        try:
            brought = bring(self.kubectl.words(*inside), pod.name, order, stop, moved.add)
        except Refusal as refusal:
            return None, [refusal_finding(pod, refusal, order.target)]
        except Lost as lost:
            return None, [lost_finding(pod, lost, python)]
        return brought, of_pod(brought, order.target, delete=order.delete, dry=order.dry)


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
