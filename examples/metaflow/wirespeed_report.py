"""What the flows of this folder share: the words of a verb, the run's files, and the card."""

import html
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from metaflow.cards import Markdown

VERBS = ("check", "bench", "locate", "topo", "placement")
PAGE_S = 120
"""Bound for making the page from a stored run."""


def words(verb: str, level: str, more: str = "") -> list[str]:
    """What follows `wirespeed`; `more` are further words, quoted as for a shell."""
    if verb not in VERBS:
        raise ValueError(f"--verb {verb}: expected one of {', '.join(VERBS)}")
    begin = {"check": ["check", "-l", level], "placement": ["check", "--only", "placement"]}
    return [*begin.get(verb, [verb]), *shlex.split(more)]


def collect(folder: Path) -> dict[str, bytes]:
    """All files of the runs in this home, by path; empty where no run was stored here."""
    runs = folder / "runs"
    files = (path for path in sorted(runs.rglob("*")) if path.is_file())
    return {str(path.relative_to(runs)): path.read_bytes() for path in files}


def run_of(files: dict[str, bytes]) -> dict[str, Any]:
    """The stored run; empty where there is none."""
    found = [data for name, data in files.items() if name.endswith("/run.json")]
    return json.loads(found[-1]) if found else {}


def page_of(folder: Path) -> str:
    """The offline HTML page of the newest run of this home."""
    page = folder / "page.html"
    show = [sys.executable, "-P", "-m", "wirespeed", "runs", "show", "last", "--html", str(page)]
    env = {**os.environ, "WIRESPEED_HOME": str(folder)}
    subprocess.run(show, env=env, timeout=PAGE_S, check=True, stdout=subprocess.DEVNULL)
    return page.read_text()


def report(page: str) -> Markdown:
    """A whole page in a card, in a frame of its own: its scripts and styles stay apart.

    Metaflow's cards have no component for HTML; Markdown may hold it, as long as no line is empty.
    """
    source = html.escape(page).replace("\n", "&#10;").replace("\r", "&#13;")
    return Markdown(
        f'<iframe title="wirespeed" srcdoc="{source}" sandbox="allow-scripts allow-downloads"'
        ' style="width:100%;height:90vh;border:0"></iframe>'
    )
