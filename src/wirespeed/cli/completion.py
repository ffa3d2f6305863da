"""`wirespeed completion`: the scripts that make a shell complete our words, and the answers to them.

At each TAB a script runs `wirespeed` with _WIRESPEED_COMPLETE=SHELL_complete, and the line up to the
cursor in COMP_LINE. The answer has one line for each offer: its kind (`plain`, `file`, `dir`), the
whole word that would stand at the cursor, and a line about it, with tabs between them.

It comes in milliseconds and from this machine alone: no cluster is asked, no run is read whole. Lists
(`a,b,c`) are completed at their last name. At the end: what was probably meant, of words that click
refuses.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import TypeAlias

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from wirespeed.cli.options import argument, command
from wirespeed.errors import UsageError, WirespeedError

VARIABLE = "_WIRESPEED_COMPLETE"
SHELLS = ("bash", "zsh", "fish")

_SAFE = re.compile(r"[\w.,:/@%+=-]+")
"""What a shell takes as one plain word. Names of files may be anything: others are not offered."""
_OPTION = re.compile(r"--?[A-Za-z][\w-]*=")
_LONGEST_HELP = 72


@command()
@argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete verbs, options, runs, clusters and names.

    A package that is installed for the whole system brings the scripts to where the shells look for
    them; in a virtual environment they have to be named.

    \f
    Examples:
      eval "$(wirespeed completion bash)"          in ~/.bashrc
      source <(wirespeed completion zsh)           in ~/.zshrc, behind compinit
      wirespeed completion fish | source           in ~/.config/fish/config.fish

    Or once, into a file that the shell finds by itself:
      wirespeed completion bash > ~/.local/share/bash-completion/completions/wirespeed
      wirespeed completion zsh > ~/.zfunc/_wirespeed           where ~/.zfunc is in fpath
      wirespeed completion fish > ~/.config/fish/completions/wirespeed.fish
    """
    click.echo(script(shell), nl=False)


def script(shell: str) -> str:
    """Of one of SHELLS."""
    return (Path(__file__).parent / "shell" / f"wirespeed.{shell}").read_text("utf-8")


def answer(root: click.Command, environ: Mapping[str, str]) -> int:
    """Print what a script has asked for; the exit code. A name that cannot be looked up is no offer."""
    shell, _, asked = environ[VARIABLE].partition("_")
    if shell not in SHELLS or asked not in ("source", "complete"):
        return 2
    if asked == "source":
        click.echo(script(shell), nl=False)
    elif text := Answer(root, environ, shell=shell).complete():
        click.echo(text.encode("utf-8", "surrogateescape"))
    return 0


class Answer(ShellComplete):
    """One question of a shell, and click's answer to it in the form that our scripts read."""

    name = "wirespeed"

    def __init__(self, root: click.Command, environ: Mapping[str, str], *, shell: str) -> None:
        super().__init__(root, {}, "wirespeed", VARIABLE)
        self._line = environ.get("COMP_LINE", "")
        self._breaks = environ.get("COMP_WORDBREAKS", "") if shell == "bash" else ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words in front of the cursor, without `wirespeed`, and the one that has been begun."""
        words = split_arg_string(self._line)
        begun = words.pop() if len(words) > 1 and not self._line[-1:].isspace() else ""
        return words[1:], begun

    def get_completions(self, args: list[str], incomplete: str) -> "list[CompletionItem[str]]":
        # click answers `--level=qu` with `quick`, and shells replace the whole word.
        option = match[0] if (match := _OPTION.match(incomplete)) and "--" not in args else ""
        try:
            found = super().get_completions(args, incomplete)
        except (WirespeedError, click.ClickException, OSError):
            return []
        offered = []
        for item in found:
            if item.type == "plain":
                item.value = option + item.value
                if not _SAFE.fullmatch(item.value):
                    continue
                item.value = item.value[self._kept(incomplete) :]
            offered.append(item)
        return offered

    def _kept(self, incomplete: str) -> int:
        """Characters that bash does not replace: up to the last `=` or `:` of a word."""
        ends = (incomplete.rfind(char) for char in self._breaks if char in "=:")
        return max(ends, default=-1) + 1

    def format_completion(self, item: "CompletionItem[str]") -> str:
        says = "".join(c for c in " ".join((item.help or "").split()) if c.isprintable())
        short = says if len(says) <= _LONGEST_HELP else says[: _LONGEST_HELP - 1] + "…"
        value = item.value if item.type == "plain" else "-"
        return f"{item.type}\t{value}\t{short}"


# What may be offered: each function is the `completes=` of an option or argument.

Item: TypeAlias = "CompletionItem[str]"
Suggest: TypeAlias = "Callable[[click.Context, click.Parameter, str], list[Item]]"
Named = Iterable[tuple[str, str]]
"""Names, each with a line about it or ""."""

_MOST_RUNS = 100
"""The newest ones: nobody reads more, and each costs a look into its folder."""
_HEAD = 2048
_COMMAND = re.compile(r'"command": ?"([a-z][a-z-]{0,20})"')
_VERDICT = re.compile(r'"verdict": ?"([A-Z][A-Z ]{0,20})"')
_GROUPS = {
    "all": "the whole world at once",
    "nodes": "one group a node",
    "rails": "ranks of the same place on each node",
    "pairs": "0 with 1, 2 with 3 …",
    "every-2": "ranks that are equal modulo 2; any number",
}
_IMPROVEMENTS = {
    "nic=2x": "twice the bandwidth between nodes",
    "latency=0.5x": "half the time of each step",
    "rdma": "instead of TCP",
}


def _from(known: Callable[[], Named]) -> Suggest:
    """Offers the names, whatever else stands on the line."""

    @wraps(known)
    def offer(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Item]:
        return offered(known(), incomplete)

    return offer


def files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Item]:
    """The shell completes paths itself."""
    return [CompletionItem(incomplete, type="file")]


def folders(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Item]:
    return [CompletionItem(incomplete, type="dir")]


command_line: Suggest = files
"""Of a command behind `--`: most often a script."""


def runs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Item]:
    """Ids of stored runs, the newest first, and `last`; and paths, since those are taken too."""
    try:
        known = _runs(incomplete.rpartition(",")[2])
    except (OSError, WirespeedError):
        known = []
    return offered(known, incomplete) + files(context, parameter, incomplete)


def nodes(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Item]:
    """Nodes of stored runs, as far as they are known in a moment."""
    from wirespeed.runs.index import Index

    try:
        with Index.opened(seconds=0.2) as index:
            return offered(_plain(index.hosts()), incomplete)
    except (OSError, WirespeedError):
        return []


def clusters(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Item]:
    """Cluster files of this folder, by the name that means them; and paths."""
    from wirespeed.clusters.reading import known_files, stem

    named = ((stem(path), str(path)) for path in known_files())
    return offered(named, incomplete) + files(context, parameter, incomplete)


@_from
def baselines() -> Named:
    from wirespeed.runs.named_files import list_baselines

    return _plain(list_baselines())


@_from
def figure_sets() -> Named:
    """Names of `wirespeed reference add`."""
    from wirespeed.runs.named_files import own_sets

    return _plain(own_sets())


@_from
def presets() -> Named:
    """Fabrics of cluster files."""
    from wirespeed.clusters.presets import preset_names

    return _plain(preset_names())


def operations(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Item]:
    """Collectives; for `bench` also `all`, and what devices do by themselves."""
    from wirespeed.collectives.catalogue import CATALOGUE

    devices = (("gemm", "products"), ("memory", "its memory"), ("copy", "between memories"))
    several = [("all", "each of them"), *devices] if context.info_name == "bench" else []
    return offered([*_plain(CATALOGUE), *several], incomplete)


def measured(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Item]:
    """What a run has figures of: collectives and strategies."""
    return operations(context, parameter, incomplete) + strategies(context, parameter, incomplete)


@_from
def strategies() -> Named:
    from wirespeed.training.strategies.registry import STRATEGIES

    return ((info.name, info.says) for info in STRATEGIES.values())


@_from
def models() -> Named:
    from wirespeed.training.models.catalogue import model_names

    return _plain(model_names())


@_from
def shapes() -> Named:
    from wirespeed.training.models.shapes import SHAPES

    return _plain(SHAPES)


@_from
def check_ids() -> Named:
    """What `check --only` takes: families, prefixes and ids."""
    from wirespeed.checks.registry import CHECKS

    families = {check.family: "all of this family" for check in CHECKS.values()}
    prefixes = {id.split("-")[0]: "all of this prefix" for id in CHECKS}
    ids = {check.id: check.title for check in CHECKS.values()}
    return (families | prefixes | ids).items()


@_from
def explained_ids() -> Named:
    """Every id that a finding may have."""
    from wirespeed.checks.registry import EXPLAINED

    return ((check.id, check.title) for check in EXPLAINED.values())


@_from
def rules() -> Named:
    """Ids of `diagnose`."""
    from wirespeed.diagnose.rules import all_rules

    return ((rule.id, re.sub(r"\{\w+\}", "…", rule.sentence)) for rule in all_rules())


@_from
def data_types() -> Named:
    from wirespeed.collectives.collective import DTYPES

    return _plain(DTYPES)


@_from
def formats_and_reductions() -> Named:
    """Of `bench -o`, which means both."""
    from wirespeed.collectives.collective import REDOPS
    from wirespeed.views import FORMATS

    return [*((name, "format") for name in FORMATS), *((name, "reduction") for name in REDOPS)]


@_from
def groups() -> Named:
    return _GROUPS.items()


@_from
def improvements() -> Named:
    return _IMPROVEMENTS.items()


def faults(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Item]:
    from wirespeed.rank.faulty_engine import (
        CALL_FAULTS,
        COMPUTE_FAULTS,
        DATA_FAULTS,
        PROCESS_FAULTS,
        TRAINING_FAULTS,
    )

    training = context.info_name == "train"
    of_calls = DATA_FAULTS | CALL_FAULTS | COMPUTE_FAULTS
    known = PROCESS_FAULTS | (TRAINING_FAULTS if training else of_calls)
    return offered(((f"{name}:rank=1", says) for name, says in known.items()), incomplete)


@_from
def interfaces() -> Named:
    """Of this machine; the nodes' are usually called alike."""
    return _plain(sorted(path.name for path in Path("/sys/class/net").iterdir()))


@_from
def environment() -> Named:
    """Names of exported variables; never their values."""
    return _plain(sorted(os.environ))


def engine_options(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[Item]:
    """Of `--with`: those of the engine that `--on` has named."""
    from wirespeed.launchers.engines import engine_named

    if not (on := context.params.get("on")):
        return []
    known = engine_named(on).options
    named = ((one.name if one.flag else f"{one.name}=", one.help) for one in known)
    return offered(named, incomplete)


def _plain(names: Iterable[str]) -> Named:
    return ((name, "") for name in names)


def offered(known: Named, incomplete: str) -> list[Item]:
    """Those that begin with the last name of a list `a,b,c` and are not in it yet."""
    before, comma, last = incomplete.rpartition(",")
    taken = set(before.split(","))
    return [
        CompletionItem(f"{before}{comma}{name}", help=says or None)
        for name, says in known
        if name.lower().startswith(last.lower()) and name not in taken
    ]


def _runs(start: str) -> list[tuple[str, str]]:
    """Ids and what each is: at most _MOST_RUNS, the newest first; before them `last`."""
    from wirespeed.runs.place import FOLDER_NAME, runs_home

    place = runs_home()
    with os.scandir(place) as entries:
        names = [entry.name for entry in entries if FOLDER_NAME.fullmatch(entry.name)]
    if not names:
        return []
    ids = [(name.rpartition("-")[2], name) for name in sorted(names, reverse=True)]
    matching = [(id, place / name) for id, name in ids if id.startswith(start)][:_MOST_RUNS]
    return [("last", "the newest run"), *((id, _about(folder)) for id, folder in matching)]


def _about(folder: Path) -> str:
    """`2026-11-03 10:11 check READY`, as far as it can be read."""
    day, time = folder.name[:8], folder.name[9:13]
    words = [f"{day[:4]}-{day[4:6]}-{day[6:]} {time[:2]}:{time[2:]}", *_named(folder / "run.json")]
    return " ".join(words)


def _named(document: Path) -> list[str]:
    """The command and the verdict, which stand in the first lines of a run's JSON."""
    from wirespeed.node.reading import opened

    try:
        with opened(document, links=False) as handle:
            head = os.read(handle, _HEAD).decode("utf-8", "replace")
    except OSError:
        return []
    found = (pattern.search(head) for pattern in (_COMMAND, _VERDICT))
    return [match[1] for match in found if match]


# What click refuses, in the form of our other errors, with what was probably meant.
#
# Imported only where something was refused: comparing words has no part in a start.

_UNKNOWN_COMMAND = re.compile(r"^No such command '(.*)'\.$", re.DOTALL)
_VALUE = re.compile(r"^'(.*)' is not (?:one of )?'", re.DOTALL)
"""Words of click (8.1 and later), which hands on neither by itself."""
_NO_ARGUMENTS: tuple[type[click.UsageError], ...] = (
    (found,) if (found := getattr(click.exceptions, "NoArgsIsHelpError", None)) else ()
)
"""Since click 8.2."""
_MOST = 3
_ALIKE = 0.7
"""Of difflib's ratio: a letter more, less or other in a short word."""


def in_our_form(error: click.UsageError) -> UsageError | None:
    """What was seen, what was expected and the next command; None: click shows the help instead."""
    context = error.ctx
    if isinstance(error, _NO_ARGUMENTS):
        return None
    if context is None:
        return UsageError(error.format_message())
    if isinstance(error, click.NoSuchOption):
        return _option(error.option_name, context)
    if isinstance(error, click.BadParameter):
        value = _VALUE.match(error.message)
        if value and error.param is not None and isinstance(error.param.type, click.Choice):
            return _value(value[1], error.param, context)
    command = _UNKNOWN_COMMAND.match(error.message)
    if command and isinstance(context.command, click.Group):
        return _verb(command[1], context.command, context)
    usage = " ".join(context.get_usage().split()).removeprefix("Usage: ")
    return UsageError(error.format_message(), expected=usage, next=_help(context))


def _verb(word: str, group: click.Group, context: click.Context) -> UsageError:
    known = group.list_commands(context)
    meant = _close(word, known)
    path = context.command_path
    return UsageError(
        f"No such command {word!r}.{_did_you_mean(meant)}",
        expected="one of " + ", ".join(known),
        next=f"{path} {meant[0]}" if meant else _help(context),
    )


def _option(word: str, context: click.Context) -> UsageError:
    shown = (
        one for one in context.command.get_params(context) if not getattr(one, "hidden", False)
    )
    known = [
        name
        for one in shown
        if isinstance(one, click.Option)
        for name in (*one.opts, *one.secondary_opts)
    ]
    return UsageError(
        f"No such option {word!r}.{_did_you_mean(_close(word, known))}",
        expected=f"an option of {context.command_path}",
        next=_help(context),
    )


def _value(word: str, parameter: click.Parameter, context: click.Context) -> UsageError:
    known = [str(one) for one in getattr(parameter.type, "choices", ())]
    meant = _close(word, known)
    option = f" {parameter.opts[-1]}" if isinstance(parameter, click.Option) else ""
    return UsageError(
        f"{word!r} is no value of {parameter.get_error_hint(context)}.{_did_you_mean(meant)}",
        expected="one of " + ", ".join(known),
        next=f"{context.command_path}{option} {meant[0]}" if meant else _help(context),
    )


def _close(word: str, known: Collection[str]) -> list[str]:
    """The nearest first."""
    by_small = {one.lower().lstrip("-"): one for one in known}
    small = word.lower().lstrip("-")
    from difflib import get_close_matches

    return [by_small[one] for one in get_close_matches(small, by_small, n=_MOST, cutoff=_ALIKE)]


def did_you_mean(word: str, known: Collection[str]) -> str:
    """` Did you mean 'X'?` of what looks like `word`; empty where nothing does."""
    return _did_you_mean(_close(word, known))


def _did_you_mean(meant: Iterable[str]) -> str:
    told = " or ".join(map(repr, meant))
    return f" Did you mean {told}?" if told else ""


def _help(context: click.Context) -> str:
    return f"{context.command_path} --help"
