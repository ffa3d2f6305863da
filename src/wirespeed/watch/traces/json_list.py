"""A long list in a JSON file, one batch after the other, in memory that does not grow with the file.

The text is cut where one object ends and the next begins, and each piece is decoded at once. A wrong
cut is no JSON, since it leaves a text, an object or a list open; then the one before it is tried, and
in the end the objects are found token by token.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Generic, TypeVar

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, decode

from wirespeed.diagnose.sources import Source, Stream
from wirespeed.errors import InputError

Item = TypeVar("Item", bound=Struct)

DAMAGE = (DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises."""
_BLOCK = 1 << 20
_LONGEST = 32 << 20
"""Bytes of one object, and of what stands before or after the list."""
_TRIES = 4
_NEXT = re.compile(rb"\}\s*,\s*(?=\{)")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]"]', re.DOTALL)
_BETWEEN = b" \t\r\n,"
_CUT = "it breaks off: its end is missing"


class JsonList(Generic[Item]):
    """The objects of `"KEY": [...]`, or of a file that is nothing but such a list.

    `around`, `cut` and `skipped` are known when `batches` has come to its end.
    """

    def __init__(self, source: Source, key: str, item: type[Item]) -> None:
        self.name = source.name
        self.around: list[bytes] = []
        """What stands before and after the list, as JSON objects."""
        self.cut = ""
        """How it breaks off; empty: it is whole."""
        self.skipped = 0
        """Objects that are no JSON, such as those with bare quotes in a name."""
        self.bytes = 0
        self._source = source
        self._key = key
        self._opens = re.compile(rb'"%b"\s*:\s*\[' % key.encode())
        self._all = Decoder(list[item])  # type: ignore[valid-type]
        self._each = Decoder(item)
        self._rest = b""
        self._bare = False

    def batches(self) -> Iterator[list[Item]]:
        """All objects in the file's order. Raises InputError where there is no such list."""
        with closing(self._source.open()) as stream:
            self._begin(stream)
            goes_on = more = True
            while goes_on and more:
                found = self._quick()
                if found is None:
                    found, goes_on = self._exact()
                yield found
                more = goes_on and self._fill(stream)
            if goes_on:
                found, goes_on = self._exact()
                yield found
            whole = self._end(stream, ended=not goes_on)
            self.cut = stream.broke_off or ("" if whole else _CUT)

    def _fill(self, stream: Stream) -> bool:
        data = stream.read1(_BLOCK)
        self.bytes += len(data)
        self._rest += data
        if len(self._rest) > _LONGEST:
            raise InputError(
                f"{self.name} has {_LONGEST >> 20} MiB without an end of an object",
                expected=f'a list of objects as "{self._key}"',
            )
        return bool(data)

    def _begin(self, stream: Stream) -> None:
        """Up to the first object."""
        while self._fill(stream):
            if self._rest.lstrip()[:1] == b"[":
                self._bare = True
                self._rest = self._rest.lstrip()[1:]
                return
            if match := self._opens.search(self._rest):
                self.around.append(self._rest[: match.start()].rstrip(_BETWEEN) + b"}")
                self._rest = self._rest[match.end() :]
                return
        seen = "it breaks off before it" if self._rest else "it is empty"
        raise InputError(
            f'{self.name} holds no list "{self._key}": {seen}',
            expected="a whole trace",
            next="copy it again from its node; a job that is killed while it writes leaves a part",
        )

    def _end(self, stream: Stream, *, ended: bool) -> bool:
        """What follows the list; whether the file is whole. Of a bare list the bracket may lack."""
        if self._bare or not ended:
            return ended or (self._bare and not self._rest.strip(_BETWEEN))
        last = self._rest.rstrip()[-1:]
        while data := stream.read1(_BLOCK):
            last = data.rstrip()[-1:] or last
            if len(self._rest) < _LONGEST:
                self._rest += data
        self.around.append(b"{" + self._rest.lstrip(_BETWEEN))
        return last == b"}" and (len(self._rest) >= _LONGEST or _is_json(self.around[-1]))

    def _quick(self) -> list[Item] | None:
        """All whole objects that are there, by one cut near the end; None where that fails."""
        rest, place = self._rest, len(self._rest)
        for _ in range(_TRIES):
            match, place = _cut_before(rest, place)
            if match is None:
                return None
            try:
                found = self._all.decode(b"[" + rest[: place + 1] + b"]")
            except DAMAGE:
                continue
            self._rest = rest[match.end() :]
            return found
        return None

    def _exact(self) -> tuple[list[Item], bool]:
        """Object by object; those that cannot be decoded are skipped. Whether the list goes on."""
        found: list[Item] = []
        depth = begin = used = 0
        for token in _TOKEN.finditer(self._rest):
            mark = token[0]
            if mark == b'"':  # a text that does not end here
                break
            if mark in b"{[":
                begin = begin if depth else token.start()
                depth += 1
            elif mark in b"}]":
                depth -= 1
                if depth < 0:
                    self._rest = self._rest[token.end() :]
                    return found, False
                if not depth:
                    used = token.end()
                    found += self._one(self._rest[begin:used])
        self._rest = self._rest[used:].lstrip(_BETWEEN)
        return found, True

    def _one(self, text: bytes) -> list[Item]:
        try:
            return [self._each.decode(text)]
        except DAMAGE:
            self.skipped += 1
            return []


def _cut_before(text: bytes, place: int) -> tuple[re.Match[bytes] | None, int]:
    """The last `}` before `place` that an object follows, and where it stands."""
    while (place := text.rfind(b"}", 0, place)) >= 0:
        if match := _NEXT.match(text, place):
            return match, place
    return None, -1


def _is_json(text: bytes) -> bool:
    try:
        decode(text)
    except DAMAGE:
        return False
    return True
