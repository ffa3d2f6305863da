"""Work that lasts, as JSON and back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from wirespeed.records_lasting import (
    Goodput,
    Incident,
    Soak,
    SoakCell,
    SoakStall,
    SoakWindow,
    SoakWrong,
)

__all__ = [
    "goodput_from_json",
    "goodput_to_json",
    "incident_from_json",
    "incident_to_json",
    "soak_from_json",
    "soak_stall_from_json",
    "soak_stall_to_json",
    "soak_to_json",
    "soak_window_from_json",
    "soak_window_to_json",
    "soak_wrong_from_json",
]


def incident_to_json(incident: Incident) -> dict[str, Any]:
    return asdict(incident)


def incident_from_json(data: Mapping[str, Any]) -> Incident:
    return Incident(**data)


def goodput_to_json(goodput: Goodput) -> dict[str, Any]:
    return {**asdict(goodput), "incidents": [incident_to_json(one) for one in goodput.incidents]}


def goodput_from_json(data: Mapping[str, Any]) -> Goodput:
    incidents = tuple(map(incident_from_json, data.get("incidents", ())))
    return Goodput(**{**data, "incidents": incidents})


_US = 1e6
_CELL_TIMES = ("low", "median", "p99", "max")


def _cell_to_json(cell: SoakCell) -> dict[str, Any]:
    data = asdict(cell)
    for name in _CELL_TIMES:
        data[f"{name}_us"] = round(data.pop(name) * _US, 2)
    return data


def _cell_from_json(data: Mapping[str, Any]) -> SoakCell:
    fields = dict(data)
    for name in _CELL_TIMES:
        fields[name] = fields.pop(f"{name}_us") / _US
    return SoakCell(**fields)


def soak_window_to_json(window: SoakWindow) -> dict[str, Any]:
    data = asdict(window)
    data["cells"] = [_cell_to_json(cell) for cell in window.cells]
    for name in ("last_share", "rss_bytes", "waited"):
        data[name] = list(data[name])
    return data


def soak_window_from_json(data: Mapping[str, Any]) -> SoakWindow:
    fields = dict(data)
    fields["cells"] = tuple(map(_cell_from_json, fields.get("cells", ())))
    for name in ("last_share", "rss_bytes", "waited"):
        fields[name] = tuple(fields.get(name, ()))
    return SoakWindow(**fields)


def soak_stall_to_json(stall: SoakStall) -> dict[str, Any]:
    return {**asdict(stall), "paused": list(stall.paused), "busy": list(stall.busy)}


def soak_stall_from_json(data: Mapping[str, Any]) -> SoakStall:
    listed = {name: tuple(data.get(name, ())) for name in ("paused", "busy")}
    return SoakStall(**{**data, **listed})


def soak_wrong_from_json(data: Mapping[str, Any]) -> SoakWrong:
    return SoakWrong(**data)


def soak_to_json(soak: Soak) -> dict[str, Any]:
    return {
        **asdict(soak),
        "windows": [soak_window_to_json(one) for one in soak.windows],
        "incidents": [incident_to_json(one) for one in soak.incidents],
        "stalls": [soak_stall_to_json(one) for one in soak.stalls],
        "wrong": [asdict(one) for one in soak.wrong],
    }


def soak_from_json(data: Mapping[str, Any]) -> Soak:
    lists = {
        "windows": soak_window_from_json,
        "incidents": incident_from_json,
        "stalls": soak_stall_from_json,
        "wrong": soak_wrong_from_json,
    }
    read = {name: tuple(map(one, data.get(name, ()))) for name, one in lists.items()}
    return Soak(**{**data, **read})
