"""The user's own kubectl or oc as the engine: it brings their login, contexts and proxies."""

import json
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import IO, Any

from wirespeed.clusters.deployment import CONTAINER
from wirespeed.clusters.file import Cluster
from wirespeed.errors import CannotMeasure

CALL_S = 30.0
"""Bound for one call, unless its caller knows better."""
MOST_BYTES = 256 << 20
"""Of one answer: 10,000 whole pods are a tenth of it."""
_PIECE = 1 << 20
_INSTALL = "https://kubernetes.io/docs/tasks/tools/"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call gave."""

    words: tuple[str, ...]
    code: int | None
    """None: it did not end in time, and was ended."""
    out: str
    err: str


class Refused(CannotMeasure):
    """The cluster (or kubectl) said no; `answer` holds its words, `refusals.cause_of` their meaning."""

    def __init__(self, answer: Answer) -> None:
        said = answer.err.strip() or answer.out.strip() or "it gave no answer in time"
        super().__init__(
            said.splitlines()[-1], expected="an answer", next=" ".join(answer.words[:6])
        )
        self.answer = answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubectl:
    """One cluster and namespace, as a program with its first words."""

    program: str
    namespace: str
    context: str = ""
    kubeconfig: str = ""

    def words(self, *words: str) -> tuple[str, ...]:
        """The whole command line."""
        where = [f"--namespace={self.namespace}"]
        if self.context:
            where.append(f"--context={self.context}")
        if self.kubeconfig:
            where.append(f"--kubeconfig={self.kubeconfig}")
        return (self.program, *where, *words)

    def exec_words(self, pod: str, far: Sequence[str]) -> tuple[str, ...]:
        """The command line that runs `far` in the ranks' container; no shell reads it."""
        return self.words("exec", "-i", pod, "-c", CONTAINER, "--", *far)

    def by_hand(self, *words: str) -> str:
        """The command that a person types."""
        program, *rest = self.words(*words)
        return shlex.join([PurePath(program).name, *rest])

    def ask(self, *words: str, stdin: str = "", within_s: float = CALL_S) -> Answer:
        """Run it to its end; never raises for what the cluster answers."""
        command = self.words(*words)
        try:
            code, out, err = _bounded(command, stdin.encode(), within_s)
        except OSError as error:
            raise CannotMeasure(
                f"{self.program} cannot be run: {error.strerror}", expected="kubectl or oc"
            ) from error
        if len(out) > MOST_BYTES:
            said = f"error: {self.program} told more than {MOST_BYTES >> 20} MiB"
            return Answer(command, 1, "", said)
        return Answer(command, code, *(part.decode("utf-8", "replace") for part in (out, err)))

    def do(self, *words: str, stdin: str = "", within_s: float = CALL_S) -> str:
        """Its stdout; Refused where it failed or gave no answer in time."""
        return self._answered(*words, stdin=stdin, within_s=within_s).out

    def json(self, *words: str, stdin: str = "", within_s: float = CALL_S) -> dict[str, Any]:
        """What `-o json` told; Refused as `do`."""
        return document(self._answered(*words, "-o", "json", stdin=stdin, within_s=within_s))

    def items(self, *words: str, within_s: float = CALL_S) -> list[dict[str, Any]]:
        """The objects of a list."""
        return items_of(self._answered(*words, "-o", "json", stdin="", within_s=within_s))

    def _answered(self, *words: str, stdin: str, within_s: float) -> Answer:
        answer = self.ask(*words, stdin=stdin, within_s=within_s)
        if answer.code != 0:
            raise Refused(answer)
        return answer


def document(answer: Answer) -> dict[str, Any]:
    """The object that an answer holds, without nulls; empty where it holds nothing.

    Refused for what no API server says: no JSON, no object, too deep, labels that are a number.
    """
    try:
        told = _known(json.loads(answer.out.strip() or "{}"))
        if not isinstance(told, dict):
            raise TypeError("no object")
        _check(told)
    except (RecursionError, TypeError, ValueError) as error:
        seen = f"error: its answer is not what an API server says: {error}: {answer.out[:80]!r}"
        raise Refused(replace(answer, code=answer.code or 1, err=seen)) from error
    return told


def items_of(answer: Answer) -> list[dict[str, Any]]:
    """The objects of a list, of one object, or of nothing; each has a name. Refused as `document`."""
    told = document(answer)
    items: list[dict[str, Any]] = told.get("items", [told] if told else [])
    if not all(one.get("metadata", {}).get("name") for one in items):
        raise Refused(replace(answer, code=1, err="error: its answer holds objects without a name"))
    return [{"apiVersion": "", "kind": "", **one} for one in items]


def json_object(text: str) -> dict[str, Any]:
    """The object that a text is as JSON; empty for anything else."""
    try:
        told = json.loads(text or "{}")
    except (RecursionError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _known(data: Any) -> Any:
    """`data` without nulls, which say nothing in Kubernetes."""
    if isinstance(data, dict):
        return {key: _known(value) for key, value in data.items() if value is not None}
    return [_known(one) for one in data] if isinstance(data, list) else data


_WORDS = ("labels", "annotations", "matchLabels", "nodeSelector", "data")
_AMOUNTS = ("allocatable", "capacity", "requests", "limits")
_FREE = (*_WORDS, *_AMOUNTS, "rules", "managedFields")
"""Their keys are the user's, or mean something else there."""
_KINDS: dict[type, str] = {
    dict: "metadata spec template state lastState running waiting terminated resources "
    "involvedObject securityContext serverVersion " + " ".join((*_WORDS, *_AMOUNTS)),
    list: "items containers initContainers conditions containerStatuses initContainerStatuses "
    "taints ownerReferences tolerations env volumes",
    str: "name namespace uid kind apiVersion phase reason message nodeName creationTimestamp type "
    "startedAt finishedAt startTime lastTimestamp eventTime podIP image gitVersion provisioner "
    "updateRevision",
    int: "count restartCount exitCode replicas readyReplicas generation observedGeneration",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
_NEEDS = {"conditions": ("type", "status"), "taints": ("key",), "ownerReferences": ("kind", "name")}
_NEEDS |= dict.fromkeys(("containers", "initContainers", "containerStatuses"), ("name",))


def _check(told: Any) -> None:
    """TypeError where a part that we read is of another type than the API says."""
    for one in told if isinstance(told, list) else ():
        _check(one)
    for name, value in told.items() if isinstance(told, dict) else ():
        if wrong := _wrong(name, value, told):
            raise TypeError(wrong)
        if name not in _FREE:
            _check(value)


def _wrong(name: str, value: Any, among: Mapping[str, Any]) -> str:
    """What is wrong with a part; empty: nothing."""
    kind = _KIND_OF.get(name, object)
    if name == "status":  # a condition has one, too
        kind = str if "type" in among else dict
    elif name == "resources" and "groupVersion" in among:
        kind = list
    right: bool = isinstance(value, kind) and not (kind is int and type(value) is bool)
    if not right:
        return f"{name} is a {type(value).__name__}"
    needs = {*_NEEDS.get(name, ())}
    if kind is list and not all(isinstance(one, dict) and one.keys() >= needs for one in value):
        return " ".join((name, "without", *sorted(needs)))
    if name in _WORDS and not all(isinstance(one, str) for one in value.values()):
        return f"{name} are no words"
    if name in _AMOUNTS and not all(type(one) in (str, int, float) for one in value.values()):
        return f"{name} are no quantities"
    return ""


def _bounded(
    command: Sequence[str], stdin: bytes, within_s: float
) -> tuple[int | None, bytearray, bytearray]:
    """(exit code or None, stdout, stderr), of each about MOST_BYTES; it is killed when that, or its
    time, is over. What it leaves running may hold its pipes: that is not waited for."""
    end = time.monotonic() + within_s
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
    out, err = bytearray(), bytearray()
    work = (
        (_read, process.stdout, out),
        (_read, process.stderr, err),
        (_feed, process.stdin, stdin),
    )
    threads = [threading.Thread(target=do, args=(process, *it), daemon=True) for do, *it in work]
    try:
        for thread in threads:
            thread.start()
        for thread in threads[:2]:
            thread.join(max(0.0, end - time.monotonic()))
        code: int | None = process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        code = None
    finally:
        process.kill()
        process.wait()
    return code, out, err


def _read(process: subprocess.Popen[bytes], stream: IO[bytes], kept: bytearray) -> None:
    with stream, suppress(OSError):
        while len(kept) <= MOST_BYTES and (piece := stream.read(_PIECE)):
            kept += piece
    if len(kept) > MOST_BYTES:
        process.kill()


def _feed(_: subprocess.Popen[bytes], stream: IO[bytes], data: bytes) -> None:
    with stream, suppress(OSError):
        while data:
            data = data[stream.write(data) :]


def kubectl_of(cluster: Cluster, candidates: Sequence[str] = ("kubectl", "oc")) -> Kubectl:
    """The program that is there, pointed at the file's cluster; CannotMeasure where none is."""
    wanted = candidates if cluster.program == "auto" else (cluster.program,)
    for name in wanted:
        if path := shutil.which(name):
            return Kubectl(
                program=path,
                namespace=cluster.namespace,
                context=cluster.context,
                kubeconfig=cluster.kubeconfig,
            )
    raise CannotMeasure(
        f"neither of {', '.join(wanted)} is on the PATH",
        expected="the program that you log in to the cluster with",
        next=_INSTALL,
    )
