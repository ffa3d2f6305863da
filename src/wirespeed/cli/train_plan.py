"""From the options of `wirespeed train` to a plan; what cannot be is refused here, with proposals."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

from wirespeed.errors import UsageError
from wirespeed.plan import TrainCase
from wirespeed.records_training import TrainingKind
from wirespeed.training.strategies.registry import STRATEGIES

__all__ = ["Asked", "bucket_sizes", "cases_of", "world_sizes"]

_DEFAULT_BUCKET_MB = 25.0
"""torch's own default is 25 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked for, parsed."""

    strategies: tuple[str, ...]
    buckets: tuple[float, ...]
    """Empty: the default size."""
    world: int
    batch: int
    """Samples of one step over the whole world."""
    micro_batches: int
    worlds: tuple[int, ...]
    """Of --scaling; empty: no scaling."""
    kinds: tuple[TrainingKind, ...]


def cases_of(asked: Asked) -> tuple[TrainCase, ...]:
    """The yardstick first, then every strategy with every bucket size; UsageError where none fits."""
    _refuse_uneven(asked.batch, asked.world, asked.micro_batches)
    pairs = _with_buckets(asked)
    if not asked.worlds:
        return tuple(
            TrainCase(strategy=name, bucket_mb=bucket, ranks=asked.world, samples=asked.batch)
            for name, bucket in pairs
        )
    too_large = [ranks for ranks in asked.worlds if ranks > asked.world]
    if too_large:
        raise UsageError(
            f"--scaling asks for {too_large[0]} ranks, and there are {asked.world}",
            expected=f"numbers of ranks from 1 to {asked.world}",
            next=f"wirespeed train --ranks {max(too_large)} --scaling …",
        )
    return tuple(_scaling_cases(asked, pairs))


def _scaling_cases(asked: Asked, pairs: list[tuple[str, float | None]]) -> Iterable[TrainCase]:
    each = asked.batch // asked.world
    for kind in asked.kinds:
        for ranks in asked.worlds:
            samples = asked.batch if kind == "strong" else each * ranks
            _refuse_uneven(samples, ranks, asked.micro_batches)
            for name, bucket in pairs:
                yield TrainCase(
                    strategy=name, bucket_mb=bucket, ranks=ranks, samples=samples, kind=kind
                )


def _with_buckets(asked: Asked) -> list[tuple[str, float | None]]:
    """Each strategy once a bucket size, where it has buckets; the yardstick is always there."""
    names = dict.fromkeys(("none", *asked.strategies))
    sizes = asked.buckets or (_DEFAULT_BUCKET_MB,)
    if asked.buckets and not any(STRATEGIES[name].buckets for name in names):
        raise UsageError(
            f"--bucket-mb, and none of {', '.join(asked.strategies)} has buckets",
            expected="one of " + ", ".join(n for n, info in STRATEGIES.items() if info.buckets),
        )
    return [
        (name, bucket)
        for name in names
        for bucket in (sizes if STRATEGIES[name].buckets else (None,))
    ]


def _refuse_uneven(batch: int, ranks: int, micro_batches: int) -> None:
    unit = ranks * micro_batches
    if batch % unit == 0:
        return
    below, above = batch // unit * unit, (batch // unit + 1) * unit
    valid = " or ".join(str(one) for one in (below, above) if one)
    parts = f"{ranks} ranks" + (f" × {micro_batches} micro batches" if micro_batches > 1 else "")
    raise UsageError(
        f"a batch of {batch} samples cannot be shared evenly by {parts}",
        expected=f"a multiple of {unit}, such as {valid}",
        next=f"wirespeed train --batch {above}",
    )


def bucket_sizes(text: str | None) -> tuple[float, ...]:
    """Megabytes from `1,10,100`."""
    sizes = []
    for word in filter(None, (part.strip() for part in (text or "").split(","))):
        try:
            size = float(word)
        except ValueError:
            size = -1.0
        if not isfinite(size) or size <= 0:
            raise UsageError(
                f"--bucket-mb {word!r} is no bucket size",
                expected="megabytes (10^6 bytes) above 0, such as 1,10,100",
                next="wirespeed train --bucket-mb 1,10,100",
            )
        sizes.append(size)
    if text is not None and not sizes:
        raise UsageError("--bucket-mb is empty", expected="megabytes, such as 1,10,100")
    return tuple(dict.fromkeys(sizes))


def world_sizes(text: str | None) -> tuple[int, ...]:
    """Numbers of ranks from `1,2,4`, ascending."""
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    wrong = [word for word in words if not word.isdecimal() or int(word) < 1]
    if wrong or (text is not None and not words):
        raise UsageError(
            f"--scaling {wrong[0] if wrong else text!r} is no number of ranks",
            expected="numbers of ranks such as 1,2,4",
            next="wirespeed train --scaling 1,2,4",
        )
    return tuple(sorted({int(word) for word in words}))
