"""The word on a watched job: what comes first, what it is about, and what an interruption leaves."""

from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.checks.registry import EXPLAINED, OF_LOGS
from wirespeed.model.records import Finding, Status, Subject
from wirespeed.session.launched import Launched
from wirespeed.watch.verdict import watch_grade


def finding(id: str, status: Status, subject: str = "") -> Finding:
    who = Subject("rank", subject) if subject else Subject("job", "job")
    return Finding(id=id, status=status, title=id, subject=who)


LATE = finding("WATCH-001", "fail", "rank 2")
HANGS = finding("WATCH-008", "fail", "rank 3")
MIXED = finding("WATCH-009", "fail")
DUMPED = finding("FLIGHT-002", "fail", "rank 5")
DATA = finding("WATCH-003", "warn")
NAN = finding("WATCH-012", "fail", "rank 1")
GROWS = finding("WATCH-010", "warn", "rank 0")
UNSEEN = finding("WATCH-014", "not_checked")
GOOD = finding("WATCH-013", "pass")


@pytest.mark.parametrize(
    ("findings", "word", "code", "subject"),
    [
        ([GOOD], "NO FINDINGS", 0, ""),
        ([GROWS, GOOD], "NO FINDINGS", 0, ""),
        ([LATE, GOOD], "SLOW", 1, "rank 2"),
        ([DATA, GOOD], "SLOW", 0, "data loading"),
        ([DATA, LATE], "SLOW", 1, "rank 2"),
        ([LATE, HANGS], "HUNG", 1, "rank 3"),
        ([MIXED], "HUNG", 1, ""),
        ([DUMPED, UNSEEN], "HUNG", 1, "rank 5"),
        ([NAN, LATE], "JOB FAILED", 1, "rank 1"),
        ([UNSEEN], "NOT ENOUGH SEEN", 3, ""),
        ([UNSEEN, DATA], "NOT ENOUGH SEEN", 3, ""),
        ([UNSEEN, LATE], "SLOW", 1, "rank 2"),
        ([], "NOT ENOUGH SEEN", 3, ""),
    ],
)
def test_the_word(findings: list[Finding], word: str, code: int, subject: str) -> None:
    found = watch_grade(findings)
    assert (found.verdict, found.exit_code, found.subject) == (word, code, subject)


@pytest.mark.parametrize(
    ("findings", "word"),
    [([LATE], "JOB FAILED"), ([HANGS], "HUNG"), ([UNSEEN], "JOB FAILED"), ([], "JOB FAILED")],
)
def test_a_job_that_failed_was_no_slow_one(findings: list[Finding], word: str) -> None:
    assert watch_grade(findings, job_failed=True).verdict == word


def ended(watch: str, reason: str, code: int, *findings: Finding) -> tuple[str, int]:
    job: Any = SimpleNamespace(_watch=watch)
    end: Any = SimpleNamespace(reason=reason, first=0 if reason == "failed" else None)
    found = Launched._grade(job, end, code, list(findings))
    return found.verdict, code


@pytest.mark.parametrize("watch", ["line", "page"])
def test_what_failed_outlives_an_interruption(watch: str) -> None:
    assert ended(watch, "interrupted", 130, HANGS) == ("HUNG", 130)
    assert ended(watch, "interrupted", 130, LATE) == ("SLOW", 130)
    assert ended(watch, "interrupted", 130, GOOD) == ("INTERRUPTED", 130)
    assert ended(watch, "interrupted", 130, UNSEEN) == ("INTERRUPTED", 130)
    assert ended(watch, "finished", 0, LATE) == ("SLOW", 0)
    assert ended(watch, "finished", 0, GOOD) == ("NO FINDINGS", 0)
    assert ended(watch, "failed", 3, UNSEEN) == ("JOB FAILED", 3)


def test_without_a_watch_the_exit_code_decides() -> None:
    assert ended("no", "finished", 0) == ("ENDED WELL", 0)
    assert ended("no", "failed", 3) == ("JOB FAILED", 3)
    assert ended("no", "interrupted", 130) == ("INTERRUPTED", 130)
    assert ended("no", "lost", 3) == ended("line", "not_started", 3) == ("UNKNOWN", 3)


def test_each_finding_that_may_fail_a_watched_job_has_a_role() -> None:
    """Else it would be a job that failed, which it is not."""
    known = EXPLAINED | OF_LOGS
    failing = {
        id
        for id, check in known.items()
        if id.startswith("WATCH-")
        and any(text.status in ("fail", "warn") for text in check.cases.values())
    }
    without = {id for id in failing if not known[id].role}
    assert without == {"WATCH-010", "WATCH-015"}, "growing memory only warns; the other is attach's"
