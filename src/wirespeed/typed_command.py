"""The command line that this process was started with, for `next:` lines that a person can type.

`{typed}` in a template of a finding or an error (str.format) is that command; what follows a colon
changes it:

    {typed}                         wirespeed check --ranks 4
    {typed:--ranks 2}               with this value in place of the one that was given, if any
    {typed:without --interface}     without this option and its value
    {typed:-- COMMAND}              another command to launch

In a process whose command line nobody has noted it is `wirespeed` alone.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the command."""

    names: frozenset[str]
    takes_value: bool = True


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

    def without(self, words: Sequence[str], name: str) -> list[str]:
        """Return the words without that option and its value."""
        option = self.options.get(name, Option(frozenset({name})))
        kept: list[str] = []
        is_value = False
        for word in words:
            given, equals, _ = word.partition("=")
            if is_value:
                is_value = False
            elif given in option.names:
                is_value = option.takes_value and not equals
            else:
                kept.append(word)
        return kept


class TypedCommand:
    """The command line of this process; it is read only where a text shows it."""

    def __init__(self) -> None:
        self._read: Callable[[], CommandLine] = CommandLine

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
        for name in [*names, *removed.split()]:
            words = line.without(words, name)
        texts = (shlex.join(words), added.strip(), shlex.join(launched))
        return " ".join(filter(None, texts)) + line.comment


TYPED = TypedCommand()
"""Of this process."""
