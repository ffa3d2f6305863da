"""How commands, their options and arguments are declared, and the kinds of values that several take."""

import inspect
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from wirespeed.model.records import ToldShape


Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

LONGEST_S = 86_400.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")

PLAIN: Mapping[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
CONTEXT: Mapping[str, Any] = {**PLAIN, "auto_envvar_prefix": "WIRESPEED", "show_default": True}
"""Of verbs whose options can be set by variables, too."""
_COMPLETED = {
    "FAULT": "faults",
    "FILE": "files",
    "FOLDER": "folders",
    "NAME|FILE": "clusters",
    "OP": "operations",
    "PRESET": "presets",
    "REF": "runs",
    "RUN": "runs",
    "SIDE": "runs",
}
"""What completes a value (completion.py), by what it is called in the help without brackets and `…`."""


def command(
    name: str | None = None,
    of: click.Group | None = None,
    told: Mapping[str, str] | None = None,
    context_settings: Mapping[str, Any] = PLAIN,
) -> Callable[[Callable[..., Any]], click.Command]:
    """A command, of that group if one is named, whose docstring is its help.

    What stands below a form feed there (examples, exit codes) comes after the options, line by line.
    told: texts by the `{name}` that they take the place of there.
    """
    make: Any = click.command if of is None else of.command

    def made(function: Callable[..., Any]) -> click.Command:
        words = _help_of(function)
        for key, text in (told or {}).items():
            words["epilog"] = words["epilog"].replace(f"{{{key}}}", text)
        command: click.Command = make(name, **words, context_settings=context_settings)(function)
        return command

    return made


def group(
    cls: type[click.Group] = click.Group, context_settings: Mapping[str, Any] = PLAIN
) -> Callable[[Callable[..., Any]], click.Group]:
    """The same of a command with commands of its own."""

    def made(function: Callable[..., Any]) -> click.Group:
        words: dict[str, Any] = {**_help_of(function), "context_settings": context_settings}
        return click.group(cls=cls, **words)(function)

    return made


def _help_of(function: Callable[..., Any]) -> dict[str, str]:
    says, _, below = inspect.cleandoc(function.__doc__ or "").partition("\f")
    paragraphs = filter(None, below.strip("\n").split("\n\n"))
    return {"help": says.rstrip(), "epilog": "\n\n".join(f"\b\n{one}" for one in paragraphs)}


def option(
    names: str, help: str | None = None, kind: Any = None, completes: str = "", **more: Any
) -> Decorator:
    """`-b --min-bytes SIZE`: switches, and what the value is called in the help.

    A word in small letters is the parameter's name, where that is none of the switches'. kind: click's
    type of the value, or the words that it may be. completes: the function of completion.py that
    offers values, where what it is called does not tell. more: as click takes it.
    """
    words = names.split()
    called = [word for word in words if word[0] != "-" and not word.islower()]
    kept = [word for word in words if word not in called]
    kind = click.Choice(kind) if isinstance(kind, (list, tuple)) else kind
    settings = {**_called("".join(called), completes), **more}
    return click.option(*kept, help=help, type=kind, **settings)


def flag(names: str, help: str | None = None, **more: Any) -> Decorator:
    """`-q --quiet`: it is given, or not."""
    return click.option(*names.split(), help=help, is_flag=True, **more)


def argument(names: str, completes: str = "", **more: Any) -> Decorator:
    """`refs RUN…`: the parameter's name, and what it is called in the help."""
    name, _, called = names.partition(" ")
    return click.argument(name, **_called(called, completes), **more)


def _called(metavar: str, completes: str) -> dict[str, Any]:
    completes = completes or _COMPLETED.get(metavar.strip("[]….,"), "")

    def offer(context: click.Context, one: click.Parameter, begun: str) -> Any:
        return getattr(import_module("wirespeed.cli.completion"), completes)(context, one, begun)

    return {"metavar": metavar or None, "shell_complete": offer if completes else None}


def all_of(*options: Decorator) -> Decorator:
    """These options, in this order, as one decorator."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for one in reversed(options):
            function = one(function)
        return function

    return decorate


class FiniteRange(click.FloatRange):
    """A range that `nan` is outside of, too (it compares false with every bound)."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


def words_of(text: str | None) -> list[str]:
    """Of a list with commas, without blanks; none of None."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def switch_of(parameter: str) -> str:
    """How the command line spells a parameter: `--bucket-mb` of `bucket_mb`, `-x` of `pass_`."""
    return "-x" if parameter == "pass_" else "--" + parameter.strip("_").replace("_", "-")


def parse_duration(text: str, option: str, most_days: int = 30) -> float:
    """Seconds of `90s`, `30m` or `1h30m`; UsageError for what is no time above 0 with a unit."""
    words = text.strip().lower()
    parts = _PART.findall(words)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if (
        "".join(number + unit for number, unit in parts) != words
        or not 0 < seconds <= most_days * _UNITS["d"]
    ):
        raise UsageError(
            f"{option} {text!r} is no length of time",
            expected=f"a number with s, m, h or d, such as 90s or 1h30m; at most {most_days:,} days",
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


def percent(value: object) -> float:
    """Of `5%` or `5` the share 0.05: the kind of an option."""
    try:
        number = float(str(value).strip().removesuffix("%"))
    except ValueError:
        number = 0.0
    if not 0.01 <= number <= 1000:
        raise click.BadParameter(f"{value!r} is not a percentage from 0.01% to 1000%, such as 5%.")
    return number / 100


color_option = option(
    "--color",
    "auto: on a terminal, unless NO_COLOR is set.",
    ["auto", "always", "never"],
    default="auto",
)


def _read_there(ctx: click.Context, _: click.Parameter, url: str | None) -> None:
    """What this command reads of stored runs is a common store's."""
    if url is None:
        return
    if url == "common":
        url = os.environ.get("WIRESPEED_STORE") or ""
        if not url:
            raise UsageError(
                "--store common, but no common store is named",
                expected="WIRESPEED_STORE, or `store: postgresql://…` in wirespeed.yaml",
            )
    from wirespeed.fleet.common_store import reading_common_store

    ctx.with_resource(reading_common_store(url))


def _send_there(_context: click.Context, _: click.Parameter, url: str | None) -> None:
    if url:
        from wirespeed.runs.unsent import VARIABLE, checked_address

        os.environ[VARIABLE] = checked_address(url)


store_option = option(
    "--store URL",
    "Read runs from this common store (postgresql://…), not this machine; `common`: the one that "
    "WIRESPEED_STORE or wirespeed.yaml names.",
    callback=_read_there,
    expose_value=False,
    allow_from_autoenv=False,
)
"""Of what reads stored runs by `runs.store.find` and `opened`."""
send_option = option(
    "--store URL",
    "Send the run to this common store (postgresql://…), too.  [default: what WIRESPEED_STORE or "
    "wirespeed.yaml names]",
    callback=_send_there,
    expose_value=False,
)
"""Of what stores a run."""


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


_INTERCONNECTS = ("nvlink", "xgmi", "pcie", "memory", "mnnvl", "ib", "roce", "efa", "tcpxo", "tcp")


shape_options = all_of(
    option("--gpu NAME", "Such as H100, or what nvidia-smi -L says; `cpu`: none."),
    option("--gpus-per-node", "Ranks a node.", click.IntRange(1, 4096)),
    option("--nodes", "Nodes.", click.IntRange(1, 65_536)),
    option(
        "--interconnect", "What carries the traffic between nodes, or within one.", _INTERCONNECTS
    ),
    option("--nics NxGbit/s", "Network cards of a node, such as 8x400."),
)
"""What nodes a figure is of."""


def told_by(values: dict[str, Any]) -> "ToldShape | None":
    """What the shape options say; None where none was given."""
    from wirespeed.model.records import ToldShape

    names = ("gpu", "gpus_per_node", "nodes", "interconnect")
    given = {name: values[name] for name in names if values[name]}
    if values["nics"]:
        given["nics"], given["nic_Gbitps"] = _cards(values["nics"])
    return ToldShape(**given, why="as told") if given else None


def _cards(text: str) -> tuple[int, float]:
    count, _, rate = text.lower().partition("x")
    try:
        cards = int(count), float(rate)
    except ValueError:
        cards = 0, 0.0
    if not (0 < cards[0] <= 1024 and 0 < cards[1] < 1e6):
        raise UsageError(
            f"--nics {text!r} is no number of cards", expected="such as 8x400 (Gbit/s)"
        )
    return cards
