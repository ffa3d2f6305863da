"""Compared settings as JSON and back: the one place where their seconds become µs."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from wirespeed.records_settings import Setting, SettingFigures
from wirespeed.records_training import Ratio

__all__ = ["setting_from_json", "setting_to_json"]

_US = 1e6
_TIMES = ("median", "low", "high")


def setting_to_json(setting: Setting) -> dict[str, Any]:
    data = asdict(setting)
    data["unset"], data["rounds"] = list(setting.unset), list(setting.rounds)
    data["figures"] = [_figures_to_json(one) for one in setting.figures]
    return data


def setting_from_json(data: Mapping[str, Any]) -> Setting:
    fields = {**data, "ratio": _ratio(data.get("ratio"))}
    for name in ("unset", "rounds"):
        fields[name] = tuple(data.get(name, ()))
    fields["figures"] = tuple(map(_figures_from_json, data.get("figures", ())))
    return Setting(**fields)


def _figures_to_json(figures: SettingFigures) -> dict[str, Any]:
    data = asdict(figures)
    for name in _TIMES:
        data[f"{name}_us"] = data.pop(name) * _US
    data["round_times_us"] = [time * _US for time in data.pop("round_times")]
    return data


def _figures_from_json(data: Mapping[str, Any]) -> SettingFigures:
    fields = {**data, "ratio": _ratio(data.get("ratio"))}
    for name in _TIMES:
        fields[name] = fields.pop(f"{name}_us") / _US
    fields["round_times"] = tuple(time / _US for time in fields.pop("round_times_us"))
    return SettingFigures(**fields)


def _ratio(data: Mapping[str, float] | None) -> Ratio | None:
    return None if data is None else Ratio(**data)
