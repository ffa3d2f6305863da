"""Runs held against expected figures: whether they are normal, and figures of one's own from them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from wirespeed.cli.options import told_by
from wirespeed.cli.reference_text import verdict_line
from wirespeed.errors import InputError, UsageError
from wirespeed.model.records import Measurement, Run, ToldShape
from wirespeed.model.units import GIGA, format_size
from wirespeed.node.reading import read_whole
from wirespeed.reference import Reference
from wirespeed.reference.ask import Answer, Asked, ask, expected_of
from wirespeed.reference.figures import Figure, figures_from_csv
from wirespeed.reference.known import figures_of_run
from wirespeed.reference.reasons import complete, lacking
from wirespeed.reference.shape import Shape, shape_of, shape_told
from wirespeed.runs.named_files import load_own
from wirespeed.runs.store import find, load
from wirespeed.session.references import answer_of
from wirespeed.views.text import Style

_LARGEST_FILE = 16 * 2**20


def completed(run: Run, told: ToldShape | None) -> Run:
    """The run of a world with what was said of it; UsageError where that contradicts it."""
    if told is None:
        return run
    return replace(run, world=complete(run.world, told, whose=f"run {run.id}"))


def verdict_of(run: Run, reference: Reference | None = None) -> Answer | None:
    """Of its best figure; None where the run has none, or is of nodes that nobody told."""
    best = best_of(run)
    return answer_of(run, best, reference) if best and shape_of(run.world) else None


def verdict_lines(run: Run, style: Style, reference: Reference | None = None) -> list[str]:
    """The verdict and the command that tells more; empty where nothing was measured.

    reference: what to hold several runs against, read once.
    """
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


def best_of(run: Run, op: str | None = None) -> Measurement | None:
    """The highest busbw over all ranks, of `op` or any; out of place where the two are alike."""
    known = [one for one in run.measurements if one.groups == "all" and one.busbw > 0]
    known = [one for one in known if op in (None, one.op)]
    return max(known, key=lambda one: (one.busbw, not one.in_place), default=None)


def best_figure(run: Run | None, op: str | None) -> Measurement:
    """UsageError where there is none."""
    if run is None:
        raise UsageError("which figure?", expected="OP SIZE --busbw GB/s, or --run RUN")
    best = best_of(run, op)
    if best is None:
        raise UsageError(
            f"run {run.id} measured no {op or 'collective'} over all ranks",
            next=f"wirespeed runs show {run.id}",
        )
    return best


def answer(op: str, size: int, told: dict[str, Any], run: Run | None) -> Answer:
    """A run's figure is held against all that `check` knows, a told one against figures."""
    shape = _shape(told, run)
    if told["busbw"]:
        figure = Asked(size, told["busbw"] * GIGA)
        nodes = run.world.nodes if run else ()
        return ask(shape, op, figure, expected_of(shape, op, size, load_own()), nodes=nodes)
    if run is None:
        raise UsageError("which figure?", expected="--busbw GB/s, or --run RUN")
    return answer_of(run, _measured(run, op, size))


def figures_from(ref: str, name: str | None, told: ToldShape | None) -> tuple[list[Figure], str]:
    """Of a stored run, and what the set is called."""
    run = completed(run_named(ref), told)
    called = name or run.id
    figures = figures_of_run(run, called)
    shape = shape_of(run.world)
    if shape is None:
        raise _shapeless(run)
    if not shape.interconnect:
        raise UsageError(
            f"run {run.id} does not tell what carries its traffic",
            expected="--interconnect, such as ib, roce, efa or tcp: figures hold for one only",
        )
    if not figures:
        raise UsageError(
            f"run {run.id} has no figures that can stand for its nodes",
            expected="measured collectives over all ranks",
            next=f"wirespeed runs show {run.id}",
        )
    return figures, called


def figures_in(file: str, name: str | None) -> tuple[list[Figure], str]:
    """Of a CSV, and what the set is called."""
    path = Path(file)
    try:
        text = read_whole(path, _LARGEST_FILE, pipes=True).decode("utf-8-sig")
    except OSError as error:
        raise InputError(
            f"cannot read {file}: {error.strerror or error}", expected="a table of figures"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not text", expected="CSV in UTF-8") from error
    called = name or path.stem
    figures = figures_from_csv(text, source=file, name=called)
    if not figures:
        raise InputError(f"{file} has no rows", expected="one row a figure")
    return list(figures), called


def run_named(ref: str) -> Run:
    return load(find(ref))


def _shape(told: dict[str, Any], run: Run | None) -> Shape:
    """As the run tells it, with what was said; else as said."""
    if run is not None:
        found = shape_of(run.world)
        if found is None:
            raise _shapeless(run)
        return found
    said = told_by(told)
    if said is None or not said.gpu:
        raise UsageError("which GPU?", expected="--gpu NAME, such as --gpu H100, or --gpu cpu")
    return shape_told(
        said.gpu,
        per_node=said.gpus_per_node or 8,
        nodes=said.nodes or 1,
        interconnect=said.interconnect,
        nics=said.nics or None,
        nic_Gbitps=said.nic_Gbitps or None,
    )


def _shapeless(run: Run) -> UsageError:
    words = lacking(run.world)
    if not words:
        return UsageError(
            f"the nodes of run {run.id} are not alike", expected="a run of alike nodes"
        )
    return UsageError(
        f"run {run.id} does not tell which nodes it is of",
        expected=f"{' and '.join(words)} with it, such as --gpu H100, or --gpu cpu",
    )


def _measured(run: Run, op: str, size: int) -> Measurement:
    """The run's figure of that operation and exactly that size."""
    alike = [one for one in run.measurements if one.op == op and one.groups == "all"]
    found = [one for one in alike if one.size_bytes == size and one.busbw]
    if found:
        return found[0]
    sizes = ", ".join(format_size(n, exact=True) for n in sorted({one.size_bytes for one in alike}))
    raise UsageError(
        f"run {run.id} has no busbw of {op} at {format_size(size, exact=True)}",
        expected=f"one of {sizes}" if sizes else f"a run that measured {op}",
    )


def shares_of_naive(run: Run) -> dict[str, float]:
    """Each strategy's step over naive's, of the first model and batch that naive was run with."""
    naive = next((one for one in run.training if one.strategy == "naive" and one.ranks > 1), None)
    if naive is None:
        raise UsageError(
            f"run {run.id} has no step of the strategy naive over several ranks",
            next="wirespeed train --strategy naive,flat,overlap,bucketed",
        )
    same = (naive.model, naive.batch, naive.ranks)
    alike = [one for one in run.training if (one.model, one.batch, one.ranks) == same]
    return {one.strategy: one.step.mean / naive.step.mean for one in reversed(alike)}
