"""Computing beside sending, two kinds of groups at once, and uneven all_to_all, on this world."""

from collections.abc import Iterator
from math import isqrt

import torch.distributed as dist

from wirespeed.model.training_records import LoadFigures
from wirespeed.rank.place import Place

_GEMM_CPU, _GEMM_GPU = 256, 4096
_SENT = {"cpu": 4 << 20, "cuda": 256 << 20}
_SHARES = (0.5, 0.8)
"""Of the tokens, for the favourite expert; even would be 1/ranks."""


def under_load(place: Place) -> Iterator[list[LoadFigures]]:
    """Group after group of figures; collective over the world."""
    from wirespeed.training.under_load import (
        all_reduce,
        beside_each_other,
        gemm,
        skewed_all_to_all,
    )

    control, whole = dist.new_group(backend="gloo"), dist.new_group()
    size = _SENT[place.device.type]
    product = gemm(_GEMM_CPU if place.device.type == "cpu" else _GEMM_GPU, place.device)
    sent = all_reduce(f"all_reduce {size >> 20} MiB", size, whole, place.device)
    yield beside_each_other([product, sent], control=control, device=place.device)
    if cuts := _two_cuts(place.world_size):
        rows, columns = ([list(group) for group in cut] for cut in cuts)
        mine = [_own(cut, place.rank) for cut in (rows, columns)]
        names = (f"all_reduce tensor parallel, {len(rows[0])} ranks", "all_reduce data parallel")
        both = [
            all_reduce(name, size, group, place.device)
            for name, group in zip(names, mine, strict=True)
        ]
        yield beside_each_other(both, control=control, device=place.device)
    if place.world_size > 1:
        shares = [share for share in _SHARES if share > 1 / place.world_size]
        yield skewed_all_to_all(shares, group=whole, control=control, device=place.device)


def _two_cuts(ranks: int) -> tuple[list[range], list[range]] | None:
    """The world as a grid, neighbours in a row: its rows and its columns; None: no grid."""
    width = next((w for w in range(isqrt(ranks), 1, -1) if ranks % w == 0), 0)
    if not width:
        return None
    rows = [range(start, start + width) for start in range(0, ranks, width)]
    return rows, [range(column, ranks, width) for column in range(width)]


def _own(cut: list[list[int]], rank: int) -> dist.ProcessGroup:
    found: dist.ProcessGroup | None = None
    for members in cut:
        group = dist.new_group(members)
        if rank in members:
            found = group
    if found is None:
        raise ValueError(f"rank {rank} is in no group of {cut}")
    return found
