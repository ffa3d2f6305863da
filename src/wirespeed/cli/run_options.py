"""The options of verbs that start ranks: where these run, what they measure with, how it is shown."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli.options import (
    LONGEST_S,
    Decorator,
    FiniteRange,
    Listed,
    Output,
    all_of,
    color_option,
    flag,
    option,
    send_option,
    switch_of,
    words_of,
)
from wirespeed.errors import UsageError
from wirespeed.launchers import ENGINES

if TYPE_CHECKING:
    from wirespeed.checks.strictness import Strictness
    from wirespeed.launchers.base import Host, Prepared
    from wirespeed.model.lasting_records import Soak
    from wirespeed.model.records import Run
    from wirespeed.plan import Plan


MOST_RANKS = 65_536
"""Of a world; on this machine the memory allows far fewer."""
NAMES = (
    *("on", "cluster", "hosts", "hostfile", "nodes", "ranks_per_node", "python", "interface"),
    *("pass_", "with_", "dry_run"),
)
"""Of the options that say where ranks run, as click calls them."""
_MEANT = {"--cluster": "k8s", "--hosts": "ssh", "--hostfile": "ssh"}

_PLACES: tuple[Decorator, ...] = (
    option(
        "--on",
        "Start the ranks through this engine (wirespeed launch --list tells each one's own "
        "options).  [default: processes of this machine]",
        ENGINES,
    ),
    option(
        "--cluster NAME|FILE",
        "The cluster file whose pods run the ranks (clusters/NAME.yaml, or a path); with --on "
        "k8s. Where it is not deployed, pods are made for this command alone.",
    ),
    option("--hosts A,B:4", "Nodes, with or without slots; with --on."),
    option("--hostfile FILE", "Nodes, one a line: `host`, `host slots=8` or `host:8`; with --on."),
    option(
        "--nodes N",
        "How many nodes, where the engine finds them itself; with --on.",
        click.IntRange(1, MOST_RANKS),
    ),
    option(
        "--ranks-per-node N",
        "Ranks on each node; with --on.  [default: slots, else GPUs, else 1]",
        click.IntRange(1, 1024),
    ),
    option(
        "--python PATH",
        "Python on the nodes, in which wirespeed is installed; with --on.  "
        "[default: the path of this one]",
        completes="files",
    ),
    option(
        "--interface NAME",
        "Network interface for rendezvous and traffic; with --on.",
        completes="interfaces",
    ),
    option(
        "-x pass_ NAME[=VALUE]",
        "Also give this variable to every rank (NCCL_*, GLOO_*, UCX_* and the like go along "
        "anyway); with --on. A secret by name only: -x HF_TOKEN.",
        multiple=True,
        completes="environment",
    ),
    option(
        "--with with_ KEY[=VALUE]",
        "An option of the engine, such as partition=train.",
        multiple=True,
        completes="engine_options",
    ),
    flag(
        "--dry-run", "Print what would run on this machine, as a shell script, and stop; with --on."
    ),
)

placement_options = all_of(*_PLACES)
pod_options = all_of(*_PLACES[2:3], *_PLACES[4:])
"""Those that say something where the engine is k8s and the cluster is known."""

secret_option: Decorator = option(
    "--secret-file FILE",
    "Where another launcher starts the ranks: a file (mode 0600) with a secret, the same for all, "
    "by which they know each other; or WIRESPEED_SECRET holds it.",
)

_OPTIONS: tuple[Decorator, ...] = (
    option(
        "--ranks N",
        "Ranks to start on this machine; with --on, the size of the world. bench and train take "
        "several (2,4,6): a grid.  [default: one a GPU; without GPUs 4, or one a core up to 8]",
        Listed(click.IntRange(1, MOST_RANKS)),
    ),
    option(
        "--backend",
        "auto: nccl if each rank of this machine has a GPU, else gloo. bench takes several.",
        Listed(click.Choice(["auto", "gloo", "nccl"])),
        default="auto",
    ),
    option(
        "--engine",
        "The library whose collectives are called.",
        ["torch", "deepspeed", "mpi4py"],
        default="torch",
    ),
    option("--seed", "Seed of the data that are sent.", click.IntRange(0, 2**32 - 1), default=1),
    option(
        "--timeout",
        "Seconds for one operation; then the run is ended and the rank to blame is named.",
        FiniteRange(1, LONGEST_S),
        default=30.0,
    ),
    option(
        "--startup-timeout",
        "Seconds for all ranks to join.",
        FiniteRange(1, LONGEST_S),
        default=120.0,
    ),
    secret_option,
    option(
        "--inject FAULT",
        "Act out a fault to see it caught, such as flip:rank=1 or kill:rank=2,after=3 "
        "(CONTRIBUTING.md lists them).",
        multiple=True,
    ),
    option(
        "--fail-on",
        "warn: warnings fail the run, too (exit code 1). unjudged: a speed that was only measured "
        "makes the verdict UNKNOWN (exit code 3).",
        ["fail", "warn", "unjudged"],
        default="fail",
    ),
    option(
        "--allow ID,…",
        "These findings, such as PLACE-001, are shown and fail nothing.",
        completes="explained_ids",
    ),
    flag("-q --quiet", "No progress on stderr."),
    flag(
        "-v --verbose",
        "Also each finding by itself, all evidence, and each automatic choice with its reason.",
    ),
    send_option,
    color_option,
    flag("--print-config", "Show the value of each option and where it comes from, and stop."),
)


common_options = all_of(*_OPTIONS, *_PLACES)


@dataclass(slots=True)
class Placement:
    """Where ranks shall run, as the options say."""

    engine: str
    passed: Sequence[str]
    """Words of -x."""
    dry_run: bool
    _asked: Mapping[str, Any]
    """All of the options, as click has them."""
    _prepared: "Prepared | None" = None

    @staticmethod
    def take(values: dict[str, Any], *, default: str | None = None) -> "Placement | None":
        """Take the options out of click's arguments; None for ranks of this machine, as ever.

        UsageError for an option that says nothing without `--on`.
        """
        taken = {name: values.pop(name) for name in NAMES}
        engine = taken.pop("on") or default
        if engine is None:
            given = [switch_of(name) for name, value in taken.items() if value]
            if given:
                from wirespeed.typed_command import TYPED

                raise UsageError(
                    f"{given[0]} says nothing without --on",
                    expected=f"--on {', '.join(ENGINES)}",
                    next=f"{TYPED:--on {_MEANT.get(given[0], 'slurm')}}",
                )
            return None
        if taken["cluster"] is not None and engine != "k8s":
            from wirespeed.typed_command import TYPED

            raise UsageError(
                f"--cluster says nothing with --on {engine}",
                expected="--on k8s",
                next=f"{TYPED:--on k8s}",
            )
        return Placement(engine, taken["pass_"], taken["dry_run"], taken)

    def beside_a_job(self) -> "Placement":
        """One process on each node of a job that runs there; UsageError where none is named."""
        if self.engine == "slurm":
            words = self._asked["with_"]
            if not any(one.startswith("jobid=") for one in words) and not os.environ.get(
                "SLURM_JOB_ID"
            ):
                raise UsageError(
                    "--on slurm, and no job is named",
                    expected="--with jobid=JOB, of a job that runs",
                    next="squeue --me --states=RUNNING",
                )
            overlap = () if any(one.startswith("overlap") for one in words) else ("overlap=yes",)
            asked = {**self._asked, "with_": (*words, *overlap), "ranks_per_node": 1}
            return replace(self, _asked=asked)
        return self

    def prepared(self, ranks: int | None, startup_s: float) -> "Prepared":
        """Let the engine look at this machine and the nodes; once."""
        if self._prepared is None:
            from wirespeed.launchers.base import Job
            from wirespeed.launchers.engines import engine_named
            from wirespeed.launchers.request import forwarded, made_ready, read_options

            engine, asked = engine_named(self.engine), self._asked
            options = read_options(engine, asked["with_"])
            job = Job(
                command=(),
                hosts=self._hosts(),
                nodes=asked["nodes"],
                ranks=ranks,
                ranks_per_node=asked["ranks_per_node"],
                environment=forwarded(os.environ, self.passed),
                directory=str(Path.cwd()),
                python=asked["python"] or "",
                interface=asked["interface"] or "",
                startup_s=startup_s,
                options={**options, **{n: asked[n] for n in ("cluster",) if asked[n] is not None}},
            )
            self._prepared = engine.prepare(made_ready(job, framed=not self.dry_run))
        return self._prepared

    def _hosts(self) -> "tuple[Host, ...]":
        from wirespeed.launchers.request import parse_hosts, read_hostfile

        hosts, file = self._asked["hosts"], self._asked["hostfile"]
        if hosts and file:
            raise UsageError("--hosts and --hostfile", expected="one of them")
        if file:
            return read_hostfile(Path(file))
        return parse_hosts(hosts) if hosts else ()


def written(prepared: "Prepared", form: str, title: str) -> str:
    """What would `run`, the same as `sh` for use by hand, or as `yaml`; secrets are named, not told."""
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
    notes += [f"# {note}" for note in prepared.notes]
    if form == "sh" and len(pieces) == 1 and pieces[0].script:
        text = pieces[0].script
    else:
        text = (as_yaml if form == "yaml" else as_sh)(pieces, title, hidden, before, after)
    first, newline, rest = text.partition("\n")
    return first + newline + "".join(f"{note}\n" for note in notes) + rest


@dataclass(frozen=True, slots=True)
class Resumed:
    """A soak to go on with."""

    path: Path
    """Of its run folder."""
    run: "Run"
    soak: "Soak"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The shared options, as the verbs hand them on."""

    output: Output
    strictness: "Strictness"
    """What fails the run."""
    ranks: int | None = None
    backend: str = "auto"
    engine: str = "torch"
    seed: int = 1
    timeout: float = 30.0
    startup_timeout: float = 120.0
    inject: tuple[str, ...] = ()
    secret_file: str | None = None
    where: Placement | None = None
    """Where ranks run, unless on this machine or where a launcher has put us."""
    resumed: Resumed | None = None
    """The soak to go on with."""
    again: Callable[[str], str] = str
    """Completes the command that a finding proposes."""
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """`ranks` and `backend` where each has several values."""

    def prepared(self) -> "Prepared":
        """What the engine has found; only with `where`."""
        if self.where is None:
            raise UsageError("no engine was named", expected="--on ENGINE")
        return self.where.prepared(self.ranks, self.startup_timeout)

    def plan(self, command: str, **parts: Any) -> "Plan":
        """What `command` measures, and what the shared options say of every plan."""
        from wirespeed.plan import Plan

        return Plan(
            command=command,
            engine=self.engine,
            seed=self.seed,
            op_timeout_s=self.timeout,
            startup_timeout_s=self.startup_timeout,
            faults=self.inject,
            **({"steps": ()} | parts),
        )

    @staticmethod
    def take(values: dict[str, Any], format: str, several: Collection[str] = ()) -> "RunOptions":
        """Take the shared options out of click's keyword arguments.

        several: which of `ranks` and `backend` may have more than one value.
        """
        from wirespeed.checks.strictness import Strictness

        grid = _grid_of(values, several)
        if values["inject"]:
            from wirespeed.rank.faulty_engine import Fault

            for text in values["inject"]:
                Fault.parse(text)
        color, quiet, verbose = (values.pop(name) for name in ("color", "quiet", "verbose"))
        names = ("ranks", "backend", "engine", "seed", "timeout", "startup_timeout", "inject")
        return RunOptions(
            **{name: values.pop(name) for name in names},
            secret_file=values.pop("secret_file", None),
            output=Output(format, color, quiet, verbose, html=values.pop("html", None)),
            strictness=Strictness(values.pop("fail_on"), allowed(values.pop("allow"))),
            where=Placement.take(values),
            grid=grid,
        )


def allowed(text: str | None) -> frozenset[str]:
    """Ids from `PLACE-001,net-003`; UsageError names what is no id of a finding."""
    words = [word.upper() for word in words_of(text)]
    if not words:
        return frozenset()
    from wirespeed.checks.registry import EXPLAINED
    from wirespeed.cli.completion import did_you_mean

    for word in words:
        if word not in EXPLAINED:
            raise UsageError(
                f"--allow {word}: no finding has that id.{did_you_mean(word, EXPLAINED)}",
                expected="ids of findings as they stand at the end of a line, such as PLACE-001",
                next="wirespeed check --list",
            )
    return frozenset(words)


def _grid_of(values: dict[str, Any], several: Collection[str]) -> dict[str, tuple[Any, ...]]:
    """Values of the options that have more than one; of these the first, or the most ranks, stays."""
    found: dict[str, tuple[Any, ...]] = {}
    for name in ("ranks", "backend"):
        if not isinstance(values[name], tuple):
            continue
        if name not in several:
            raise UsageError(
                f"--{name} with several values",
                expected="one value; `bench` measures several --ranks and --backend, `train` several "
                "--ranks and --batch",
            )
        found[name] = values[name]
        values[name] = max(found[name]) if name == "ranks" else found[name][0]
    return found
