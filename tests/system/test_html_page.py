"""The page in a real browser: all is drawn, names stay names, nothing is refused or broken."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from wirespeed.model.codec import from_json
from wirespeed.model.records import Run
from wirespeed.training.trace import Span, chrome_trace
from wirespeed.views.html.page import page
from wirespeed.views.html.timeline import timeline_svg

pytestmark = pytest.mark.system

BOUND_S = 90.0
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_CONSOLE = re.compile(r":CONSOLE[:(]\d+")
EVIL = "<script>document.title='owned'</script>"


class Browser:
    """Chromium without a window, in a profile of its own."""

    def __init__(self, program: str, folder: Path) -> None:
        self._words = [
            program,
            *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--disable-dev-shm-usage", "--enable-logging=stderr", "--virtual-time-budget=5000"),
            f"--user-data-dir={folder}",
        ]

    def open(self, file: Path) -> tuple[str, list[str]]:
        """(the page's DOM after its scripts, the lines of its session)."""
        done = subprocess.run(
            [*self._words, "--dump-dom", file.as_uri()],
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=True,
        )
        return done.stdout, [line for line in done.stderr.splitlines() if _CONSOLE.search(line)]


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        pytest.skip("Requires: chromium")
    return Browser(found, tmp_path / "profile")


def drawn(dom: str) -> dict[str, str]:
    """By figure: what plotly has put into its place."""
    parts = re.split(r'<figure class="map" id="([^"]+)">', dom)[1:]
    shown = [part.partition("<script")[0] for part in parts[1::2]]
    return dict(zip(parts[::2], shown, strict=True))


def charted(dom: str) -> dict[str, str]:
    """The same of the charts."""
    parts = re.split(r'<figure class="chart" id="([^"]+)">', dom)[1:]
    shown = [part.partition('<script type="application/json"')[0] for part in parts[1::2]]
    return dict(zip(parts[::2], shown, strict=True))


def test_the_maps_of_a_real_run_are_drawn(cli: Any, browser: Browser) -> None:
    file = cli.folder / "pairs.html"
    done = cli("locate", "--ranks", "3", "--threshold", "100", "-q", "--html", str(file))
    assert done.code == 0 and "from \\ to" in done.out, done.err
    assert f"wrote {file}" in done.err
    dom, session = browser.open(file)
    assert session == []
    maps = drawn(dom)
    assert set(maps) == {"map-bandwidth", "map-latency"}
    for name, text in maps.items():
        assert text.count("<image") == 1, f"{name}: every pair was measured"
        for axis in ("xtick", "ytick"):
            labels = re.findall(rf'<g class="{axis}"><text[^>]*>([^<]*)', text)
            assert labels == ["rank 0", "rank 1", "rank 2"], name


def test_the_maps_of_a_simulation_are_drawn(cli: Any, browser: Browser) -> None:
    file = cli.folder / "fabric.html"
    asked = ("--simulate", "--nodes", "40", "--rails", "2", "--faults", "2", "--seed", "7")
    done = cli("locate", *asked, "-q", "--html", str(file))
    assert done.code == 1, done.err
    dom, session = browser.open(file)
    assert session == []
    maps = drawn(dom)
    assert {"map-bandwidth", "map-latency", "map-rail-0", "map-rail-1"} <= set(maps)
    assert all("<image" in text and "node-0" in text for text in maps.values())
    assert maps["map-bandwidth"].count("<image") == 2, "measured and empty cells"


def test_a_host_name_with_markup_is_shown_and_not_run(tmp_path: Path, browser: Browser) -> None:
    golden = Path(__file__).parents[1] / "golden" / "check.run.json"
    data = json.loads(golden.read_text())
    pair = {"first": EVIL, "second": "node-1", "rail": 0, "round": 0, "latency_us": 5.0}
    pair |= {"forth_GBps": 1.0, "back_GBps": 1.0, "both_GBps": 1.0}
    data["located"] = {"over": "nodes", "nodes": [EVIL, "node-1"], "rounds": 1, "stopped": EVIL}
    data["located"] |= {"pairs_measured": 1, "pairs_possible": 1, "compute_s": [], "pairs": [pair]}
    file = tmp_path / "evil.html"
    file.write_text(page(from_json(Run, data)))
    dom, session = browser.open(file)
    assert session == []
    assert "<title>wirespeed check" in dom
    assert "&lt;script&gt;" in drawn(dom)["map-bandwidth"]


def test_a_script_that_is_not_ours_is_refused(tmp_path: Path, browser: Browser) -> None:
    """The policy holds, and this test would see a complaint of the session."""
    golden = Path(__file__).parents[1] / "golden" / "check.run.json"
    text = page(from_json(Run, json.loads(golden.read_text())))
    file = tmp_path / "injected.html"
    file.write_text(text.replace("</main>", f"{EVIL}</main>"))
    dom, session = browser.open(file)
    assert "<title>wirespeed check" in dom
    assert any("Content Security Policy" in line for line in session)


def test_the_charts_of_a_real_training_run_are_drawn(cli: Any, browser: Browser) -> None:
    file, trace = cli.folder / "train.html", cli.folder / "step.json"
    asked = (
        "--strategy",
        "naive,bucketed",
        "--rounds",
        "1",
        "--steps",
        "1",
        "--memory",
        "--layers",
        "1",
    )
    files = ("--html", str(file), "--trace", str(trace))
    done = cli("train", "--ranks", "2", "-q", *asked, *files)
    assert done.code == 0, done.err
    for name in ("train.html", "step.json", "step.svg"):
        assert f"wrote {cli.folder / name}" in done.err
    dom, session = browser.open(file)
    assert session == []
    charts = charted(dom)
    assert set(charts) == {"chart-steps", "chart-memory", "chart-op-1-busbw", "chart-op-1-time"}
    for name in ("chart-steps", "chart-memory"):
        text = charts[name]
        for strategy in ("none", "naive", "bucketed 25 MB"):
            assert re.search(rf'<g class="ytick">.*{strategy}', text), f"{name}: {strategy}"
        assert text.count('class="point"') >= 9, f"{name}: three strategies of several parts"
        assert "var(" not in text and "--c-" not in text, f"{name}: colours are put in"
    assert charts["chart-steps"].count('class="errorbar"') == 3
    assert dom.count("<svg") > 2 and 'class="ws-tl"' in dom
    assert re.search(r"naive on 2 ranks.*sending", dom, re.DOTALL)


def test_the_charts_of_every_section_are_drawn(tmp_path: Path, browser: Browser) -> None:
    golden = Path(__file__).parents[1] / "golden" / "train.run.json"
    data = json.loads(golden.read_text())
    for one in data["training"]:
        one["strategy"] = EVIL if one["strategy"] == "naive" else one["strategy"]
    file = tmp_path / "train.html"
    file.write_text(page(from_json(Run, data)))
    dom, session = browser.open(file)
    assert session == []
    assert "<title>wirespeed train" in dom, "a name that holds a script is no script"
    charts = charted(dom)
    assert set(charts) >= {"chart-steps", "chart-scaling", "chart-memory"}
    assert charts["chart-scaling"].count('class="trace scatter ') == 2, "strong and weak"
    assert "&lt;script&gt;" in charts["chart-steps"]


def test_the_charts_of_a_watched_job_are_drawn(tmp_path: Path, browser: Browser) -> None:
    golden = Path(__file__).parents[1] / "golden" / "watched.run.json"
    data = json.loads(golden.read_text())
    data["watched"]["hosts"][2] = EVIL
    file = tmp_path / "watched.html"
    file.write_text(page(from_json(Run, data)))
    dom, session = browser.open(file)
    assert session == []
    assert "<title>wirespeed launch" in dom, "a host that is called a script is no script"
    charts = charted(dom)
    assert set(charts) == {
        f"chart-watched-{name}-chart" for name in ("steps", "late", "ranks", "parts")
    }
    assert charts["chart-watched-late-chart"].count("<image") == 1
    assert "2 &lt;script&gt;" in charts["chart-watched-late-chart"]
    assert charts["chart-watched-ranks-chart"].count('class="point"') == 12, "4 ranks of 3 parts"
    steps = charts["chart-watched-steps-chart"]
    assert 'class="annotation-text"' in steps and 'class="shapelayer"' in steps, (
        "a change is marked"
    )
    assert not any("--c-" in text for text in charts.values()), "colours are put in"


def test_the_picture_of_a_step_is_an_image(tmp_path: Path, browser: Browser) -> None:
    """Well-formed, and drawn where it stands alone."""
    spans = [Span(0, "step", EVIL, 0.0, 0.01), Span(0, "step", "forward", 0.0, 0.005)]
    file = tmp_path / "step.svg"
    file.write_text(timeline_svg(json.loads(chrome_trace(spans, hosts=[EVIL]))))
    dom, session = browser.open(file)
    assert session == []
    assert "parsererror" not in dom and 'class="p-forward"' in dom
