"""`wirespeed compare`, `baseline` and `trend`: runs against runs, those that are kept, and over time."""

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.options import (
    CONTEXT,
    PLAIN,
    argument,
    command,
    flag,
    group,
    option,
    percent,
    store_option,
    words_of,
)
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.compare.compare import SideRuns
    from wirespeed.compare.estimate import Floor
    from wirespeed.model.derived_records import What
    from wirespeed.model.records import Run


_FIELDS: tuple[str, ...] = ("engine", "timing", "dtype", "redop", "ranks", "groups", "in_place")
_FIELDS += ("blocking", "in_flight", "bucket_mb", "batch", "precision", "model", "for_s")

_plain_color = option("--color", kind=["auto", "always", "never"], default="auto")


@command(context_settings=CONTEXT)
@argument("sides SIDE…", nargs=-1)
@option(
    "--baseline [NAME]",
    "Compare with this baseline; put it last, or write --baseline=NAME.",
    is_flag=False,
    flag_value="default",
    completes="baselines",
)
@option(
    "--fail-on",
    "The change of the time that matters to you.",
    percent,
    allow_from_autoenv=False,
    envvar="WIRESPEED_COMPARE_FAIL_ON",
    default="5%",
)
@option(
    "--only OP",
    "Operations, strategies or imported tools, with commas.",
    multiple=True,
    completes="measured",
)
@option(
    "--across", "Pair figures although they differ in this, such as engine.", _FIELDS, multiple=True
)
@option(
    "--noise",
    "The standard deviation from run to run, if you know it.  [default: as repeats show]",
    percent,
)
@option(
    "--history/--no-history",
    "Learn the noise from stored repeats of such runs, where a side has fewer than 3.",
    default=True,
)
@flag("--strict", "Exit 3 while any row is undecided.")
@option("-o --output", "Format.", ["table", "md", "json", "junit"], default="table")
@flag("-q --quiet", "Print nothing; the exit code tells.")
@_plain_color
@store_option
def compare(
    sides: tuple[str, ...], baseline: str | None, output: str, quiet: bool, color: str, **asked: Any
) -> int:
    """Better, worse or noise? Each SIDE against the first, or against a baseline.

    SIDE is a run, or repeats of one with commas between them: ids, the starts of ids, `last`, or the
    paths of run folders or of runs' JSON; imported runs too. Several runs per side tell what is noise.
    Of the same kind as the newest run that has figures: `last:3` is the newest three, `last~2` the one
    two before the newest, `last~5..last~3` a range. `7f3c..91ae`: from that run to that, of its kind.

    \f
    Examples:
      wirespeed compare 7f3c 91ae                       one run a side
      wirespeed compare 7f3c,80aa,8e21 91ae,92b0,9c55   repeats: these tell noise from change
      wirespeed compare last~5..last~3 last:3           the newest three against the three before
      wirespeed compare last:3 --baseline               against `wirespeed baseline set`
      wirespeed compare 7f3c 91ae b2d4 --only all_reduce --fail-on 2%
      wirespeed compare a/run.json nccl-tests-run -o md --across engine
      wirespeed compare last:3 --baseline -o junit > compared.xml

    Verdicts: WORSE or better needs a difference that noise does not explain, of --fail-on or more; same
    needs evidence that it is less than that; all else is `not enough runs`.
    Exit codes: 1 something is WORSE (or its data are wrong); 3 nothing is decided, or nothing pairs;
    0 otherwise. --strict: 3 also while any row is undecided.
    """
    from wirespeed.cli.config import refuse_unknown_keys
    from wirespeed.cli.page import print_styled
    from wirespeed.compare.compare import compare as compare_runs
    from wirespeed.views.comparison import render

    refuse_unknown_keys(click.get_current_context())
    asked["only"], stated = operations(asked["only"]), asked.pop("noise")
    loaded = _sides(sides, baseline)
    learn = asked.pop("history") and stated is None
    floors = _floors(loaded, asked["across"]) if learn else None
    comparison = compare_runs(loaded, floors=floors, stated=stated, **asked)
    if output == "junit" and not quiet:
        from wirespeed.views.junit import render_comparison

        click.echo(render_comparison(comparison), nl=False)
    elif not quiet:
        print_styled(render, comparison, output, color)
    return comparison.exit_code


def _sides(refs: tuple[str, ...], baseline: str | None) -> "list[SideRuns]":
    from wirespeed.compare.compare import SideRuns
    from wirespeed.runs.named_files import load_baseline

    loaded = [SideRuns(load_refs(ref)) for ref in refs]
    if baseline is not None:
        kept = load_baseline(baseline)
        loaded.insert(0, SideRuns(kept.runs, f"baseline {kept.name}"))
    if not refs:
        raise UsageError(
            "nothing to compare",
            expected="two sides of runs, or one and --baseline",
            next="wirespeed runs list",
        )
    return loaded


def _floors(sides: "list[SideRuns]", across: tuple[str, ...]) -> "dict[What, Floor]":
    """Noise from stored repeats; not looked for where every side has repeats enough."""
    from wirespeed.compare.compare import floors_of
    from wirespeed.runs.store import stored_runs

    if all(len(side.runs) >= 3 for side in sides):
        return {}
    runs = [run for side in sides for run in side.runs]
    return floors_of(stored_runs(runs, _MOST_STORED), across)


_NAME = option("--name NAME", "Which baseline.", default="default", completes="baselines")


@group(context_settings={**PLAIN, "show_default": True})
def baseline() -> None:
    """Runs that are good, kept by a name: set, show, list, rm.

    A baseline is a copy in $WIRESPEED_HOME/baselines (else as `wirespeed runs --help` says): it stays
    when its runs are removed.

    \f
    Examples:
      wirespeed baseline set 7f3c 80aa 8e21     three repeats: their spread is the noise
      wirespeed baseline set last:3 --name nightly
      wirespeed compare last:3 --baseline
    """


@command("set", of=baseline)
@argument("refs RUN…", nargs=-1, required=True)
@_NAME
@store_option
def set_command(refs: tuple[str, ...], name: str) -> None:
    """Keep these runs, repeats of the same, in place of what had that name."""
    from wirespeed.compare.figures import figures_of
    from wirespeed.runs.named_files import set_baseline
    from wirespeed.views.text import style_for

    runs = [run for ref in refs for run in load_refs(ref)]
    ids = [run.id for run in runs]
    if len(set(ids)) < len(ids):
        raise UsageError("a run stands twice in the baseline", expected="different runs")
    empty = [run.id for run in runs if not figures_of(run)]
    if empty:
        raise UsageError(
            f"run {empty[0]} measured nothing that could be compared",
            expected="runs of bench, check, train or a watched job, or imported ones",
            next="wirespeed runs list",
        )
    path = set_baseline(runs, name)
    few = "" if len(runs) > 2 else "; three or more would tell the noise from run to run"
    click.echo(f"baseline {name}: {len(runs)} run{'s' * (len(runs) != 1)}, {path}{few}")
    click.echo(style_for(sys.stdout).text(f"next: {_next_of(runs[-1], name)}"))


def _next_of(run: "Run", name: str) -> str:
    """Return the command whose runs are judged against a baseline of such runs."""
    from wirespeed.cli.config import command_of, measures

    if measures(run.command):
        return command_of(run.command, run.config)
    return f"wirespeed compare last:3 --baseline{'' if name == 'default' else f'={name}'}"


@command(of=baseline)
@argument("name", default="default", completes="baselines")
@option("-o --output", kind=["table", "json"], default="table")
def show(name: str, output: str) -> None:
    """Which runs a baseline holds."""
    from wirespeed.cli.page import table_lines
    from wirespeed.compare.figures import figures_of
    from wirespeed.runs.named_files import load_baseline
    from wirespeed.views.text import style_for

    kept = load_baseline(name)
    if output == "json":
        from wirespeed.views.data import document

        runs = [document(run) for run in kept.runs]
        data = {"name": kept.name, "set": kept.set, "runs": runs}
        click.echo(json.dumps(data, indent=2))
        return
    titles = ("run", "started (UTC)", "command", "verdict", "ranks", "backend", "figures")
    rows = [
        (
            *(run.id, run.started[:19].replace("T", " "), run.command, run.verdict),
            *(run.world.size or "", run.world.backend, len(figures_of(run))),
        )
        for run in kept.runs
    ]
    head = style_for(sys.stdout).text(f"baseline {kept.name}, set {kept.set}")
    click.echo("\n".join([head, *table_lines(titles, rows, ("ranks", "figures"))]))


@command("list", of=baseline)
@option("-o --output", kind=["table", "json"], default="table")
def list_command(output: str) -> None:
    """The names of the baselines."""
    from wirespeed.runs.named_files import baselines_home, list_baselines

    names = list_baselines()
    if output == "json":
        click.echo(json.dumps(names))
    elif names:
        click.echo("\n".join(names))
    else:
        click.echo(f"no baselines in {baselines_home()}\nnext: wirespeed baseline set last")


@command(of=baseline)
@argument("name", completes="baselines")
def rm(name: str) -> None:
    """Forget a baseline; the stored runs stay."""
    from wirespeed.runs.named_files import remove_baseline

    click.echo(f"removed {remove_baseline(name)}")


@command(context_settings=CONTEXT)
@argument("ops [OP…]", nargs=-1, completes="measured")
@option("--runs RUN,…", "These runs.  [default: all stored ones]")
@option(
    "--last N", "Only the newest N runs, whatever they measured.  [default: 200]", click.IntRange(2)
)
@option(
    "--fail-on",
    "Slower by this since the last change: exit 1.",
    percent,
    allow_from_autoenv=False,
    envvar="WIRESPEED_TREND_FAIL_ON",
)
@option("-o --output", "Format.", ["table", "md", "json"], default="table")
@flag("-q --quiet", "Print nothing; the exit code tells.")
@_plain_color
@store_option
def trend(ops: tuple[str, ...], output: str, quiet: bool, color: str, **asked: Any) -> int:
    """One figure over many runs: its levels, since when, and what was different then.

    OP is an operation, a strategy or an imported tool; without any it is all of them. Changes are
    corrected for all figures of these runs, so that OP alone has the same changes as among all.

    \f
    Examples:
      wirespeed trend                          every figure of the stored runs
      wirespeed trend all_reduce --last 50
      wirespeed trend --runs 7f3c,80aa,8e21,91ae,92b0,9c55,a014,b2d4 -o md
      wirespeed trend --fail-on 5%             exit 1 if the newest level is that much slower

    Exit codes: 1 with --fail-on, a regression; 3 no figure has runs enough (8); 0 otherwise.
    """
    from wirespeed.cli.config import refuse_unknown_keys
    from wirespeed.cli.page import print_styled
    from wirespeed.compare.compare import points_of
    from wirespeed.compare.compare import trend as trend_of
    from wirespeed.runs.store import stored_points
    from wirespeed.views.trend import render

    refuse_unknown_keys(click.get_current_context())
    chosen = operations(ops)
    refs, last = asked["runs"], asked["last"]
    if refs:
        loaded = sorted(load_refs(refs), key=lambda run: run.started)
        points = points_of(loaded[-last:] if last else loaded)
    else:
        points = stored_points(last or _MOST_STORED)
    found = trend_of(points, chosen, asked["fail_on"])
    if not found.series:
        raise _no_series(ops, len({point.run for point in points}), refs is None, last)
    if not quiet:
        print_styled(render, found, output, color)
    return found.exit_code


def _no_series(ops: tuple[str, ...], runs: int, stored: bool, last: int | None) -> UsageError:
    """Return the error; of the newest stored runs more may have such figures."""
    more = f"wirespeed trend {' '.join(ops)} --last {10 * (last or _MOST_STORED)}"
    saw = f"{' and '.join(ops)} was not measured" if ops else "no figure was measured"
    return UsageError(
        f"{saw} by two of {runs} runs",
        expected="several runs of the same",
        next=more if ops and stored else "wirespeed runs list",
    )


# Runs by reference, and names of what they measured.

_MOST_STORED = 200
"""The newest of the stored runs; reading thousands would take longer than what they add."""


def load_refs(text: str) -> "tuple[Run, ...]":
    """The runs of one side: references with commas between them. UsageError where one is none."""
    from wirespeed.runs.selection import EXPECTED
    from wirespeed.runs.store import find_all, load

    # A path may have a comma in its name.
    refs = [text] if Path(text).exists() else [ref for ref in text.split(",") if ref]
    if not refs:
        raise UsageError(
            f"{text!r} names no run",
            expected=f"{EXPECTED}, with commas between repeats",
            next="wirespeed runs list",
        )
    return tuple(load(folder) for ref in refs for folder in find_all(ref))


def operations(only: Collection[str]) -> tuple[str, ...]:
    """Names given with --only, or as OP: with commas, or several times; UsageError if unknown."""
    from wirespeed.collectives.catalogue import CATALOGUE
    from wirespeed.model.bench_records import TOOLS
    from wirespeed.training.strategies.registry import STRATEGIES

    known = [*CATALOGUE, *STRATEGIES, *TOOLS]
    names = [name for text in only for name in words_of(text)]
    for name in names:
        if name not in known:
            raise UsageError(
                f"{name!r} is neither an operation nor a strategy nor a tool that is imported",
                expected=", ".join(known),
            )
    return tuple(names)
