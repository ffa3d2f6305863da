"""Ranks in the pods of a cluster file's environment: one `kubectl exec` a pod, torchrun inside."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.launchers.base import Engine, EngineOption, Held, Job, Piece, Prepared
from wirespeed.launchers.k8s.words import CLUSTER, ONCE, by_hand, exec_words, kubectl_told
from wirespeed.launchers.node import torchrun
from wirespeed.records import Finding

if TYPE_CHECKING:
    from wirespeed.clusters.file.model import ClusterFile
    from wirespeed.clusters.kube.kubectl import Kubectl
    from wirespeed.launchers.k8s.looking import Environment

__all__ = ["ENGINE"]


class _K8s:
    name = "k8s"
    summary = "pods of a cluster file's environment (--cluster), or of one made for the job alone"
    options = (
        EngineOption("directory", "working directory of the ranks in the pods (/workspace)"),
        EngineOption(
            "own", "make an environment for this job alone, also if one is deployed", True
        ),
        EngineOption("mode", "of an environment made for the job: rdma, tcp or auto"),
        EngineOption("fallback", "of it: tcp, where RDMA is asked and not there"),
        EngineOption("ready", "of it: seconds for all pods to be ready (900)"),
        EngineOption("lease", "of it: seconds after which it goes when we are gone (300)"),
        *torchrun.OPTIONS,
    )

    def prepare(self, job: Job) -> Prepared:
        from wirespeed.clusters.kube.kubectl import Refused
        from wirespeed.clusters.kube.server import wrong_server
        from wirespeed.launchers.k8s.looking import could_not_look, looked
        from wirespeed.launchers.k8s.once import planned

        _check(job)
        file, kubectl = _cluster(job)
        job = replace(job, python=job.python or file.workload.python)
        if not job.written and (wrong := wrong_server(kubectl, file.cluster.api)):
            return could_not_look(job, wrong)
        try:
            there = _environment(job, file, kubectl)
            if there is not None and there.deployed and "own" not in job.options:
                return looked(job, kubectl, there)
        except Refused as refused:
            return could_not_look(job, refused)
        return planned(job, file, kubectl)

    def pieces(self, job: Job, scratch: Path) -> list[Piece]:
        if not job.hosts:
            raise CannotMeasure("no pod can be used", expected="one that ranks can run in")
        kubectl = kubectl_told(job)

        def enter(pod: str, far: Sequence[str]) -> Sequence[str]:
            return exec_words(kubectl, pod, far)

        return torchrun.pieces(job, enter, lambda pod: by_hand(kubectl, "describe", "pod", pod))

    @contextmanager
    def hold(self, job: Job, say: Callable[[str], None]) -> Iterator[Held]:
        from wirespeed.launchers.k8s.once import hold_once

        if ONCE not in job.options:
            yield Held(prepared=Prepared(job=job), lost=_lost_of(job))
            return
        file, kubectl = _cluster(job)
        with hold_once(job, file, kubectl, say) as held:
            held.lost = _lost_of(held.prepared.job)
            yield held

    def shared(self, job: Job, say: Callable[[str], None]) -> Sequence[Finding]:
        from wirespeed.launchers.k8s.looking import WORKSPACE
        from wirespeed.launchers.k8s.shared import shared_findings

        file = _cluster(job)[0]
        if file.storage.mode != "rwx" or len(job.hosts) < 2:
            return []
        say(f"looking whether all pods share {WORKSPACE}")
        pods = [host.name for host in job.hosts]
        return shared_findings(kubectl_told(job), pods, job.python, WORKSPACE)

    def around(self, job: Job, scratch: Path) -> tuple[list[Piece], list[Piece]]:
        from wirespeed.launchers.k8s.once import around_once

        if ONCE not in job.options:
            return [], []
        return around_once(job, _cluster(job)[0], str(scratch))


def _cluster(job: Job) -> "tuple[ClusterFile, Kubectl]":
    """The file that `--cluster` names, and what drives its cluster."""
    from wirespeed.clusters.file.finding import read_named
    from wirespeed.clusters.kube.kubectl import Kubectl, kubectl_of

    file = read_named(job.options[CLUSTER])
    try:
        return file, kubectl_of(file.cluster)
    except CannotMeasure:
        if not job.written:
            raise
        told = file.cluster
        return file, Kubectl(
            program="kubectl",
            namespace=told.namespace,
            context=told.context,
            kubeconfig=told.kubeconfig,
        )


def _environment(job: Job, file: "ClusterFile", kubectl: "Kubectl") -> "Environment | None":
    """What is deployed; None: nobody can be asked, and the job is only to be written down."""
    from wirespeed.launchers.k8s.looking import environment_of

    try:
        return environment_of(kubectl, file.cluster.name)
    except CannotMeasure:
        if job.written:
            return None
        raise


def _lost_of(job: Job) -> Callable[[Sequence[str]], Sequence[Finding]]:
    """Asks the API server about pods of that job."""
    from wirespeed.launchers.k8s.looking import places_of
    from wirespeed.launchers.k8s.lost import why_lost

    return lambda names: why_lost(kubectl_told(job), places_of(job), names)


def _check(job: Job) -> None:
    """UsageError for what cannot be meant."""
    if CLUSTER not in job.options:
        raise UsageError(
            "--on k8s needs the cluster's file",
            expected="--cluster NAME (of clusters/NAME.yaml) or --cluster FILE",
            next="wirespeed cluster list",
        )
    torchrun.check_options(job)
    torchrun.check_number(job, "ready", 1, 86_400)
    torchrun.check_number(job, "lease", 30, 86_400)
    torchrun.check_one_of(job, "mode", ("auto", "rdma", "tcp"))
    torchrun.check_one_of(job, "fallback", ("tcp",))
    directory = job.options.get("directory", "/")
    if not directory.startswith("/") or not directory.isprintable():
        raise UsageError(f"--with directory={directory!r}", expected="an absolute path in the pods")


ENGINE: Engine = _K8s()
