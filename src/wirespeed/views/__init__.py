"""What a run looks like: one file a format, each a pure function of the records."""

from collections.abc import Callable
from importlib import import_module

from wirespeed.errors import UsageError
from wirespeed.harmless import escaped
from wirespeed.records import Run
from wirespeed.views.style import Style

__all__ = ["FORMATS", "Style", "render"]

FORMATS: tuple[str, ...] = ("table", "wide", "json", "jsonl", "md", "nccl-tests", "csv")

_MODULES = {
    "table": "table",
    "wide": "wide",
    "json": "json_view",
    "jsonl": "jsonl",
    "md": "md",
    "nccl-tests": "nccl_tests",
    "csv": "csv_view",
}

_TOPO = {"table": "render", "wide": "render", "md": "render_md"}
"""Functions of views/topo.py: a run of `topo` holds no figures, only nodes."""


def render(run: Run, format: str, style: Style) -> str:
    """`run` as text, ending in a line end. Only the module of that format is imported."""
    if format not in _MODULES:
        raise UsageError(f"unknown output format {format!r}", expected=", ".join(FORMATS))
    if run.command == "topo" and format in _TOPO:
        return _view("topo", _TOPO[format])(run, style)
    text = _view(_MODULES[format], "render")(run, style)
    return escaped(text) if format.startswith("json") else text


def _view(module: str, name: str) -> Callable[[Run, Style], str]:
    view: Callable[[Run, Style], str] = getattr(import_module(f"wirespeed.views.{module}"), name)
    return view
