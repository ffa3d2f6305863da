"""Runs held against expected figures: whether they are normal, as text and JSON; figures from runs."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from wirespeed.cli.options import told_by
from wirespeed.cli.page import table_lines
from wirespeed.errors import InputError, UsageError, refused_as
from wirespeed.model.records import Measurement, Run, ToldShape
from wirespeed.model.units import GIGA, format_bandwidth, format_duration, format_size
from wirespeed.node.reading import read_whole
from wirespeed.reference import ASSUMED_SPREAD, ORIGINS, Expectation, Reference
from wirespeed.reference.ask import Answer, Asked, Published, ask, decides, expected_of
from wirespeed.reference.figures import INTERCONNECTS, Figure, figures_from_csv
from wirespeed.reference.known import figure_words
from wirespeed.reference.reasons import complete, lacking
from wirespeed.reference.shape import BRIDGE, Shape, figures_of_run, shape_of, shape_told
from wirespeed.runs.named_files import load_own
from wirespeed.runs.store import find, load
from wirespeed.session.references import answer_of
from wirespeed.views.text import Style, style_for

_LARGEST_FILE = 16 * 2**20
_US = 1e6
WORDS = {
    "impossible": ("IMPOSSIBLE", "red"),
    "low": ("LOW", "red"),
    "normal": ("NORMAL", "green"),
    "high": ("HIGH", "yellow"),
    "unknown": ("CANNOT TELL", "yellow"),
}


def figures_table(figures: Sequence[Figure]) -> str:
    titles = ("set", "system", "GPU", "a node", "nodes", "over", "switch", "collective")
    rows = [
        [
            *(one.name, one.system, one.gpu or "any"),
            *(one.gpus_per_node or "any", one.nodes or "any", _over(one)),
            *(one.switch, one.collective),
            "peak" if one.size_bytes is None else format_size(one.size_bytes),
            format_bandwidth(one.busbw) if one.busbw else "",
            format_duration(one.time_s) if one.time_s else "",
            *(f"{one.kind} ({one.site})" if one.site else one.kind, one.dated),
        ]
        for one in figures
    ]
    right = ("a node", "nodes", "size", "busbw", "time")
    return "\n".join(table_lines((*titles, *right[2:], "kind", "source"), rows, right))


def _over(one: Figure) -> str:
    cards = f" {one.nics}×{one.nic_Gbitps:g}G" if one.nics and one.nic_Gbitps else ""
    return INTERCONNECTS[one.interconnect] + cards


def figures_json(figures: Sequence[Figure]) -> str:
    return json.dumps([_figure(one) for one in figures], indent=2, ensure_ascii=False)


def _figure(one: Figure) -> dict[str, Any]:
    return {
        **{n: getattr(one, n) for n in ("name", "system", "gpu", "gpus_per_node", "nodes")},
        **{n: getattr(one, n) for n in ("interconnect", "nics", "nic_Gbitps", "switch")},
        "collective": one.collective,
        "size_bytes": one.size_bytes,
        "busbw_GBps": one.busbw and one.busbw / GIGA,
        "busbw_range_GBps": _scaled(one.busbw_range, 1 / GIGA),
        "time_us": one.time_s and one.time_s * _US,
        "time_range_us": _scaled(one.time_range, _US),
        **{n: getattr(one, n) for n in ("kind", "site", "source", "published", "read")},
    }


def _scaled(ends: tuple[float, float] | None, scale: float) -> list[float] | None:
    return [end * scale for end in ends] if ends else None


def answer_text(answer: Answer, stream: TextIO, again: str) -> str:
    """The verdict first, then figure, spread, sources, limit, reasons, next command.

    again: the command that was typed, without --interconnect.
    """
    style = style_for(stream)
    return "\n".join(_wrapped(label, text, style) for label, text in _lines(answer, style, again))


def _wrapped(label: str, text: str, style: Style) -> str:
    if not label:
        return text
    indent = f"  {label:<9} "
    lines = textwrap.wrap(
        style.text(text), style.width, initial_indent=indent, subsequent_indent=" " * len(indent),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return "\n".join(lines)


def _lines(answer: Answer, style: Style, again: str) -> list[tuple[str, str]]:
    word, color = WORDS[answer.place]
    asked = f"{answer.op} {format_size(answer.figure.size_bytes)}, {_asked(answer.figure)}"
    lines = [("", style.paint(word, color) + style.text(f"  {asked} on {answer.shape.words}"))]
    lines += _uncertain(answer)
    lines += _by_interconnect(answer) + _by_switch(answer)
    lines += _limit(answer) + _hardware(answer)
    lines += _expected(answer) + _published(answer)
    if answer.above:
        lines.append(("above it", answer.above))
    if answer.remark:
        lines.append(("it is", answer.remark))
    if answer.raised:
        lines.append(("because", answer.raised))
    lines += [("" if n else "tell", text) for n, text in enumerate(_to_tell(answer))]
    lines += [
        ("likeliest" if n == 1 else "", f"{n}. {one}") for n, one in enumerate(answer.reasons, 1)
    ]
    lines.append(("next", _next(answer, again)))
    return [
        (label or " ", text) if index else (label, text)
        for index, (label, text) in enumerate(lines)
    ]


def _asked(figure: Asked) -> str:
    told = f"{format_bandwidth(figure.busbw)} busbw"
    if figure.busbw_range is None:
        given = f"n={figure.iterations}, no interval" if figure.too_few else "no interval given"
        return f"{told} ({given})"
    low, high = map(format_bandwidth, figure.busbw_range)
    return f"{told} ({low} … {high}, n={figure.iterations})"


def _by_interconnect(answer: Answer) -> list[tuple[str, str]]:
    """Return what is missing, then a line for each interconnect that it may be."""
    answers = answer.by_interconnect
    if not answers:
        return []
    kinds = ", ".join(one.shape.interconnect for one in answers)
    missing = "it is not known what connects the nodes"
    if answer.figure.iterations == 0:
        missing = "you did not say what connects the nodes"
    lines = [("missing", f"{missing}: --interconnect, such as {kinds}")]
    for number, one in enumerate(answers):
        lines.append(("" if number else "if it is", _on_interconnect(one)))
    if all(one.place == "low" and one.shape.interconnect != "tcp" for one in answers):
        lines.append(("", "TCP: no figure is known, and it may be normal there"))
    return lines


def _on_interconnect(one: Answer) -> str:
    """Return `EFA: LOW, 0.64 of 487 GB/s, the only known figure (source)`."""
    word, _ = WORDS[one.place]
    text = f"{INTERCONNECTS[one.shape.interconnect]}: {word}, {_share_of(one)}"
    cards = [need for need in one.missing if "--nics" in need]
    return f"{text}; it depends on {cards[0]}" if cards else text


def _share_of(answer: Answer) -> str:
    """Return `1.00 of 45.4 GB/s, the only known figure (the reference: source)`."""
    found = answer.expectation
    if found is None or not found.busbw:
        return "no figure is known"
    only = ", the only known figure" if found.lone else ""
    share = f"{answer.figure.busbw / found.busbw:.2f} of {format_bandwidth(found.busbw)}"
    return f"{share}{only} ({ORIGINS[found.origin]}: {found.source})"


def _by_switch(answer: Answer) -> list[tuple[str, str]]:
    """Return a line without and one with SHARP, then what decides, where it is open."""
    lines: list[tuple[str, str]] = []
    for option in answer.by_switch:
        word, _ = WORDS[option.place]
        name = "with SHARP" if option.shape.switch == "sharp" else "without SHARP"
        share = (
            f", {option.share:.2f} of {format_bandwidth(option.expected)}"
            if option.expected
            else ""
        )
        lines.append(("" if lines else "if it is", f"{name}: {word}{share}"))
    return lines


def _to_tell(answer: Answer) -> tuple[str, ...]:
    """Return what to say or to measure; what connects the nodes has a line of its own."""
    named = bool(answer.by_interconnect)
    return tuple(option for option in answer.missing if not (named and "--interconnect" in option))


def _uncertain(answer: Answer) -> list[tuple[str, str]]:
    if answer.figure.too_few:
        return [("because", "it has no 95 % interval, so it supports no verdict")]
    if answer.figure.too_wide:
        return [("because", "its 95 % interval is wider than ±50 %, so it supports no verdict")]
    return []


def _limit(answer: Answer) -> list[tuple[str, str]]:
    limit = answer.limit
    if limit is None:
        return []
    ratio = answer.figure.busbw / limit.busbw
    return [("limit", f"{format_bandwidth(limit.busbw)}: {limit.model}; this is {ratio:.3g} of it")]


def _hardware(answer: Answer) -> list[tuple[str, str]]:
    """Return what the hardware should give, with its interval and where it comes from."""
    known = answer.hardware
    if known is None or known.busbw <= 0:
        return []
    ends = f"{format_bandwidth(known.low)} … {format_bandwidth(known.high)}"
    ratio = answer.figure.busbw / known.busbw
    text = f"{format_bandwidth(known.busbw)} ({ends}): {known.model}; this is {ratio:.2f} of it"
    return [("expected", text)]


def _expected(answer: Answer) -> list[tuple[str, str]]:
    """Return what others or the user's own runs got, with its spread and sources."""
    found = answer.expectation
    if answer.figure.too_few or answer.figure.too_wide:
        return []
    if found is None or not found.busbw:
        nothing = "no figure is known for such nodes, this operation and size"
        return [] if answer.by_interconnect else [("measured", nothing)]
    ends, ratio = found.busbw_range, answer.figure.busbw / found.busbw
    spread = "figures of another size, so their spread is not known"
    if answer.beside:
        spread = _assumed(found.busbw, answer.beside)
    if ends:
        own = found.samples == 1 and found.origin != "reference"
        among = "its 95 % interval" if own else "among them"
        spread = f"{format_bandwidth(ends[0])} … {format_bandwidth(ends[1])}, {among}"
    gate = (
        f"; the source treats < {format_bandwidth(found.gate)} as a warning" if found.gate else ""
    )
    return [
        (
            "measured",
            f"{format_bandwidth(found.busbw)}: this is {ratio:.2f} of {_it(found)}",
        ),
        ("spread", f"{spread}{gate}"),
        ("from", f"{ORIGINS[found.origin]}: {found.source}"),
        *(("figures" if n == 0 else "", note) for n, note in enumerate(_notes(answer, found))),
    ]


def _notes(answer: Answer, found: Expectation) -> list[str]:
    """Return what was done to get there, without the figures that are listed as published."""
    listed = {figure_words(one.figure) for one in answer.published}
    return [note for note in found.notes if note not in listed]


def _published(answer: Answer) -> list[tuple[str, str]]:
    """Return each of the nearest figures with what differs there."""
    texts = [_beside(near) for near in answer.published]
    return [("published" if n == 0 else "", text) for n, text in enumerate(texts)]


def _beside(near: Published) -> str:
    figure = near.figure
    size = "peak" if figure.size_bytes is None else format_size(figure.size_bytes)
    rate = format_bandwidth(figure.busbw) if figure.busbw else ""
    differs = ", ".join(near.differs) or "nothing"
    return (
        f"{figure.system}: {figure.collective} {size} {rate}; differs: {differs} ({figure.dated})"
    )


def _it(found: Expectation) -> str:
    return "the only known figure" if found.lone else "it"


def _assumed(busbw: float, beside: str) -> str:
    low, high = (format_bandwidth(busbw * (1 + sign * ASSUMED_SPREAD)) for sign in (-1, 1))
    where = {"near": "within it", "below": "below it", "above": "above it"}[beside]
    return (
        f"±{ASSUMED_SPREAD * 100:.0f} % assumed of a lone figure ({low} … {high}): this is {where}"
    )


def verdict_line(answer: Answer, style: Style) -> str:
    """`NORMAL  all_reduce 1 GiB: 1.00 of 45.4 GB/s, the only known figure (source)`."""
    word, color = WORDS[answer.place]
    text = f"{answer.op} {format_size(answer.figure.size_bytes)}: {_short_why(answer)}"
    if answer.place == "unknown" and _to_tell(answer):
        text += f"; what decides: {_to_tell(answer)[0]}"
    return style.paint(word, color) + style.text(f"  {text}")


def _short_why(answer: Answer) -> str:
    found, hardware = answer.expectation, answer.hardware
    if answer.place == "impossible":
        return answer.above
    if found is not None and found.busbw and (hardware is None or decides(found)):
        return _share_of(answer)
    if answer.by_interconnect:
        places = ", ".join(
            f"{WORDS[one.place][0]} on {INTERCONNECTS[one.shape.interconnect]}"
            for one in answer.by_interconnect
        )
        return f"it is not known what connects the nodes ({places})"
    if hardware is not None and hardware.busbw > 0:
        share = f"{answer.figure.busbw / hardware.busbw:.2f} of {format_bandwidth(hardware.busbw)}"
        return f"{share}, what the hardware should give ({hardware.model})"
    return f"no figure is known for {answer.shape.words}, this operation and size"


def _next(answer: Answer, again: str) -> str:
    size = answer.figure.size_bytes
    if answer.figure.too_few or answer.figure.too_wide:
        return f"wirespeed bench {answer.op} -b {size} -e {size} --time-per-size 10"
    if answer.place == "low" and answer.shape.nodes > 1:
        return "wirespeed locate   (which node, link or rail)"
    if answer.place == "unknown" and answer.shape.inside == BRIDGE and answer.shape.nodes == 1:
        return f"{again} --interconnect nvlink"
    if answer.place == "unknown" and not answer.shape.interconnect and answer.shape.nodes > 1:
        kinds = [one.shape.interconnect for one in answer.by_interconnect] or ["ib"]
        return f"{again} --interconnect {kinds[0]}"
    if answer.place == "impossible":
        return f"wirespeed bench {answer.op} -b {size} -e {size}   (with a clock that is known)"
    if answer.place == "unknown":
        return "wirespeed reference list; with a run that you trust: wirespeed reference add RUN"
    return f"wirespeed bench {answer.op} -b {size} -e {size}"


def answer_json(answer: Answer) -> str:
    found, limit, hardware = answer.expectation, answer.limit, answer.hardware
    expected = found and {
        "busbw_GBps": found.busbw and found.busbw / GIGA,
        "range_GBps": _scaled(found.busbw_range, 1 / GIGA),
        "figures": found.samples,
        "gate_GBps": found.gate and found.gate / GIGA,
        "origin": found.origin,
        "source": found.source,
        "notes": list(found.notes),
    }
    data = {
        "verdict": answer.place,
        "collective": answer.op,
        "size_bytes": answer.figure.size_bytes,
        "busbw_GBps": answer.figure.busbw / GIGA,
        "busbw_range_GBps": _scaled(answer.figure.busbw_range, 1 / GIGA),
        "iterations": answer.figure.iterations or None,
        "share": answer.share,
        "missing": list(answer.missing),
        "beside_the_only_figure": answer.beside,
        "assumed_spread": ASSUMED_SPREAD if answer.beside else None,
        "world": answer.shape.words,
        "expected": expected,
        "hardware": hardware
        and {
            "busbw_GBps": hardware.busbw / GIGA,
            "range_GBps": [hardware.low / GIGA, hardware.high / GIGA],
            "model": hardware.model,
        },
        "published": [
            {**_figure(one.figure), "differs": list(one.differs)} for one in answer.published
        ],
        "limit": limit and {"busbw_GBps": limit.busbw / GIGA, "model": limit.model},
        "raised": answer.raised,
        "remark": answer.remark,
        "above_limit": answer.above,
        "reasons": list(answer.reasons),
        "by_interconnect": [
            {
                "interconnect": one.shape.interconnect,
                "verdict": one.place,
                "share": one.share,
                "expected_GBps": one.expectation.busbw / GIGA,
                "source": one.expectation.source,
            }
            for one in answer.by_interconnect
            if one.expectation and one.expectation.busbw
        ],
        "by_switch": [
            {"switch": one.shape.switch, "verdict": one.place, "share": one.share}
            for one in answer.by_switch
        ],
    }
    return json.dumps(data, indent=2, ensure_ascii=False)


# Runs and CSVs that are held against figures, or become figures.


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
        own = load_own()
        return ask(shape, op, figure, expected_of(shape, op, size, own), nodes=nodes, own=own)
    if run is None:
        raise UsageError("which figure?", expected="--busbw GB/s, or --run RUN")
    return answer_of(run, _measured(run, op, size), stated=shape)


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
        with refused_as(InputError, f"cannot read {file}", expected="a table of figures"):
            text = read_whole(path, _LARGEST_FILE, pipes=True).decode("utf-8-sig")
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
        switch = _switch(told) or found.switch
        return replace(found, switch=switch, site=(told["site"] or "").lower())
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
        switch=_switch(told),
        site=told["site"] or "",
    )


def _switch(told: dict[str, Any]) -> str:
    return str(told["switch"] or "").replace("-", " ")


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
