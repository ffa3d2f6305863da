"""The user's own kubectl or oc as the engine: it brings their login, contexts and proxies.

What its refusals mean (meanings.yaml), as findings; the exit code that findings give. A refusal that may
pass is asked again (`patient`); kubectl that talks to another API server than the cluster file names is
one, too (`wrong_server`).
"""

import json
import re
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import IO, Any, Protocol
from urllib.parse import urlsplit

from wirespeed.clusters.deployment import CONTAINER
from wirespeed.clusters.file import Cluster
from wirespeed.clusters.findings import Meaning, make_finding, meanings
from wirespeed.errors import CannotMeasure
from wirespeed.model.records import Finding
from wirespeed.node.redact import redact_value

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
    """The cluster (or kubectl) said no; `answer` holds its words, `finding_of` tells their meaning."""

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

    def items(self, *words: str) -> list[dict[str, Any]]:
        """The objects of a list."""
        return items_of(self._answered(*words, "-o", "json"))

    def _answered(self, *words: str, stdin: str = "", within_s: float = CALL_S) -> Answer:
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
    program = next(filter(None, map(shutil.which, wanted)), None)
    if program is None:
        raise CannotMeasure(
            f"neither of {', '.join(wanted)} is on the PATH",
            expected="the program that you log in to the cluster with",
            next=_INSTALL,
        )
    where = {key: getattr(cluster, key) for key in ("namespace", "context", "kubeconfig")}
    return Kubectl(program=program, **where)


_NOISE = re.compile(r"[EWIF]\d{4} \d\d:\d\d:\d\d\.\d+ .*|Warning: .*|")
"""klog's lines (client-go tells each try of its own), warnings, and empty lines."""
_CONTINUED = re.compile(r"\s*\n\* ")
"""What is wrong with an object, where it is more than one thing, stands in lines of its own."""
_BEGINS = re.compile(
    r"error: |Error from server|Error |The \w+ \"|Unable to connect|The connection to"
)
"""A call for several objects tells an error each; these words begin one."""
_MOST_LINES, _MOST_ERRORS, _MOST_LETTERS = 8, 100, 1000


def said(answer: Answer, *, most: int = _MOST_LINES) -> tuple[str, ...]:
    """kubectl's own words, without its logging; secrets of addresses are hidden."""
    text = answer.err if answer.err.strip() else answer.out
    text = _CONTINUED.sub(" ", text)
    lines = [line.rstrip() for line in text.splitlines()]
    told = [line for line in lines if not _NOISE.fullmatch(line)]
    kept = dict.fromkeys(told or [line for line in lines if line])
    short = (line[: 4 * _MOST_LETTERS] for line in list(kept)[:most])
    return tuple(redact_value(line)[:_MOST_LETTERS] for line in short)


def meaning_of(lines: Sequence[str]) -> tuple[Meaning, str, re.Match[str]]:
    """The row that fits best, the line that it fits, and the match."""
    told = lines or ("it gave no reason",)
    for row in (*meanings().rows, meanings().unknown):
        for line in told:
            if match := row.pattern.search(line):
                return row, line, match
    raise ValueError("the last row fits everything")


def may_pass(answer: Answer) -> bool:
    """Whether the same call may succeed a little later: the API server was away or busy."""
    if answer.code is None:
        return True
    return answer.code != 0 and meaning_of(said(answer))[0].passing


def finding_of(refused: Refused | Answer, *, doing: str = "", next: str = "") -> Finding:
    """The finding of a refusal. doing: what could not be done; next: where the row has no better."""
    answer = refused.answer if isinstance(refused, Refused) else refused
    lines = said(answer)
    row, groups = meanings().silent, dict[str, str]()
    if answer.code is not None:
        row, line, match = meaning_of(lines)
        lines = (line, *(other for other in lines if other != line))
        for key, value in match.groupdict().items():
            if value:  # `why2` and `why3` are further ways to say `why`
                groups.setdefault(key.rstrip("0123456789"), value.strip(" :."))
    title = _fill(row.title, groups)
    return Finding(
        id=row.id,
        status="fail",
        title=f"{doing}: {title}" if doing else title,
        saw=lines[0] if lines else "no answer",
        expected=_fill(row.expected, groups),
        because=_fill(row.because, groups),
        fix=_fill(row.fix, groups),
        next=_fill(row.next, groups) or next,
        evidence=lines[1:],
    )


def findings_of(answer: Answer) -> tuple[Finding, ...]:
    """One for each error that a call for several objects gave, without repetitions."""
    parts: list[list[str]] = []
    for line in said(answer, most=_MOST_ERRORS):
        if _BEGINS.match(line) or not parts:
            parts.append([])
        parts[-1].append(line)
    if answer.code is None or not parts:
        return (finding_of(answer),)
    found = (finding_of(Answer(answer.words, answer.code, "", "\n".join(one))) for one in parts)
    return tuple({(one.id, one.title): one for one in found}.values())


def is_about(finding: Finding, *idents: str) -> bool:
    """Whether its id is one of these numbers: `is_about(finding, "006")`."""
    return finding.id.removeprefix("CLUSTER-") in idents


def _fill(template: str, groups: dict[str, str]) -> str:
    """Only `{name}` of known groups is replaced: what the cluster said is never a template itself."""
    return re.sub(r"\{(\w+)\}", lambda one: groups.get(one[1], ""), template).strip(" :")


_UNKNOWN = frozenset(
    {"CLUSTER-011", "CLUSTER-017", "CLUSTER-020", "CLUSTER-021", "CLUSTER-026", "CLUSTER-029"}
)
"""How things stand could not be seen: no answer, no login, not ready and no cause."""
_WRONG = "CLUSTER-019"
"""The kubeconfig is not the one that the file means."""


def exit_code(findings: Iterable[Finding]) -> int:
    """0 good, 1 a finding, 2 wrong configuration, 3 unknown."""
    failed = {one.id for one in findings if one.status == "fail"}
    if not failed:
        return 0
    if _WRONG in failed:
        return 2
    return 3 if failed <= _UNKNOWN else 1


class Progress(Protocol):
    """Where a lifecycle verb is; shown on stderr, never part of a result."""

    def phase(self, text: str) -> None:
        """A new step, or a new state of the same one."""
        ...


class Silent:
    """Nobody listens."""

    def phase(self, text: str) -> None:
        pass


_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 2.0


@dataclass(frozen=True, kw_only=True)
class PatientKubectl(Kubectl):
    """Repeats a call whose refusal may pass, within `patience_s` of its first try.

    Only for calls that may be repeated: reading, server-side apply, deleting.
    """

    patience_s: float = 30.0
    progress: Progress = field(default_factory=Silent)

    def ask(self, *words: str, stdin: str = "", within_s: float = CALL_S) -> Answer:
        end = time.monotonic() + self.patience_s
        pause = _FIRST_PAUSE_S
        while True:
            answer = super().ask(*words, stdin=stdin, within_s=within_s)
            if not may_pass(answer) or time.monotonic() + pause > end:
                return answer
            left = end - time.monotonic()
            self.progress.phase(f"the API server gives no answer; asking again for {left:.0f} s")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


def patient(kubectl: Kubectl, progress: Progress, patience_s: float) -> PatientKubectl:
    where = {name: getattr(kubectl, name) for name in Kubectl.__dataclass_fields__}
    return PatientKubectl(**where, patience_s=patience_s, progress=progress)


_PORTS = {"http": 80, "https": 443}


def same_server(told: str, server: str) -> bool:
    """Whether cluster.api, as told, is the address that kubectl has.

    told: `https://api.example.org:6443`, or less of it: the host, also without OpenShift's `api.`
    before the cluster's domain. What is not told may be anything. server: of the kubeconfig.
    """
    host, port = _parts(told)
    other, other_port = _parts(server)
    if host not in (other, other.removeprefix("api.")):
        return False
    return port is None or port == other_port


def _parts(address: str) -> tuple[str, int | None]:
    """Host in small letters, and port; None where neither it nor the scheme is told."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        port = parts.port
    except ValueError:  # no number, or none that a port can have
        port = 0
    return (parts.hostname or "").rstrip("."), _PORTS.get(parts.scheme) if port is None else port


def wrong_server(kubectl: Kubectl, api: str) -> Finding | None:
    """CLUSTER-019 where `api` (of the file; empty: any will do) is another address than kubectl's."""
    if not api:
        return None
    path = "jsonpath={.clusters[0].cluster.server}"
    answer = kubectl.ask("config", "view", "--minify", "-o", path)
    if answer.code != 0:
        return finding_of(answer)
    there = answer.out.strip()
    if same_server(api, there):
        return None
    told = there or "no server"
    saw = f"{told} in context {kubectl.context or '(the current one)'}"
    title = f"kubectl points to {told}, the cluster file to {api}"
    return make_finding("wrong_server", api=api, title=title, saw=saw)
