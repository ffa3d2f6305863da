"""Runs of one command one after the other, so that `compare` can tell noise from change (`--repeat`)."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.config import command_of
from wirespeed.compare.estimate import LEAST_RUNS
from wirespeed.errors import UsageError
from wirespeed.node.identity import detect

if TYPE_CHECKING:
    from wirespeed.model.records import Run

_INTERRUPTED = 130
Execute = Callable[[Callable[["Run"], object]], int]
"""Carries the command out and hands over the run that it stored; gives the exit code."""


def repeat(times: int, execute: Execute, config: Mapping[str, Any], *, quiet: bool) -> int:
    """Carry the command out so many times, each as a run of its own; their joint exit code.

    It ends with the first run that was interrupted; those before it are kept. config: the options, as a
    run keeps them. UsageError where the command cannot be repeated.
    """
    _refuse_inside_a_world()
    if "json" in config["output"]:
        raise UsageError("--repeat with -o json, which is one run", expected="-o jsonl")
    runs: list[Run] = []
    codes: list[int] = []
    try:
        while len(codes) < times and _INTERRUPTED not in codes:
            if not quiet:
                click.echo(f"wirespeed: run {len(codes) + 1} of {times}", err=True)
            codes.append(execute(runs.append))
    finally:
        if not quiet:
            ended = [run for run in runs if run.exit_code != _INTERRUPTED]
            click.echo("\n".join(_conclusion(ended, times, config)), err=True)
    return _joint_code(codes)


def _joint_code(codes: Sequence[int]) -> int:
    """Return the exit code of all runs: a failure outlives an interruption, that what is not known."""
    if 1 in codes:
        return 1
    return _INTERRUPTED if _INTERRUPTED in codes else min(filter(None, codes), default=0)


def _refuse_inside_a_world() -> None:
    identity = detect(os.environ)
    if identity is not None:
        raise UsageError(
            f"--repeat inside a world of {identity.world_size} ranks ({identity.reason})",
            expected="no launcher around it, or --on ENGINE: each run starts ranks of its own",
        )


def _conclusion(runs: "Sequence[Run]", times: int, config: Mapping[str, Any]) -> list[str]:
    """Return the ids of the runs and the command that decides with them."""
    few = "" if len(runs) == times else f" of {times}"
    ids = " ".join(run.id for run in runs)
    return [f"wirespeed: {len(runs)}{few} runs: {ids}", f"next: {_next(runs, config)}"]


def _next(runs: "Sequence[Run]", config: Mapping[str, Any]) -> str:
    """Return what the runs can be held against: a baseline, the runs before them, else runs to come."""
    if len(runs) < LEAST_RUNS:
        missing = {"repeat": LEAST_RUNS - len(runs)}
        return command_of(runs[0].command if runs else "bench", {**config, **missing})
    side = ",".join(run.id for run in runs)
    if _is_of_baseline(runs[0]):
        return f"wirespeed compare {side} --baseline"
    if len(earlier := _earlier(runs[0])) == LEAST_RUNS:
        return f"wirespeed compare {','.join(earlier)} {side}"
    return f"wirespeed baseline set {' '.join(run.id for run in runs)}"


def _is_of_baseline(run: "Run") -> bool:
    """Return whether the baseline of the usual name has figures of what this run measured."""
    from wirespeed.compare.figures import figures_of
    from wirespeed.runs.named_files import DEFAULT, list_baselines, load_baseline

    if DEFAULT not in list_baselines():
        return False
    kept = load_baseline(DEFAULT).runs
    return any(figures_of(run).keys() & figures_of(one).keys() for one in kept)


def _earlier(run: "Run") -> list[str]:
    """Return the ids of the runs of the same kind before this one, as many as make a side."""
    from wirespeed.runs.selection import ids_before

    return ids_before(run.id, LEAST_RUNS)
