"""A soak as text, Markdown and HTML: the line of time, the incidents; hostile names are inert."""

from dataclasses import replace

import pytest

import usual
from wirespeed.model.lasting_records import Incident, Soak, SoakCell, SoakWindow
from wirespeed.views import render
from wirespeed.views.html.page import page
from wirespeed.views.lasting import timeline
from wirespeed.views.text import Style

CELL = SoakCell(
    op="all_reduce",
    dtype="float32",
    size_bytes=4084,
    calls=10,
    wrong=1,
    low=1e-4,
    median=2e-4,
    p99=3e-4,
    max=4e-4,
    last_rank=1,
)
WINDOW = SoakWindow(
    since_s=0.0,
    seconds=30.0,
    world=1,
    calls=10,
    checked_bytes=1000,
    wrong=1,
    stalls=0,
    stalled_s=0.0,
    cells=(CELL,),
)
DIED = Incident(
    at="2026-11-22T01:00:00.000Z",
    since_s=31.0,
    id="DIED-001",
    title="<script>alert(1)</script>\x1b[31m died",
    subject_kind="rank",
    subject="rank 1",
    lost_s=9.0,
)
SOAK = Soak(
    for_s=60.0,
    elapsed_s=60.0,
    window_s=30.0,
    worlds=2,
    calls=10,
    windows=(WINDOW, replace(WINDOW, since_s=50.0, seconds=10.0, world=2)),
    incidents=(DIED,),
)
RUN = usual.run(verdict="NOT READY", exit_code=1, started="2026-11-22T00:59:00.000Z", soak=SOAK)


def test_the_line_of_time_shows_calls_incidents_and_gaps() -> None:
    text = timeline(SOAK)
    signs = text[text.index("[") + 1 : text.index("]")]
    assert signs.count("▃") == 1
    assert "·" in signs
    assert " " in signs, "the time without ranks"
    assert timeline(SOAK, ascii=True).isascii()


@pytest.mark.parametrize("hours", [0.001, 1, 30])
def test_the_line_of_time_is_never_longer_than_the_page(hours: float) -> None:
    assert len(timeline(replace(SOAK, elapsed_s=3600 * hours))) < 110


@pytest.mark.parametrize("format", ["table", "wide", "md", "json", "jsonl"])
def test_every_view_names_the_incident(format: str) -> None:
    text = render(RUN, format, Style())
    assert "DIED-001" in text
    assert "\x1b" not in text.replace("\\u001b", "")


def test_the_page_has_a_section_and_no_foreign_script() -> None:
    text = page(RUN)
    assert 'id="soak"' in text
    assert "<script>alert" not in text
    assert "rank 1" in text


def test_more_incidents_than_a_screen_are_told() -> None:
    many = replace(SOAK, incidents=tuple(replace(DIED, since_s=float(n)) for n in range(50)))
    text = render(replace(RUN, soak=many), "table", Style())
    assert "the first 20, all with -v" in text
