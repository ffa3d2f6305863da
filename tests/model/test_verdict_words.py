"""The table of verdict words: whole, unambiguous, and read by everything that shows a verdict."""

from typing import get_args

import usual
from wirespeed.model.bench_records import ReferenceFigure
from wirespeed.model.records import Finding
from wirespeed.model.verdicts import (
    HISTORY,
    MEANINGS,
    Verdict,
    is_decided,
    standing_of,
    words_of,
    words_with,
    worst_first,
)
from wirespeed.views.text import color_of, kind_of


def test_the_table_has_each_word_of_the_type_once() -> None:
    assert set(MEANINGS) == set(get_args(Verdict))


def test_a_word_of_an_older_version_is_read_and_never_said() -> None:
    old = {word: one.replaced_by for word, one in MEANINGS.items() if one.replaced_by}
    assert old == {"HELD UP": "HUNG", "GOOD END SHOWN": "ENDED WELL"}
    for word, new in old.items():
        assert standing_of(word) == standing_of(new)
        assert all(word not in words_of(command) for command in MEANINGS[word].commands)


def test_ready_is_said_by_who_looked_at_world_data_and_speed() -> None:
    assert set(MEANINGS["READY"].commands) == {"check", "gate"}
    assert "READY" not in {
        word for command in ("bench", "train", "locate", "launch", "watch", "topo", "attach")
        for word in words_of(command)
    }  # fmt: skip
    assert words_of("topo") == words_of("predict") == ("NONE",)


def test_measured_runs_are_a_history_and_no_pass() -> None:
    assert {"READY", "MEASURED", "PASSED"} <= set(HISTORY)
    assert not set(HISTORY) & {"NOT READY", "FAILED", "UNKNOWN", "NONE", "INTERRUPTED"}
    assert "MEASURED" not in words_with("good")
    assert kind_of("MEASURED") == "measured" and kind_of("READY") == "pass"
    assert color_of("HUNG") == "red" and color_of("SOMETHING ELSE") == "yellow"
    assert not is_decided("MEASURED") and is_decided("READY") and is_decided("CULPRIT NAMED")


def test_a_word_that_nobody_knows_decides_nothing() -> None:
    assert standing_of("FINE") == "undecided"
    assert worst_first(["READY", "FINE", "NOT READY"]) == ["NOT READY", "READY", "FINE"]


def test_the_text_says_what_was_left_out() -> None:
    first = usual.run(speed_judged=False)
    assert first.verdict_text == "READY (speed not judged)"
    figure = ReferenceFigure(
        kind="baseline", source="x", op="all_reduce", engine="torch", dtype="float32",
        redop="sum", in_place=False, size_bytes=1 << 20, ranks=4, busbw=1e9,
    )  # fmt: skip
    judged = Finding(id="BW-001", status="pass", title="x", references=(figure,))
    partly = usual.run(speed_judged=False, findings=(judged,))
    assert partly.verdict_text == "READY (speed partly judged)"
    assert usual.run(speed_judged=True).verdict_text == "READY"
    assert usual.run(command="watch", verdict="SLOW", verdict_subject="rank 2").verdict_text == (
        "SLOW rank 2"
    )
