"""Carry a plan out where we are: on ranks of our own, or as one rank of somebody else's world."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.again import with_typed
from wirespeed.cli.config import print_config, refuse_unknown_keys
from wirespeed.cli.options import Output, RunOptions
from wirespeed.errors import StorageError, UsageError
from wirespeed.plan import Plan
from wirespeed.records import Choice, Run
from wirespeed.world.identity import Identity, detect
from wirespeed.world.local import require_torch
from wirespeed.world.mistaken import refuse_separate_worlds
from wirespeed.world.redact import redact_words
from wirespeed.world.secret import job_secret

if TYPE_CHECKING:
    from wirespeed.console.book import Book
    from wirespeed.console.combinations import Comparison
    from wirespeed.console.grids import GridWorld
    from wirespeed.console.lasting import Work
    from wirespeed.console.session import Session
    from wirespeed.runs.patient import PatientFolder
    from wirespeed.world.watch import Outcome

__all__ = ["execute", "show"]

_WITHOUT_SOME = ("check", "locate")
"""Verbs that are worth their time on the nodes that are left; figures of a smaller world would
mislead where speed was asked for."""


def execute(
    ctx: click.Context,
    plan: Plan,
    options: RunOptions,
    only: frozenset[str] = frozenset(),
    settings: "Comparison | None" = None,
    grid: "Sequence[GridWorld]" = (),
) -> int:
    """Run the plan, or compare settings with it, and print the result; the exit code of the run.

    grid: worlds of several sizes, each with its own plan, in the place of one.
    """
    refuse_unknown_keys(ctx)
    if ctx.params.get("print_config"):
        click.echo(print_config(ctx))
        return 0
    file = options.secret_file
    secret = job_secret(os.environ, Path(file) if file else None)
    options = replace(options, again=with_typed(ctx))
    config = _jsonable({k: v for k, v in ctx.params.items() if k != "print_config"})
    _refuse_faults_of_other_verbs(plan)
    identity = detect(os.environ)
    if options.where is not None:
        if identity is not None:
            raise _inside_a_world(identity, options.where.engine)
        return _elsewhere(plan, options, config, only, settings)
    if identity is not None and settings is not None:
        raise _settings_inside_a_world(identity)
    refuse_separate_worlds(os.environ, identity)
    if not plan.facts_only:
        require_torch()
    if identity is None:
        run = _on_this_machine(plan, options, config, only, settings, grid)
        return exported(run, options.output)
    return _as_member(identity, plan, options, config, only, secret)


def _on_this_machine(
    plan: Plan,
    options: RunOptions,
    config: dict[str, Any],
    only: frozenset[str],
    settings: "Comparison | None",
    grid: "Sequence[GridWorld]",
) -> Run:
    from wirespeed.cli.settings import replaced_choices, tell_estimate
    from wirespeed.console.grids import run_grid
    from wirespeed.console.lasting import run_lasting
    from wirespeed.console.local import interface_choice, run_local
    from wirespeed.console.settings import run_settings
    from wirespeed.console.worlds import local_place
    from wirespeed.world.local import choose_ranks

    if grid:
        largest = max(one.point.ranks for one in grid if one.plan is not None)
        ranks = Choice("ranks", str(largest), "the largest world of the grid")
    elif plan.facts_only and options.ranks is None:
        ranks = Choice("ranks", "1", "one tells the facts of this machine")
    else:
        ranks = choose_ranks(options.ranks, options.backend)
    choices = (ranks, interface_choice(), *replaced_choices(settings, os.environ))
    size = int(ranks.value)
    _refuse_faults_beyond(options.inject, size)
    if settings is not None:
        tell_estimate(settings, plan, size, quiet=options.output.quiet)
    session = _session(plan, options, config, only, "local", size, choices)
    if grid:
        return run_grid(session, grid)
    if settings is not None:
        return run_settings(session, local_place(size, options.backend), plan, settings)
    if work := _lasting_work(plan, session):
        return run_lasting(session, local_place(size, options.backend), *work)
    return run_local(session, plan, size, options.backend)


def _elsewhere(
    plan: Plan,
    options: RunOptions,
    config: dict[str, Any],
    only: frozenset[str],
    settings: "Comparison | None",
) -> int:
    from wirespeed.cli.settings import dry_run_notes, replaced_choices, tell_estimate
    from wirespeed.cli.where import written
    from wirespeed.console.holding import STOPPING
    from wirespeed.console.lasting import run_lasting
    from wirespeed.console.remote import ordered, run_remote
    from wirespeed.console.settings import run_settings
    from wirespeed.console.worlds import remote_place
    from wirespeed.world.watch import Outcome

    replaced = replaced_choices(settings, os.environ)
    for choice in replaced:  # no engine shall hand it on: it is one of the compared
        del os.environ[choice.name]
    place = options.placed()
    job = ordered(place.job, plan, options.backend, sys.executable)
    if place.dry_run:
        title = f"wirespeed {plan.command} --on {place.engine.name}"
        click.echo(written(place, job, "run", title), nl=False)
        click.echo("".join(f"# {line}\n" for line in dry_run_notes(settings)), nl=False)
        return 0
    if not place.findings:
        _refuse_faults_beyond(options.inject, job.size)
    if settings is not None:
        tell_estimate(settings, plan, job.size, quiet=options.output.quiet)
    choices = (*place.choices, *replaced)
    session = _session(plan, options, config, only, place.engine.name, job.size, choices)
    session.note(place.findings)
    bad = any(one.status in STOPPING for one in place.findings)
    if bad and (plan.command not in _WITHOUT_SOME or not job.hosts):
        run = session.close(Outcome(kind="never_joined"))
    elif settings is not None:
        held = remote_place(place.engine, place.job, plan, options.backend)
        run = run_settings(session, held, plan, settings)
    elif work := _lasting_work(plan, session):
        held = remote_place(place.engine, place.job, plan, options.backend)
        run = run_lasting(session, held, *work)
    else:
        run = run_remote(session, place.engine, job, plan)
    return exported(run, options.output)


def _as_member(
    identity: Identity,
    plan: Plan,
    options: RunOptions,
    config: dict[str, Any],
    only: frozenset[str],
    secret: bytes | None,
) -> int:
    from wirespeed.console.member import (
        TRUSTS_NETWORK,
        carry_rank_in_environment,
        run_member,
        trusts_network,
    )

    if options.ranks is not None and options.ranks != identity.world_size:
        raise UsageError(
            f"--ranks {options.ranks} inside a world of {identity.world_size} ranks that "
            f"{identity.launcher} started",
            expected="no --ranks: the launcher has decided",
        )
    _refuse_faults_beyond(options.inject, identity.world_size)
    carry_rank_in_environment(identity, secret)
    launcher = os.environ.get("WIRESPEED_LAUNCHER", identity.launcher)
    choice = Choice("launcher", launcher, identity.reason)

    if launcher == "openmpi" and options.output.color == "auto":
        # mpirun gives its ranks a terminal of their own, whatever its own output goes to.
        options = replace(options, output=replace(options.output, color="never"))

    def open_book() -> _ShownSession:
        size = identity.world_size
        return _ShownSession(
            plan, _session(plan, options, config, only, launcher, size, (choice,)), options.output
        )

    if identity.rank == 0 and trusts_network(identity, secret) and not options.output.quiet:
        click.echo(f"this run trusts {TRUSTS_NETWORK.value}: {TRUSTS_NETWORK.reason}", err=True)
    return run_member(identity, plan, options.backend, open_book, secret)


def _lasting_work(
    plan: Plan, session: "Session", *, restarts: bool = True
) -> "tuple[Work, float] | None":
    """What lasts in this plan, and how long; None where nothing does."""
    if plan.soak is not None and session.ledger is not None:
        from wirespeed.console.soaking import SoakLedger, SoakWork

        if isinstance(session.ledger, SoakLedger):
            return SoakWork(session, session.ledger, plan), plan.soak.for_s
    if plan.training is None or plan.training.lasting is None:
        return None
    from wirespeed.console.goodput import GoodputWork

    return GoodputWork(session, plan, restarts=restarts), plan.training.lasting.for_s


class _ShownSession:
    """Rank 0's book where nobody else shows the run."""

    def __init__(self, plan: Plan, session: "Session", output: Output) -> None:
        self._session = session
        self._output = output
        lasting = _lasting_work(plan, session, restarts=False)
        self._work = lasting[0] if lasting else None
        self._book: Book = self._work.book(1) if self._work else session
        self._begin = time.monotonic()

    def on_record(self, rank: int, kind: str, data: dict[str, Any]) -> None:
        self._book.on_record(rank, kind, data)

    def phase(self, text: str) -> None:
        self._session.phase(text)

    def finish(self, outcome: "Outcome") -> int:
        if self._work is not None:
            self._work.ended(outcome, time.monotonic() - self._begin)
            self._work.settle()
        return exported(self._session.close(outcome), self._output)


def _settings_inside_a_world(identity: Identity) -> UsageError:
    return UsageError(
        f"--env inside a world of {identity.world_size} ranks ({identity.reason})",
        expected="no launcher around it: each combination needs ranks of its own, as such variables "
        "are read once, when a rank starts",
        next="the same command without the launcher, or with --on ENGINE",
    )


def _inside_a_world(identity: Identity, engine: str) -> UsageError:
    return UsageError(
        f"--on {engine} inside a world of {identity.world_size} ranks ({identity.reason})",
        expected="one of the two: an engine that wirespeed drives, or a launcher that started it",
        next="the same command without --on",
    )


def _refuse_faults_of_other_verbs(plan: Plan) -> None:
    """A fault that cannot strike would prove nothing."""
    from wirespeed.ranks.faults import CALL_FAULTS, DATA_FAULTS, TRAINING_FAULTS, Fault

    for text in plan.faults:
        fault = Fault.parse(text)
        training = plan.training is not None
        in_data = fault.kind in {*DATA_FAULTS, *CALL_FAULTS, "other", "clock"} or bool(fault.at)
        wrong = in_data and fault.kind not in TRAINING_FAULTS
        if wrong if training else fault.kind in TRAINING_FAULTS and fault.kind not in DATA_FAULTS:
            raise UsageError(
                f"{plan.command} has nothing that {text!r} could strike",
                expected=", ".join(("kill", "stop", "raise", *TRAINING_FAULTS))
                if training
                else f"a fault of {plan.command} (CONTRIBUTING.md lists them)",
                next=f"wirespeed {'check' if training else 'train'} --inject {text}",
            )


def _refuse_faults_beyond(faults: tuple[str, ...], size: int) -> None:
    """A fault that cannot strike would prove nothing."""
    from wirespeed.ranks.faults import Fault

    for text in faults:
        if Fault.parse(text).rank >= size:
            raise UsageError(
                f"cannot inject {text!r} into {size} ranks", expected=f"rank=0 to rank={size - 1}"
            )


def _session(
    plan: Plan,
    options: RunOptions,
    config: dict[str, Any],
    only: frozenset[str],
    launcher: str,
    size: int,
    choices: tuple[Choice, ...],
) -> "Session":
    from wirespeed.console.references import references_for
    from wirespeed.console.session import Session
    from wirespeed.console.unstored import patient_folder, tell_unstored
    from wirespeed.views.progress import open_progress

    reference = references_for(plan.command)  # before the folder: it may be damaged
    progress = open_progress(quiet=options.output.quiet)
    ledger = None
    if plan.soak is not None:
        from wirespeed.cli.soaking import open_soak

        folder, ledger = open_soak(plan, options.resumed, config, progress)
        folder.on_unstored = tell_unstored
    else:
        folder = patient_folder(plan.command, config)
    return Session(
        plan,
        folder,
        progress,
        launcher=launcher,
        world_size=size,
        config=config,
        choices=choices,
        reference=reference,
        only=only,
        ledger=ledger,
        again=options.again,
        gate=options.gate,
        show=partial(shown, output=options.output),
    )


def _jsonable(config: dict[str, Any]) -> dict[str, Any]:
    """Words of -x, --with and the like without what looks like a secret."""
    return {k: _told(v) if isinstance(v, tuple) else v for k, v in config.items()}


def _told(values: tuple[Any, ...]) -> list[Any]:
    return redact_words(values) if all(isinstance(v, str) for v in values) else list(values)


def show(run: Run, output: Output, folder: "PatientFolder | None" = None) -> int:
    """Print the run in the asked form, then store it in `folder`, and write its page if one is asked
    for; its exit code."""
    try:
        shown(run, output)
    finally:
        if folder is not None:
            folder.finish(run)
    return exported(run, output)


def shown(run: Run, output: Output) -> None:
    """Print the run in the asked form."""
    from wirespeed.views import render
    from wirespeed.views.style import style_for

    style = style_for(sys.stdout, color=output.color, verbose=output.verbose)
    try:
        click.echo(render(run, output.format, style), color=style.color, nl=False)
    except BrokenPipeError:  # the reader has left; the verdict stands
        from wirespeed.cli import forget_stdout

        forget_stdout()


def exported(run: Run, output: Output) -> int:
    """Write the page and the timeline of a stored run, where asked for; its exit code."""
    try:
        _write_files(run, output)
    except StorageError as error:  # the verdict stands, and so does its exit code
        click.echo(f"wirespeed: warning: {error}", err=True)
    return run.exit_code


def _write_files(run: Run, output: Output) -> None:
    """The page and the timeline, where they were asked for."""
    if output.html is not None:
        from wirespeed.cli.page import write_page
        from wirespeed.runs.store import find

        write_page(run, output.html, find(run.id) if run.training else None)
    if output.trace is not None:
        from wirespeed.cli.page import write_trace

        write_trace(run, output.trace)
