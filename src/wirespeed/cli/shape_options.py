"""What nodes a figure is of, as options say, and whether it is normal: `reference`, `runs import`,
`cluster nccl-tests`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.model.records import Measurement, Run, ToldShape
    from wirespeed.reference import Reference
    from wirespeed.reference.ask import Answer
    from wirespeed.views.text import Style


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
    from wirespeed.model.records import ToldShape

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

    from wirespeed.reference.reasons import complete

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


def verdict_of(run: "Run", reference: "Reference | None" = None) -> "Answer | None":
    """Of its best figure; None where the run has none, or is of nodes that nobody told."""
    from wirespeed.reference.shape import shape_of
    from wirespeed.session.references import answer_of

    best = best_of(run)
    return answer_of(run, best, reference) if best and shape_of(run.world) else None


def verdict_lines(run: "Run", style: "Style", reference: "Reference | None" = None) -> list[str]:
    """The verdict and the command that tells more; empty where nothing was measured.

    reference: what to hold several runs against, read once.
    """
    from wirespeed.cli.reference_text import verdict_line
    from wirespeed.reference.reasons import lacking

    best = best_of(run)
    if best is None:
        return []
    again = f"wirespeed reference ask {best.op} {best.size_bytes} --run {run.id}"
    answer = verdict_of(run, reference)
    if answer is not None:
        more = "" if answer.shape.interconnect else "   (with --interconnect: which network it is)"
        return ["  " + verdict_line(answer, style), f"  why: {again}{more}"]
    words = " ".join(f"{word} …" for word in ", ".join(lacking(run.world)).split(", ") if word)
    if not words:
        return []
    return [style.text(f"  is it normal? {again} {words}")]


def best_of(run: "Run", op: str | None = None) -> "Measurement | None":
    """The highest busbw over all ranks, of `op` or any; out of place where the two are alike."""
    known = [one for one in run.measurements if one.groups == "all" and one.busbw > 0]
    known = [one for one in known if op in (None, one.op)]
    return max(known, key=lambda one: (one.busbw, not one.in_place), default=None)
