"""Options that check and bench share, and what they mean together."""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirespeed.cli import suggest
from wirespeed.cli.placement import Placed, Placement, placement_options
from wirespeed.errors import UsageError
from wirespeed.views import FORMATS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from wirespeed.checks.gate import Gate
    from wirespeed.model.lasting_records import Soak
    from wirespeed.model.records import Run
    from wirespeed.plan import Plan


MOST_RANKS = 65_536
"""Of a world; on this machine the memory allows far fewer."""
LONGEST_S = 86_400.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smh])")
_LONGEST_DURATION_S = 30 * 24 * 3600.0

CONTEXT = {
    "help_option_names": ["-h", "--help"],
    "auto_envvar_prefix": "WIRESPEED",
    "max_content_width": 100,
    "show_default": True,
}


class FiniteRange(click.FloatRange):
    """A range that `nan` is outside of, too (it compares false with every bound)."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


def parse_duration(text: str, option: str) -> float:
    """Seconds of `90s`, `30m` or `1h30m`; UsageError for what is no time above 0 with a unit."""
    words = text.strip().lower()
    parts = _PART.findall(words)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if (
        "".join(number + unit for number, unit in parts) != words
        or not 0 < seconds <= _LONGEST_DURATION_S
    ):
        raise UsageError(
            f"{option} {text!r} is no length of time",
            expected="a number with s, m or h, such as 90s, 30m or 1h30m; at most 30 days",
        )
    return seconds


class Listed(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has no [Any]
    """One value, or several with commas between them: each makes a world of a grid.

    One gives the value itself, several a tuple; twice the same counts once.
    """

    def __init__(self, each: "click.ParamType[Any]") -> None:
        self.each, self.name = each, each.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        words = str(value).split(",") if isinstance(value, str) else [value]
        found = tuple(dict.fromkeys(self.each.convert(one, param, ctx) for one in words))
        return found[0] if len(found) == 1 else found

    def get_metavar(self, param: click.Parameter, *args: Any, **context: Any) -> str | None:
        return self.each.get_metavar(param, *args, **context)  # click 8.1 hands no context

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem[str]]":
        return self.each.shell_complete(ctx, param, incomplete)


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

secret_option: Decorator = click.option(
    "--secret-file",
    metavar="FILE",
    shell_complete=suggest.files,
    help="Where another launcher starts the ranks: a file (mode 0600) with a secret, the same for all, "
    "by which they know each other; or WIRESPEED_SECRET holds it.",
)

_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--ranks",
        type=Listed(click.IntRange(1, MOST_RANKS)),
        metavar="N",
        help="Ranks to start on this machine; with --on, the size of the world. bench and train take "
        "several (2,4,6): a grid.  [default: one a GPU; without GPUs 4, or one a core up to 8]",
    ),
    click.option(
        "--backend",
        type=Listed(click.Choice(["auto", "gloo", "nccl"])),
        default="auto",
        help="auto: nccl if each rank of this machine has a GPU, else gloo. bench takes several.",
    ),
    click.option(
        "--engine",
        type=click.Choice(["torch", "deepspeed", "mpi4py"]),
        default="torch",
        help="The library whose collectives are called.",
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**32 - 1),
        default=1,
        help="Seed of the data that are sent.",
    ),
    click.option(
        "--timeout",
        type=FiniteRange(1, LONGEST_S),
        default=30.0,
        help="Seconds for one operation; then the run is ended and the rank to blame is named.",
    ),
    click.option(
        "--startup-timeout",
        type=FiniteRange(1, LONGEST_S),
        default=120.0,
        help="Seconds for all ranks to join.",
    ),
    secret_option,
    click.option(
        "--inject",
        multiple=True,
        metavar="FAULT",
        shell_complete=suggest.faults,
        help="Act out a fault to see it caught, such as flip:rank=1 or kill:rank=2,after=3 "
        "(CONTRIBUTING.md lists them).",
    ),
    click.option(
        "--fail-on",
        type=click.Choice(["fail", "warn"]),
        default="fail",
        help="warn: warnings make NOT READY and exit code 1, too.",
    ),
    click.option(
        "--allow",
        metavar="ID,…",
        shell_complete=suggest.explained_ids,
        help="These findings, such as PLACE-001, are shown and fail nothing.",
    ),
    click.option("-q", "--quiet", is_flag=True, help="No progress on stderr."),
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        help="Also each finding by itself, all evidence, and each automatic choice with its reason.",
    ),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="auto: on a terminal, unless NO_COLOR is set.",
    ),
    click.option(
        "--print-config",
        is_flag=True,
        help="Show the value of each option and where it comes from, and stop.",
    ),
)


def common_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = placement_options(function)
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Output:
    """How the result is shown."""

    format: str
    color: str
    """`auto`, `always` or `never`."""
    quiet: bool
    verbose: bool
    html: str | None = None
    """File to write the page of the run to, beside what is printed."""
    trace: str | None = None
    """File to write the timeline of a training step to."""


def _gate(fail_on: str = "fail", allow: str | None = None) -> "Gate":
    from wirespeed.checks.gate import Gate

    return Gate("warn" if fail_on == "warn" else "fail", _allowed(allow))


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

    ranks: int | None
    backend: str
    engine: str
    seed: int
    timeout: float
    startup_timeout: float
    inject: tuple[str, ...]
    output: Output
    secret_file: str | None = None
    where: Placement | None = None
    """Where ranks run, unless on this machine or where a launcher has put us."""
    resumed: Resumed | None = None
    """The soak to go on with."""
    again: Callable[[str], str] = str
    """Completes the command that a finding proposes."""
    gate: "Gate" = field(default_factory=_gate)
    """What fails the run."""
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """`ranks` and `backend` where each has several values."""

    def placed(self) -> Placed:
        """What the engine has found; only with `where`."""
        if self.where is None:
            raise UsageError("no engine was named", expected="--on ENGINE")
        return self.where.place(self.ranks, self.startup_timeout)

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
        grid = _grid_of(values, several)
        if values["inject"]:
            from wirespeed.rank.faulty_engine import Fault

            for text in values["inject"]:
                Fault.parse(text)
        color, quiet, verbose = (values.pop(name) for name in ("color", "quiet", "verbose"))
        output = Output(format, color, quiet, verbose, html=values.pop("html", None))
        names = ("ranks", "backend", "engine", "seed", "timeout", "startup_timeout", "inject")
        secret_file = values.pop("secret_file", None)
        gate = _gate(values.pop("fail_on"), values.pop("allow"))
        where = Placement.take(values)
        return RunOptions(
            **{n: values.pop(n) for n in names},
            output=output,
            secret_file=secret_file,
            where=where,
            gate=gate,
            grid=grid,
        )


def _allowed(text: str | None) -> frozenset[str]:
    """Ids from `PLACE-001,net-003`; UsageError names what is no id of a finding."""
    words = [word.strip().upper() for word in (text or "").split(",") if word.strip()]
    if not words:
        return frozenset()
    from wirespeed.checks.registry import EXPLAINED
    from wirespeed.cli.suggest import did_you_mean

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


def split_output(values: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """(reductions, format) from `-o`, which is nccl-tests' letter for one and ours for the other."""
    from wirespeed.collectives.collective import REDOPS

    words = [word for value in values for word in value.split(",") if word]
    formats = [word for word in words if word in FORMATS]
    redops = [word for word in words if word in REDOPS]
    unknown = [word for word in words if word not in FORMATS and word not in REDOPS]
    if unknown:
        raise UsageError(
            f"-o {unknown[0]!r} is neither an output format nor a reduction",
            expected=f"a format ({', '.join(FORMATS)}) or a reduction ({', '.join(REDOPS)})",
        )
    if len(set(formats)) > 1:
        raise UsageError(f"two output formats: {' and '.join(formats)}", expected="one of them")
    return tuple(dict.fromkeys(redops)), formats[0] if formats else "table"
