"""`wirespeed predict`: from measured runs to worlds that nobody has measured."""

from typing import Any

import click

from wirespeed.cli.options import (
    CONTEXT,
    argument,
    color_option,
    command,
    flag,
    option,
    store_option,
    words_of,
)
from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.model.units import parse_size

MOST_NODES, MOST_WORLDS = 1_000_000, 32


@command(context_settings=CONTEXT)
@argument("refs RUN…", nargs=-1, required=True)
@option("--nodes N,…", "Numbers of nodes, such as 4,16,64,256.")
@option("--ranks N,…", "Worlds on one machine, instead of --nodes.")
@option(
    "--ranks-per-node N",
    "Ranks of each node, also of imported runs that do not tell.  [default: as measured]",
    click.IntRange(1, 1024),
)
@option("--op ops OP,…", "Only these collectives.  [default: all measured]")
@option("--sizes SIZE,…", "Sizes to show.  [default: smallest, middle, largest measured]")
@option(
    "--model NAME",
    "Steps of this model, from the last `train` run of it.",
    completes="models",
)
@option(
    "--strategy NAME,…",
    "Strategies.  [default: those that were measured]",
    completes="strategies",
)
@option("--bucket-mb MB,…", "Bucket sizes.  [default: a scale, and the measured]")
@option(
    "--improve WHAT",
    "What would it bring? nic=2x, latency=0.5x, rdma, rdma=100gbit.",
    multiple=True,
    completes="improvements",
)
@option("-o --output", "How to print.", ["table", "md", "json"], default="table")
@option("--html FILE", "Also write one offline HTML file: curves over nodes with their intervals.")
@flag("-q --quiet", "No progress on stderr.")
@color_option
@store_option
def predict(
    refs: tuple[str, ...], output: str, html: str | None, quiet: bool, color: str, **values: Any
) -> int:
    """How fast will it be on more nodes?

    Fits latency-bandwidth models to measured runs and says what collectives and training steps take
    on worlds that were not measured, each with a 95 % interval; refuses where the fit does not hold.

    \f
    REF is a run's id, the start of one, `last`, or the path of a run folder or of a run's JSON:
    runs of `bench` on several numbers of nodes (imported nccl-tests runs too), and for steps one of
    `train`, or of your own DDP job by `launch --watch`, or of any job by `bench --replay`.

    Examples:
      wirespeed predict 7f3c 91ae 02bd --nodes 4,16,64,256
      wirespeed predict 7f3c 91ae 02bd --nodes 16 --sizes 1M,64M --op all_reduce -o md
      wirespeed predict 7f3c 91ae 02bd a1b2 --nodes 4,16,64 --model small --strategy bucketed,ddp
      wirespeed predict 7f3c 91ae 02bd --nodes 16 --improve nic=2x --improve rdma=100gbit
      wirespeed predict 7f3c 91ae 02bd --ranks 8,16              worlds on one machine
      wirespeed predict 7f3c 3a7c --ranks 4 --bucket-mb 1,25,100  other buckets of a watched job
      wirespeed predict 7f3c 91ae 02bd 4e91 --nodes 4,16,64      4e91: a replay of a job's step
      wirespeed predict 7f3c 91ae 02bd --nodes 4,16,64 --html predicted.html

    Exit codes: 0 all predicted; 3 something was refused, with the reason and the runs that would help.
    """
    from wirespeed.cli.page import print_styled, refuse_bad_target, write_whole
    from wirespeed.predict.answer import predict as answer
    from wirespeed.runs.store import find, load
    from wirespeed.views.prediction import render

    question = _question(values)
    if html is not None:
        refuse_bad_target(html)
    runs = {run.id: run for run in (load(find(ref)) for ref in refs)}
    say = (lambda _: None) if quiet else (lambda text: click.echo(text, err=True))
    found = answer(list(runs.values()), question, say)
    if not (found.collectives or found.steps or found.replays) and output == "table":
        raise _nothing(found.refusals)
    if html is not None:
        from wirespeed.views.html.page import prediction_page

        again = f"wirespeed predict {' '.join(refs)} --nodes N,… --html FILE"
        write_whole(html, prediction_page(found).encode(), next=again, quiet=quiet)
    print_styled(render, found, output, color)
    return CannotMeasure.exit_code if found.refusals else 0


def _question(values: dict[str, Any]) -> Any:
    from wirespeed.cli.train_plan import bucket_sizes
    from wirespeed.collectives.catalogue import collective_named
    from wirespeed.predict.answer import Question
    from wirespeed.predict.forecast import parse_improvement
    from wirespeed.training.strategies.registry import strategies_named

    if bool(values["nodes"]) == bool(values["ranks"]):
        raise UsageError(
            "both --nodes and --ranks" if values["nodes"] else "no world was named",
            expected="--nodes 4,16,64, or --ranks 8,16 for worlds on one machine",
        )
    ops = [collective_named(word).name for word in words_of(values["ops"])]
    strategies = strategies_named(values["strategy"]) if values["strategy"] else ()
    return Question(
        nodes=_numbers(values["nodes"], "--nodes"),
        ranks=_numbers(values["ranks"], "--ranks"),
        ranks_per_node=values["ranks_per_node"],
        ops=tuple(dict.fromkeys(ops)),
        sizes=tuple(sorted({_size(word) for word in words_of(values["sizes"])})),
        model=values["model"],
        strategies=strategies,
        buckets=bucket_sizes(values["bucket_mb"]),
        improvements=tuple(parse_improvement(text) for text in values["improve"]),
    )


def _numbers(text: str | None, option: str) -> tuple[int, ...]:
    words = words_of(text)
    for word in words:
        good = word.isascii() and word.isdecimal() and len(word) < 9
        if not good or not 1 <= int(word) <= MOST_NODES:
            raise UsageError(
                f"{option} {word[:40]!r} is no number of them",
                expected=f"whole numbers from 1 to {MOST_NODES}, such as 4,16,64",
            )
    if len(words) > MOST_WORLDS or (text and not words):
        raise UsageError(
            f"{option} names {len(words)} worlds", expected=f"1 to {MOST_WORLDS} of them"
        )
    return tuple(sorted({int(word) for word in words}))


def _size(word: str) -> int:
    size = parse_size(word)
    if size < 1:
        raise UsageError(f"--sizes {word!r} is nothing to send", expected="at least 1 byte")
    return size


def _nothing(refusals: Any) -> CannotMeasure:
    """Everything that was asked for was refused: the reasons on stderr, the first one's help as next."""
    first = refusals[0] if refusals else None
    if first is None:
        return CannotMeasure("nothing to predict", next="wirespeed bench all_reduce")
    told = "\n".join(f"not predicted: {one.what}: {one.because}" for one in refusals[:8])
    return CannotMeasure(told, next=first.helps)
