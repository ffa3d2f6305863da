"""From data checks to findings: wrong is never lost, unchecked never passes."""

from typing import Any

from wirespeed.checks.correctness import correctness_findings
from wirespeed.model.records import Subject


def test_exact_data_pass_with_what_was_checked(verified: Any) -> None:
    checks = [verified(), verified(dtype="int8"), verified("broadcast")]
    reduce, broadcast = correctness_findings(checks)
    assert (reduce.id, reduce.status) == ("COL-001", "pass")
    assert reduce.title == "all_reduce: data exact in 2 configurations (2 dtypes)"
    assert reduce.saw == "0 of 8,168 elements wrong"
    assert broadcast.title == "broadcast: data exact in 1 configuration (float32)"


def test_a_barrier_has_no_data_and_says_so(verified: Any) -> None:
    (good,) = correctness_findings([verified("barrier", elements=8)])
    assert good.status == "pass"
    assert "data" not in good.title + good.saw
    (bad,) = correctness_findings([verified("barrier", elements=8, wrong=3)])
    assert bad.status == "fail"
    assert bad.title == "barrier lets ranks pass before all have come"
    assert bad.saw == "3 passages that did not wait for every rank"


def test_wrong_data_name_rank_value_and_pattern(verified: Any, wrong: Any) -> None:
    checks = [verified(), verified(dtype="int8", wrong=1, errors=(wrong(),))]
    (found,) = correctness_findings(checks)
    assert (found.status, found.subject) == ("fail", Subject("rank", "rank 1"))
    assert found.title == "all_reduce delivers wrong data on rank 1"
    assert found.saw == (
        "1 of 1021 elements wrong on rank 1 (node-a); element 2: saw 3.0, expected 1.0"
    )
    assert "bit flip" in found.because
    assert found.costs.endswith("1 of 2 data checks failed")
    assert found.next == "wirespeed check --only COL-001 -v"
    (line,) = found.evidence
    assert line == (
        "all_reduce int8 sum 4084 B: rank 1: 1 wrong, bit flip, bytes 8 to 11, from rank 0"
    )


def test_the_suspect_is_blamed_where_the_guesses_agree(verified: Any, wrong: Any) -> None:
    def subject(*errors: Any) -> Any:
        (found,) = correctness_findings([verified(wrong=len(errors), errors=errors)])
        return found.subject.name, found.title

    name, title = subject(wrong(0, suspect=3), wrong(2, suspect=3))
    assert name == "rank 3"
    assert title == "all_reduce delivers wrong data on 2 ranks, caused by rank 3"
    assert subject(wrong(0, suspect=3), wrong(2, suspect=1))[0] == "job"
    assert subject(wrong(2), wrong(2))[0] == "rank 2"
    assert subject(wrong(1), wrong(2))[0] == "job"


def test_an_unexplained_pattern_is_called_that(verified: Any, wrong: Any) -> None:
    (found,) = correctness_findings([verified(wrong=1, errors=(wrong(guess="unexplained"),))])
    assert found.because.startswith("no known pattern")


def test_much_evidence_is_cut_and_counted(verified: Any, wrong: Any) -> None:
    errors = tuple(wrong(rank) for rank in range(20))
    (found,) = correctness_findings([verified(wrong=20, errors=errors)])
    assert len(found.evidence) == 13
    assert found.evidence[-1] == "and 8 more"


def test_what_was_refused_is_not_checked_and_never_a_pass(verified: Any) -> None:
    refused = {"wrong": None, "elements": 0, "reason": "gloo has no float8"}
    checks = [verified(), verified(dtype="float8_e4m3fn", **refused), verified("gather", **refused)]
    by_id = {one.id: one for one in correctness_findings(checks)}
    assert by_id["COL-001"].title.endswith("1 configuration (float32)")
    assert (by_id["COL-008"].status, by_id["COL-008"].because) == (
        "not_applicable",
        "gloo has no float8",
    )
    refusal = by_id["CAP-001"]
    assert (refusal.status, refusal.because) == ("not_applicable", "gloo has no float8")
    assert refusal.title == "1 configuration not checked"
    assert refusal.evidence == ("all_reduce float8_e4m3fn sum",)


def test_wrong_data_outweigh_what_was_refused(verified: Any, wrong: Any) -> None:
    checks = [verified(wrong=None, reason="no"), verified(wrong=1, errors=(wrong(),))]
    assert correctness_findings(checks)[0].status == "fail"
