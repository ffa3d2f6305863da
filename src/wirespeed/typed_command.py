"""The command line that this process was started with, for `next:` lines that a person can type.

`{typed}` in a template of a finding or an error (str.format) is that command; what follows a colon
changes it:

    {typed}                         wirespeed check --ranks 4
    {typed:--ranks 2}               with this value in place of the one that was given, if any
    {typed:without --interface}     without this option and its value
    {typed:without --with=batch}    without this value of an option that may be given more than once
    {typed:-- COMMAND}              another command to launch

In a process whose command line nobody has noted it is `wirespeed` alone.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wirespeed.errors import COMMAND_LINE


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the command."""

    names: frozenset[str]
    takes_value: bool = True
    is_multiple: bool = False
    """It may be given more than once, so that another value takes no other's place."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line that may be shown."""

    words: Sequence[str] = ("wirespeed",)
    """Without what looks secret."""
    comment: str = ""
    """Follows the command where it is shown."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """By each of their names."""

    def split(self) -> tuple[list[str], list[str]]:
        """Return our own words, and those of the command to launch with the `--` before it."""
        words = list(self.words)
        place = words.index("--") if "--" in words else len(words)
        return words[:place], words[place:]

    def without(self, words: Sequence[str], removed: str) -> list[str]:
        """Return the words without an option and its value; `NAME=VALUE`: only where it begins so."""
        name, _, wanted = removed.partition("=")
        option = self.options.get(name, Option(frozenset({name})))
        kept: list[str] = []
        left = iter(words)
        for word in left:
            given, equals, value = word.partition("=")
            if given not in option.names:
                kept.append(word)
                continue
            taken = [word]
            if option.takes_value and not equals:
                value = next(left, "")
                taken.append(value)
            if not value.startswith(wanted):
                kept += taken
        return kept

    def is_multiple(self, name: str) -> bool:
        return name in self.options and self.options[name].is_multiple


def _noted() -> CommandLine:
    """Return the command line that the program has noted; without one `wirespeed` alone."""
    found: CommandLine = COMMAND_LINE[-1]() if COMMAND_LINE else CommandLine()
    return found


class TypedCommand:
    """The command line of this process; it is read only where a text shows it."""

    def __init__(self) -> None:
        self._read: Callable[[], CommandLine] = _noted

    def note(self, read: Callable[[], CommandLine]) -> None:
        """Keep what returns the command line."""
        self._read = read

    def __str__(self) -> str:
        return format(self)

    def __format__(self, changes: str) -> str:
        line = self._read()
        words, launched = line.split()
        if changes.startswith("-- "):
            return f"{shlex.join(words)} {changes}{line.comment}"
        added, _, removed = changes.partition("without ")
        names = [word.partition("=")[0] for word in added.split() if word.startswith("-")]
        replaced = [name for name in names if not line.is_multiple(name)]
        for name in [*replaced, *removed.split()]:
            words = line.without(words, name)
        texts = (shlex.join(words), added.strip(), shlex.join(launched))
        return " ".join(filter(None, texts)) + line.comment


TYPED = TypedCommand()
"""Of this process."""
