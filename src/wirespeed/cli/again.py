"""The command that a finding proposes, with the options of the one that was typed.

`next: wirespeed train --bucket-mb 0.6,25` of `wirespeed train --ranks 2 --model small` is of use only
with that model on those ranks. The same verb keeps every option that it does not set anew; another verb
keeps those that say where ranks run. How the result was shown, and faults acted out, are left out.
"""

import shlex
from collections.abc import Callable, Iterator
from typing import Any

import click

from wirespeed.cli.where import where_options
from wirespeed.world.redact import TAKEN_OUT, redact_words

__all__ = ["with_typed"]

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

    options: list[click.Parameter] = where_options(bare).__click_params__  # type: ignore[attr-defined]
    return {str(one.name) for one in options}


def _written(one: click.Parameter, value: Any) -> Iterator[str]:
    name = max(one.opts, key=len)
    if isinstance(value, bool):
        yield name if value else max(one.secondary_opts, key=len, default=name)
        return
    for each in value if isinstance(value, (tuple, list)) else (value,):
        yield name
        yield f"{each:g}" if isinstance(each, float) else str(each)
