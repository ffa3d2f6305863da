"""`wirespeed cluster gpus`: nvidia-smi of every pod as one table."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from wirespeed.cli.clusters import CONTEXT, file_argument, opened

if TYPE_CHECKING:
    from wirespeed.clusters.operations.gpus import Gpu, PodGpus
    from wirespeed.views.text import Grid


_EPILOG = """\b
Examples:
  wirespeed cluster gpus mine
  wirespeed cluster gpus mine -o json | jq '.pods[].gpus[] | select(.ecc_uncorrected > 0)'

\b
Exit codes: 0 every pod told of all its GPUs, 1 some pod could not, 3 there are no pods.
"""
_TITLES = ("pod", "node", "gpu", "name", "memory used", "total", "use", "temp", "power", "limit")
_LEFT = ("pod", "node", "name", "remark")


@click.command("gpus", context_settings=CONTEXT, epilog=_EPILOG)
@file_argument
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="How to print."
)
def command(cluster: str, output: str) -> int:
    """nvidia-smi of every pod at once, as one table.

    A pod that has no nvidia-smi, or whose nvidia-smi hangs, is a row that says so.
    """
    from wirespeed.clusters.operations.gpus import ask_gpus
    from wirespeed.clusters.operations.pod_lookup import pick_pod, pods_of

    file, kubectl = opened(cluster)
    pods = pods_of(kubectl, file.cluster.name)
    pick_pod(pods, "", file.cluster.name)
    told = ask_gpus(kubectl, [pod for pod in pods if pod.ordinal >= 0] or pods)
    click.echo(_json(told) if output == "json" else _table(told))
    return 1 if any(one.problem for one in told) else 0


def _json(told: "Sequence[PodGpus]") -> str:
    import json
    from dataclasses import asdict

    return json.dumps({"pods": [asdict(one) for one in told]}, indent=2)


def _table(told: "Sequence[PodGpus]") -> str:
    from wirespeed.views.text import Column, Grid, style_for

    names = (*_TITLES, "ECC", "processes", "remark")
    grid = Grid(tuple(Column(name, left=name in _LEFT) for name in names))
    for one in told:
        for gpu in one.gpus:
            _add(grid, one, gpu)
        if one.problem or not one.gpus:
            blank = [""] * (len(names) - 3)
            grid.add(one.pod, one.node, *blank, one.problem or "no GPU", color="red")
    return "\n".join(grid.lines(style_for(sys.stdout)))


def _add(grid: "Grid", pod: "PodGpus", gpu: "Gpu") -> None:
    from wirespeed.model.units import format_size

    memory = [
        format_size(n) if n is not None else "–"
        for n in (gpu.memory_used_bytes, gpu.memory_total_bytes)
    ]
    figures = (
        _figure(gpu.utilization_percent, " %"),
        _figure(gpu.temperature_C, " °C"),
        _figure(gpu.power_W, " W"),
        _figure(gpu.power_limit_W, " W"),
        _figure(gpu.ecc_uncorrected),
        _figure(gpu.processes),
    )
    told = "; ".join(gpu.remarks)
    color, at = "red" if told or gpu.ecc_uncorrected else "", 10 if gpu.ecc_uncorrected else 12
    index = _figure(gpu.index)
    grid.add(pod.pod, pod.node, index, gpu.name, *memory, *figures, told, color=color, at=at)


def _figure(value: float | None, unit: str = "") -> str:
    return "–" if value is None else f"{value:.0f}{unit}"
