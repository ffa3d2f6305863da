"""Training records as JSON and back; seconds become milliseconds here, and only here."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from wirespeed.records_training import LoadFigures, Ratio, Spread, Training, TrainingMemory

__all__ = ["load_from_json", "load_to_json", "training_from_json", "training_to_json"]

_MS = 1e3
_RATIOS = ("ratio", "efficiency")
_MEMORIES = ("memory", "memory_predicted")
_TIMES = ("comm", "predicted_step")
_LISTS = ("rank_compute", "round_steps")


def training_to_json(training: Training) -> dict[str, Any]:
    data = asdict(training)
    step = data.pop("step")
    data["step_ms"] = _scaled(step, _MS)
    spread = data.pop("comm_spread")
    data["comm_spread_ms"] = spread and _scaled(spread, _MS)
    data["parts_ms"] = {name: value * _MS for name, value in data.pop("parts").items()}
    for name in _TIMES:
        value = data.pop(name)
        data[f"{name}_ms"] = None if value is None else value * _MS
    exposed = data.pop("exposed")
    data["exposed_ms"] = exposed and exposed["value"] * _MS
    data["exposed_interval_ms"] = exposed and {k: exposed[k] * _MS for k in ("low", "high")}
    for name in _LISTS:
        data[f"{name}_ms"] = [value * _MS for value in data.pop(name)]
    data["peak_memory_bytes"] = training.memory.peak if training.memory else None
    return data


def training_from_json(data: Mapping[str, Any]) -> Training:
    fields = dict(data)
    fields.pop("peak_memory_bytes", None)
    step = fields.pop("step_ms")
    fields["step"] = Spread(**_scaled(step, 1 / _MS))
    spread = fields.pop("comm_spread_ms", None)
    fields["comm_spread"] = Spread(**_scaled(spread, 1 / _MS)) if spread else None
    share = fields.get("comm_fraction_spread")
    fields["comm_fraction_spread"] = Spread(**share) if share else None
    fields["parts"] = {k: v / _MS for k, v in fields.pop("parts_ms", {}).items()}
    for name in _TIMES:
        value = fields.pop(f"{name}_ms", None)
        fields[name] = None if value is None else value / _MS
    fields["exposed"] = _exposed(
        fields.pop("exposed_ms", None), fields.pop("exposed_interval_ms", None)
    )
    for name in _LISTS:
        fields[name] = tuple(v / _MS for v in fields.pop(f"{name}_ms", ()))
    for name in _RATIOS:
        fields[name] = Ratio(**fields[name]) if fields.get(name) else None
    for name in _MEMORIES:
        fields[name] = TrainingMemory(**fields[name]) if fields.get(name) else None
    return Training(**fields)


def _scaled(spread: Mapping[str, Any], factor: float) -> dict[str, Any]:
    return {k: v if k == "samples" else v * factor for k, v in spread.items()}


def _exposed(value: float | None, ends: Mapping[str, float] | None) -> Ratio | None:
    if value is None or ends is None:
        return None
    return Ratio(value=value / _MS, low=ends["low"] / _MS, high=ends["high"] / _MS)


def load_to_json(figures: LoadFigures) -> dict[str, Any]:
    data = asdict(figures)
    for name in ("alone", "together"):
        data[f"{name}_ms"] = data.pop(name) * _MS
    return data


def load_from_json(data: Mapping[str, Any]) -> LoadFigures:
    fields = dict(data)
    for name in ("alone", "together"):
        fields[name] = fields.pop(f"{name}_ms") / _MS
    fields["ratio"] = Ratio(**fields["ratio"])
    return LoadFigures(**fields)
