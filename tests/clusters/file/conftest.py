"""Each test in a folder of its own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cluster files are looked for in the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
