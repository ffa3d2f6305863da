"""Options that say where ranks run: `--on ENGINE` and what belongs to it; shared by launch and verbs."""

import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli import suggest
from wirespeed.errors import UsageError
from wirespeed.launchers.engines import ENGINES

if TYPE_CHECKING:
    from wirespeed.launchers.base import Host, Job, Prepared


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_MOST = 65_536
NAMES = {
    "on": "--on",
    "cluster": "--cluster",
    "hosts": "--hosts",
    "hostfile": "--hostfile",
    "nodes": "--nodes",
    "ranks_per_node": "--ranks-per-node",
    "python": "--python",
    "interface": "--interface",
    "pass_": "-x",
    "with_": "--with",
    "dry_run": "--dry-run",
}

_MEANT = {"--cluster": "k8s", "--hosts": "ssh", "--hostfile": "ssh"}

_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--on",
        type=click.Choice(ENGINES),
        help="Start the ranks through this engine (wirespeed launch --list tells each one's own "
        "options).  [default: processes of this machine]",
    ),
    click.option(
        "--cluster",
        metavar="NAME|FILE",
        shell_complete=suggest.clusters,
        help="The cluster file whose pods run the ranks (clusters/NAME.yaml, or a path); with --on "
        "k8s. Where it is not deployed, pods are made for this command alone.",
    ),
    click.option("--hosts", metavar="A,B:4", help="Nodes, with or without slots; with --on."),
    click.option(
        "--hostfile",
        metavar="FILE",
        shell_complete=suggest.files,
        help="Nodes, one a line: `host`, `host slots=8` or `host:8`; with --on.",
    ),
    click.option(
        "--nodes",
        type=click.IntRange(1, _MOST),
        metavar="N",
        help="How many nodes, where the engine finds them itself; with --on.",
    ),
    click.option(
        "--ranks-per-node",
        type=click.IntRange(1, 1024),
        metavar="N",
        help="Ranks on each node; with --on.  [default: slots, else GPUs, else 1]",
    ),
    click.option(
        "--python",
        metavar="PATH",
        shell_complete=suggest.files,
        help="Python on the nodes, in which wirespeed is installed; with --on.  "
        "[default: the path of this one]",
    ),
    click.option(
        "--interface",
        metavar="NAME",
        shell_complete=suggest.interfaces,
        help="Network interface for rendezvous and traffic; with --on.",
    ),
    click.option(
        "-x",
        "pass_",
        multiple=True,
        metavar="NAME[=VALUE]",
        shell_complete=suggest.environment,
        help="Also give this variable to every rank (NCCL_*, GLOO_*, UCX_* and the like go along "
        "anyway); with --on. A secret by name only: -x HF_TOKEN.",
    ),
    click.option(
        "--with",
        "with_",
        multiple=True,
        metavar="KEY[=VALUE]",
        shell_complete=suggest.engine_options,
        help="An option of the engine, such as partition=train.",
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Print what would run on this machine, as a shell script, and stop; with --on.",
    ),
)

_NAMED = dict(zip(NAMES, _OPTIONS, strict=True))


def placement_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def pod_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Those that say something where the engine is k8s and the cluster is known."""
    for name, option in reversed(_NAMED.items()):
        if name not in ("on", "cluster", "hostfile"):
            function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Placed:
    """A job that its engine has looked at."""

    engine: str
    prepared: "Prepared"
    dry_run: bool


@dataclass(slots=True)
class Placement:
    """Where ranks shall run, as the options say."""

    engine: str
    cluster: str | None
    hosts: str | None
    hostfile: str | None
    nodes: int | None
    ranks_per_node: int | None
    python: str | None
    interface: str | None
    passed: tuple[str, ...]
    options: tuple[str, ...]
    dry_run: bool
    _placed: Placed | None = None

    @staticmethod
    def take(values: dict[str, Any], *, default: str | None = None) -> "Placement | None":
        """Take the options out of click's arguments; None for ranks of this machine, as ever.

        UsageError for an option that says nothing without `--on`.
        """
        taken = {name: values.pop(name) for name in NAMES}
        engine = taken.pop("on") or default
        if engine is None:
            given = [NAMES[name] for name, value in taken.items() if value]
            if given:
                raise UsageError(
                    f"{given[0]} says nothing without --on",
                    expected=f"--on {', '.join(ENGINES)}",
                    next=f"the same command with --on {_MEANT.get(given[0], 'slurm')}",
                )
            return None
        if taken["cluster"] is not None and engine != "k8s":
            raise UsageError(
                f"--cluster says nothing with --on {engine}",
                expected="--on k8s",
                next="the same command with --on k8s",
            )
        passed, options = taken.pop("pass_"), taken.pop("with_")
        return Placement(engine=engine, passed=passed, options=options, **taken)

    def place(self, ranks: int | None, startup_s: float) -> Placed:
        """Let the engine look at this machine and the nodes; once."""
        if self._placed is None:
            from wirespeed.launchers.engines import engine_named
            from wirespeed.launchers.request import made_ready

            engine = engine_named(self.engine)
            job = made_ready(self._job(ranks, startup_s), framed=not self.dry_run)
            self._placed = Placed(self.engine, engine.prepare(job), self.dry_run)
        return self._placed

    def _job(self, ranks: int | None, startup_s: float) -> "Job":
        from wirespeed.launchers.base import Job
        from wirespeed.launchers.engines import engine_named
        from wirespeed.launchers.request import forwarded, read_options

        return Job(
            command=(),
            hosts=self._hosts(),
            nodes=self.nodes,
            ranks=ranks,
            ranks_per_node=self.ranks_per_node,
            environment=forwarded(os.environ, self.passed),
            directory=str(Path.cwd()),
            python=self.python or "",
            interface=self.interface or "",
            startup_s=startup_s,
            options={**read_options(engine_named(self.engine), self.options), **self._cluster()},
        )

    def _cluster(self) -> dict[str, str]:
        return {"cluster": self.cluster} if self.cluster is not None else {}

    def _hosts(self) -> "tuple[Host, ...]":
        from wirespeed.launchers.request import parse_hosts, read_hostfile

        if self.hosts and self.hostfile:
            raise UsageError("--hosts and --hostfile", expected="one of them")
        if self.hostfile:
            return read_hostfile(Path(self.hostfile))
        return parse_hosts(self.hosts) if self.hosts else ()


def written(prepared: "Prepared", form: str, title: str) -> str:
    """What would `run`, the same as `sh` for use by hand, or as `yaml`; secrets are named, not told."""
    from dataclasses import replace

    from wirespeed.launchers.base import SCRATCH, as_sh, as_yaml
    from wirespeed.launchers.request import shown
    from wirespeed.node.redact import TAKEN_OUT, redact_words

    job = prepared.job
    environment, hidden = shown(job.environment)
    command = tuple(redact_words(job.command))
    notes = [] if command == job.command else [TAKEN_OUT.strip()]
    prepared = replace(prepared, job=replace(job, environment=environment, command=command))
    pieces = prepared.pieces(SCRATCH)
    before, after = prepared.around(SCRATCH)
    notes += [f"# not used: {one.title}" for one in prepared.findings]
    if form == "sh" and len(pieces) == 1 and pieces[0].script:
        text = pieces[0].script
    else:
        text = (as_yaml if form == "yaml" else as_sh)(pieces, title, hidden, before, after)
    first, newline, rest = text.partition("\n")
    return first + newline + "".join(f"{note}\n" for note in notes) + rest


# The command that a finding proposes, with the options of the one that was typed.
#
# `next: wirespeed train --bucket-mb 0.6,25` of `wirespeed train --ranks 2 --model small` is of use only
# with that model on those ranks. The same verb keeps every option that it does not set anew; another
# verb keeps those that say where ranks run. How the result was shown, and faults acted out, are left
# out.

_OUTPUT = {
    "output",
    "html",
    "trace",
    "quiet",
    "verbose",
    "color",
    "print_config",
    "inject",
    "resume",
}
_WORLD = {"ranks", "backend", "engine"}
_MEASURING = ("check", "bench", "locate", "train")
_WHOLE = {"--explain", "--list", "--resume", "…"}
"""Such a command is to be taken as it stands."""


def with_typed(ctx: click.Context) -> Callable[[str], str]:
    """What completes the commands of findings; others, and sentences, stay as they are."""
    from wirespeed.node.redact import TAKEN_OUT, redact_words

    typed = [one for one in ctx.command.params if _typed(ctx, one)]

    def again(command: str) -> str:
        words = command.split()
        if words[:1] != ["wirespeed"] or len(words) < 2 or words[1] not in _MEASURING:
            return command
        if _WHOLE & set(words) or any(";" in word for word in words):
            return command
        set_anew = {word.split("=")[0] for word in words}
        kept = [
            text
            for one in typed
            if (words[1] == ctx.info_name or str(one.name) in _WORLD | _where_names())
            and not set_anew & {*one.opts, *one.secondary_opts}
            for text in _written(one, ctx.params[str(one.name)])
        ]
        told = redact_words(kept)
        note = "" if told == kept else TAKEN_OUT
        return " ".join([command, *map(shlex.quote, told)]) + note

    return again


def _typed(ctx: click.Context, one: click.Parameter) -> bool:
    """Arguments are named by the finding itself."""
    name = str(one.name)
    if not isinstance(one, click.Option) or name in _OUTPUT or name not in ctx.params:
        return False
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _where_names() -> set[str]:
    """Parameters of the options that say on which nodes ranks run."""

    def bare() -> None: ...

    options: list[click.Parameter] = placement_options(bare).__click_params__  # type: ignore[attr-defined]
    return {str(one.name) for one in options}


def _written(one: click.Parameter, value: Any) -> Iterator[str]:
    name = max(one.opts, key=len)
    if isinstance(value, bool):
        yield name if value else max(one.secondary_opts, key=len, default=name)
        return
    for each in value if isinstance(value, (tuple, list)) else (value,):
        yield name
        yield f"{each:g}" if isinstance(each, float) else str(each)
