"""One tree of errors.

    WirespeedError            exit code 4: a bug of ours, when nothing narrower fits
    ├── UsageError            exit code 2: the command, its options or a configuration file are wrong
    │   └── InputError        exit code 2: a file that was given to us is damaged or of another kind
    ├── CannotMeasure         exit code 3: the request was fine, this machine or world cannot answer it
    │   ├── WorldError        exit code 3: the ranks do not form one world
    │   └── StorageError      exit code 3: the run folder cannot be written or read
    ├── NothingRan            exit code 5: the selection left nothing to do
    └── Interrupted           exit code 130: Ctrl-C or a signal

Each carries what was seen, what was expected and the next command, so that a message is never
only "invalid value".
"""

from wirespeed.escaping import harmless_lines

__all__ = [
    "CannotMeasure",
    "InputError",
    "Interrupted",
    "NothingRan",
    "StorageError",
    "UsageError",
    "WirespeedError",
    "WorldError",
]


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


class Interrupted(WirespeedError):
    """Ctrl-C or a signal from outside."""

    exit_code = 130
