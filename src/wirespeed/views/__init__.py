"""What a run looks like: one file a format, each a pure function of the records."""

from collections.abc import Callable
from importlib import import_module

from wirespeed.errors import UsageError
from wirespeed.records import Run
from wirespeed.views.style import Style

__all__ = ["FORMATS", "Style", "render"]

FORMATS: tuple[str, ...] = ("table", "wide", "json", "jsonl", "md", "nccl-tests")

_MODULES = {
    "table": "table",
    "wide": "wide",
    "json": "json_view",
    "jsonl": "jsonl",
    "md": "md",
    "nccl-tests": "nccl_tests",
}


def render(run: Run, format: str, style: Style) -> str:
    """`run` as text, ending in a line end. Only the module of that format is imported."""
    if format not in _MODULES:
        raise UsageError(f"unknown output format {format!r}", expected=", ".join(FORMATS))
    view: Callable[[Run, Style], str] = import_module(f"wirespeed.views.{_MODULES[format]}").render
    return view(run, style)
