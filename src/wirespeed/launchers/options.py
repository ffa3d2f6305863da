"""`--with KEY=VALUE`: checked against what the engine knows."""

from collections.abc import Sequence
from difflib import get_close_matches

from wirespeed.errors import UsageError
from wirespeed.launchers.base import Engine

__all__ = ["read_options"]

YES = "yes"


def read_options(engine: Engine, words: Sequence[str]) -> dict[str, str]:
    """The engine's options by name; a flag's value is `yes`. UsageError names the nearest key."""
    known = {option.name: option for option in engine.options}
    options: dict[str, str] = {}
    for word in words:
        key, _, value = word.partition("=")
        option = known.get(key)
        if option is None:
            raise _unknown(engine, key)
        if option.flag and value not in ("", YES):
            raise UsageError(f"--with {word}: {key} takes no value", expected=f"--with {key}")
        if not option.flag and not value:
            raise UsageError(f"--with {word}: {key} has no value", expected=f"--with {key}=…")
        if key in options:
            raise UsageError(f"--with {key} twice", expected="one value")
        options[key] = YES if option.flag else value
    return options


def _unknown(engine: Engine, key: str) -> UsageError:
    names = [option.name for option in engine.options]
    near = get_close_matches(key, names, n=1)
    return UsageError(
        f"--on {engine.name} has no option {key!r}" + (f"; do you mean {near[0]}?" if near else ""),
        expected=", ".join(names) or "no --with at all",
        next="wirespeed launch --list",
    )
