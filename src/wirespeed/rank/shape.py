"""The groups of a large job at once: what each costs the others, and a matrix product beside them.

What each operation takes alone is measured by the plan's steps, with its data checked. Here the
operations of one kind of group are one activity, one turn a call: it runs beside the product, then
beside those of all other kinds, on process groups of its own, since two kinds may be cut alike.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import dtype_named
from wirespeed.collectives.engines import Group
from wirespeed.errors import CannotMeasure
from wirespeed.model.bench_records import ParallelGroup, Shape
from wirespeed.model.codec import to_json
from wirespeed.model.training_records import LoadFigures
from wirespeed.model.units import format_size
from wirespeed.plan import Measure, Plan, ShapePlan, Step
from wirespeed.rank.place import CONNECT_S, Place, Site, busy_for, site_of, synchronize
from wirespeed.rank.steps import Reporter, lacking, needed, teller
from wirespeed.rank.time_limit import TimeLimit
from wirespeed.rank.under_load import (
    Activity,
    beside_each_other,
    gemm,
    in_turn,
    skewed_all_to_all,
    to_experts,
)
from wirespeed.rank.verify import reason_not_to_run, verify

_CPU_PRODUCTS = 1 << 30
"""Multiplications in a call: a core does some 10^10 a second, and ranks may share it."""
_SHARES = (0.5, 0.8)
"""Of the tokens, for the favourite expert's rank; even would be 1/ranks."""


@dataclass(frozen=True, slots=True)
class _Lane:
    """One kind of group with its operations on this rank, over connections of its own."""

    kind: ParallelGroup
    sites: tuple[Site, ...]

    @property
    def name(self) -> str:
        return f"{self.kind.kind} {format_size(self.kind.size_bytes)}"


def run_shape(
    place: Place, plan: Plan, asked: ShapePlan, heartbeat: Reporter, limit: TimeLimit
) -> None:
    """Tell the shape, then what its groups and a product cost each other. Collective."""
    shape, tell = asked.shape, teller(place, heartbeat)
    tell("choices", {"choices": [asdict(one) for one in asked.choices]})
    tell("shape", to_json(shape))
    heartbeat.enter("groups of each kind")
    with _connecting(place):
        lanes = _lanes(place, shape, plan.steps)
    short = lacking(place, _needed(place, shape, lanes))
    if short is not None:
        label, size = "all groups at once", max(one.size_bytes for one in shape.groups)
        tell("memory", {"label": label, "size_bytes": size, **asdict(short)})
    elif lanes:
        _compare(place, plan, shape, lanes, heartbeat, limit)
    tell("shape_told", {})


def _compare(
    place: Place,
    plan: Plan,
    shape: Shape,
    lanes: Sequence[_Lane],
    heartbeat: Reporter,
    limit: TimeLimit,
) -> None:
    """Tell of each comparison what it found, or why it found nothing."""
    tell, how = teller(place, heartbeat), plan.steps[0].measure or Measure()
    jobs = list(_jobs(place, shape, lanes, how, limit))
    if plan.steps[0].verify:  # once all groups have connected
        for site in (site for lane in lanes for site in _experts(shape, lane).values()):
            if limit.skip("data of uneven shares for the experts"):
                break
            heartbeat.enter("uneven shares for the experts")
            tell("verification", to_json(verify(place, site, plan.seed, None)))
    for number, (label, measured) in enumerate(jobs):
        tell("progress", {"index": number, "of": len(jobs), "label": label})
        if limit.skip(label):
            continue
        heartbeat.enter(label)
        try:
            found = measured()
        except CannotMeasure as error:  # from gathered figures: it comes to all ranks
            told = {"id": "SHAPE-001", "status": "not_checked", "title": label}
            tell("trouble", {**told, "because": error.saw, "next": error.next})
        else:
            for one in found:
                tell("under_load", to_json(one))


def _jobs(
    place: Place, shape: Shape, lanes: Sequence[_Lane], how: Measure, limit: TimeLimit
) -> Iterator[tuple[str, Callable[[], list[LoadFigures]]]]:
    """Each kind of group beside a product, all kinds at once, and experts of which one is liked best.

    A comparison has the time of a size for each thing that it times.
    """
    dtype = _torch_dtype(shape)
    said: dict[str, Any] = {"device": place.device, "rounds": how.iterations, "tick": place.tick}
    said["control"] = dist.new_group(backend="gloo")
    said["is_over"] = limit.is_over
    product = gemm(place.device, _rows_of_product(place, shape), shape.width, shape.columns, dtype)
    all_kinds = [_activity(place, shape, lane) for lane in lanes]
    with _connecting(place):
        for activity in all_kinds:
            activity.call()
            synchronize(place.device)
    for lane, activity in zip(lanes, all_kinds, strict=True):
        label = f"{lane.kind.kind} groups beside a matrix product"
        yield label, partial(_beside, how, [product, activity], said)
    if len(all_kinds) > 1:
        yield "all kinds of groups at once", partial(_beside, how, all_kinds, said)
    for lane in (one for one in lanes if one.kind.kind == "expert"):
        yield (
            "uneven shares for the experts",
            partial(_uneven, how, place, _experts(shape, lane, 1 / lane.kind.ranks), said),
        )


def _beside(
    how: Measure, activities: Sequence[Activity], said: dict[str, Any]
) -> list[LoadFigures]:
    return beside_each_other(activities, max_time_s=how.max_time_s * (len(activities) + 1), **said)


def _uneven(
    how: Measure, place: Place, experts: Mapping[float, Site], said: dict[str, Any]
) -> list[LoadFigures]:
    return skewed_all_to_all(place, experts, max_time_s=how.max_time_s * len(experts), **said)


def _connecting(place: Place) -> AbstractContextManager[None]:
    """Within, NCCL may make its communicators: one after the other, and with time for it."""
    return busy_for(place, CONNECT_S if place.device.type == "cuda" else 0.0)


def _torch_dtype(shape: Shape) -> torch.dtype:
    found: torch.dtype = getattr(torch, shape.dtype)
    return found


def _rows_of_product(place: Place, shape: Shape) -> int:
    """The micro-batch's tokens; on a core as many as it has multiplied in a moment."""
    if place.device.type != "cpu":
        return shape.tokens
    return max(1, min(shape.tokens, _CPU_PRODUCTS // (shape.width * shape.columns)))


def _lanes(place: Place, shape: Shape, steps: Sequence[Step]) -> list[_Lane]:
    """Those whose operations this world has; the steps' data checks have told of the others."""
    found, left = [], iter(steps)
    for kind in shape.groups:
        sites = [
            site_of(place, step.case, CATALOGUE[step.case.op], step.case.size_bytes)
            for step in (next(left) for _ in kind.ops)
        ]
        if not any(reason_not_to_run(place, site) for site in sites):
            own = _own_group(place, sites[0].members)
            found.append(_Lane(kind, tuple(replace(site, group=own) for site in sites)))
    return found


def _own_group(place: Place, members: Sequence[tuple[int, ...]]) -> Group | None:
    """Of this rank; calls that another thread makes on another one never meet its."""
    mine = None
    for ranks in members:
        handle = dist.new_group(list(ranks))
        if place.rank in ranks:
            mine = Group(ranks, ranks.index(place.rank), handle)
        place.tick()
    return mine


def _needed(place: Place, shape: Shape, lanes: Sequence[_Lane]) -> int:
    """Bytes on this rank: of every activity's buffers, and the product's matrices."""
    sites = [site for lane in lanes for site in (*lane.sites, *_experts(shape, lane).values())]
    calls = sum(needed(place, site, Measure()) for site in sites)
    tokens, width, columns = shape.tokens, shape.width, shape.columns
    elements = tokens * width + width * columns + tokens * columns
    return calls + elements * (dtype_named(shape.dtype).itemsize + 4)


def _activity(place: Place, shape: Shape, lane: _Lane) -> Activity:
    """One turn of a kind of group; of experts the exchange in which one is everybody's favourite."""
    if lane.kind.kind == "expert":
        share, site = next(iter(_experts(shape, lane).items()))
        return in_turn(f"{lane.name} ({share:.0%} to one)", place, [site])
    return in_turn(lane.name, place, lane.sites)


def _experts(shape: Shape, lane: _Lane, *even: float) -> dict[float, Site]:
    """The exchange of experts for each uneven share, and for those of `even` first; of others none."""
    if lane.kind.kind != "expert":
        return {}
    rows = lane.kind.size_bytes // (shape.width * dtype_named(shape.dtype).itemsize)
    shares = [*even, *(share for share in _SHARES if share > 1 / lane.kind.ranks)]
    rows = max(lane.kind.ranks, rows)
    return {share: to_experts(lane.sites[-1], rows, shape.width, share) for share in shares}
