"""Presets as text: the list, one explained, and as data."""

from collections.abc import Sequence
from dataclasses import asdict
from textwrap import fill
from typing import Any

from wirespeed.clusters.presets.preset import Preset

__all__ = ["as_data", "explained", "listed"]

_WIDTH = 100


def listed(presets: Sequence[Preset]) -> str:
    """One line each."""
    wide = max(len(one.name) for one in presets)
    lines = [f"{one.name:<{wide}}  {one.mode:<4}  {one.summary}" for one in presets]
    last = "\nwirespeed cluster presets NAME tells what one sets, and why; network.preset takes it."
    return "\n".join([*lines, last])


def explained(preset: Preset) -> str:
    """Everything that it sets, each with its reason."""
    parts = [
        f"{preset.name}: {preset.summary}",
        _wrapped(preset.why, ""),
        f"source  {preset.source}\nmode    {preset.mode}",
        _titled("environment", _variables(preset)),
        _titled("of each pod", _needs(preset)),
        f"In a cluster file:\n  network:\n    preset: {preset.name}",
    ]
    return "\n\n".join(part for part in parts if part)


def as_data(preset: Preset) -> dict[str, Any]:
    """Plain values only; keys as the preset files and cluster files spell them."""
    told = {name: getattr(preset, name) for name in preset.__dataclass_fields__}
    return {
        **told,
        "gpus": list(preset.gpus),
        "environment": [asdict(one) for one in preset.environment],
        "resources": dict(preset.resources),
        "volumes": [one.model_dump(exclude_defaults=True) for one in preset.volumes],
        "annotations": dict(preset.annotations),
        "sidecars": [dict(one) for one in preset.sidecars],
    }


def _titled(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *lines]) if lines else ""


def _variables(preset: Preset) -> list[str]:
    lines = []
    for one in preset.environment:
        lines += [f"  {one.name}={one.value}", _wrapped(one.why, "      ")]
    return lines


def _needs(preset: Preset) -> list[str]:
    """What it asks of a pod beside variables."""
    lines = [f"  resource    {name}: {count}" for name, count in preset.resources.items()]
    lines += [f"  mount       {one.mount_path} <- {_origin(one)}" for one in preset.volumes]
    lines += [f"  annotation  {name}" for name in preset.annotations]
    lines += [f"  container   {one['name']}: {one['image']}" for one in preset.sidecars]
    if preset.ipc_lock:
        lines.append("  capability  IPC_LOCK, for memory registration")
    if preset.same_zone:
        lines.append("  placement   all in one zone")
    if preset.spread_over:
        lines.append(f"  placement   spread evenly over {preset.spread_over}")
    return lines


def _origin(volume: Any) -> str:
    return f"{volume.host_path} of the node" if volume.host_path else "a folder of the pod"


def _wrapped(text: str, indent: str) -> str:
    return fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)
