"""One secret a job: what it is, what is derived from it, and what bears its mark.

Every engine of ours makes one and hands it to the ranks beside their order; under somebody else's
launcher the user gives it. It never crosses the network: what does is marked with HMAC-SHA256 (RFC 2104)
by a key that is derived from it for that purpose alone.
"""

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from wirespeed.errors import UsageError
from wirespeed.node.reading import opened

if TYPE_CHECKING:
    import torch.distributed as dist


VARIABLE = "WIRESPEED_SECRET"
_LEAST, _MOST = 16, 4096
"""Characters of a secret."""
_OPEN, _SEALED = b"o1 ", b"s1 "
_TAG = 2 * hashlib.sha256().digest_size
"""Hexadecimal digits."""
_MAKE = 'python3 -c "import secrets; print(secrets.token_hex(32))"'


def new_secret() -> str:
    """256 random bits in hexadecimal, for one world of ranks."""
    return secrets.token_hex(32)


def job_secret(environ: MutableMapping[str, str], file: Path | None = None) -> bytes | None:
    """The secret in `file`, else in `environ`; None without either. It leaves `environ` in any case.

    So no child, no stack of variables and no record shows it. UsageError for a file that others can
    read or that is none, and for what is too short to be a secret.
    """
    told = environ.pop(VARIABLE, None)
    if file is not None:
        return secret_in(file)
    return None if told is None else _checked(os.fsencode(told), VARIABLE)


def derived(secret: bytes, purpose: str) -> bytes:
    """A key of 32 bytes for that purpose; it tells nothing of the secret, nor of any other key."""
    return hmac.digest(secret, b"wirespeed " + purpose.encode(), "sha256")


class Seal:
    """Marks what is left where others can write, and refuses what does not bear the mark.

    Without a secret nothing is marked, and whatever stands there is taken.
    """

    def __init__(self, secret: bytes | None, purpose: str) -> None:
        self._key = None if secret is None else derived(secret, purpose)

    @property
    def marks(self) -> bool:
        """Whether there is a secret."""
        return self._key is not None

    def close(self, data: bytes, about: str) -> bytes:
        """`data` with its mark. about: where it stands or what it answers; it fits nowhere else."""
        return _OPEN + data if self._key is None else _SEALED + self._tag(data, about) + data

    def open(self, text: bytes, about: str) -> bytes:
        """What was closed; ValueError, before anything of it is read, for what is not ours."""
        if self._key is None:
            if text.startswith(_SEALED):
                raise ValueError("it bears the mark of a secret, and this rank was given none")
            return text.removeprefix(_OPEN)
        tag, data = text[len(_SEALED) :][:_TAG], text[len(_SEALED) + _TAG :]
        if not text.startswith(_SEALED) or not hmac.compare_digest(tag, self._tag(data, about)):
            raise ValueError("it does not bear the mark of this job's secret")
        return data

    def _tag(self, data: bytes, about: str) -> bytes:
        told = about.encode()
        whole = len(told).to_bytes(4, "big") + told + data
        return hmac.new(self._key or b"", whole, "sha256").hexdigest().encode()


class SealedStore:
    """torch's store, where what is set and got bears the mark of the job; counts do not."""

    def __init__(self, store: "dist.Store", seal: Seal) -> None:
        self.store = store
        self._seal = seal

    def set(self, key: str, text: str) -> None:
        self.store.set(key, self._seal.close(text.encode(), key).decode())

    def get(self, key: str) -> bytes:
        """ValueError for what no rank of this job has set; waits up to the store's time-out."""
        return self._seal.open(self.store.get(key), key)

    def add(self, key: str, amount: int) -> int:
        return self.store.add(key, amount)

    def check(self, keys: list[str]) -> bool:
        return self.store.check(keys)

    def clone(self) -> "SealedStore | None":
        """One with a connection of its own; None where this torch makes none."""
        clone = getattr(self.store, "clone", None)
        return SealedStore(clone(), self._seal) if clone is not None else None


def secret_in(file: Path, option: str = "--secret-file") -> bytes:
    """The secret in that file, which `option` names; UsageError as `job_secret`."""
    return _checked(_read(file, option), str(file))


def _read(file: Path, option: str) -> bytes:
    """The file's bytes; a pipe or a device holds nobody up."""
    try:
        with opened(file) as handle:
            info = os.fstat(handle)
            if info.st_uid not in (os.geteuid(), 0) or info.st_mode & 0o077:
                raise UsageError(
                    f"{option} {file} is open to others: owner {info.st_uid}, "
                    f"mode {stat.S_IMODE(info.st_mode):04o}",
                    expected="a file of your own, mode 0600",
                    next=f"chmod 600 {file}",
                )
            return os.read(handle, _MOST + 2)
    except OSError as error:
        raise UsageError(
            f"{option} {file}: {error.strerror or error}", expected="a file with a secret"
        ) from error


def _checked(secret: bytes, origin: str) -> bytes:
    secret = secret.strip()
    if not _LEAST <= len(secret) <= _MOST or not all(0x20 < byte < 0x7F for byte in secret):
        raise UsageError(
            f"{origin} holds no secret: {len(secret)} characters",
            expected=f"{_LEAST} to {_MOST} letters, digits and signs, the same for every rank",
            next=_MAKE,
        )
    return secret
