"""What click refuses, in the form of our other errors, with what was probably meant.

Imported only where something was refused: comparing words has no part in a start.
"""

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches

import click

from wirespeed.errors import UsageError

__all__ = ["did_you_mean", "in_our_form"]

_COMMAND = re.compile(r"^No such command '(.*)'\.$", re.DOTALL)
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
    command = _COMMAND.match(error.message)
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
    return [by_small[one] for one in get_close_matches(small, by_small, n=_MOST, cutoff=_ALIKE)]


def did_you_mean(word: str, known: Collection[str]) -> str:
    """` Did you mean 'X'?` of what looks like `word`; empty where nothing does."""
    return _did_you_mean(_close(word, known))


def _did_you_mean(meant: Iterable[str]) -> str:
    told = " or ".join(map(repr, meant))
    return f" Did you mean {told}?" if told else ""


def _help(context: click.Context) -> str:
    return f"{context.command_path} --help"
