"""The report in a real browser: all is drawn, nothing is asked of anybody, anybody can read it."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import report_lab as lab
from browser_lab import tab
from wirespeed.compare.compare import SideRuns, compare
from wirespeed.model.codec import from_json
from wirespeed.model.records import Run
from wirespeed.views.html.page import page, report

pytestmark = pytest.mark.system

GOLDEN = Path(__file__).parents[1] / "golden"
EVIL = "<script>document.title='owned'</script>"
LARGEST_MB = 15
_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


__all__ = ["tab"]


def golden(name: str) -> Run:
    return from_json(Run, json.loads((GOLDEN / f"{name}.run.json").read_text()))


def compared(*runs: Run) -> str:
    return report(runs, (), compare([SideRuns((run,)) for run in runs]))


PAGES = {
    "faults": lambda: page(golden("flip")),
    "training": lambda: page(golden("train")),
    "comparison": lambda: compared(golden("bench"), replace(golden("bench"), id="00ff00ff")),
    "1024 ranks": lambda: page(lab.synthetic()),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_opens_without_a_complaint_or_a_request(
    name: str, tab: Any, tmp_path: Path
) -> None:
    """Light, dark and narrow; nothing leaves it, and nothing is wider than the window."""
    file = tmp_path / "page.html"
    file.write_text(PAGES[name]())
    assert file.stat().st_size < LARGEST_MB * 1e6
    for dark, width in ((False, 1280), (True, 390)):
        tab.media(dark=dark)
        tab.size(width, 900)
        tab.open(file.as_uri())
        assert tab.complaints == []
        assert all(asked.startswith(("file:", "data:")) for asked in tab.requests), tab.requests
        assert tab.ask(_OVERFLOW) <= 0
        assert tab.ask("document.querySelectorAll('.main-svg').length") > 0


def test_a_request_and_a_complaint_would_be_seen(tab: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    text = page(golden("flip"))
    file.write_text(text.replace("</main>", '<img src="http://127.0.0.1:9/x"></main>'))
    tab.open(file.as_uri())
    assert any("Content Security Policy" in said for said in tab.complaints)
    file.write_text("<img src='http://127.0.0.1:9/x'>")
    tab.open(file.as_uri())
    assert any("127.0.0.1:9" in asked for asked in tab.requests)


@pytest.mark.hostile("hostile values")
def test_names_are_text_and_no_script_of_theirs_runs(tab: Any, tmp_path: Path) -> None:
    file = tmp_path / "evil.html"
    runs = [lab.hostile(golden(name), EVIL) for name in ("check", "bench")]
    file.write_text(compared(*runs))
    tab.open(file.as_uri())
    assert tab.complaints == []
    assert tab.ask("document.title").startswith("wirespeed")
    assert tab.ask("document.querySelectorAll('main script:not([type])').length") == 0
    assert tab.ask("document.body.innerText").count(EVIL) > 10


def test_everything_has_a_name_for_a_screen_reader(tab: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(compared(golden("check"), golden("train"), golden("bench")))
    tab.open(file.as_uri())
    named = {"image", "img", "link", "region", "navigation", "figure", "heading", "table"}
    found = [one for one in tab.tree() if one["role"]["value"] in named]
    assert {one["role"]["value"] for one in found} >= {"link", "region", "heading", "navigation"}
    nameless = [one["role"]["value"] for one in found if not one.get("name", {}).get("value")]
    assert set(nameless) <= {"figure"}, nameless
    mains = [one for one in tab.tree() if one["role"]["value"] == "main"]
    assert len(mains) == 1
    assert tab.ask("document.documentElement.lang") == "en"


def test_the_keyboard_reaches_everything_in_the_order_of_the_page(tab: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(golden("check")))
    tab.open(file.as_uri())
    tab.press("Tab")
    assert tab.ask("document.activeElement.className") == "skip"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    tops, count = [], tab.ask("document.querySelectorAll('a, summary, [tabindex]').length")
    for _ in range(count):
        tab.press("Tab")
        if tab.ask("document.activeElement === document.body"):
            break
        assert tab.ask(outline) != "none", "one sees where one is"
        tops.append(tab.ask("document.activeElement.getBoundingClientRect().top + scrollY"))
    assert len(tops) > 10
    assert all(b >= a - 40 for a, b in pairwise(tops)), "top to bottom"


def test_a_link_opens_what_is_folded_and_enter_follows_it(tab: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(golden("check")))
    tab.open(f"{file.as_uri()}#op-1-1")
    assert tab.ask("document.getElementById('op-1-1').closest('details').open") is True
    assert tab.ask("document.getElementById('others').querySelector('details').open") is False
    tab.ask("document.querySelector('nav a[href=\"#nodes\"]').focus()")
    tab.press("Enter")
    tab.until("location.hash === '#nodes'")


def test_it_is_printed_whole(tab: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page(golden("check")))
    tab.open(file.as_uri())
    tab.ask("dispatchEvent(new Event('beforeprint'))")
    assert tab.ask("document.querySelectorAll('details:not([open])').length") == 0
    tab.ask("dispatchEvent(new Event('afterprint'))")
    assert tab.ask("document.querySelectorAll('details:not([open])').length") > 0
    assert tab.print().startswith(b"%PDF")
