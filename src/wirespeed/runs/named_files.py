"""Files that are kept by a name below $WIRESPEED_HOME: one a name, replaced in one step."""

import errno
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wirespeed.errors import InputError, StorageError, UsageError
from wirespeed.node.reading import read_whole
from wirespeed.runs.folder import (
    ELSEWHERE,
    LARGEST,
    home,
    own_folder,
    private_folder,
    write_whole,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFiles:
    """All files of one kind. Errors say what they are and which command helps."""

    folder: str
    """Below `$WIRESPEED_HOME`."""
    suffix: str
    what: str
    """`a baseline`, for `'x' is no name for a baseline`."""
    missing: Callable[[str, list[str]], UsageError]
    """The error for a name that is not there, given the names that are."""
    again: str
    """The command that writes one, tried elsewhere where a folder cannot be written."""
    largest: int = LARGEST
    """Bytes beyond which a file is refused."""

    @property
    def home(self) -> Path:
        """Where they lie."""
        return own_folder(home() / self.folder)

    def path(self, name: str) -> Path:
        """UsageError for what is no name."""
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name[:80]!r} is no name for {self.what}",
                expected="up to 64 letters, digits, points, dashes and underscores",
            )
        return self.home / f"{name}{self.suffix}"

    def names(self) -> list[str]:
        """Sorted; files that nobody can have written here are left out."""
        try:
            found = sorted(self.home.glob(f"*{self.suffix}"))
        except OSError as error:
            raise StorageError(f"cannot read {self.home}: {error.strerror or error}") from error
        return [path.stem for path in found if _NAME.fullmatch(path.stem)]

    def write(self, name: str, text: str) -> Path:
        """Put it in place of what was there, whole or not at all."""
        path = self.path(name)
        try:
            private_folder(self.folder)
            write_whole(path, text.encode())
        except OSError as error:
            raise StorageError(
                f"cannot write {path}: {error.strerror or error}",
                expected="a folder that can be written, with room for the file",
                next=f"{ELSEWHERE} {self.again}",
            ) from error
        return path

    def read(self, name: str) -> str:
        """UsageError where it is not there, InputError where it is no text, no file or too large."""
        path = self.path(name)
        try:
            return read_whole(path, self.largest, links=False).decode()
        except FileNotFoundError as error:
            raise self.missing(name, self.names()) from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not text", expected=self.what, next=self.again) from error
        except OSError as error:
            unlike = error.errno in (errno.EFBIG, errno.EINVAL, errno.ELOOP)
            raise (InputError if unlike else StorageError)(
                f"cannot read {path}: {error.strerror or error}",
                expected=self.what,
                next=self.again,
            ) from error

    def remove(self, name: str) -> Path:
        """The file that is gone."""
        path = self.path(name)
        try:
            path.unlink()
        except FileNotFoundError as error:
            raise self.missing(name, self.names()) from error
        except OSError as error:
            raise StorageError(f"cannot remove {path}: {error.strerror or error}") from error
        return path
