"""Versions of torch, CUDA and NCCL as they are installed here, read without importing torch.

Importing it takes a second and 145 MiB; `torch/version.py` and the packages' metadata say the same.
"""

import re
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from wirespeed.world.reading import Notes, read_text

__all__ = ["note_installed"]

_LINE = re.compile(r"^(__version__|cuda)\s*(?::[^=]+)?=\s*(.+)$", re.MULTILINE)
_NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
"""Packages that torch's wheels for CUDA bring NCCL with; another build of torch may hold its own."""


def note_installed(notes: Notes) -> None:
    """Note `torch`, `cuda` and `nccl`, or why they are unknown. Nothing raises."""
    said = _said_by_torch()
    if not said:
        why = "torch is not installed in this environment"
        why = why if said is None else "torch/version.py names no version"
        notes.unknown |= dict.fromkeys(("torch", "cuda", "nccl"), why)
        return
    notes.keep("torch", said.get("__version__"), "torch/version.py names no version")
    notes.keep("cuda", said.get("cuda"), "this torch is built without CUDA")
    missing = "no package of NCCL is installed beside torch, which may bring its own"
    without = "this torch is built without NCCL"
    notes.keep("nccl", _nccl() if "cuda" in said else None, missing if "cuda" in said else without)


def _said_by_torch() -> dict[str, str] | None:
    """The values that `torch/version.py` assigns as text; None without torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = read_text(Path(spec.origin).with_name("version.py")) or ""
    values = {name: value.strip() for name, value in _LINE.findall(text)}
    return {name: value.strip("'\"") for name, value in values.items() if value[0] in "'\""}


def _nccl() -> str | None:
    for package in _NCCL:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None
