"""The timeline as a picture: every strategy on one scale, overlap seen, whole, small and safe."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree import ElementTree

import pytest

from wirespeed.training.trace import Span, chrome_trace
from wirespeed.views.html.timeline import alone, blocks_of, joined, timeline_svg

SVG = "{http://www.w3.org/2000/svg}"
EVIL = '<script>alert("x")</script> & \x1b[31m\u202e\ufffe'
MS = 1e-3


def step(
    rank: int, name: str, begin: float, took: float = 10.0, sent: Sequence[tuple[float, float]] = ()
) -> list[Span]:
    """A step of `took` ms from `begin` on; it computes in its first eight tenths.

    `sent`: (begin, end) within it, as shares of it.
    """

    def span(lane: str, what: str, low: float, high: float) -> Span:
        return Span(rank, lane, what, (begin + low * took) * MS, (begin + high * took) * MS)

    phases = (("data", 0, 0.01), ("forward", 0.01, 0.3), ("backward", 0.3, 0.8))
    phases += (("synchronise", 0.8, 0.95), ("optimizer", 0.95, 1))
    return [
        span("step", name, 0, 1),
        *(span("step", *phase) for phase in phases),
        span("compute", "aten::linear", 0.01, 0.8),
        *(span("communication", "gloo:all_reduce", *part) for part in sent),
    ]


def trace_of(spans: Iterable[Span], hosts: Sequence[str] = ("a", "b"), **about: Any) -> Any:
    return json.loads(chrome_trace(list(spans), hosts=hosts, about=about))


@pytest.fixture
def trace() -> Any:
    """Two strategies on two ranks; the second sends half of the time beside computing."""
    spans: list[Span] = []
    for rank in (0, 1):
        spans += step(rank, "naive on 2 ranks", 0, 20, [(0.8, 0.9)])
        spans += step(rank, "bucketed 25 MB on 2 ranks", 30, 10, [(0.7, 0.8), (0.8, 0.9)])
    return trace_of(spans, **{"clock error, s": 1e-4})


def drawn(trace: Any) -> ElementTree.Element:
    return ElementTree.fromstring(timeline_svg(trace))


def texts(picture: ElementTree.Element) -> list[str]:
    return ["".join(one.itertext()) for one in picture.iter(f"{SVG}text")]


def with_class(picture: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [one for one in picture.iter() if name in (one.get("class") or "").split()]


def widths(picture: ElementTree.Element, name: str) -> list[float]:
    """Of all rectangles of the lanes of that class, in px."""
    paths = [one.get("d") or "" for one in with_class(picture, name) if one.tag == f"{SVG}path"]
    return [float(wide) for path in paths for wide in re.findall(r"h([0-9.]+)v", path)]


def test_each_strategy_rank_and_lane_has_its_row(trace: Any) -> None:
    picture = drawn(trace)
    said = texts(picture)
    for strategy in ("naive on 2 ranks", "bucketed 25 MB on 2 ranks"):
        assert sum(text.startswith(strategy) for text in said) == 1
    assert [said.count(text) for text in ("rank 0", "rank 1", "a", "b")] == [2, 2, 2, 2]
    assert said.count("computing") - 1 == said.count("sending") == 4, "the legend names one more"
    for phase in ("data", "forward", "backward", "synchronise", "optimizer"):
        assert len(with_class(picture, f"p-{phase}")) == 1 + 4, "the legend, and each step"
    assert any("clocks agree within ±100 µs" in text for text in said)


def test_all_strategies_share_one_scale(trace: Any) -> None:
    boxes = [float(one.get("width") or 0) for one in with_class(drawn(trace), "p-backward")]
    assert boxes[1:3] == pytest.approx([2 * boxes[3]] * 2, abs=0.2), "20 ms beside 10 ms"
    assert len(set(boxes[1:])) == 2


def test_sending_beside_computing_looks_other_than_alone(trace: Any) -> None:
    """naive sends 2 ms alone, bucketed 1 ms beside computing and 1 ms alone; 20 ms are all."""
    picture = drawn(trace)
    whole, bare = widths(picture, "s"), widths(picture, "a")
    ms = sum(whole) / 8  # two ranks, 2 ms each, twice
    assert sum(bare) == pytest.approx(6 * ms, rel=0.01)
    said = " ".join(texts(picture))
    assert "step 20.0 ms · communication 2.00 ms, all of it while nothing computed" in said
    assert "step 10.0 ms · communication 2.00 ms, 1.00 ms of it while nothing computed" in said


def test_it_tells_who_cannot_see_it_what_it_shows(trace: Any) -> None:
    picture = drawn(trace)
    assert picture.get("role") == "img"
    named = {one.get("id"): one.text or "" for one in picture if one.get("id")}
    assert set((picture.get("aria-labelledby") or "").split()) == set(named)
    assert "bucketed 25 MB on 2 ranks: step 10.0 ms" in named["ws-tl-desc"]


def test_it_needs_nothing_else_and_is_the_same_each_time(trace: Any) -> None:
    text = timeline_svg(trace)
    assert text == timeline_svg(trace)
    assert re.findall(r"https?://[^\"' ]*", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<script|<image|<use|href|url\(|@import", text)
    assert "prefers-color-scheme: dark" in text


def test_foreign_names_stay_text() -> None:
    spans = [*step(0, EVIL, 0), Span(0, "step", EVIL, 0.001, 0.002)]
    evil = drawn(trace_of(spans, hosts=[EVIL]))
    assert {one.tag for one in evil.iter()} <= {
        SVG + tag for tag in ("svg", "g", "title", "desc", "style", "rect", "path", "text", "tspan")
    }
    said = " ".join(texts(evil))
    assert '<script>alert("x")</script> &' in said
    assert not set("\x1b\u202e\ufffe") & set(timeline_svg(trace_of(spans, hosts=[EVIL])))


def test_a_phase_it_does_not_know_has_a_place_in_the_legend() -> None:
    picture = drawn(trace_of([*step(0, "naive", 0), Span(0, "step", "evaluate", 0.001, 0.002)]))
    assert "other phases" in texts(picture)
    assert len(with_class(picture, "p-other")) == 2


def test_many_ranks_and_steps_are_cut_and_it_says_so() -> None:
    spans = [span for rank in range(20) for span in step(rank, "naive on 20 ranks", 0)]
    said = texts(drawn(trace_of(spans)))
    assert "rank 7" in said and "rank 8" not in said
    assert "and 12 more ranks" in said
    assert any("first 8 ranks" in text for text in said)
    many = [span for i in range(30) for span in step(0, f"strategy {i}", 20.0 * i)]
    said = texts(drawn(trace_of(many)))
    assert any("first 24 of 30" in text for text in said)
    assert not any(text.startswith("strategy 24") for text in said)


def test_however_many_operations_the_picture_stays_small() -> None:
    """Six ranks compute and send in slices a little more than a pixel apart, in four steps."""
    spans: list[Span] = []
    for rank in range(6):
        for block in range(4):
            begin = block * 100.0
            spans += step(rank, f"strategy {block}", begin, 50)[:1]
            for i in range(350):
                low, high = (begin + i / 7) * MS, (begin + (i + 0.5) / 7) * MS
                spans.append(Span(rank, "compute", "aten::mul", low, high))
                spans.append(Span(rank, "communication", "gloo:all_reduce", low, high))
    picture = drawn(trace_of(spans))
    assert len([one for one in spans if one.lane != "step"]) == 16_800
    shapes = sum(len(widths(picture, name)) for name in ("c", "s", "a")) + len(list(picture.iter()))
    assert 40 < shapes < 7000


def test_blocks_of_the_same_name_one_after_the_other_are_two() -> None:
    spans = [span for rank in (0, 1) for span in step(rank, "naive", 0) + step(rank, "naive", 20)]
    assert [len(block.ranks) for block in blocks_of(trace_of(spans))] == [2, 2]


def test_a_last_phase_that_ends_a_rounding_error_late_is_no_step(trace: Any) -> None:
    for event in trace["traceEvents"]:
        if event.get("name") == "optimizer":
            event["dur"] += 0.002
    names = [block.name for block in blocks_of(trace)]
    assert names == ["naive on 2 ranks", "bucketed 25 MB on 2 ranks"]


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"traceEvents": None},
        {"traceEvents": [1, "x", None, []]},
        {"traceEvents": [{"ph": "X", "cat": "step", "name": "a", "pid": 1, "tid": 1, "ts": 0}]},
        {"traceEvents": [], "otherData": []},
    ],
)
def test_a_trace_without_a_step_has_no_picture(odd: Any) -> None:
    assert timeline_svg(odd) == ""


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -1.0, 1e300, "5", None, True, [], pytest.param(10**400, id="huge")],
)
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_events_without_a_proper_time_are_left_out(trace: Any, key: str, value: Any) -> None:
    good = timeline_svg(trace)
    event = {"ph": "X", "cat": "step", "name": "odd", "pid": 1, "tid": 1, "ts": 1e6, "dur": 5.0}
    trace["traceEvents"] += [event | {key: value}, event | {"pid": "x"}, event | {"tid": None}]
    assert timeline_svg(trace) == good


def test_the_arithmetic_of_stretches() -> None:
    assert joined([(3, 4), (0, 1), (1, 2), (5, 5)]) == [(0, 2), (3, 4)]
    assert joined([(0, 1), (2, 3), (5, 6)], gap=1) == [(0, 3), (5, 6)]
    assert alone([(0, 10)], [(2, 3), (5, 6)]) == [(0, 2), (3, 5), (6, 10)]
    assert alone([(2, 5)], [(0, 3), (4, 9)]) == [(3, 4)]
    assert alone([(2, 5), (6, 7)], [(1, 8)]) == []
    assert alone([(0, 1), (4, 6)], [(1, 4)]) == [(0, 1), (4, 6)]
