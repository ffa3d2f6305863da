"""The run as JSON, in the published shape `wirespeed.run/1`."""

import json
import math
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

from wirespeed.records import Run
from wirespeed.records_json import run_to_json
from wirespeed.views.style import Style

__all__ = ["document", "render"]

_INDENT = "  "


def render(run: Run, style: Style) -> str:
    quoted = encode_basestring_ascii if style.ascii else encode_basestring
    return _text(document(run), quoted, "\n") + "\n"


def _text(value: Any, quoted: Callable[[str], str], margin: str) -> str:
    """What `json.dumps(value, indent=2)` writes of plain values.

    With an indent the package's encoder is one generator a value: 50 MB of a run of 10,000 ranks take
    it three times as long. margin: a line end and the indent of the value.
    """
    kind = type(value)
    if kind is str:
        return quoted(value)
    if kind is float or kind is int:
        return repr(value)
    if not value or kind not in (dict, list):
        return json.dumps(value)
    inner = margin + _INDENT
    if kind is dict:
        parts = [f"{quoted(key)}: {_text(item, quoted, inner)}" for key, item in value.items()]
        return "{" + inner + f",{inner}".join(parts) + margin + "}"
    parts = [_text(item, quoted, inner) for item in value]
    return "[" + inner + f",{inner}".join(parts) + margin + "]"


def document(run: Run) -> dict[str, Any]:
    """The run's JSON; odd values among its settings (infinity, a path) become text."""
    data: dict[str, Any] = _plain(run_to_json(run))
    return data


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is str and value.isascii():
        return value
    if kind is float and math.isfinite(value):
        return value
    if isinstance(value, (dict, Mapping)):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value).encode("utf-8", "replace").decode()
