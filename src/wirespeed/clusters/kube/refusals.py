"""What kubectl's refusals mean (meanings.yaml), as findings; the exit code that findings give.

A refusal that may pass is asked again (`patient`); kubectl that talks to another API server than the
cluster file names is one, too (`wrong_server`).
"""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import urlsplit

from wirespeed.clusters.findings import Meaning, make_finding, meanings
from wirespeed.clusters.kube import CALL_S, Answer, Kubectl, Refused
from wirespeed.model.records import Finding, Verdict
from wirespeed.node.redact import redact_value

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


def meaning_of(lines: Iterable[str]) -> tuple[Meaning, str, re.Match[str]]:
    """The row that fits best, the line that it fits, and the match."""
    told = list(lines)
    for row in meanings().rows:
        for line in told:
            if match := row.pattern.search(line):
                return row, line, match
    text = told[0] if told else "it gave no reason"
    unknown = meanings().unknown
    match = unknown.pattern.match(text)
    if match is None:
        raise ValueError("the last row fits everything")
    return unknown, text, match


def may_pass(answer: Answer) -> bool:
    """Whether the same call may succeed a little later: the API server was away or busy."""
    if answer.code is None:
        return True
    return answer.code != 0 and meaning_of(said(answer))[0].passing


def finding_of(refused: Refused | Answer, *, doing: str = "", next: str = "") -> Finding:
    """The finding of a refusal. doing: what could not be done; next: where the row has no better."""
    answer = refused.answer if isinstance(refused, Refused) else refused
    if answer.code is None:
        silent = meanings().silent
        return _told(silent, silent.pattern.match(""), said(answer), doing, next)
    lines = said(answer)
    row, line, match = meaning_of(lines)
    rest = tuple(other for other in lines if other != line)
    return _told(row, match, (line, *rest), doing, next)


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


def _told(
    row: Meaning, match: re.Match[str] | None, lines: tuple[str, ...], doing: str, next: str
) -> Finding:
    # By name; `why2` and `why3` are further ways to say `why`.
    found: dict[str, str] = {}
    for key, value in (match.groupdict() if match else {}).items():
        if value:
            found.setdefault(key.rstrip("0123456789"), value.strip(" :."))
    groups = found
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


def verdict(code: int) -> Verdict:
    return {0: "READY", 1: "NOT READY"}.get(code, "UNKNOWN")  # type: ignore[return-value]


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

    def lasting(self, patience_s: float) -> "PatientKubectl":
        """The same with another bound."""
        return replace(self, patience_s=patience_s)


def patient(kubectl: Kubectl, progress: Progress, patience_s: float) -> PatientKubectl:
    return PatientKubectl(
        program=kubectl.program,
        namespace=kubectl.namespace,
        context=kubectl.context,
        kubeconfig=kubectl.kubeconfig,
        patience_s=patience_s,
        progress=progress,
    )


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
    return (parts.hostname or "").rstrip("."), port if port is not None else _PORTS.get(
        parts.scheme
    )


def wrong_server(kubectl: Kubectl, api: str) -> Finding | None:
    """CLUSTER-019 where `api` (of the file; empty: any will do) is another address than kubectl's."""
    if not api:
        return None
    answer = kubectl.ask(
        "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}"
    )
    if answer.code != 0:
        return finding_of(answer)
    there = answer.out.strip()
    if same_server(api, there):
        return None
    return make_finding(
        "wrong_server",
        api=api,
        title=f"kubectl points to {there or 'no server'}, the cluster file to {api}",
        saw=f"{there or 'no server'} in context {kubectl.context or '(the current one)'}",
    )
