"""The user's own kubectl or oc as the engine: it brings their login, contexts and proxies."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wirespeed.clusters.file.model import Cluster
from wirespeed.errors import CannotMeasure

__all__ = ["Answer", "Kubectl", "Refused", "kubectl_of"]

CALL_S = 30.0
"""Bound for one call, unless its caller knows better."""
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

    def ask(self, *words: str, stdin: str = "", within_s: float = CALL_S) -> Answer:
        """Run it to its end; never raises for what the cluster answers."""
        command = self.words(*words)
        try:
            done = subprocess.run(
                command, input=stdin, capture_output=True, encoding="utf-8", errors="replace",
                timeout=within_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            return Answer(command, None, _text(late.stdout), _text(late.stderr))
        except OSError as error:
            raise CannotMeasure(
                f"{self.program} cannot be run: {error.strerror}", expected="kubectl or oc"
            ) from error
        return Answer(command, done.returncode, done.stdout, done.stderr)

    def do(self, *words: str, stdin: str = "", within_s: float = CALL_S) -> str:
        """Its stdout; Refused where it failed or gave no answer in time."""
        answer = self.ask(*words, stdin=stdin, within_s=within_s)
        if answer.code != 0:
            raise Refused(answer)
        return answer.out

    def json(self, *words: str, within_s: float = CALL_S) -> Any:
        """What `-o json` told; Refused as `do`."""
        return json.loads(self.do(*words, "-o", "json", within_s=within_s) or "{}")

    def items(self, *words: str, within_s: float = CALL_S) -> list[dict[str, Any]]:
        """The objects of a list."""
        found: list[dict[str, Any]] = self.json(*words, within_s=within_s).get("items", [])
        return found


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


def _text(part: bytes | str | None) -> str:
    return part.decode("utf-8", "replace") if isinstance(part, bytes) else part or ""
