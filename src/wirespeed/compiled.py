"""Data that people write as YAML, kept as JSON from when the package was built.

Reading YAML takes longer than most commands do. What was kept counts only where it is of the files as
they are now; else they are read anew, and nothing else is lost. `hatch_build.py` keeps all of it.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Compiled(Generic[T]):
    """The YAML files of a folder as one value."""

    folder: Path
    pattern: str
    kept: str
    """The file of that folder which keeps it."""
    kind: type[T]
    read: Callable[[Mapping[str, bytes]], T]
    """The value, from the files' texts by name."""

    def load(self) -> T:
        texts = self._texts()
        try:
            kept = msgspec.json.decode(
                (self.folder / self.kept).read_bytes(), type=dict[str, msgspec.Raw]
            )
            if msgspec.json.decode(kept["digest"]) == _digest(texts):
                return msgspec.json.decode(kept["value"], type=self.kind)
        except (OSError, KeyError, msgspec.MsgspecError):
            pass
        return self.read(texts)

    def write(self) -> None:
        """Read the files, and keep what they say."""
        texts = self._texts()
        data = msgspec.json.encode({"digest": _digest(texts), "value": self.read(texts)})
        (self.folder / self.kept).write_bytes(data)

    def _texts(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob(self.pattern))}


def _digest(texts: Mapping[str, bytes]) -> str:
    return hashlib.sha256(b"".join(texts.values())).hexdigest()
