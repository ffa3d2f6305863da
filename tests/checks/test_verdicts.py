"""The verdict of a run that measures: which word, which exit code, and what it promises."""

from collections.abc import Iterable

import pytest

from wirespeed.checks.verdicts import Extent, Grade, grade, topo_grade
from wirespeed.model.bench_records import ReferenceFigure, ReferenceKind
from wirespeed.model.records import Finding, Status, Subject

WORLD, DATA, SPEED = "WORLD-001", "COL-001", "BW-001"
LOOKED_AT: dict[str, Status] = {WORLD: "pass", DATA: "pass", SPEED: "measured"}


def reference(kind: ReferenceKind) -> ReferenceFigure:
    return ReferenceFigure(
        kind=kind, source="x", op="all_reduce", engine="torch", dtype="float32", redop="sum",
        in_place=False, size_bytes=1 << 20, ranks=4, busbw=1e9,
    )  # fmt: skip


def finding(id: str, status: Status, *kinds: ReferenceKind, subject: str = "") -> Finding:
    who = Subject("node", subject) if subject else Subject("job", "job")
    references = tuple(map(reference, kinds))
    return Finding(id=id, status=status, title=id, subject=who, references=references)


def of(statuses: dict[str, Status]) -> list[Finding]:
    return [finding(id, status) for id, status in statuses.items()]


def graded(command: str, findings: Iterable[Finding], **extent: object) -> Grade:
    return grade(command, list(findings), Extent(**extent))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "word", "code"),
    [
        ({}, "READY", 0),
        ({"NET-003": "warn", "GPU-001": "not_checked"}, "READY", 0),
        ({DATA: "fail"}, "NOT READY", 1),
        ({SPEED: "fail"}, "NOT READY", 1),
        ({"NODE-001": "fail", DATA: "not_applicable"}, "NOT READY", 1),
        ({WORLD: "not_checked"}, "UNKNOWN", 3),
        ({DATA: "not_applicable"}, "UNKNOWN", 3),
        ({DATA: "not_checked"}, "UNKNOWN", 3),
        ({SPEED: "not_checked"}, "UNKNOWN", 3),
        ({"WORLD-005": "not_checked"}, "UNKNOWN", 3),
        ({"WORLD-003": "not_checked"}, "UNKNOWN", 3),
    ],
)
def test_ready_needs_world_data_and_speed(changes: dict[str, Status], word: str, code: int) -> None:
    found = graded("check", of(LOOKED_AT | changes), measured=2)
    assert (found.verdict, found.exit_code) == (word, code)


@pytest.mark.parametrize("missing", LOOKED_AT)
def test_what_is_absent_was_not_looked_at(missing: str) -> None:
    left = {id: status for id, status in LOOKED_AT.items() if id != missing}
    assert graded("check", of(left), measured=2).verdict == "UNKNOWN"


@pytest.mark.parametrize(
    ("speed", "judged"),
    [
        ([finding(SPEED, "measured")], False),
        ([finding(SPEED, "measured", "roofline")], False),
        ([finding(SPEED, "measured", "fleet")], False),
        ([finding(SPEED, "warn", "fleet")], False),
        ([finding(SPEED, "pass", "baseline")], True),
        ([finding(SPEED, "pass", "reference", "roofline")], True),
        ([finding(SPEED, "pass", "reference"), finding("BW-002", "measured", "fleet")], True),
        ([finding(SPEED, "pass", "reference"), finding("BW-002", "measured")], True),
        ([finding(SPEED, "pass", "baseline"), finding("BW-002", "measured", "baseline")], False),
    ],
)
def test_speed_is_judged_only_against_what_somebody_endorsed(
    speed: list[Finding], judged: bool
) -> None:
    findings = [finding(WORLD, "pass"), finding(DATA, "pass"), *speed]
    found = graded("check", findings, measured=2)
    assert (found.verdict, found.speed_judged) == ("READY", judged)


@pytest.mark.parametrize("command", ["bench", "train"])
@pytest.mark.parametrize(
    ("findings", "measured", "word", "code"),
    [
        ([finding(DATA, "pass")], 2, "MEASURED", 0),
        ([finding(DATA, "pass"), finding(SPEED, "pass", "baseline")], 2, "MEASURED", 0),
        ([finding(DATA, "fail")], 2, "FAILED", 1),
        ([finding(SPEED, "fail", "baseline")], 2, "FAILED", 1),
        ([finding(WORLD, "pass")], 0, "UNKNOWN", 3),
        ([finding("WORLD-003", "warn")], 2, "MEASURED", 0),
    ],
)
def test_who_measures_says_measured_and_never_ready(
    command: str, findings: list[Finding], measured: int, word: str, code: int
) -> None:
    found = graded(command, findings, measured=measured)
    assert (found.verdict, found.exit_code) == (word, code)
    assert found.speed_judged is not None


@pytest.mark.parametrize(
    ("statuses", "word", "code"),
    [
        ({"ENV-001": "pass"}, "PASSED", 0),
        ({"ENV-001": "warn"}, "PASSED", 0),
        ({"ENV-001": "pass", "NODE-001": "not_applicable"}, "PASSED", 0),
        ({"ENV-001": "fail"}, "FAILED", 1),
        ({"NODE-001": "not_checked"}, "UNKNOWN", 3),
        ({"NODE-001": "not_applicable"}, "UNKNOWN", 3),
        ({SPEED: "measured"}, "UNKNOWN", 3),
        ({}, "UNKNOWN", 3),
    ],
)
def test_a_selection_passes_by_what_was_judged(
    statuses: dict[str, Status], word: str, code: int
) -> None:
    found = graded("check", of(statuses), only=True, checks_listed=93, measured=4)
    assert (found.verdict, found.exit_code) == (word, code)


@pytest.mark.parametrize(
    ("findings", "word", "code", "subject"),
    [
        ([finding("LOC-001", "pass")], "NO CULPRIT", 0, ""),
        ([finding("LOC-001", "fail", subject="node-2")], "CULPRIT NAMED", 1, "node-2"),
        ([finding("LOC-009", "not_checked")], "NOT DECIDED", 3, ""),
        ([finding(WORLD, "pass")], "NOT DECIDED", 3, ""),
    ],
)
def test_a_search_names_a_culprit_or_says_why_not(
    findings: list[Finding], word: str, code: int, subject: str
) -> None:
    found = graded("locate", findings, measured=1)
    assert (found.verdict, found.exit_code, found.subject) == (word, code, subject)


@pytest.mark.parametrize("command", ["check", "bench", "train", "locate"])
def test_a_failure_outlives_an_interruption(command: str) -> None:
    bad = {"check": "NOT READY", "locate": "CULPRIT NAMED"}.get(command, "FAILED")
    failed = finding("COL-001", "fail", subject="node-1")
    cut = graded(command, [failed], interrupted=True)
    assert (cut.verdict, cut.exit_code) == (bad, 130)
    clean = graded(command, of(LOOKED_AT), interrupted=True, measured=1)
    assert (clean.verdict, clean.exit_code) == ("INTERRUPTED", 130)


@pytest.mark.parametrize("command", ["check", "bench", "train", "locate"])
@pytest.mark.parametrize("code", [2, 3, 4, 5])
def test_a_refusal_keeps_its_exit_code(command: str, code: int) -> None:
    found = graded(command, [finding("WORLD-002", "fail")], refusal=code)
    assert (found.verdict, found.exit_code) == ("UNKNOWN", code)


def test_a_look_at_the_nodes_gives_no_verdict() -> None:
    def ended(findings: list[Finding], *, seen: bool = True, cut: bool = False) -> tuple[str, int]:
        found = topo_grade(findings, seen=seen, refusal=None, interrupted=cut)
        return found.verdict, found.exit_code

    assert ended([]) == ("NONE", 0)
    assert ended([], seen=False) == ("UNKNOWN", 3)
    assert ended([], cut=True) == ("INTERRUPTED", 130)
    assert ended([finding("DIED-001", "fail")]) == ("NONE", 1)
