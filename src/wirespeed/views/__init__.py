"""What a run looks like: one file a format, each a pure function of the records."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from wirespeed.errors import UsageError, escaped
from wirespeed.views.text import Style

if TYPE_CHECKING:
    from wirespeed.model.records import Run

__all__ = ["FORMATS", "Style", "render"]

_VIEWS = {
    "table": ("table", "render"),
    "wide": ("table", "render_wide"),
    "json": ("data", "render_json"),
    "jsonl": ("data", "render_jsonl"),
    "md": ("md", "render"),
    "nccl-tests": ("data", "render_nccl_tests"),
    "csv": ("data", "render_csv"),
}
"""Module and function of each format."""

FORMATS = tuple(_VIEWS)

_TOPO = {"table": "render", "wide": "render", "md": "render_md"}
"""Functions of views/topo.py: a run of `topo` holds no figures, only nodes."""


def render(run: "Run", format: str, style: Style) -> str:
    """`run` as text, ending in a line end. Only the module of that format is imported."""
    if format not in _VIEWS:
        raise UsageError(f"unknown output format {format!r}", expected=", ".join(FORMATS))
    if run.command == "topo" and format in _TOPO:
        return _view("topo", _TOPO[format])(run, style)
    text = _view(*_VIEWS[format])(run, style)
    return escaped(text) if format.startswith("json") else text


def _view(module: str, name: str) -> "Callable[[Run, Style], str]":
    view: Callable[[Run, Style], str] = getattr(import_module(f"wirespeed.views.{module}"), name)
    return view
