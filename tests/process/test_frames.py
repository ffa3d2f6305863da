"""Frames survive whatever engines do to lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.process.frames import (
    BLOCK,
    EXIT,
    MARK,
    OUT,
    OUT_PART,
    VARIABLE,
    Frame,
    Lines,
    Writer,
    padded,
    parse,
)

TEXT = st.text(max_size=3000)


def lines_of(frames: list[bytes]) -> list[str]:
    return [frame.decode("ascii") for frame in frames]


@given(TEXT, st.booleans())
def test_any_text_comes_back_whole_in_short_ascii_lines(text: str, pad: bool) -> None:
    frames = list(Writer("abc123", 7, "node-1", pad=pad).pieces(text, OUT_PART, OUT))
    assert all(len(frame) <= BLOCK and frame.count(b"\n") == 1 for frame in frames)
    assert not pad or {len(frame) for frame in frames} == {BLOCK}
    found = [parse(line.rstrip("\n"), "abc123") for line in lines_of(frames)]
    assert "".join(frame.text for frame in found if frame) == text
    assert [frame.kind for frame in found if frame] == [OUT_PART] * (len(found) - 1) + [OUT]
    assert [frame.number for frame in found if frame] == list(range(len(found)))


def test_words_of_an_engine_before_it_do_not_hide_a_frame() -> None:
    line = lines_of([Writer("t", 3, "node-1").frame(EXIT, "-9")])[0].rstrip("\n")
    expected = Frame(3, "node-1", EXIT, 0, "-9")
    for prefix in ("", "node-1: ", "[1,3]<stdout>:", "2026-11-03 10:11:12 [7/step/8 (pid 9)] "):
        assert parse(prefix + line, "t") == expected


def test_half_a_frame_another_job_s_and_a_plain_line_are_none() -> None:
    line = lines_of([Writer("t", 3, "node-1").frame(OUT, "hello")])[0].rstrip("\n")
    assert parse(line[:-4], "t") is None
    assert parse(line, "other") is None
    assert parse("hello", "t") is None
    assert parse('\x1et x node o 0 "a"', "t") is None
    assert parse("\x1et 0 node o 0 5", "t") is None


@pytest.mark.parametrize("end", ["x", "", "1e3", "9" * 9, "1 2", "١"])
def test_an_end_without_a_code_is_no_frame(end: str) -> None:
    """It ended the session with a traceback: a node says what it likes."""
    assert parse(Writer("T", 0, "n").frame(EXIT, end).decode(), "T") is None
    assert parse(Writer("T", 0, "n").frame(EXIT, "-9 asked").decode(), "T") is not None


def test_a_text_that_nests_without_end_is_no_frame() -> None:
    assert parse(f"{MARK}T 0 n o 0 {'[' * 100_000}", "T") is None


def test_a_host_name_cannot_break_a_frame() -> None:
    line = lines_of([Writer("t", 0, 'a b"\n\x1e' + "é" * 200).frame(OUT, "x")])[0]
    found = parse(line.rstrip("\n"), "t")
    assert found is not None
    assert (found.text, line.count("\n"), len(line) < 200) == ("x", 1, True)


def test_padding_is_asked_for_once() -> None:
    once = padded({VARIABLE: "t", "A": "1"})
    assert once == {VARIABLE: "t,pad", "A": "1"}
    assert padded(once) == once
    assert padded({"A": "1"}) == {"A": "1"}


def test_lines_of_a_stream() -> None:
    lines = Lines()
    assert [lines.feed(data) for data in (b"a\nb", b"c\n\nd", b"")] == [
        [b"a"],
        [b"bc", b""],
        [b"d"],
    ]
    assert lines.feed(b"") == []


def test_a_line_without_end_is_given_in_parts() -> None:
    lines = Lines(longest=4)
    assert lines.feed(b"abcde") == [b"abcde"]
    assert lines.feed(b"f\n") == [b"f"]
