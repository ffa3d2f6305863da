"""nccl-tests as an MPIJob that comes, runs and goes: nothing of it is left, whatever happens.

The job is an environment of its own, NAME-nccl-tests, beside the deployed one; it has no claims. What
an interrupted call left there is removed by the next one.
"""

import getpass
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from wirespeed.clusters.deployment import CONTAINER, Deployment
from wirespeed.clusters.file import Storage
from wirespeed.clusters.findings import make_finding
from wirespeed.clusters.kube import Kubectl, Progress
from wirespeed.clusters.manifests import selector_text
from wirespeed.clusters.manifests.render import as_yaml, job, mpirun_words, render
from wirespeed.clusters.operations.capabilities import missing_for
from wirespeed.clusters.operations.pod_failures import Cause, cause_findings, causes
from wirespeed.clusters.operations.pod_lookup import Pod, is_true, pods_of
from wirespeed.clusters.operations.snapshot import Seen, events_of, look
from wirespeed.clusters.operations.status import OPERATOR_S, Course
from wirespeed.errors import CannotMeasure, Interrupted, UsageError
from wirespeed.model.records import Finding

_KIND = "mpijobs.kubeflow.org"
_RUN = "wirespeed/run"
_OURS = "nccl-tests"
_STARTED_BY = "wirespeed/started-by"
_LAUNCHER = "launcher"
_ENDED = ("Succeeded", "Failed")
_EVERY_S = 0.5
_DESCRIBE = "kubectl describe pods -l "
_LAST_LINES = 6
_GONE_S = 120.0
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a job gave."""

    log: str = ""
    """The launcher's output."""
    code: int | None = None
    """The launcher's exit code; None: it is not known."""
    findings: tuple[Finding, ...] = ()


def environment_of(deployment: Deployment) -> Deployment:
    """The deployment that the job is made of; UsageError where it has no GPU to test."""
    if not deployment.gpus:
        raise UsageError(
            "nccl-tests measures GPUs, and gpus.per_node is 0",
            expected="gpus.per_node of 1 or more",
            next=f"wirespeed bench --on k8s --cluster {deployment.name}",
        )
    file = deployment.file
    # The longest name of a file still gives pods whose names are labels of DNS.
    cluster = file.cluster.but(name=f"{deployment.name}-{_OURS}")
    workload = file.workload.but(labels={**file.workload.labels, _RUN: _OURS})
    file = file.but(cluster=cluster, workload=workload, storage=Storage())
    return replace(deployment, file=file, engine="mpijob")


def manifests(environment: Deployment, program: Sequence[str]) -> list[dict[str, Any]]:
    """All objects, in the order in which to apply them; `program` runs as one rank a GPU."""
    made = job(environment, mpirun_words(environment, program))
    # The namespace is not the job's: what comes and goes leaves it alone.
    kept = [one for one in render(environment) if one["kind"] != "Namespace"]
    return [made if one["kind"] == "MPIJob" else one for one in kept]


def run_tests(
    kubectl: Kubectl,
    environment: Deployment,
    program: Sequence[str],
    progress: Progress,
    line: Callable[[str], None],
    *,
    start_s: float,
    within_s: float,
) -> Ended:
    """Run it to its end; each line of the launcher goes to `line` as it comes.

    start_s: for the launcher to start; within_s: for the whole. Raises Refused.
    """
    if findings := missing_for(kubectl, "mpijob"):
        return Ended(findings=findings)
    objects = manifests(environment, program)
    run = _Run(kubectl, environment, progress, line)
    if findings := run.make_room():
        return Ended(findings=findings)
    try:
        progress.phase("MPIJob: applying")
        kubectl.do("apply", "-f", "-", stdin=as_yaml(_signed(objects)))
        end = time.monotonic() + within_s
        return run.watch(min(end, time.monotonic() + start_s), end)
    finally:
        progress.phase("MPIJob: removing")
        run.remove(objects)


@dataclass(slots=True)
class _Run:
    """One job of ours in the cluster."""

    kubectl: Kubectl
    environment: Deployment
    progress: Progress
    line: Callable[[str], None]
    lines: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.environment.name

    def make_room(self) -> tuple[Finding, ...]:
        """Remove what an interrupted call of this user left; a finding where it is somebody else's."""
        if there := self._job():
            meta = there["metadata"]
            ours = meta.get("labels", {}).get(_RUN) == _OURS
            who = meta.get("annotations", {}).get(_STARTED_BY, "") if ours else ""
            if not ours or (who != _me() and not is_true(there.get("status", {}), *_ENDED)):
                return (make_finding("taken", name=self.name, who=who or "somebody else"),)
            self.progress.phase("removing what an earlier run left")
            self.kubectl.do("delete", _KIND, self.name, "--ignore-not-found", "--wait=false")
        self._await_room()
        return ()

    def _await_room(self) -> None:
        """The operator would take pods of that name that are just going for its own."""
        course = Course(self.progress)
        while pods_of(self.kubectl, self.name) or self._job() is not None:
            if course.now > _GONE_S:
                raise CannotMeasure(
                    f"pods of an earlier run are not gone within {_GONE_S:.0f} s",
                    next=f"kubectl get pods -n {self.kubectl.namespace} -l {selector_text(self.name)}",
                )
            course.tell("waiting until pods of an earlier run are gone")
            time.sleep(_EVERY_S)

    def watch(self, start_by: float, end: float) -> Ended:
        """Wait for the launcher, hand its lines on, and tell how it ended."""
        launcher, findings = self._started(start_by)
        if launcher is None:
            return Ended(findings=findings)
        self.progress.phase(f"running in {launcher.name}")
        code = self._follow(launcher.name, end)
        log, last = "".join(f"{line}\n" for line in self.lines), tuple(self.lines[-_LAST_LINES:])
        if code == 0:
            return Ended(log=log, code=code)
        entry = "not_ended" if code is None else "failed"
        return Ended(log=log, code=code, findings=(make_finding(entry, code=code, evidence=last),))

    def remove(self, objects: Sequence[dict[str, Any]]) -> None:
        """All that we made; the operator's pods go with their MPIJob. CannotMeasure where it fails."""
        kinds = ",".join(dict.fromkeys(_kind_of(one) for one in objects))
        words = ("delete", kinds, "-l", f"{selector_text(self.name)},{_RUN}={_OURS}")
        try:
            self._delete(words)
        except Interrupted:  # only once: what was interrupted is done again
            self._delete(words)
            raise

    def _delete(self, words: Sequence[str]) -> None:
        for _ in range(_TRIES):
            # Ctrl-C at a terminal ends kubectl too: then once more.
            if self.kubectl.ask(*words, "--ignore-not-found", "--wait=false").code == 0:
                return
        raise CannotMeasure(
            f"the MPIJob {self.name} may still be there: it could not be removed",
            expected="nothing is left of a run",
            next=" ".join(["kubectl", "-n", self.kubectl.namespace, *words]),
        )

    def _job(self) -> dict[str, Any] | None:
        return self.kubectl.json("get", _KIND, self.name, "--ignore-not-found") or None

    def _started(self, start_by: float) -> tuple[Pod | None, tuple[Finding, ...]]:
        """The launcher once it runs or has run; None with what holds it up for good, or until now."""
        course = Course(self.progress)
        while True:
            seen = look(self.kubectl, self.name, "mpijob")
            pods = [pod for pod in seen.told if not pod.terminating]
            launcher = next((pod for pod in pods if pod.role == _LAUNCHER), None)
            if launcher and launcher.phase in ("Running", *_ENDED):
                return launcher, ()
            found, state = self._causes(seen), self._state(pods)
            final = course.final(found)
            if final or time.monotonic() > start_by:
                late = make_finding(
                    "not_started", saw=state, next=_DESCRIBE + selector_text(self.name)
                )
                return None, cause_findings(self.kubectl, final or found) or (late,)
            if not pods and course.now > OPERATOR_S and not self.environment.file.workload.queue:
                return None, (make_finding("no_operator", name=self.name, operator_s=OPERATOR_S),)
            course.tell(f"waiting: {found[0].finding.title if found else state}")
            time.sleep(_EVERY_S)

    def _causes(self, seen: Seen) -> list[Cause]:
        """Why pods do not come; nothing while the operator has made none."""
        if not seen.pods:
            return []
        return causes(replace(seen, events=events_of(self.kubectl)), self.environment.nodes)

    def _state(self, pods: Sequence[Pod]) -> str:
        workers = [pod for pod in pods if pod.role != _LAUNCHER]
        ready = sum(pod.ready for pod in workers)
        told = f"{ready} of {self.environment.nodes} workers ready"
        held = [f"{pod.name} {pod.status}" for pod in pods if not pod.ready]
        return ", ".join([told, *held[:4]]) if pods else "the operator has made no pods"

    def _follow(self, pod: str, end: float) -> int | None:
        """Hand on what the launcher prints until it has ended; its exit code, None out of time."""
        while time.monotonic() < end:
            self._stream(pod, end)
            ended, code = self._exit_code(pod)
            if ended:
                self._stream(pod, end)
                return code
            time.sleep(_EVERY_S)
        return None

    def _stream(self, pod: str, end: float) -> None:
        """One `kubectl logs -f`, until it ends; what was handed on before is not handed on again."""
        words = self.kubectl.words("logs", "-f", pod, "-c", CONTAINER)
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            encoding="utf-8", errors="replace",
        ) as process:  # fmt: skip
            bound = threading.Timer(max(0.0, end - time.monotonic()), process.terminate)
            bound.daemon = True
            bound.start()
            try:
                self._take(process)
            finally:
                bound.cancel()
                process.terminate()

    def _take(self, process: "subprocess.Popen[str]") -> None:
        known = len(self.lines)
        for index, text in enumerate(process.stdout or ()):
            if index >= known and text.endswith("\n"):
                self.lines.append(text.rstrip("\r\n"))
                self.line(self.lines[-1])

    def _exit_code(self, pod: str) -> tuple[bool, int | None]:
        """Whether the launcher has ended, and with which code; a pod that is gone has ended."""
        told = self.kubectl.json("get", "pod", pod, "--ignore-not-found")
        if not told:
            return True, None
        status = told.get("status", {})
        for one in status.get("containerStatuses") or ():
            held = one.get("state", {}).get("terminated")
            if one.get("name") == CONTAINER and held:
                return True, held.get("exitCode")
        return status.get("phase") in _ENDED, None


def _signed(objects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With who started it: another one's run in the same namespace is never removed while it runs."""
    signed = []
    for one in objects:
        meta = one["metadata"]
        notes = {**meta.get("annotations", {}), _STARTED_BY: _me()}
        signed.append({**one, "metadata": {**meta, "annotations": notes}})
    return signed


def _me() -> str:
    user = "unknown"
    with suppress(OSError, KeyError):  # a user id without a name
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"


def _kind_of(made: dict[str, Any]) -> str:
    """As kubectl takes it whatever else has the same kind: MPIJob.v2beta1.kubeflow.org."""
    group, _, version = made["apiVersion"].rpartition("/")
    return f"{made['kind']}.{version}.{group}" if group else str(made["kind"])
