"""The presets that ship with wirespeed: reading their files, and finding one by its name."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from wirespeed.clusters.file.model import Volume
from wirespeed.clusters.presets.preset import Preset, Variable
from wirespeed.errors import UsageError, WirespeedError

__all__ = ["preset_named", "preset_names"]

_FOLDER = Path(__file__).parent / "data"
_KEYS = frozenset(Preset.__dataclass_fields__) - {"name"} | {"extends", "without"}


@cache
def preset_names() -> tuple[str, ...]:
    """All names, sorted; no file is read for it."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@cache
def preset_named(name: str) -> Preset:
    """The preset; UsageError with the nearest name where there is none."""
    if name not in preset_names():
        near = get_close_matches(name, preset_names(), n=1, cutoff=0.5)
        raise UsageError(
            f"there is no preset {name!r}" + (f"; do you mean {near[0]}?" if near else ""),
            expected=", ".join(preset_names()),
            next="wirespeed cluster presets",
        )
    return _preset(name, _merged(name))


def _merged(name: str) -> dict[str, Any]:
    """A file's data on top of what it extends, so that near-equal fabrics cannot drift apart."""
    told = _read(name)
    if unknown := sorted(set(told) - _KEYS):
        raise WirespeedError(f"preset {name}: unknown key {unknown[0]!r}")
    base, without = told.pop("extends", ""), set(told.pop("without", ()))
    own = {one["name"]: one for one in told.pop("environment", ())}
    whole = _merged(base) if base else {}
    inherited = {one["name"]: one for one in whole.pop("environment", ())}
    if lost := sorted(without - set(inherited)):
        raise WirespeedError(f"preset {name}: {base} does not set {lost[0]}")
    kept = {key: one for key, one in inherited.items() if key not in without}
    return {**whole, **told, "environment": list({**kept, **own}.values())}


def _read(name: str) -> dict[str, Any]:
    import yaml

    told: dict[str, Any] = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text("utf-8"))
    return told


def _preset(name: str, told: Mapping[str, Any]) -> Preset:
    """Tuples where YAML has lists."""
    variables = (Variable(one["name"], one["value"], one["why"]) for one in told["environment"])
    parts = {
        "gpus": tuple(told.get("gpus", ())),
        "environment": tuple(variables),
        "volumes": tuple(Volume.model_validate(one) for one in told.get("volumes", ())),
        "sidecars": tuple(told.get("sidecars", ())),
    }
    return Preset(name=name, **{**told, **parts})
