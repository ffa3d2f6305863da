"""When the messages of a step leave, and when the step ends: gradients as the backward pass makes them.

Sizes of single gradients follow from the model's formula, so which of them travel together is known
exactly (training/buckets.py). A message is ready when the backward pass has come to its last gradient
(its time shared out by bytes), and leaves when the one before it has arrived (S. Li et al., PyTorch
Distributed: Experiences on Accelerating Data Parallel Training, 2020, section 3).
"""

import numpy as np
from numpy.typing import NDArray

from wirespeed.training.buckets import MEGA, Piece, plan_buckets
from wirespeed.training.models.sizes import (
    FLOAT32_BYTES,
    ConvnetSize,
    MlpSize,
    TransformerSize,
)

__all__ = ["gradients_of", "messages_of", "step_s"]

Array = NDArray[np.float64]
Size = TransformerSize | MlpSize | ConvnetSize
_AFTER = ("naive", "flat")
"""Strategies that send when the backward pass is over."""
_FIRST = {"bucketed": MEGA, "ddp": 2**20, "ddp-view": 2**20}
"""Bytes of the first bucket at most: ours, and torch's (kDefaultFirstBucketBytes)."""


def gradients_of(size: Size) -> tuple[int, ...]:
    """Bytes of each gradient, float32, in the order in which the model registers its parameters."""
    if isinstance(size, TransformerSize):
        elements = _transformer(size)
    elif isinstance(size, MlpSize):
        pairs = zip(size.matrix_elements, size.widths[1:], strict=True)
        elements = [one for pair in pairs for one in pair]
    else:
        elements = []
        for kernel, layer in zip(size.kernel_elements, size.convolutions, strict=True):
            elements += [kernel, layer.outputs, layer.outputs]
        elements += [size.inputs[-1] * size.classes, size.classes]
    return tuple(FLOAT32_BYTES * one for one in elements)


def _transformer(size: TransformerSize) -> list[int]:
    d, k = size.d_model, size.d_kv
    attention = [d, d * d, d * k, d * k, d * d]
    layer = [*attention, d, *[d * size.d_ff] * 3]
    head = [] if size.tied else [size.vocab * d]
    return [size.vocab * d, *layer * size.layers, d, *head]


def messages_of(
    strategy: str, gradients: tuple[int, ...], bucket_mb: float | None
) -> tuple[int, ...]:
    """Bytes of each all_reduce of a step, in the order in which they leave."""
    if strategy == "flat":
        return (sum(gradients),)
    if strategy == "naive" or bucket_mb is None:
        return tuple(reversed(gradients))
    limit = max(1, int(bucket_mb * MEGA))
    pieces = [Piece(size_bytes=one, kind="") for one in gradients]
    plan = plan_buckets(pieces, limit, min(_FIRST.get(strategy, limit), limit))
    return tuple(one.size_bytes for one in plan)


def step_s(strategy: str, sizes: tuple[int, ...], times: Array, backward: Array) -> Array:
    """Seconds of the backward pass and all that is sent, by draw.

    times: of each message, a row a draw; backward: the pass alone, by draw.
    """
    if strategy in _AFTER:
        one_after_the_other: Array = backward + times.sum(axis=1)
        return one_after_the_other
    end = np.zeros(len(backward))
    ready = np.cumsum(sizes) / sum(sizes)
    for column, share in enumerate(ready):
        end = np.maximum(end, share * backward) + times[:, column]
    return np.maximum(end, backward)
