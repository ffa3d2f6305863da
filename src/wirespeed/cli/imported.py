"""Whether the best figure of an imported run is normal, in the lines that end its import."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirespeed.records import Measurement, Run
    from wirespeed.reference import Reference
    from wirespeed.reference.ask import Answer
    from wirespeed.views.style import Style

__all__ = ["best_of", "verdict_lines", "verdict_of"]


def verdict_of(run: "Run", reference: "Reference | None" = None) -> "Answer | None":
    """Of its best figure; None where the run has none, or is of nodes that nobody told."""
    from wirespeed.console.references import answer_of
    from wirespeed.reference.shape import shape_of

    best = best_of(run)
    return answer_of(run, best, reference) if best and shape_of(run.world) else None


def verdict_lines(run: "Run", style: "Style", reference: "Reference | None" = None) -> list[str]:
    """The verdict and the command that tells more; empty where nothing was measured.

    reference: what to hold several runs against, read once.
    """
    from wirespeed.cli.reference_text import verdict_line
    from wirespeed.reference.told import lacking

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
