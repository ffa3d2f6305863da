"""Tokens to train on: random ones from a seed, or the bytes of a real text.

Both give a batch of inputs and targets (samples, context), int64: the targets are the inputs moved
on by one. Of random tokens nothing can be learned (the loss stays near the logarithm of the
vocabulary), which is all that a clock needs; a text can be learned.
"""

import os
import stat
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from wirespeed.errors import InputError, UsageError

if TYPE_CHECKING:
    import torch


BYTE_VOCAB = 256


def random_tokens(
    vocab: int, context: int, seed: int, samples: int
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Evenly distributed over the vocabulary."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return _shifted(torch.randint(vocab, (samples, context + 1), generator=generator))


@dataclass(frozen=True, slots=True)
class TextTokens:
    """Pieces of a file, from random places; only what a batch needs is read."""

    path: Path
    size_bytes: int
    """When it was opened."""
    context: int

    @staticmethod
    def open(text: str, vocab: int, context: int) -> "TextTokens":
        """Checks the file and reads nothing yet; UsageError or InputError says what is wrong."""
        if vocab < BYTE_VOCAB:
            raise UsageError(
                f"a text has {BYTE_VOCAB} tokens (its bytes), the vocabulary {vocab}",
                expected=f"a vocabulary of at least {BYTE_VOCAB}",
            )
        path = Path(text).absolute()
        size = _size_of(path)
        if size < context + 1:
            raise InputError(
                f"{path} has {size} bytes" if size else f"{path} is empty",
                expected=f"at least {context + 1} bytes: a context of {context} tokens and the next",
                next="a longer text, or a shorter context",
            )
        return TextTokens(path, size, context)

    def __call__(self, seed: int, samples: int) -> tuple["torch.Tensor", "torch.Tensor"]:
        import torch

        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(self.size_bytes - self.context, (samples,), generator=generator)
        pieces = self._read(starts.tolist())
        tokens = torch.frombuffer(pieces, dtype=torch.uint8).view(samples, self.context + 1)
        return _shifted(tokens.to(torch.int64))

    def _read(self, starts: list[int]) -> bytearray:
        """A piece of context + 1 bytes from each start, one after the other."""
        pieces, length = bytearray(), self.context + 1
        try:
            with self.path.open("rb") as file:
                for start in starts:
                    pieces += os.pread(file.fileno(), length, start)
        except OSError as error:
            raise InputError(f"{self.path} cannot be read any more: {error.strerror}") from error
        if len(pieces) != len(starts) * length:
            raise InputError(
                f"{self.path} became shorter while it was used",
                expected=f"{self.size_bytes} bytes, as at the start",
            )
        return pieces


def _size_of(path: Path) -> int:
    """Bytes of a regular file that can be read."""
    try:
        with FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
    except OSError as error:
        raise UsageError(
            f"the text {path} cannot be read: {error.strerror}", expected="a file on every node"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(f"the text {path} is no regular file", expected="a file of text")
    return status.st_size


def _shifted(tokens: "torch.Tensor") -> tuple["torch.Tensor", "torch.Tensor"]:
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
