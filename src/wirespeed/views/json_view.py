"""The run as JSON, in the published shape `wirespeed.run/1`."""

import json
import math
from collections.abc import Mapping
from typing import Any

from wirespeed.records import Run
from wirespeed.records_json import run_to_json
from wirespeed.views.style import Style

__all__ = ["document", "render"]


def render(run: Run, style: Style) -> str:
    return json.dumps(document(run), indent=2, ensure_ascii=style.ascii) + "\n"


def document(run: Run) -> dict[str, Any]:
    """The run's JSON; odd values among its settings (infinity, a path) become text."""
    data: dict[str, Any] = _plain(run_to_json(run))
    return data


def _plain(value: Any) -> Any:
    if type(value) is str and value.isascii():
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
