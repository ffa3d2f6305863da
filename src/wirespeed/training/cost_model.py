"""What a step of each strategy should take, from its backward pass and the cost of one collective.

Backward pass b, gradients of s bytes in n parameters, a collective of x bytes takes o + x / w:

    naive, flat      b + s / w + o n   (flat: n = 1; copies are left out)
    overlap          max(b + t, b / n + n t), t = o + s / (n w): one message a parameter
    bucketed, ddp    the same with n = ceil(s / B) buckets (bucket_model.py)

Pure. The terms are those of S. Li et al., PyTorch Distributed: Experiences on Accelerating Data
Parallel Training, 2020, section 3, with the cost of a message after R. W. Hockney (1994).
"""

from dataclasses import dataclass

from wirespeed.training.bucket_model import Link, pipelined_s, predict_step_s

__all__ = ["StepWithoutSync", "predicted_step_s"]

_BUCKETED = ("bucketed", "ddp", "ddp-view")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWithoutSync:
    """What the yardstick took, in seconds, and what would be sent."""

    backward_s: float
    rest_s: float
    """Forward, optimizer, data."""
    gradient_bytes: int
    tensors: int
    """Gradients that are sent one by one."""


def predicted_step_s(
    strategy: str, step: StepWithoutSync, link: Link, bucket_mb: float | None = None
) -> float | None:
    """Seconds of a step; None for a strategy that the model does not know."""
    whole = step.rest_s + step.backward_s
    wire = step.gradient_bytes / link.bytes_per_s
    if strategy == "none":
        return whole
    if strategy == "naive":
        return whole + wire + step.tensors * link.latency_s
    if strategy == "flat":
        return whole + wire + link.latency_s
    if strategy == "overlap":
        calls = max(step.tensors, 1)
        return step.rest_s + pipelined_s(link, step.gradient_bytes, calls, step.backward_s)
    if strategy in _BUCKETED and bucket_mb is not None:
        return predict_step_s(
            link,
            gradient_bytes=step.gradient_bytes,
            backward_s=step.backward_s,
            bucket_bytes=bucket_mb * 1e6,
            rest_s=step.rest_s,
        )
    return None
