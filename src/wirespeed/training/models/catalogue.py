"""The models by name, with what may be changed about them, and their data.

A transformer trains on random tokens from a seed, or on the bytes of a real text. Both give a batch of
inputs and targets (samples, context), int64: the targets are the inputs moved on by one. Of random
tokens nothing can be learned (the loss stays near the logarithm of the vocabulary), which is all that a
clock needs; a text can be learned.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from wirespeed.errors import InputError, UsageError
from wirespeed.training.contract import Batch, ModelSpec
from wirespeed.training.models.sizes import (
    SIZES,
    TRANSFORMERS,
    ConvnetSize,
    MlpSize,
    Size,
    TransformerSize,
)

if TYPE_CHECKING:
    import torch
    from torch import nn


BYTE_VOCAB = 256
_PREFIXES = ("", "k", "M", "G", "T")


def model_names() -> tuple[str, ...]:
    """Small ones first within each kind."""
    return tuple(SIZES)


def model_named(
    name: str,
    *,
    context: int | None = None,
    vocab: int | None = None,
    layers: int | None = None,
    d_model: int | None = None,
    d_ff: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    tied: bool | None = None,
    text: str | None = None,
) -> ModelSpec:
    """The model of that name, or a user's own (`module:function`, models/user.py).

    What is not None changes a transformer's size; kv_heads follows heads where only heads is given
    and they were equal. text: a file whose bytes are the tokens. UsageError for an unknown name, a
    size that does not fit together, and a change that the model does not know. torch is imported
    for a user's own model only; the others import it when they are built.
    """
    options: dict[str, object] = {
        "context": context,
        "vocab": vocab,
        "layers": layers,
        "d_model": d_model,
        "d_ff": d_ff,
        "heads": heads,
        "kv_heads": kv_heads,
        "tied": tied,
    }
    changes = {key: value for key, value in options.items() if value is not None}
    if name in TRANSFORMERS:
        return spec_of(_changed(TRANSFORMERS[name], changes), text=text)
    asked = [*changes, *(["text"] if text is not None else [])]
    if asked and (name in SIZES or ":" in name):
        raise UsageError(
            f"{name} has no {asked[0].replace('_', ' ')} to set",
            expected="a transformer for that: " + ", ".join(TRANSFORMERS),
        )
    if ":" in name:
        from wirespeed.training.models.user import user_model

        return user_model(name)
    if name not in SIZES:
        raise UsageError(
            f"no model is called {name!r}",
            expected="one of " + ", ".join(SIZES) + ", or your own as module:function",
        )
    return spec_of(SIZES[name])


def spec_of(size: Size, *, text: str | None = None) -> ModelSpec:
    """A model of that size; text is for transformers only."""

    def build() -> "nn.Module":
        from wirespeed.training.models.networks import network

        return network(size)

    def loss(model: "nn.Module", batch: Batch) -> "torch.Tensor":
        from wirespeed.training.models.networks import class_loss

        return class_loss(model, batch)

    batch: Callable[[int, int], Batch]
    if isinstance(size, TransformerSize):
        batch, tokens = partial(random_tokens, size.vocab, size.context), size.context
        if text is not None:
            batch = TextTokens.open(text, size.vocab, size.context)
    else:
        batch, tokens = partial(_random_classes, size), 1
    return ModelSpec(
        name=size.name,
        build=build,
        batch=batch,
        loss=loss,
        parameters=size.parameters,
        gradient_bytes=size.gradient_bytes,
        tokens_per_sample=tokens,
        flops_per_sample=size.flops_per_sample,
    )


def _random_classes(size: MlpSize | ConvnetSize, seed: int, samples: int) -> Batch:
    from wirespeed.training.models.networks import random_classes

    return random_classes(size, seed, samples)


def _changed(size: TransformerSize, changes: dict[str, object]) -> TransformerSize:
    if "heads" in changes and "kv_heads" not in changes and size.heads == size.kv_heads:
        changes = {**changes, "kv_heads": changes["heads"]}
    # mypy cannot know that each value has its field's type: they are the function's own arguments.
    return replace(size, **changes)  # type: ignore[arg-type]


def model_lines() -> list[str]:
    """A line a model for `--list`: name, parameters, gradients and forward with backward."""
    wide = max(map(len, SIZES))
    lines = []
    for name, size in SIZES.items():
        sample = f"{size.context} tokens" if isinstance(size, TransformerSize) else "1 vector"
        if isinstance(size, ConvnetSize):
            sample = f"{size.side} × {size.side} pixels"
        lines.append(
            f"  {name:<{wide}}  {_short(size.parameters):>6} parameters, "
            f"gradients {_short(size.gradient_bytes):>6}B, "
            f"{_short(size.flops_per_sample):>6}FLOP a sample of {sample}"
        )
    return lines


def _short(value: float) -> str:
    """Three digits with a decimal prefix: `919 k`, `1.24 G`."""
    power = 0
    while value >= 999.5 and power < len(_PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return f"{float(f'{value:.3g}'):g} {_PREFIXES[power]}"


def random_tokens(vocab: int, context: int, seed: int, samples: int) -> Batch:
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

    def __call__(self, seed: int, samples: int) -> Batch:
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


def _shifted(tokens: "torch.Tensor") -> Batch:
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
