"""The line and the page of a job that runs, without a terminal."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from wirespeed.model.records import Finding, Subject
from wirespeed.views.live import LiveJob, LiveStep, live_line, live_page
from wirespeed.views.text import Style

NOW = LiveStep(
    step=812, step_s=0.0312, low_s=0.0301, high_s=0.033, exposed=0.22, last="rank 2",
    late_s=0.029, since_step=50,
)  # fmt: skip
PLAIN = Style()
EVIL = "[red]\x1b[2J\nrank"


def job(ranks: int, hosts: int, **more: Any) -> LiveJob:
    late: list[float | None] = [0.0] * ranks
    late[2] = 0.029
    told = {
        "now": NOW, "hosts": [f"node-{rank * hosts // ranks}" for rank in range(ranks)],
        "late_s": late, "recent_s": [0.031] * 90 + [0.06] * 10,
        "findings": [finding("old"), finding("rank 2 is late")],
    }  # fmt: skip
    return LiveJob(**(told | more))


def finding(title: str) -> Finding:
    return Finding(id="WATCH-001", status="fail", title=title, subject=Subject("job", "job"))


def shown(
    told: LiveJob, style: Style = PLAIN, width: int = 80, height: int = 24, *, color: bool = False
) -> list[str]:
    """Lines as a terminal of that size gets them."""
    stream = io.StringIO()
    system: Any = "truecolor" if color else None
    console = Console(
        file=stream, width=width, height=height, force_terminal=color, color_system=system
    )
    console.print(live_page(told, style, width=width, height=height))
    return stream.getvalue().rstrip("\n").split("\n")


def test_the_line() -> None:
    assert live_line(NOW, Style(width=120)) == (
        "step 812 · 31.2 ms (last 100: 30.1 … 33.0) · waiting 22 % · "
        "last: rank 2 (+29.0 ms, since step 50)"
    )
    writes = replace(NOW, last="", words="rank 0 writes")
    assert live_line(writes, PLAIN) == (
        "step 812 · 31.2 ms (last 100: 30.1 … 33.0) · waiting in communication 22 % · rank 0 writes"
    )
    slow = replace(writes, step_s=0.99, low_s=0.97, high_s=1.1, exposed=None, words="")
    assert live_line(slow, PLAIN) == "step 812 · 990 ms (last 100: 970 ms … 1.10 s)"


def test_a_hang_comes_before_all_figures() -> None:
    words = "hang? nobody moved for 8 s: rank 2 …"
    line = live_line(replace(NOW, words=words, alarm=True), PLAIN)
    assert line.startswith(f"step 812 · {words} · 31.2 ms")


@pytest.mark.parametrize("width", [20, 40, 79, 140])
@pytest.mark.parametrize("ascii", [False, True])
def test_the_line_fits(width: int, ascii: bool) -> None:
    line = live_line(replace(NOW, words="x" * 300), Style(width=width, ascii=ascii))
    # What is shortened ends in no blank.
    assert min(width, 100) - 1 <= len(line) <= min(width, 100) and line.startswith("step 812")
    assert not ascii or line.isascii()
    painted = live_line(NOW, Style(width=width, color=True))
    assert "\x1b[1mstep 812\x1b[0m" in painted


def test_nothing_is_known_yet() -> None:
    nothing = LiveStep(step=-1)
    assert live_line(nothing, PLAIN) == "no step yet"
    assert live_line(replace(nothing, words="rank 0 compiles"), PLAIN) == "rank 0 compiles"
    assert live_line(LiveStep(step=0), PLAIN) == "step 0 · 0.000 µs"
    assert shown(LiveJob(now=nothing)) == ["no step yet"]


def test_a_small_job_has_its_ranks_by_number_and_host() -> None:
    lines = shown(job(4, 2))
    assert lines[0].startswith("step 812") and len(lines[1]) == 80
    assert lines[2] == "node-0  0· 1·" and lines[3] == "node-1  2█ 3·"
    assert lines[4] == "late: rank 2 on node-0 +29.0 ms".replace("node-0", "node-1")
    assert lines[5] == "✗ rank 2 is late  WATCH-001" and lines[6] == "✗ old  WATCH-001"


@pytest.mark.parametrize(("ranks", "hosts"), [(4, 2), (64, 8), (256, 32), (1024, 128), (1024, 1)])
@pytest.mark.parametrize(("width", "height"), [(60, 12), (80, 24), (200, 60)])
def test_the_page_fits_any_terminal(ranks: int, hosts: int, width: int, height: int) -> None:
    lines = shown(job(ranks, hosts), width=width, height=height)
    assert len(lines) <= height and all(len(line) <= width for line in lines)
    assert any("rank 2 is late" in line for line in lines)
    assert any(line.startswith("late: rank 2 on node-") for line in lines)


def test_a_thousand_ranks_are_signs() -> None:
    lines = shown(job(1024, 128))
    signs = "".join(lines[2:]).partition("late:")[0]
    assert signs.count("·") == 1023 and signs.count("█") == 1
    cut = shown(job(1024, 128), width=60, height=12)
    assert any("more lines of ranks" in line for line in cut)


def test_colours_are_only_where_they_are_wanted() -> None:
    assert any("\x1b[" in line for line in shown(job(4, 2), color=True))
    assert not any("\x1b" in line for line in shown(job(4, 2)))
    plain = shown(job(4, 2, late_s=[None, 0.004, 0.029]), Style(ascii=True))
    assert all(line.isascii() for line in plain)
    assert plain[2].split()[1:] == ["0?", "1o"] and plain[3].split()[1:] == ["2#", "3?"]


def test_steps_twice_as_long_are_higher() -> None:
    strip = shown(job(4, 2, recent_s=[0.03] * 10 + [0.06, 0.0, 9.0]))[1]
    assert strip[:10] == strip[0] * 10 and strip[10] > strip[0] > strip[11] and strip[12] == "█"


@pytest.mark.hostile("hostile values")
def test_hostile_names_are_inert() -> None:
    told = replace(
        job(4, 1), hosts=[EVIL] * 4, findings=[finding(EVIL)], now=replace(NOW, last=EVIL)
    )
    lines = shown(told)
    assert not any("\x1b" in line for line in lines)
    assert any("[red]" in line for line in lines), "no markup is read"
    assert len(lines) == 5
    assert "\x1b" not in live_line(told.now, PLAIN)
