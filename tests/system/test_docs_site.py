"""The documentation site: it builds without a warning, and a browser opens it without the network."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from browser_lab import tab

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
BOUND_S = 150.0
_LOADS = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc=[\"']?((?:https?:)?//[^\"' >]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preload|preconnect|manifest|modulepreload))"
    r"[^>]*?\bhref=[\"']?((?:https?:)?//[^\"' >]+)",
    re.IGNORECASE,
)
"""Addresses of elsewhere that a browser loads by itself; a link to follow is none."""


__all__ = ["tab"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` builds, in a folder of this test."""
    if importlib.util.find_spec("material") is None or importlib.util.find_spec("mkdocs") is None:
        pytest.skip("Requires: mkdocs-material (pip install 'wirespeed[docs]')")
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    assert _LOADS.search('<link rel="stylesheet" href="https://fonts.example/a.css">')
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    found = {page.name: _LOADS.findall(page.read_text()) for page in pages}
    assert {name: loads for name, loads in found.items() if loads} == {}
    sheets = [one.read_text() for one in site.rglob("*.css")]
    assert [one for one in sheets if re.search(r"url\([\"']?(https?:)?//|@import", one)] == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_open_offline_and_without_a_complaint(site: Path, tab: Any, dark: bool) -> None:
    tab.media(dark=dark)
    shown = {
        "index.html": "What do you want to know?",
        "verbs/check.html#options": "-l, --level [quick|medium|long",
        "findings.html#col-001": "all_reduce delivers exact data",
        "run-schema.html": "wirespeed.run/1",
    }
    for name, words in shown.items():
        file, _, anchor = name.partition("#")
        tab.open(f"{(site / file).as_uri()}#{anchor}")
        assert words in tab.ask("document.body.innerText"), name
        assert tab.ask("document.body.dataset.mdColorScheme") == ("slate" if dark else "default")
        assert tab.complaints == [], name
        assert [one for one in tab.requests if not one.startswith(("file:", "data:"))] == [], name
        if anchor:
            assert tab.ask(f"!!document.getElementById({anchor!r})"), name


def test_links_are_made_where_a_finding_or_a_command_is_named(site: Path, tab: Any) -> None:
    tab.open((site / "index.html").as_uri())
    tab.ask("[...document.links].find((one) => one.innerText === 'wirespeed locate').click()")
    tab.until("location.pathname.endsWith('/verbs/locate.html')")
    tab.open((site / "diagnose.html").as_uri())
    assert tab.ask("[...document.links].some((one) => /findings\\.html#/.test(one.href))")


def test_the_search_works_from_the_file_system(site: Path, tab: Any) -> None:
    tab.open((site / "index.html").as_uri())
    tab.ask("document.querySelector('[data-md-toggle=search]').click()")
    tab.ask(
        "(() => { const box = document.querySelector('.md-search__input'); box.focus(); "
        "box.value = 'SHM-001'; box.dispatchEvent(new Event('input', {bubbles: true})); "
        "box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})) })()"
    )
    links = "[...document.querySelectorAll('.md-search-result__link')].map((one) => one.href)"
    tab.until(f"{links}.some((one) => one.endsWith('#shm-001'))")
    assert tab.complaints == []
    assert [one for one in tab.requests if not one.startswith(("file:", "data:"))] == []
