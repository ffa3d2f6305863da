r"""Frames: what a rank's wrapper says on its stdout, one short line of ASCII each.

    \x1e TOKEN RANK NODE KIND NUMBER "TEXT" \n

Engines merge the output of many ranks into one stream, some of them at any byte of a long line, and
put words of their own before each line. So a frame has at most `BLOCK` bytes (a pipe keeps a write
of up to 4,096 bytes whole), is recognised wherever in a line it starts, and carries a number, so that
a lost one is noticed. Padded to exactly `BLOCK` bytes it also survives engines that forward blocks
without regard for lines (Open MPI, Hydra, and Slurm where a rank's output ends).

`Lines` cuts any stream of bytes into lines, `write_all` writes what a pipe takes in parts.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MARK = "\x1e"
BLOCK = 512
_NODE_MOST = 64
VARIABLE = "WIRESPEED_FRAMES"
"""Tells the wrapper to frame: `TOKEN` or `TOKEN,pad`. Without it the command's output is its own."""

HELLO, OUT, OUT_PART, ERR, ERR_PART, EXIT = "h", "o", "O", "e", "E", "x"
"""Started (text: pid); a line of stdout or stderr, or a part of one that goes on; ended (text:
return code, negative for a signal; `ASKED` behind it where the wrapper had been told to end)."""
WATCH, WATCH_PART = "w", "W"
"""What a watched rank tells of itself, or a part of it."""
ASKED = "asked"
_ENDED = re.compile(rf"-?\d{{1,5}}( {ASKED})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Frame:
    """One thing that a rank's wrapper said."""

    rank: int
    node: str
    kind: str
    number: int
    """Counts up from 0 for each rank."""
    text: str


class Writer:
    """Makes the frames of one rank."""

    def __init__(self, token: str, rank: int, node: str, *, pad: bool = False) -> None:
        self._head = f"{MARK}{token} {rank} {_word(node)}"
        self.pad = pad
        self._number = 0

    def frame(self, kind: str, text: str = "") -> bytes:
        """One frame; the text must fit (`pieces` makes it fit)."""
        line = f"{self._head} {kind} {self._number} {json.dumps(text)}"
        self._number += 1
        return (line.ljust(BLOCK - 1) if self.pad else line).encode() + b"\n"

    def pieces(self, text: str, part: str, last: str) -> Iterator[bytes]:
        """Frames that carry a text of any length: `part`s, then `last` with the rest."""
        room = BLOCK - len(self._head) - 24
        while len(json.dumps(text)) > room:
            cut = _fitting(text, room)
            yield self.frame(part, text[:cut])
            text = text[cut:]
        yield self.frame(last, text)


def _fitting(text: str, room: int) -> int:
    """How many characters of `text` are at most `room` bytes as JSON; at least one."""
    count = 2
    for index, character in enumerate(text):
        count += len(json.dumps(character)) - 2
        if count > room:
            return max(index, 1)
    return len(text)


def parse(line: str, token: str) -> Frame | None:
    """The frame that `line` holds, whatever stands before it; None where there is none, or half."""
    _, mark, rest = line.partition(f"{MARK}{token} ")
    words = rest.split(" ", 4) if mark else []
    if len(words) < 5:
        return None
    rank, node, kind, number, text = words
    try:
        said, _ = json.JSONDecoder().raw_decode(text)
        frame = Frame(int(rank), node, kind, int(number), said)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, str) or (kind == EXIT and not _ENDED.fullmatch(said)):
        return None
    return frame


class Lines:
    """A stream of bytes as lines without their ends."""

    def __init__(self, longest: int = 0) -> None:
        self._longest = longest or float("inf")
        self.rest = b""
        """A line that has begun; one of more than `longest` bytes is given in parts."""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that have ended; for no data, the end of the stream, also the last one."""
        *lines, rest = (self.rest + data).split(b"\n")
        if rest and (not data or len(rest) > self._longest):
            lines, rest = [*lines, rest], b""
        self.rest = rest
        return lines


def write_all(handle: int, data: bytes) -> bool:
    """Write all of it; False when nobody reads any more."""
    try:
        while data:
            data = data[os.write(handle, data) :]
    except OSError:
        return False
    return True


def padded(environment: Mapping[str, str]) -> dict[str, str]:
    """That environment with frames, if there are any, padded to `BLOCK` bytes."""
    if VARIABLE not in environment or environment[VARIABLE].endswith(",pad"):
        return dict(environment)
    return {**environment, VARIABLE: environment[VARIABLE] + ",pad"}


def _word(text: str) -> str:
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-._:") else "_" for c in text)
    return safe[:_NODE_MOST] or "_"
