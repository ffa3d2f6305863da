"""How the world is cut into groups that run side by side, as tensor × data parallel jobs do."""

import re
from collections.abc import Sequence

from wirespeed.errors import UsageError

_EVERY = re.compile(r"every-(\d+)")
_NAMES = "all, nodes, rails, pairs or every-K (such as every-2)"


def check_groups(spec: str) -> None:
    """UsageError unless `spec` is one of the known cuts."""
    if spec in ("all", "nodes", "rails", "pairs"):
        return
    match = _EVERY.fullmatch(spec)
    if match is None or int(match[1]) < 1:
        raise UsageError(f"unknown groups {spec!r}", expected=_NAMES)


def members_of(
    spec: str, hosts: Sequence[str], local_ranks: Sequence[int]
) -> list[tuple[int, ...]]:
    """The groups of global ranks, each of 2 or more; hosts and local_ranks are by global rank.

    `nodes`: the ranks of each host. `rails`: the same local rank on every host. `pairs`: 0 with 1,
    2 with 3 … `every-K`: ranks that are equal modulo K. Groups of one rank are left out; an empty
    list means that this world cannot be cut so. UsageError for an unknown name.
    """
    check_groups(spec)
    world = range(len(hosts))
    if spec == "all":
        return [tuple(world)]
    keys: list[object]
    if spec == "nodes":
        keys = list(hosts)
    elif spec == "rails":
        keys = list(local_ranks)
    elif spec == "pairs":
        keys = [rank // 2 for rank in world]
    else:
        keys = [rank % int(spec.removeprefix("every-")) for rank in world]
    groups: dict[object, list[int]] = {}
    for rank in world:
        groups.setdefault(keys[rank], []).append(rank)
    return [tuple(ranks) for ranks in groups.values() if len(ranks) > 1]
