"""Options that say what nodes a figure is of: `reference ask`, `reference add`, `runs import`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.records import Run, ToldShape

__all__ = ["completed", "shape_options", "told_by"]

_INTERCONNECTS = ("nvlink", "xgmi", "pcie", "memory", "mnnvl", "ib", "roce", "efa", "tcpxo", "tcp")


def shape_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--gpu --gpus-per-node --nodes --interconnect --nics`."""
    options = (
        click.option(
            "--gpu", metavar="NAME", help="Such as H100, or what nvidia-smi -L says; `cpu`: none."
        ),
        click.option("--gpus-per-node", type=click.IntRange(1, 4096), help="Ranks a node."),
        click.option("--nodes", type=click.IntRange(1, 65_536), help="Nodes."),
        click.option(
            "--interconnect",
            type=click.Choice(_INTERCONNECTS),
            help="What carries the traffic between nodes, or within one.",
        ),
        click.option("--nics", metavar="NxGbit/s", help="Network cards of a node, such as 8x400."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def told_by(values: dict[str, Any]) -> "ToldShape | None":
    """What the options say; None where none was given."""
    from wirespeed.records import ToldShape

    nics, rate = _cards(values.get("nics"))
    told = ToldShape(
        gpu=values.get("gpu") or "",
        gpus_per_node=values.get("gpus_per_node") or 0,
        nodes=values.get("nodes") or 0,
        interconnect=values.get("interconnect") or "",
        nics=nics,
        nic_Gbitps=rate,
        why="as told",
    )
    return told if told != ToldShape(why="as told") else None


def completed(run: "Run", told: "ToldShape | None") -> "Run":
    """The run of a world with what was said of it; UsageError where that contradicts it."""
    from dataclasses import replace

    from wirespeed.reference.told import complete

    if told is None:
        return run
    return replace(run, world=complete(run.world, told, whose=f"run {run.id}"))


def _cards(text: str | None) -> tuple[int, float]:
    if not text:
        return 0, 0.0
    count, _, rate = text.lower().partition("x")
    try:
        cards = int(count), float(rate)
    except ValueError:
        cards = 0, 0.0
    if not (0 < cards[0] <= 1024 and 0 < cards[1] < 1e6):
        raise UsageError(
            f"--nics {text!r} is no number of cards", expected="such as 8x400 (Gbit/s)"
        )
    return cards
