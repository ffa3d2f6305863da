"""One JSON object a line, each with its `kind`: measurements, data checks, findings, the run."""

import json
from collections.abc import Iterator
from typing import Any

from wirespeed.records import Run
from wirespeed.views.json_view import document
from wirespeed.views.style import Style

__all__ = ["render"]

_LISTS = {
    "measurements": "measurement",
    "verifications": "verification",
    "findings": "finding",
    "training": "training",
    "under_load": "load",
}


def render(run: Run, style: Style) -> str:
    return "".join(json.dumps(line, ensure_ascii=style.ascii) + "\n" for line in _lines(run))


def _lines(run: Run) -> Iterator[dict[str, Any]]:
    """Each item with the run's id, so that lines of several runs may be put together."""
    data = document(run)
    for name, kind in _LISTS.items():
        for item in data.pop(name, ()):
            yield {"kind": kind, "run": run.id, **item}
    yield {"kind": "run", **data}
