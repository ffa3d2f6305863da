"""One tree of errors.

    WirespeedError            exit code 4: a bug of ours, when nothing narrower fits
    ├── UsageError            exit code 2: the command, its options or a configuration file are wrong
    │   └── InputError        exit code 2: a file that was given to us is damaged or of another kind
    ├── CannotMeasure         exit code 3: the request was fine, this machine or world cannot answer it
    │   ├── WorldError        exit code 3: the ranks do not form one world
    │   └── StorageError      exit code 3: the run folder cannot be written or read
    ├── NothingRan            exit code 5: the selection left nothing to do
    ├── CommandProblem        exit code 127 or 126: a command to launch is not there, or cannot run
    └── Interrupted           exit code 130: Ctrl-C or a signal

Each carries what was seen, what was expected and the next command, so that a message is never
only "invalid value". At the end: text from elsewhere (files, nodes, pods, logs), made harmless for a
terminal that shows it.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "CannotMeasure",
    "CommandProblem",
    "InputError",
    "Interrupted",
    "NothingRan",
    "StorageError",
    "UsageError",
    "WirespeedError",
    "WorldError",
]


COMMAND_LINE: list[Callable[[], Any]] = []
"""What returns the command line of this process, once one is noted: `next` shows it (typed_command.py).
It stands here, since every command imports this module, and few show their own command line."""


class WirespeedError(Exception):
    """Base of the tree; `exit_code` is what the process ends with."""

    exit_code = 4

    def __init__(self, saw: str, *, expected: str = "", next: str = "") -> None:
        super().__init__(saw)
        self.saw = saw
        self.expected = expected
        self.next = next

    def to_json(self) -> dict[str, object]:
        """What crosses from a rank to the session."""
        return {
            "saw": self.saw,
            "expected": self.expected,
            "next": self.next,
            "exit_code": self.exit_code,
        }

    def __str__(self) -> str:
        lines = [self.saw]
        if self.expected:
            lines.append(f"  expected  {self.expected}")
        if self.next:
            lines.append(f"  next      {self.next}")
        return harmless_lines("\n".join(lines))


class UsageError(WirespeedError):
    """The command, its options or a configuration file are wrong."""

    exit_code = 2


class InputError(UsageError):
    """A file that was given to us is damaged or of another kind than expected."""


class CannotMeasure(WirespeedError):
    """The request was fine, but this machine or world cannot answer it."""

    exit_code = 3


class WorldError(CannotMeasure):
    """The ranks do not form one world."""


class StorageError(CannotMeasure):
    """The run folder cannot be written or read."""


class NothingRan(WirespeedError):
    """The selection left nothing to do."""

    exit_code = 5


class CommandProblem(WirespeedError):
    """A command to launch is not there (127) or cannot be run (126), by the codes of shells."""

    exit_code = 127

    def __init__(self, saw: str, exit_code: int, *, expected: str = "", next: str = "") -> None:
        super().__init__(saw, expected=expected, next=next)
        self.exit_code = exit_code


class Interrupted(WirespeedError):
    """Ctrl-C or a signal from outside."""

    exit_code = 130


@contextmanager
def refused_as(
    kind: type[WirespeedError], what: str, *, expected: str = "", next: str = ""
) -> Iterator[None]:
    """What the system refuses within is raised as that error: `what: Permission denied`."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}", expected=expected, next=next) from error


# Text from elsewhere.

# Whatever steers a terminal: C0 and C1 controls, and the marks that turn text around.
_STEERS = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]+"
)
_STEERS_JSON = re.compile(_STEERS.pattern.replace(r"\x00-\x1f", ""))
_FORMULA = ("=", "+", "-", "@")


def harmless(text: str) -> str:
    """One line of it, without what steers a terminal, in UTF-8 whatever it held."""
    return _STEERS.sub(" ", text).encode("utf-8", "replace").decode()


def harmless_lines(text: str) -> str:
    """The same, line by line."""
    return "\n".join(map(harmless, text.split("\n")))


def escaped(text: str) -> str:
    """JSON with the same meaning, in which nothing steers a terminal."""
    if text.isascii() and "\x7f" not in text:
        return text
    return _STEERS_JSON.sub(lambda told: "".join(f"\\u{ord(one):04x}" for one in told[0]), text)


def unformulated(text: str) -> str:
    """A cell for spreadsheets: what they would take for a formula gets an apostrophe in front."""
    clean = harmless(text)
    return f"'{clean}" if clean.lstrip().startswith(_FORMULA) else clean
