"""The strategies beside this file, for it and for the long run under tests/system."""

import importlib.util
import sys
from pathlib import Path

import pytest

_NAME = "wirespeed_tests_hostile"


def _load() -> None:
    spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).parent / "hostile.py")
    if spec is None or spec.loader is None:
        raise ImportError(_NAME)
    sys.modules[_NAME] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


_load()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cluster files are looked for in the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
