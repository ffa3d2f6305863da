"""Which gradients travel together: planned once, from sizes alone, the same on every rank. No torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wirespeed.errors import UsageError

MEGA = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One parameter's gradient."""

    size_bytes: int
    kind: str
    """What a buffer can hold only one of: dtype and device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients of one kind that are sent by one call."""

    kind: str
    members: tuple[int, ...]
    """Indices of the pieces, in the order in which the backward pass should reach them."""
    size_bytes: int


def bucket_bytes(bucket_mb: float) -> int:
    """Bytes of a limit in megabytes (10**6), at least 1; UsageError where it is no positive number."""
    try:
        limit = float(bucket_mb)
    except (TypeError, ValueError):
        limit = math.nan
    if not limit > 0 or math.isinf(limit):
        raise UsageError(
            f"a bucket of {bucket_mb!r} MB",
            expected="a number of megabytes above 0; one smaller than a parameter is fine",
            next="bucket_mb=25",
        )
    return max(1, int(limit * MEGA))


def plan_buckets(pieces: Sequence[Piece], limit: int, first: int | None = None) -> list[Bucket]:
    """Buckets of at most `limit` bytes in the order in which they are expected to be complete.

    The pieces come in the order of registration and are taken in reverse, as a backward pass reaches
    them. A bucket exceeds the limit only where a single piece does, which then has it for itself.
    `first`: another limit for the first bucket of each kind; a small one lets sending begin early.
    """
    plan: list[tuple[int, Bucket]] = []
    filling: dict[str, list[int]] = {}
    limits: dict[str, int] = {}
    for index in reversed(range(len(pieces))):
        piece = pieces[index]
        members = filling.setdefault(piece.kind, [])
        held = sum(pieces[member].size_bytes for member in members)
        if members and held + piece.size_bytes > limits.get(piece.kind, first or limit):
            plan.append((-members[-1], _bucket(pieces, members)))
            limits[piece.kind] = limit
            members = filling[piece.kind] = []
        members.append(index)
    plan += [(-members[-1], _bucket(pieces, members)) for members in filling.values()]
    return [bucket for _, bucket in sorted(plan, key=lambda item: item[0])]


def _bucket(pieces: Sequence[Piece], members: Sequence[int]) -> Bucket:
    size = sum(pieces[member].size_bytes for member in members)
    return Bucket(kind=pieces[members[0]].kind, members=tuple(members), size_bytes=size)
