import sys
from pathlib import Path

import pytest

from wirespeed.model.codec import to_json
from wirespeed.node.machine import note_installed
from wirespeed.node.reading import Notes

CUDA_BUILD = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '2.8.0+cu128'
debug = False
cuda: Optional[str] = '12.8'
hip: Optional[str] = None
"""
"""torch/version.py as torch's build writes it."""


def noted(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str | None) -> Notes:
    """With a torch that may not be imported; `version`: its version.py."""
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text("raise ImportError('it is only read')\n")
    if version is not None:
        (folder / "torch/version.py").write_text(version)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    notes = Notes()
    note_installed(notes)
    return notes


def package(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_versions_are_read_without_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "nvidia-nccl-cu12", "2.27.3")
    notes = noted(tmp_path, monkeypatch, CUDA_BUILD)
    assert to_json(notes.facts) == {"torch": "2.8.0+cu128", "cuda": "12.8", "nccl": "2.27.3"}


def test_a_build_for_cpus_has_neither_cuda_nor_nccl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, "nvidia-nccl-cu12", "2.27.3")
    notes = noted(tmp_path, monkeypatch, CUDA_BUILD.replace("'12.8'", "None"))
    assert to_json(notes.facts) == {"torch": "2.8.0+cu128"}
    assert "without CUDA" in notes.unknown["cuda"]
    assert "without NCCL" in notes.unknown["nccl"]


def test_a_torch_without_its_file_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = noted(tmp_path, monkeypatch, None)
    assert to_json(notes.facts) == {}
    assert set(notes.unknown) == {"torch", "cuda", "nccl"}


def test_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.node.machine.find_spec", lambda name: None)
    notes = Notes()
    note_installed(notes)
    assert notes.unknown == dict.fromkeys(
        ("torch", "cuda", "nccl"), "torch is not installed in this environment"
    )


def test_it_says_what_the_real_torch_says() -> None:
    torch = pytest.importorskip("torch", reason="Requires: torch")
    notes = Notes()
    note_installed(notes)
    assert notes.facts.torch == torch.__version__
    assert notes.facts.cuda == torch.version.cuda
