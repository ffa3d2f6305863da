"""`wirespeed serve` in a real browser, with 1,000 nodes: every page, and names that mean ill."""

import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import fleet_lab as lab
from browser_lab import tab
from wirespeed.model.codec import to_json
from wirespeed.runs.folder import RunFolder
from wirespeed.runs.place import LIVE
from wirespeed.views.live import LiveJob, LiveStep

pytestmark = pytest.mark.system

HERE = Path(__file__).parent
NODES, DAYS = 1000, 4
BOUND_S = 30.0
_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


__all__ = ["tab"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fleet")
    made.chmod(0o700)
    lab.stored(made, NODES, DAYS, now=datetime.now(UTC).replace(tzinfo=None), evil=True)
    return made


class Served:
    """The command in a process of its own."""

    def __init__(self, home: Path, *words: str) -> None:
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wirespeed", "serve", "--listen", "127.0.0.1:0", *words],
            env={"PATH": "/usr/bin:/bin", "WIRESPEED_HOME": str(home)},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        end = time.monotonic() + 4 * BOUND_S
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", "".join(self.lines))):
            assert time.monotonic() < end and self.process.poll() is None, self.lines
            time.sleep(0.05)
        self.address, self.port = found[0], int(found[1])

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.lines.append(line)

    def runs(self) -> list[str]:
        return sorted(path.name for path in (self.home / "runs").iterdir())

    def get(self, path: str) -> tuple[int, str, str]:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=BOUND_S)
        link.request("GET", path)
        answer = link.getresponse()
        text = answer.read().decode()
        link.close()
        return answer.status, text, answer.headers["Content-Type"]


@pytest.fixture(scope="module")
def served(home: Path) -> Iterator[Served]:
    made = Served(home)
    try:
        yield made
    finally:
        made.process.send_signal(signal.SIGINT)
        assert made.process.wait(BOUND_S) == 0
        made.reader.join(BOUND_S)
        told = "".join(made.lines)
        assert told.endswith("stopped\n") and "Traceback" not in told


def paths(served: Served) -> dict[str, str]:
    runs = served.runs()
    return {
        "overview": "/",
        "nodes": "/nodes",
        "lemons": "/lemons",
        "node": "/nodes/gpu-a-0002",
        "evil node": f"/nodes/{quote(lab.EVIL, safe='')}",
        "runs": "/runs",
        "run": f"/runs/{runs[-1]}",
        "trends": "/trends?op=all_reduce",
        "comparison": f"/compare?run={runs[-1]}&run={runs[-26]}",
        "live": "/live",
        "nothing": "/no/such/page",
    }


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 390)])
def test_each_page_opens_without_a_complaint_or_a_request(
    served: Served, tab: Any, tmp_path: Path, dark: bool, width: int
) -> None:
    """Light, dark and narrow; nothing is asked of others, nothing is wider than the window, and a
    name that is a script stays a name."""
    for name, path in paths(served).items():
        tab.media(dark=dark)
        tab.size(width, 900)
        tab.open(f"{served.address}{path}")
        told = [one for one in tab.complaints if "404" not in one or name != "nothing"]
        assert told == [], name
        asked = [one for one in tab.requests if not one.startswith((served.address, "data:"))]
        assert asked == [], name
        assert tab.ask(_OVERFLOW) <= 0, name
        assert tab.ask("document.title").endswith("wirespeed"), name
        assert tab.ask("document.querySelectorAll('main script:not([type])').length") == 0
        tab.picture(tmp_path / f"{name}-{width}.png")


def test_the_keyboard_walks_the_grid_and_passes_it(served: Served, tab: Any) -> None:
    tab.open(f"{served.address}/")
    assert tab.ask("document.querySelectorAll('.cells a').length") == NODES
    stops = "document.querySelectorAll('.cells a[tabindex=\"0\"]').length"
    groups = tab.ask("document.querySelectorAll('.cells').length")
    assert tab.ask(stops) == groups
    for _ in range(60):
        tab.press("Tab")
        if tab.ask("document.activeElement.parentElement.classList.contains('cells')"):
            break
    second = "document.activeElement === document.querySelectorAll('.cells a')[1]"
    key = "new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true})"
    tab.ask(f"document.activeElement.dispatchEvent({key})")
    assert tab.ask(second) is True
    assert tab.ask("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert tab.ask(stops) == groups
    tab.press("Enter")
    tab.until("location.pathname.startsWith('/nodes/')")


def test_arrows_that_lead_nowhere_or_are_the_browsers_move_nothing(
    served: Served, tab: Any
) -> None:
    tab.open(f"{served.address}/")
    tab.ask("window.row = [...document.querySelectorAll('.cells')].pop()")
    assert tab.ask(
        "row.children.length > 1 && row.firstChild.offsetTop === row.lastChild.offsetTop"
    )
    tab.ask("row.firstChild.focus()")
    for key, more in (("ArrowUp", ""), ("ArrowDown", ""), ("ArrowRight", "altKey: true")):
        given = f"{{key: '{key}', bubbles: true, cancelable: true, {more}}}"
        event = f"new KeyboardEvent('keydown', {given})"
        assert tab.ask(f"document.activeElement.dispatchEvent({event})") is True, key
        assert tab.ask("document.activeElement === row.firstChild") is True, key


def test_everything_has_a_name_for_a_screen_reader(served: Served, tab: Any) -> None:
    for path in ("/", "/runs", "/nodes/gpu-a-0002", "/trends"):
        tab.open(f"{served.address}{path}")
        wanted = {"image", "img", "link", "region", "navigation", "heading", "checkbox", "combobox"}
        found = [one for one in tab.tree() if one["role"]["value"] in wanted]
        nameless = [one for one in found if not one.get("name", {}).get("value")]
        assert nameless == [], path


def test_two_runs_are_chosen_and_compared_by_clicking(served: Served, tab: Any) -> None:
    tab.open(f"{served.address}/runs")
    for n in (0, 3, 5):
        tab.ask(f"document.querySelectorAll('[name=run]')[{n}].click()")
    assert tab.ask("document.querySelectorAll('[name=run]:checked').length") == 2
    tab.ask("document.querySelector('form[action=\"/compare\"] button').click()")
    tab.until("location.pathname === '/compare' && document.readyState === 'complete'")
    assert tab.ask("document.querySelector('h1').innerText") != ""
    assert tab.ask("document.querySelectorAll('.button').length") == 2


def test_a_watched_job_moves_without_a_reload(
    served: Served, tab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", str(served.home))
    folder = RunFolder.create("launch --watch", {})

    def at(step: int) -> None:
        now = LiveStep(step=step, step_s=0.03, low_s=0.029, high_s=0.031)
        job = LiveJob(now=now, hosts=("a", "a"), late_s=(0.0, 0.02), recent_s=(0.03,) * 50)
        folder.keep(LIVE, json.dumps(to_json(job)))

    try:
        at(811)
        tab.open(f"{served.address}/live/{folder.path.name}")
        tab.ask("window.same = 'yes'")
        assert "step 811" in tab.ask("document.body.innerText")
        tab.ask("document.querySelector('.cells').children[1].focus()")
        at(812)
        tab.until("document.body.innerText.includes('step 812')")
        assert tab.ask("document.activeElement.innerText") == "1", "the keyboard is where it was"
        key = "new KeyboardEvent('keydown', {key: 'ArrowLeft', bubbles: true})"
        tab.ask(f"document.activeElement.dispatchEvent({key})")
        assert tab.ask("document.activeElement.innerText") == "0", "and walks on"
        assert tab.ask("window.same") == "yes" and tab.complaints == []
    finally:
        shutil.rmtree(folder.path)


def test_prometheus_takes_its_metrics(served: Served) -> None:
    status, text, kind = served.get("/metrics")
    assert status == 200 and kind.startswith("text/plain; version=0.0.4")
    assert re.search(r'wirespeed_verdict\{command="check",verdict="(NOT )?READY"\} 1', text)
    if program := shutil.which("promtool"):
        checked = subprocess.run(
            [program, "check", "metrics"], input=text.encode(), timeout=BOUND_S, check=False
        )
        assert checked.returncode == 0
