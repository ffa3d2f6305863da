"""`wirespeed diagnose`: why a job failed, hung or crawled, from its logs."""

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.options import Output, argument, color_option, command, flag, option
from wirespeed.errors import InputError, UsageError, refused_as
from wirespeed.views import FORMATS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wirespeed.diagnose.rule import Rule
    from wirespeed.diagnose.sources import Source
    from wirespeed.model.records import Run
    from wirespeed.runs.folder import PatientFolder


_LARGEST_RULES = 1_000_000
"""Bytes."""


@command()
@argument("paths PATH...", nargs=-1, completes="runs")
@option("-o --output", "How to print.", FORMATS, default="table")
@flag("--list listed", "What is known, one rule a line.")
@option("--explain ID", "What a rule means, its fix and its links.", completes="rules")
@option(
    "--rules files FILE",
    "Rules of your own beside ours; those in $WIRESPEED_HOME/rules always count.",
    click.Path(),
    multiple=True,
)
@flag("--rules-schema schema", "The JSON Schema of such files, for editors.")
@flag("-q --quiet", "No progress.")
@flag("-v --verbose", "All the evidence.")
@color_option
def diagnose(paths: tuple[str, ...], output: str, quiet: bool, color: str, **asked: Any) -> int:
    """Why did this job fail, hang or crawl? The cause, the line that proves it, and the fix.

    Reads logs of NCCL, torch.distributed, torchrun, gloo, DeepSpeed, MPI, ssh, Slurm, the kernel and
    Kubernetes: files, folders, gzip and zstd, `-` for standard input, or the id of a stored run.

    \f
    Examples:
      wirespeed diagnose job.log
      wirespeed diagnose logs/                       a folder of logs, one a rank or any other way
      kubectl logs -l job=train --prefix | wirespeed diagnose -
      dmesg | wirespeed diagnose - train.log.gz
      wirespeed diagnose last                        the ranks' logs of a stored run
      wirespeed diagnose job.log -o json | jq '.findings[] | select(.status == "fail")'
      wirespeed diagnose --explain SHM-001
      wirespeed diagnose job.log --rules ours.yaml   with rules of your own; --rules-schema says how

    Exit codes: 0 ENDED WELL, 1 CAUSE NAMED, 3 SYMPTOMS ONLY or NOTHING KNOWN.
    """
    if asked["schema"]:
        from wirespeed.diagnose.rule_file import rule_schema

        click.echo(json.dumps(rule_schema(), indent=2))
        return 0
    rules = _rules(asked["files"])
    if asked["listed"]:
        click.echo(_list(rules))
        return 0
    if asked["explain"]:
        click.echo(_explain(asked["explain"], rules))
        return 0
    if not paths:
        raise UsageError(
            "no log is given",
            expected="files, folders, a run's id, or - for standard input",
            next="wirespeed diagnose job.log",
        )
    from wirespeed.cli.page import show

    run, folder = _diagnosed(paths, rules, quiet)
    return show(run, Output(output, color, quiet, asked["verbose"]), folder)


def _rules(files: tuple[str, ...]) -> "tuple[Rule, ...]":
    """Ours, the user's, and those of the files."""
    from wirespeed.diagnose.rules import all_rules
    from wirespeed.node.reading import read_whole
    from wirespeed.runs.named_files import own_rule_files

    texts: dict[str, str | bytes] = {str(path): text for path, text in own_rule_files().items()}
    for file in files:
        told = {"expected": "a YAML file of rules", "next": "wirespeed diagnose --rules-schema"}
        with refused_as(InputError, f"{file} cannot be read", **told):
            texts[file] = read_whole(Path(file), _LARGEST_RULES)
    if not texts:
        return all_rules()
    from wirespeed.diagnose.rule_file import with_own

    return with_own(texts, all_rules())


def _diagnosed(
    paths: tuple[str, ...], rules: "Sequence[Rule]", quiet: bool
) -> "tuple[Run, PatientFolder | None]":
    """Read and judge; the folder to store it in, where there can be one."""
    from wirespeed.diagnose.diagnose import diagnose as read
    from wirespeed.runs.folder import ended
    from wirespeed.session.folders import folder_or_none
    from wirespeed.views.text import open_progress

    begin = time.monotonic()
    sources = _sources(paths)
    progress = open_progress(quiet=quiet or (len(sources) < 2 and sources[0].path is not None))
    try:
        reading = read(
            sources,
            rules,
            progress=lambda name, number: progress.step(number - 1, len(sources), name),
            proofs=_own_ends(paths),
        )
    finally:
        progress.close()
    folder, begun = folder_or_none("diagnose", {"paths": list(paths)})
    config = {**begun.config, "logs": reading.logs, "lines": reading.lines}
    told = {"seconds": time.monotonic() - begin, "environment": {}, "config": config}
    return ended(begun, reading.verdict, reading.exit_code, reading.findings, **told), folder


def _sources(paths: tuple[str, ...]) -> list["Source"]:
    """Files and folders as they are; what is no path may be a run, whose ranks' logs are meant."""
    from wirespeed.diagnose.sources import find_sources

    chosen = [path if _is_path(path) else _logs_of_run(path) for path in paths]
    if "-" in chosen and sys.stdin.isatty():
        click.echo("reading standard input; end it with Ctrl-D", err=True)
    return find_sources(chosen)


def _is_path(word: str) -> bool:
    return word == "-" or Path(word).exists()


def _own_ends(paths: tuple[str, ...]) -> list[str]:
    """What stored runs say of their own end, where all that is given are runs that ended with 0."""
    if any(map(_is_path, paths)):
        return []
    from wirespeed.runs.store import find, load

    runs = [load(find(path)) for path in paths]
    told = [f"wirespeed {run.command} ended with exit code 0: run {run.id}" for run in runs]
    return told if all(run.exit_code == 0 for run in runs) else []


def _logs_of_run(reference: str) -> str:
    from wirespeed.runs.store import find

    try:
        folder = find(reference) / "logs"
    except UsageError as error:
        raise InputError(
            f"there is no {reference}",
            expected="a file, a folder, the id of a stored run, or - for standard input",
            next="wirespeed runs list",
        ) from error
    if not folder.is_dir():
        raise InputError(f"run {reference} has no logs", expected="a run that started ranks")
    return str(folder)


def _list(rules: "Sequence[Rule]") -> str:
    told = [rule for rule in rules if rule.role != "fact"]
    wide = max(len(rule.category) for rule in told)
    return "\n".join(
        f"{rule.id:<10}  {rule.role:<11}  {rule.category:<{wide}}  {_title(rule)}" for rule in told
    )


def _title(rule: "Rule") -> str:
    """The sentence with its gaps as `…`."""
    return re.sub(r"\{\w+\}", "…", rule.sentence)


def _explain(id: str, rules: "Sequence[Rule]") -> str:
    from wirespeed.checks.registry import OF_LOGS

    known = id.strip().upper()
    if known in OF_LOGS:
        return f"{known}\n" + click.wrap_text(OF_LOGS[known].explanation, 96, "  ", "  ")
    rule = next((rule for rule in rules if rule.id == known), None)
    if rule is None:
        raise UsageError(
            f"no rule has the id {id!r}",
            expected="an id as it stands at the end of a line, such as SHM-001",
            next="wirespeed diagnose --list",
        )
    suggests = ", only suggests its cause" if rule.role == "cause" and rule.suggests else ""
    lines = [f"{rule.id}  {_title(rule)}  ({rule.category}, a {rule.role}{suggests})"]
    told = {"because": rule.because, "costs": rule.costs, "fix": rule.fix, "confirm": rule.next}
    told |= {f"check {n}": text for n, text in enumerate(rule.checks, 1)}
    told |= {f"link {n}": text for n, text in enumerate(rule.links, 1)}
    told |= {"such as": rule.positive[0]} if rule.positive else {}
    told["proof"] = rule.proof or ("nothing cited yet" if rule.unproven else "")
    for name, text in told.items():
        if text:
            lines.append(click.wrap_text(f"{name:<9} {text}", 96, "  ", " " * 12))
    return "\n".join(lines)
