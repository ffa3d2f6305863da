"""What fails a run: failures, warnings on demand, and never what was allowed."""

from wirespeed.checks.strictness import PLAIN, Strictness
from wirespeed.checks.verdicts import Extent, grade
from wirespeed.model.records import Finding, Status

STRICT = Strictness("warn")


def finding(id: str, status: Status) -> Finding:
    return Finding(id=id, status=status, title=f"about {id}")


def through(
    strict: Strictness, *findings: Finding, measured: int = 1
) -> tuple[list[Finding], str, int]:
    """A full check of a world whose data and speed were looked at, where `measured`."""
    looked_at = [
        finding("WORLD-001", "pass"), finding("COL-002", "pass"), finding("BW-002", "measured")
    ] if measured else []  # fmt: skip
    left = strict.allowed(findings)
    found, graded = strict.judged(left, grade("check", [*looked_at, *left], Extent()))
    return found, graded.verdict, graded.exit_code


def test_speed_that_was_only_measured_fails_where_a_judgement_is_asked_for() -> None:
    found, verdict, code = through(Strictness("unjudged"))
    assert (verdict, code) == ("UNKNOWN", 3)
    assert [(one.id, one.status) for one in found] == [("GATE-009", "not_checked")]
    assert through(Strictness("unjudged"), finding("COL-001", "fail"))[1:] == ("NOT READY", 1)


def test_a_warning_fails_only_where_that_was_asked_for() -> None:
    warned = finding("NET-003", "warn")
    assert through(PLAIN, warned) == ([warned], "READY", 0)
    found, verdict, code = through(STRICT, warned, finding("COL-001", "pass"))
    assert (verdict, code) == ("NOT READY", 1)
    told = found[-1]
    assert (told.id, told.status) == ("GATE-001", "fail")
    assert told.title == "1 warning fails this run by --fail-on warn: NET-003"
    assert told.saw == "about NET-003"
    assert found[0] == warned, "it stays what it is"


def test_without_warnings_the_strict_gate_is_open() -> None:
    passed = [finding("COL-001", "pass"), finding("GPU-001", "not_checked")]
    assert through(STRICT, *passed) == (passed, "READY", 0)


def test_what_is_allowed_is_shown_and_fails_nothing() -> None:
    for strict in (
        Strictness(allow=frozenset({"PLACE-001"})),
        Strictness("warn", frozenset({"PLACE-001"})),
    ):
        (found,), verdict, code = through(strict, finding("PLACE-001", "fail"))
        assert (verdict, code) == ("READY", 0)
        assert (found.status, found.allowed) == ("warn", "fail")
        assert found.title == "about PLACE-001 (allowed by --allow PLACE-001)"
    passed = finding("PLACE-001", "pass")
    assert Strictness(allow=frozenset({"PLACE-001"})).allowed([passed]) == [passed]


def test_allowing_one_lets_no_other_through() -> None:
    strict = Strictness("warn", frozenset({"PLACE-001"}))
    assert through(strict, finding("PLACE-001", "fail"), finding("NET-001", "fail"))[1:] == (
        "NOT READY",
        1,
    )
    found, verdict, _ = through(strict, finding("PLACE-001", "warn"), finding("NET-001", "warn"))
    assert verdict == "NOT READY"
    assert found[-1].title == "1 warning fails this run by --fail-on warn: NET-001"


def test_what_is_unknown_stays_unknown() -> None:
    assert through(STRICT, finding("NET-001", "warn"), measured=0)[1:] == ("UNKNOWN", 3)
    allowed = Strictness(allow=frozenset({"NET-001"}))
    assert through(allowed, finding("NET-001", "fail"), measured=0)[1:] == ("UNKNOWN", 3)
