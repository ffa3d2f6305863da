"""Each verb with each way to end: the word, the exit code, and what becomes of the node's state.

The rows are made for every verb of the command line: a verb or an ending without a row fails.
docs/verdicts.md shows the table; WIRESPEED_RENEW_GOLDEN=1 writes it there.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from wirespeed.checks.verdicts import Extent, grade, topo_grade
from wirespeed.cli import _VERBS as VERBS
from wirespeed.cli import run as wirespeed
from wirespeed.fleet.nodes import moment_ago, state
from wirespeed.model.records import Finding, Status, Subject
from wirespeed.model.verdicts import MEANINGS, words_of
from wirespeed.runs.index import EVERYTHING, Index
from wirespeed.watch.attach.judge import exit_code as attach_code
from wirespeed.watch.verdict import watch_grade

PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"
ENDINGS = (0, 1, 2, 3, 4, 5, 127, 130)
NODE = socket.gethostname()
LOOKED_AT = (("WORLD-001", "pass"), ("COL-001", "pass"), ("BW-001", "measured"))
Ended = tuple[str, int, Sequence[Finding]]
"""(word, exit code, findings); the word is empty where no run is stored."""


@dataclass(frozen=True)
class Row:
    """What a verb that ends so says, and the state of a node that was good or failed before."""

    word: str = ""
    good: str = "pass"
    bad: str = "fail"


def finding(id: str, status: Status, *, on_node: bool = False) -> Finding:
    who = Subject("node", NODE) if on_node else Subject("job", "job")
    return Finding(id=id, status=status, title=id, subject=who)


def graded(command: str, ending: int, *, only: bool = False) -> Ended | None:
    """What a measuring verb makes of its records; None where it cannot end so."""
    good = [finding(id, status) for id, status in LOOKED_AT]  # type: ignore[arg-type]
    good += [finding("LOC-001", "pass")] if command == "locate" else []
    bad_id = "LOC-001" if command == "locate" else "COL-001"
    bad = [*good[:1], finding(bad_id, "fail", on_node=True)]
    if ending == 127:
        return None
    refused = ending if ending in (2, 3, 4, 5) else None
    findings = {0: good, 1: bad, 130: good[:1]}.get(ending, [finding("WORLD-002", "fail")])
    if command == "topo":
        findings = [finding("DIED-001", "fail")] if ending == 1 else []
        ended = topo_grade(findings, seen=ending == 0, refusal=refused, interrupted=ending == 130)
        return ended.verdict, ended.exit_code, findings
    extent = Extent(only=only, measured=2, interrupted=ending == 130, refusal=refused)
    ended = grade(command, findings, extent)
    return ended.verdict, ended.exit_code, findings


def watched(ending: int) -> Ended | None:
    found = {
        0: [finding("WATCH-013", "pass")],
        1: [finding("WATCH-001", "fail", on_node=True)],
        3: [finding("WATCH-014", "not_checked")],
    }.get(ending)
    if found is None:
        return None
    ended = watch_grade(found)
    return ended.verdict, ended.exit_code, found


def attached(ending: int) -> Ended | None:
    words = {0: "PROGRESSING", 1: "HUNG", 3: "CANNOT TELL"}
    if ending not in words:
        return None
    found = [finding("WATCH-008", "fail", on_node=True)] if ending == 1 else []
    return words[ending], attach_code(words[ending]), found  # type: ignore[arg-type]


def said_so(words: dict[int, str], bad: str = "") -> Callable[[int], Ended | None]:
    """A verb whose words its own tests prove: what they do to a node is proven here."""

    def ended(ending: int) -> Ended | None:
        if ending not in words:
            return None
        found = [finding(bad, "fail", on_node=True)] if bad and ending == 1 else []
        return words[ending], ending, found

    return ended


STORES: dict[str, Callable[[int], Ended | None]] = {
    "check": lambda ending: graded("check", ending),
    "check --only": lambda ending: graded("check", ending, only=True),
    "bench": lambda ending: graded("bench", ending),
    "train": lambda ending: graded("train", ending),
    "locate": lambda ending: graded("locate", ending),
    "topo": lambda ending: graded("topo", ending),
    "watch": watched,
    "attach": attached,
    "diagnose": said_so({0: "ENDED WELL", 1: "CAUSE NAMED", 3: "SYMPTOMS ONLY"}, "PY-001"),
    "gate": said_so({0: "READY", 1: "NOT READY", 3: "UNKNOWN"}, "GPU-009"),
    "cluster": said_so({0: "NONE", 1: "NONE", 3: "NONE", 130: "NONE"}, "CLUSTER-001"),
    "runs": said_so({0: "NONE", 1: "FAILED"}, "IMP-002"),
}
"""Verbs that store a run."""
UNKNOWN, INTERRUPTED = Row("UNKNOWN"), Row("INTERRUPTED")
REFUSED = {2: UNKNOWN, 3: UNKNOWN, 4: UNKNOWN, 5: UNKNOWN}
OPENS = {"good": "fail", "bad": "fail"}
TABLE: dict[str, dict[int, Row]] = {
    "check": {0: Row("READY"), 1: Row("NOT READY", **OPENS), **REFUSED, 130: INTERRUPTED},
    "check --only": {0: Row("PASSED"), 1: Row("FAILED", **OPENS), **REFUSED, 130: INTERRUPTED},
    "bench": {0: Row("MEASURED"), 1: Row("FAILED", **OPENS), **REFUSED, 130: INTERRUPTED},
    "train": {0: Row("MEASURED"), 1: Row("FAILED", **OPENS), **REFUSED, 130: INTERRUPTED},
    "locate": {
        0: Row("NO CULPRIT", bad="pass"),
        1: Row("CULPRIT NAMED", **OPENS),
        **REFUSED,
        130: INTERRUPTED,
    },
    "topo": {0: Row("NONE"), 1: Row("NONE"), **REFUSED, 130: INTERRUPTED},
    "launch": {
        0: Row("ENDED WELL"),
        **dict.fromkeys((1, 2, 3, 4, 5, 127), Row("JOB FAILED")),
        130: INTERRUPTED,
    },
    "watch": {0: Row("NO FINDINGS"), 1: Row("SLOW"), 3: Row("NOT ENOUGH SEEN")},
    "attach": {0: Row("PROGRESSING"), 1: Row("HUNG"), 3: Row("CANNOT TELL")},
    "diagnose": {0: Row("ENDED WELL"), 1: Row("CAUSE NAMED"), 3: Row("SYMPTOMS ONLY")},
    "gate": {0: Row("READY"), 1: Row("NOT READY", **OPENS), 3: UNKNOWN},
    "cluster": {0: Row("NONE"), 1: Row("NONE"), 3: Row("NONE"), 130: Row("NONE")},
    "runs": {0: Row("NONE"), 1: Row("FAILED")},
}
NO_RUN = frozenset(
    ("predict", "compare", "baseline", "trend", "report", "serve", "reference", "nodes", "fleet")
) | {"config", "completion"}
"""Verbs that judge or show what is stored: no run of theirs is stored, so no node changes."""
EVERY = [*VERBS, "check --only"]


def prepare(stored: Any, prior: str) -> None:
    """Store the run that made the node good, or named it."""
    if prior == "good":
        good = [finding(id, status) for id, status in LOOKED_AT]  # type: ignore[arg-type]
        stored(moment_ago(0.2), NODE, "other", findings=good)
    else:
        named = [finding("LOC-001", "fail", on_node=True)]
        told = {"command": "locate", "verdict": "CULPRIT NAMED", "findings": named}
        stored(moment_ago(0.2), NODE, "other", **told)


def state_now() -> str:
    with Index.opened() as index:
        return next(one.said for one in state(index) if one.host == NODE)


@pytest.mark.parametrize("verb", EVERY)
def test_every_verb_has_its_rows(verb: str) -> None:
    assert (verb in TABLE) != (verb in NO_RUN), f"{verb}: add its rows to TABLE, or to NO_RUN"
    command = verb.partition(" ")[0]
    if verb in NO_RUN:
        assert words_of(command) == ("NONE",)
        return
    said = {row.word for row in TABLE[verb].values()}
    others = said - {word for word, one in MEANINGS.items() if command in one.commands}
    assert others <= {"NONE", "UNKNOWN", "INTERRUPTED", "FAILED"}, "the table of words says so, too"


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("verb", [verb for verb in EVERY if verb in STORES])
@pytest.mark.parametrize("prior", ["good", "bad"])
def test_the_word_the_code_and_the_node(stored: Any, verb: str, ending: int, prior: str) -> None:
    row, ended = TABLE[verb].get(ending), STORES[verb](ending)
    assert (row is None) == (ended is None), "a row for what can be, and for nothing else"
    if row is None or ended is None:
        return
    word, code, findings = ended
    assert (word, code) == (row.word, ending)
    prepare(stored, prior)
    only = {"only": "COL-001"} if verb == "check --only" else None
    told = {"command": verb.partition(" ")[0], "verdict": word, "exit_code": code}
    stored(moment_ago(0.1), NODE, "other", findings=findings, config=only, **told)
    assert state_now() == (row.good if prior == "good" else row.bad)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["good", "bad"])
def test_a_job_says_nothing_of_its_node(stored: Any, prior: str, capsys: Any) -> None:
    """Real jobs that end in each way: the exit code is the job's, and the node stays what it was."""
    prepare(stored, prior)
    for ending, row in TABLE["launch"].items():
        if ending == 130:
            continue
        command = ("sh", "-c", f"exit {ending}")
        assert wirespeed(["launch", "--ranks", "1", "--", *command]) == ending
        assert newest() == (row.word, ending)
        assert state_now() == (row.good if prior == "good" else row.bad)
    capsys.readouterr()


@pytest.mark.slow
def test_an_interrupted_job_says_so(stored: Any, tmp_path: Path) -> None:
    prepare(stored, "bad")
    begun = tmp_path / "begun"
    job = ["sh", "-c", f"touch {begun}; exec sleep 60"]
    words = [sys.executable, "-m", "wirespeed", "launch", "--ranks", "1", "--", *job]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as running:
        end = time.monotonic() + 30
        while not begun.exists() and time.monotonic() < end:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 130
    assert (newest(), state_now()) == (("INTERRUPTED", 130), "fail")


def newest() -> tuple[str, int]:
    with Index.opened() as index:
        row = index.runs(EVERYTHING)[-1]
        return row.verdict, row.exit_code


BEGIN, END = "<!-- endings: tests/fleet/test_verbs_and_endings.py -->\n", "<!-- end of endings -->"


def page_table() -> str:
    """A row for each verb and ending that stores a run, as the page shows it."""
    lines = ["| verb | exit code | word | a good node becomes | a failed node becomes |"]
    lines.append("|---|---|---|---|---|")
    for verb in EVERY:
        alike: dict[Row, list[int]] = {}
        for ending, row in TABLE.get(verb, {}).items():
            alike.setdefault(row, []).append(ending)
        for row, endings in alike.items():
            codes = ", ".join(map(str, endings))
            cells = (f"`{verb}`", codes, row.word, *map(STATES.__getitem__, (row.good, row.bad)))
            lines.append(f"| {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)


STATES = {"pass": "good", "fail": "failed"}


def test_the_page_shows_the_table() -> None:
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    wanted = f"{head}{BEGIN}{page_table()}{END}{tail}"
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted
