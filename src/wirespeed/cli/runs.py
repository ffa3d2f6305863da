"""`wirespeed runs`: the stored runs, and what other tools measured."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.options import (
    argument,
    color_option,
    command,
    flag,
    group,
    option,
    shape_options,
    store_option,
    told_by,
)
from wirespeed.cli.run_filters import chosen, moment, run_filters
from wirespeed.cli.sending import send
from wirespeed.errors import InputError, UsageError, refused_as
from wirespeed.views import FORMATS

if TYPE_CHECKING:
    from wirespeed.model.records import Run
    from wirespeed.reference import Reference
    from wirespeed.runs.rows import RunRow


_LARGEST_FILE = 256 * 2**20


@group()
def runs() -> None:
    """The stored runs: list, show, import, remove, prune, export, send.

    Each run is a folder in $WIRESPEED_HOME/runs (else $XDG_STATE_HOME/wirespeed/runs, else
    ~/.local/state/wirespeed/runs). REF is a run's id, the start of one, `last`, or the path of a
    run folder or of a run's JSON.

    \f
    Examples:
      wirespeed runs list
      wirespeed runs show last
      wirespeed runs show 91ae -o md
      wirespeed runs import all_reduce.log
    """


runs.add_command(send)
_IN_A_TABLE = 100


@command("list", of=runs)
@store_option
@run_filters
@option("--last N", "The newest N of them.  [default: 100 in a table, else all]", click.IntRange(1))
@option("--before RUN", "Those that stand before this one: the next page.")
@option("-o --output", "How to print.", ["table", "json", "csv"], default="table")
def list_command(output: str, last: int | None, before: str | None, **told: Any) -> None:
    """List the stored runs, oldest first.

    What is read is an index beside the runs, $WIRESPEED_HOME/index-2.sqlite, which makes itself anew
    where it is lost or damaged.

    \f
    Examples:
      wirespeed runs list
      wirespeed runs list --node node-7 --verdict fail --since 7d
      wirespeed runs list --command check --gpu H100 --last 20
      wirespeed runs list --command check --verdict unknown
      wirespeed runs list -o json | jq '.[] | select(.verdict == "NOT READY")'
    """
    from wirespeed.runs.source import opened

    most = last or (_IN_A_TABLE if output == "table" else None)
    which = chosen(told, last=most, before=_name_of(before) if before else "")
    with opened(say=_say) as index:
        found = index.runs(which)
        more = index.count(which) - len(found)
    if output == "json":
        click.echo(json.dumps([_data(row) for row in found], indent=2))
    elif output == "csv":
        _print_csv(found)
    elif found:
        click.echo("\n".join(_table(found)))
        if more > 0 and last is None:
            click.echo(f"{more:,} more before these: --before {found[0].id}, or --last N")
    else:
        from wirespeed.runs.source import place

        such = "" if which == chosen({}, last=most) else " such"
        click.echo(f"no{such} runs in {place()}\nnext: wirespeed check")


def _name_of(ref: str) -> str:
    from wirespeed.runs.store import find  # it takes longer to import than most lists to print

    return find(ref).name


def _say(text: str) -> None:
    click.echo(f"wirespeed: {text}", err=True)


def _data(row: "RunRow") -> dict[str, Any]:
    from wirespeed.runs.source import elsewhere

    return asdict(row) | {"path": str(row.path) if elsewhere() is None else ""}


def _print_csv(rows: "list[RunRow]") -> None:
    import csv
    from dataclasses import fields

    from wirespeed.runs.rows import RunRow

    out = csv.DictWriter(sys.stdout, [*(one.name for one in fields(RunRow)), "path"])
    out.writeheader()
    out.writerows(map(_data, rows))


@command(of=runs)
@argument("ref", completes="runs")
@option("-o --output", "How to print.  [default: table]", FORMATS)
@option(
    "--html FILE",
    "Write one offline HTML file instead of printing, with heat maps of a run of locate "
    "and charts of training; with -o print, too.",
)
@flag("-v --verbose", "Also each finding by itself, all evidence, automatic choices.")
@color_option
@store_option
def show(ref: str, output: str | None, html: str | None, verbose: bool, color: str) -> None:
    """Print a stored run again, in any format, or write it as a page.

    \f
    Examples:
      wirespeed runs show last
      wirespeed runs show 91ae -o wide
      wirespeed runs show ./run.json -o nccl-tests
      wirespeed runs show last --html run.html     one file with everything in it, for a browser
    """
    from wirespeed.cli.page import print_styled, refuse_bad_target, write_page
    from wirespeed.runs.store import find, load
    from wirespeed.views import render

    path = find(ref)
    run = load(path)
    if html is not None:
        refuse_bad_target(html)
        write_page(run, html, _folder(path))
    if html is None or output:
        print_styled(render, run, output or "table", color, verbose=verbose)


def _folder(path: Path) -> Path | None:
    """The run's folder; None for a JSON of a run that lies elsewhere, beside anything."""
    if path.is_dir():
        return path
    return path.parent if path.name == "run.json" else None


@command(of=runs)
@argument("refs REF…", nargs=-1, required=True)
@flag("--yes", "Remove without asking.")
def rm(refs: tuple[str, ...], yes: bool) -> None:
    """Remove stored runs. Nothing but run folders is ever deleted.

    \f
    Examples:
      wirespeed runs rm 91ae
      wirespeed runs rm 91ae 7f3c --yes
    """
    from wirespeed.runs.store import find, remove

    paths = list(dict.fromkeys(find(ref) for ref in refs))
    if not yes:
        _ask(paths)
    for path in paths:
        click.echo(f"removed {remove(str(path))}")


@command(of=runs)
@option("--keep AGE", "Keep runs that are younger than this, such as 90d.")
@option("--keep-last N", "Keep the newest N, however old.", click.IntRange(min=0))
@flag("--dry-run", "Say what would be removed, and remove nothing.")
@flag("--yes", "Remove without asking.")
def prune(keep: str | None, keep_last: int | None, dry_run: bool, yes: bool) -> None:
    """Remove old runs: those that none of --keep and --keep-last keeps.

    A run of a baseline always stays, and so does one that waits for a common store, or that has not
    ended and was written to within the last day.

    \f
    Examples:
      wirespeed runs prune --keep 90d --dry-run
      wirespeed runs prune --keep 90d --keep-last 100 --yes
    """
    from wirespeed.runs.store import outdated, remove_folder

    if keep is None and keep_last is None:
        raise UsageError(
            "nothing says which runs to keep",
            expected="--keep AGE, --keep-last N, or both",
            next="wirespeed runs prune --keep 90d --dry-run",
        )
    paths = outdated(moment(keep, "--keep") if keep else None, keep_last or 0)
    if dry_run or not paths:
        click.echo("\n".join([*map(str, paths), f"{len(paths):,} runs would be removed"]))
        return
    if not yes:
        _ask(paths)
    for path in paths:
        remove_folder(path)
    click.echo(f"removed {len(paths):,} runs")


@command(of=runs)
@option(
    "--parquet FOLDER", "Write runs, figures, findings and nodes there, a file each.", required=True
)
@run_filters
@store_option
def export(parquet: str, **told: Any) -> None:
    """Write the tables of the index for other tools, as Parquet; needs wirespeed[parquet].

    \f
    Examples:
      wirespeed runs export --parquet tables
      wirespeed runs export --parquet tables --since 30d --command check
      duckdb -c "select host, count(*) from 'tables/nodes.parquet' group by host"
    """
    from wirespeed.runs.parquet import export as write
    from wirespeed.runs.source import opened

    with opened(say=_say) as index:
        for path, rows in write(index, chosen(told), Path(parquet)):
            click.echo(f"{path}  {rows:,} rows")


@command("import", of=runs)
@argument("files FILE…", nargs=-1, required=True)
@option("--op OP", "The operation, such as all_reduce, if the file does not name it.")
@option("--ranks N", "Ranks of one group, if the file does not tell.", click.IntRange(min=1))
@shape_options
def import_command(files: tuple[str, ...], op: str | None, ranks: int | None, **told: Any) -> None:
    """Import what other tools measured: nccl-tests, ds_bench, OSU, perftest, iperf3, nvbandwidth, …

    FILE is what nccl-tests, ds_bench, the OSU micro-benchmarks, perftest (ib_write_bw and the like),
    nvbandwidth or IBM's communication benchmark printed; the JSON of nccl-tests -J, rccl-tests (or its
    CSV), perftest --out_json, iperf3 -J or --json-stream, nvbandwidth -j or dcgmi diag -j; the JSON
    Lines of NCCL Inspector or SuperBench (results-summary.jsonl, diagnosis); or the JSON {name,
    world_size, timestamp, config, results} that scripts after cuda-lab's distributed_benchmarks.py
    write. `-` is standard input. The content says which it is. It may be part of a larger log, with the
    prefixes of mpirun, srun, kubectl, pdsh or a log collector. Each table of nccl-tests and each JSON
    document becomes a run. Nothing is stored unless every FILE can be read.

    Which nodes it was is read out of the file as far as it tells; --gpu and the like complete that
    and are kept. The last line of each run says whether its best figure is normal for such nodes.

    \f
    Examples:
      wirespeed runs import all_reduce.log
      wirespeed runs import nccl.json
      wirespeed runs import osu_allreduce.log --ranks 16
      wirespeed runs import iperf3.json nvbandwidth.json dcgm.json results-summary.jsonl
      wirespeed runs import old.log --gpu A100 --nodes 16 --gpus-per-node 8 --interconnect ib
      kubectl logs nccl-test-launcher | wirespeed runs import - --op all_reduce
    """
    from wirespeed.cli.reference_answers import completed
    from wirespeed.runs.importers import import_bytes
    from wirespeed.runs.store import save
    from wirespeed.session.references import references_for

    known, said = _operation(op), told_by(told)
    world = (told["nodes"] or 0) * (told["gpus_per_node"] or 0)
    if ranks and world and ranks != world:
        raise UsageError(
            f"--ranks {ranks}, but --nodes times --gpus-per-node is {world}", expected="one of them"
        )
    count = ranks or world
    found = [
        completed(run, said)
        for file in files
        for run in import_bytes(_read(file), name=_name(file), op=known, ranks=count)
    ]
    reference = references_for("check")
    for run in found:
        save(run)
        click.echo(_imported(run, reference))
    click.echo(f"next: wirespeed runs show {found[-1].id}")


def _table(summaries: "list[RunRow]") -> list[str]:
    from wirespeed.cli.page import table_lines
    from wirespeed.model.units import format_duration

    titles = ("id", "started (UTC)", "command", "verdict", "exit", "took", "ranks", "nodes")
    rows = [
        (
            *(s.id, s.started[:19].replace("T", " "), s.command, s.verdict_text, s.exit_code),
            *(format_duration(s.seconds) if s.seconds else "", s.world_size or "", s.nodes or ""),
            *(s.backend, s.measurements, _remark(s)),
        )
        for s in summaries
    ]
    right = ("exit", "took", "ranks", "nodes", "measured")
    return table_lines((*titles, "backend", "measured", "remark"), rows, right)


def _remark(one: "RunRow") -> str:
    if one.damaged:
        return f"damaged: {one.damaged}"
    whose = one.launcher if one.command == "import" else ""
    return whose if one.finished else "unfinished"


def _ask(paths: list[Path]) -> None:
    listed = "\n".join(f"  {path}" for path in paths)
    if not sys.stdin.isatty():
        raise UsageError(
            f"to be removed, but nobody can be asked:\n{listed}",
            expected="--yes where there is no terminal",
        )
    click.confirm(f"{listed}\nremove?", abort=True)


def _operation(op: str | None) -> str:
    from wirespeed.runs.importers.table import OPERATIONS, operation_in

    found = operation_in(op or "")
    if op and not found:
        raise UsageError(f"unknown operation {op!r}", expected=", ".join(OPERATIONS))
    return found


def _name(file: str) -> str:
    from wirespeed.runs.importers.table import STDIN

    return STDIN if file == "-" else file


def _read(file: str) -> bytes:
    from wirespeed.node.reading import read_whole

    expected = "the output of one test"
    with refused_as(InputError, f"cannot read {_name(file)}", expected=expected):
        if file != "-":
            return read_whole(Path(file), _LARGEST_FILE, pipes=True)
        data = sys.stdin.buffer.read(_LARGEST_FILE + 1)
    if len(data) > _LARGEST_FILE:
        raise InputError(f"{_name(file)} is larger than 256 MiB", expected=expected)
    return data


def _imported(run: "Run", reference: "Reference") -> str:
    from wirespeed.cli.reference_answers import verdict_lines
    from wirespeed.views.sections import import_lines
    from wirespeed.views.text import style_for

    style = style_for(sys.stdout)
    return "\n".join([*import_lines(run, style), *verdict_lines(run, style, reference)])
