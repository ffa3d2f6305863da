"""Carry a plan out where we are: on ranks of our own, or as one rank of somebody else's world."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.config import print_config, refuse_unknown_keys, with_typed
from wirespeed.cli.options import Output
from wirespeed.cli.page import exported, shown
from wirespeed.cli.run_options import RunOptions, written
from wirespeed.errors import UsageError
from wirespeed.model.records import Choice, Run
from wirespeed.node.identity import Identity, detect
from wirespeed.node.limits import choose_ranks, require_torch
from wirespeed.node.neighbours import refuse_separate_worlds
from wirespeed.node.redact import redact_words
from wirespeed.plan import ComputePlan, Plan
from wirespeed.session.backends import OneWorld, run_workload

if TYPE_CHECKING:
    from wirespeed.session.backends import Work, Workload
    from wirespeed.session.grids import GridWorld
    from wirespeed.session.recording import Recorder, Session
    from wirespeed.session.settings import Comparison
    from wirespeed.watchdog import Outcome


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
    on_end: Callable[[Run], object] | None = None,
) -> int:
    """Run the plan, or compare settings with it, and print the result; the exit code of the run.

    grid: worlds of several sizes, each with its own plan, in the place of one. on_end: called with the
    run that was stored; not under somebody else's launcher.
    """
    if only_config(ctx):
        return 0
    secret = _secret(options.secret_file)
    options = replace(options, again=with_typed(ctx))
    _refuse_faults_of_other_verbs(plan)
    asked = _Asked(plan, options, told_config(ctx), only, settings, grid)
    identity = detect(os.environ)
    if options.where is not None:
        if identity is not None:
            raise _inside_a_world(identity, options.where.engine)
        return _elsewhere(asked, on_end)
    if identity is not None and settings is not None:
        raise _settings_inside_a_world(identity)
    refuse_separate_worlds(os.environ, identity)
    if not plan.facts_only:
        require_torch()
    if identity is None:
        run = _on_this_machine(asked)
        if on_end is not None:
            on_end(run)
        return exported(run, options.output)
    return _as_joined_rank(identity, asked, secret)


def _secret(file: str | None) -> bytes | None:
    """Of this job; from now on the environment does not hold it."""
    if not file and "WIRESPEED_SECRET" not in os.environ:
        return None
    from wirespeed.node.secret import job_secret

    return job_secret(os.environ, Path(file) if file else None)


def only_config(ctx: click.Context) -> bool:
    """Whether --print-config asks for no more than what is printed here; InputError for unknown keys."""
    refuse_unknown_keys(ctx)
    if ctx.params.get("print_config"):
        click.echo(print_config(ctx))
        return True
    return False


def told_config(ctx: click.Context) -> dict[str, Any]:
    """The options as a run keeps them: words of -x, --with and the like without what looks secret."""
    return {k: _jsonable(v) for k, v in ctx.params.items() if k != "print_config"}


def _jsonable(value: Any) -> Any:
    if not isinstance(value, tuple):
        return value
    words = all(isinstance(one, str) for one in value)
    return redact_words(value) if words else list(value)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What to carry out."""

    plan: Plan
    options: RunOptions
    config: dict[str, Any]
    only: frozenset[str]
    settings: "Comparison | None"
    grid: "Sequence[GridWorld]"

    def session(self, launcher: str, size: int, choices: tuple[Choice, ...]) -> "Session":
        from wirespeed.session.folders import patient_folder, tell_unstored
        from wirespeed.session.recording import Session
        from wirespeed.session.references import references_for
        from wirespeed.views.text import open_progress

        plan, options = self.plan, self.options
        reference = references_for(plan.command)  # before the folder: it may be damaged
        progress = open_progress(quiet=options.output.quiet)
        ledger = None
        if plan.soak is not None:
            from wirespeed.cli.soaking import open_soak

            folder, ledger = open_soak(plan, options.resumed, self.config, progress)
            folder.on_unstored = tell_unstored
        else:
            folder = patient_folder(plan.command, self.config)
        return Session(
            plan,
            folder,
            progress,
            launcher=launcher,
            world_size=size,
            config=self.config,
            choices=choices,
            reference=reference,
            only=self.only,
            ledger=ledger,
            again=options.again,
            strictness=options.strictness,
            show=partial(shown, output=options.output),
        )

    def tell_estimate(self, ranks: int) -> None:
        """Print on stderr how long it takes at most, before the first world starts."""
        if self.options.output.quiet or not self.plan.is_timed:
            return
        if self.settings is not None:
            from wirespeed.session.settings import estimate as estimate_settings

            text = estimate_settings(self.settings, self.plan, ranks)
        else:
            from wirespeed.cli.estimate import estimate

            worlds = [one.plan for one in self.grid if one.plan is not None]
            text = estimate(self.plan) if len(worlds) < 2 else ""
        if text:
            click.echo(f"wirespeed: {text}", err=True)

    def workload(self, session: "Session") -> "Workload":
        """What worlds of ranks are started for."""
        if self.grid:
            from wirespeed.session.grids import Grid

            return Grid(session, self.grid)
        if self.settings is not None:
            from wirespeed.session.settings import ComparedSettings

            return ComparedSettings(session, self.plan, self.settings)
        if work := _lasting_work(self.plan, session):
            from wirespeed.session.backends import RestartLoop

            return RestartLoop(*work)
        return OneWorld(session, self.plan)


def replaced_choices(asked: "Comparison | None", environ: Mapping[str, str]) -> tuple[Choice, ...]:
    """Compared variables that are set in the environment here, which counts for no combination."""
    names = asked.combinations[0].variables if asked else ()
    reason = "compared by --env: the value that is set in the environment is not used"
    return tuple(Choice(name, "unset in the default", reason) for name in names if name in environ)


def _on_this_machine(asked: _Asked) -> Run:
    from wirespeed.session.local import LocalRanks, interface_choice, local_backend

    plan, options = asked.plan, asked.options
    if asked.grid:
        largest = max(one.point.ranks for one in asked.grid if one.plan is not None)
        ranks = Choice("ranks", str(largest), "the largest world of the grid")
    elif plan.facts_only and options.ranks is None:
        ranks = Choice("ranks", "1", "one tells the facts of this machine")
    else:
        ranks = choose_ranks(options.ranks, options.backend)
    size = int(ranks.value)
    _refuse_faults_beyond(options.inject, size)
    asked.tell_estimate(size)
    lasts = plan.soak is not None or (plan.training is not None and plan.training.lasting)
    many = bool(
        asked.grid or asked.settings or lasts
    )  # worlds, each with an environment of its own
    begun = None if many else LocalRanks(plan, options.backend, os.environ)
    with ExitStack() as undone:
        if begun is not None:
            undone.callback(begun.stop)
        choices = (ranks, interface_choice(), *replaced_choices(asked.settings, os.environ))
        session = asked.session("local", size, choices)
        undone.pop_all()
    backend = local_backend(size, options.backend, begun)
    return run_workload(session, backend, asked.workload(session))


def _elsewhere(asked: _Asked, on_end: Callable[[Run], object] | None) -> int:
    from wirespeed.session.held_nodes import STOPPING
    from wirespeed.session.remote import ordered, remote_backend
    from wirespeed.watchdog import Outcome

    plan, options, place = asked.plan, asked.options, asked.options.where
    replaced = replaced_choices(asked.settings, os.environ)
    for choice in replaced:  # no engine shall hand it on: it is one of the compared
        del os.environ[choice.name]
    prepared = options.prepared()
    engine = place.engine if place is not None else ""
    job = ordered(prepared.job, plan, options.backend, sys.executable)
    if place is not None and place.dry_run:
        title = f"wirespeed {plan.command} --on {engine}"
        click.echo(written(replace(prepared, job=job), "run", title), nl=False)
        click.echo("".join(f"# {line}\n" for line in _dry_run_notes(asked.settings)), nl=False)
        return 0
    if not prepared.findings:
        _refuse_faults_beyond(options.inject, job.size)
    asked.tell_estimate(job.size)
    session = asked.session(engine, job.size, (*prepared.choices, *replaced))
    session.note(prepared.findings)
    bad = any(one.status in STOPPING for one in prepared.findings)
    if bad and (plan.command not in _WITHOUT_SOME or not job.hosts):
        run = session.close(Outcome(kind="never_joined"))
    else:
        backend = remote_backend(engine, prepared, plan, options.backend)
        run = run_workload(session, backend, asked.workload(session))
    if on_end is not None:
        on_end(run)
    return exported(run, options.output)


def _dry_run_notes(asked: "Comparison | None") -> list[str]:
    """What a dry run leaves to say: how often the same is done, and with what."""
    if asked is None:
        return []
    head = (
        f"the same in {asked.worlds} worlds of ranks, {asked.rounds} rounds; with these variables:"
    )
    return [head, *(f"    {one.name}" for one in asked.combinations)]


def _as_joined_rank(identity: Identity, asked: _Asked, secret: bytes | None) -> int:
    from wirespeed.session.joined_world import (
        TRUSTS_NETWORK,
        carry_rank_in_environment,
        run_joined,
        trusts_network,
    )

    plan, options, size = asked.plan, asked.options, identity.world_size
    if options.ranks is not None and options.ranks != size:
        raise UsageError(
            f"--ranks {options.ranks} inside a world of {size} ranks that "
            f"{identity.launcher} started",
            expected="no --ranks: the launcher has decided",
        )
    _refuse_faults_beyond(options.inject, size)
    carry_rank_in_environment(identity, secret)
    launcher = os.environ.get("WIRESPEED_LAUNCHER", identity.launcher)
    choice = Choice("launcher", launcher, identity.reason)
    output = options.output
    if launcher == "openmpi" and output.color == "auto":
        # mpirun gives its ranks a terminal of their own, whatever its own output goes to.
        output = replace(output, color="never")
        asked = replace(asked, options=replace(options, output=output))

    def open_recorder() -> _ShownSession:
        return _ShownSession(plan, asked.session(launcher, size, (choice,)), output)

    if identity.rank == 0 and trusts_network(identity, secret) and not output.quiet:
        click.echo(f"this run trusts {TRUSTS_NETWORK.value}: {TRUSTS_NETWORK.reason}", err=True)
    if identity.rank == 0:
        asked.tell_estimate(size)
    return run_joined(identity, plan, options.backend, open_recorder, secret)


def _lasting_work(
    plan: Plan, session: "Session", *, restarts: bool = True
) -> "tuple[Work, float] | None":
    """What lasts in this plan, and how long; None where nothing does."""
    if plan.soak is not None and session.ledger is not None:
        from wirespeed.session.soaking import SoakLedger, SoakWork

        if isinstance(session.ledger, SoakLedger):
            return SoakWork(session, session.ledger, plan), plan.soak.for_s
    if plan.training is None or plan.training.lasting is None:
        return None
    from wirespeed.session.goodput import GoodputWork

    return GoodputWork(session, plan, restarts=restarts), plan.training.lasting.for_s


class _ShownSession:
    """Rank 0's recorder where nobody else shows the run."""

    def __init__(self, plan: Plan, session: "Session", output: Output) -> None:
        self._session = session
        self._output = output
        lasting = _lasting_work(plan, session, restarts=False)
        self._work = lasting[0] if lasting else None
        self._recorder: Recorder = self._work.recorder(1) if self._work else session
        self._begin = time.monotonic()

    def on_record(self, rank: int, kind: str, data: dict[str, Any]) -> None:
        self._recorder.on_record(rank, kind, data)

    def phase(self, text: str) -> None:
        self._session.phase(text)

    def finish(self, outcome: "Outcome") -> int:
        if self._work is not None:
            self._work.ended(outcome, time.monotonic() - self._begin)
            self._work.settle()
        return exported(self._session.close(outcome), self._output)


def _settings_inside_a_world(identity: Identity) -> UsageError:
    from wirespeed.typed_command import TYPED

    return UsageError(
        f"--env inside a world of {identity.world_size} ranks ({identity.reason})",
        expected="no launcher around it: each combination needs ranks of its own, as such variables "
        "are read once, when a rank starts",
        next=f"{TYPED}",
    )


def _inside_a_world(identity: Identity, engine: str) -> UsageError:
    from wirespeed.typed_command import TYPED

    return UsageError(
        f"--on {engine} inside a world of {identity.world_size} ranks ({identity.reason})",
        expected="one of the two: an engine that wirespeed drives, or a launcher that started it",
        next=f"{TYPED:without --on}",
    )


def _refuse_faults_of_other_verbs(plan: Plan) -> None:
    """A fault that cannot strike would prove nothing."""
    if not plan.faults:
        return
    from wirespeed.rank.faulty_engine import (
        CALL_FAULTS,
        COMPUTE_FAULTS,
        DATA_FAULTS,
        TRAINING_FAULTS,
        Fault,
    )

    for text in plan.faults:
        fault = Fault.parse(text)
        if fault.kind in COMPUTE_FAULTS and not _strikes_devices(fault.kind, plan.compute):
            raise UsageError(
                f"{plan.command} has nothing that {text!r} could strike",
                expected="devices that are timed" if fault.kind == "slow" else "proofs of products",
                next=f"wirespeed check --only compute --inject {text}",
            )
        training = plan.training is not None
        called = {*DATA_FAULTS, *CALL_FAULTS, "other"}
        in_data = fault.kind in called or bool(fault.at)
        if training:
            wrong = (in_data or fault.kind == "clock") and fault.kind not in TRAINING_FAULTS
        else:
            calls = plan.steps or plan.pairs or plan.soak
            wrong = fault.kind in {*TRAINING_FAULTS} - called or (in_data and not calls)
        if wrong:
            raise UsageError(
                f"{plan.command} has nothing that {text!r} could strike",
                expected=", ".join(("kill", "stop", "raise", *TRAINING_FAULTS))
                if training
                else f"a fault of {plan.command} (CONTRIBUTING.md lists them)",
                next=f"wirespeed {'check' if training else 'train'} --inject {text}"
                if training or fault.kind in TRAINING_FAULTS
                else f"wirespeed check --inject {text}",
            )


def _strikes_devices(kind: str, compute: ComputePlan | None) -> bool:
    """Whether some work or proof of devices would show it."""
    return compute is not None and bool(compute.works if kind == "slow" else compute.proofs)


def _refuse_faults_beyond(faults: tuple[str, ...], size: int) -> None:
    """A fault that cannot strike would prove nothing."""
    if not faults:
        return
    from wirespeed.rank.faulty_engine import Fault

    for text in faults:
        if Fault.parse(text).rank >= size:
            raise UsageError(
                f"cannot inject {text!r} into {size} ranks", expected=f"rank=0 to rank={size - 1}"
            )
