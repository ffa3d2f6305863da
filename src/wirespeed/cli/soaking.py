"""A soak's folder and ledger: new ones, or those of the soak that --resume names."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from wirespeed.cli.options import switch_of
from wirespeed.cli.run_options import NAMES, Resumed
from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.model.lasting_records import Soak
from wirespeed.node.lock import Lock
from wirespeed.runs.folder import PatientFolder
from wirespeed.runs.place import runs_home
from wirespeed.runs.store import find, load
from wirespeed.session.soaking import SoakLedger

if TYPE_CHECKING:
    from wirespeed.model.records import Run
    from wirespeed.plan import Plan
    from wirespeed.session.run_builder import ProgressView


_OWN = (
    *("resume", "output", "quiet", "verbose", "color", "print_config", "list_", "explain", "html"),
    "secret_file",
)
"""Options that say nothing of the soak itself: they are this command's, also on --resume."""
_LEAST_LEFT_S = 1.0


def resumed_values(ctx: click.Context, values: dict[str, Any]) -> Resumed:
    """The soak that --resume names; its options take the place of those not given now."""
    path = find(values["resume"])
    run = load(path)
    soak = run.soak
    if soak is None or not path.is_dir():
        raise UsageError(f"run {run.id} is no soak", expected="the id of a `check -l soak`")
    if soak.for_s - soak.elapsed_s < _LEAST_LEFT_S:
        raise UsageError(
            f"the soak {run.id} is over: {soak.elapsed_s:.0f} of {soak.for_s:.0f} s",
            next=f"wirespeed runs show {run.id}",
        )
    _refuse_foreign_places(ctx, path, run)
    for name, value in run.config.items():
        if name in values and name not in _OWN and not _given(ctx, name):
            values[name] = tuple(value) if isinstance(value, list) else value
            ctx.params[name] = values[name]
    return Resumed(path, run, soak)


def _refuse_foreign_places(ctx: click.Context, path: Path, run: "Run") -> None:
    """A folder that somebody sent chooses no hosts, and no programs on them."""
    if path.resolve().parent == runs_home().resolve():
        return
    chosen = [switch_of(name) for name in NAMES if run.config.get(name) and not _given(ctx, name)]
    if chosen:
        raise UsageError(
            f"{path} is not among your own runs, and would choose {' and '.join(chosen)}",
            expected="a soak of `wirespeed runs list`, or these options on the command line",
            next="wirespeed check -l soak",
        )


def _given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def open_soak(
    plan: "Plan", resumed: Resumed | None, config: dict[str, Any], progress: "ProgressView"
) -> tuple[PatientFolder, SoakLedger]:
    """The folder and the ledger: new ones, or those that are gone on with."""
    soak = plan.soak
    if soak is None:
        raise UsageError("no soak was asked for", expected="-l soak")
    if resumed is not None:
        folder = PatientFolder.reopen(resumed.path, resumed.run, _locked(resumed, progress))
        start = replace(resumed.soak, resumed=resumed.soak.resumed + 1)
    else:
        folder = PatientFolder.create(plan.command, config)
        start = Soak(for_s=soak.for_s, elapsed_s=0.0, window_s=soak.window_s)
    return folder, SoakLedger(plan, folder, progress, start)


def _locked(resumed: Resumed, progress: "ProgressView") -> Lock:
    """The lock of that run's folder; CannotMeasure while another process goes on with it."""
    lock = Lock.take(resumed.path, "wirespeed check --resume", say=progress.phase)
    if load(resumed.path).soak != resumed.soak:
        lock.release()
        raise CannotMeasure(
            f"another process has gone on with run {resumed.run.id} meanwhile",
            expected="one at a time",
            next=f"wirespeed check --resume {resumed.run.id}",
        )
    if lock.before is not None:
        progress.say(f"run {resumed.run.id} is taken over: its last owner is dead, {lock.before}")
    return lock
