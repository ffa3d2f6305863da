import time
from dataclasses import asdict, replace
from threading import Lock

import pytest

from wirespeed.checks.job_traffic import shape_findings
from wirespeed.errors import CannotMeasure
from wirespeed.model.codec import from_json, to_json
from wirespeed.model.records import World
from wirespeed.model.training_records import LoadFigures
from wirespeed.rank.under_load import Activity, _figures, _paces, expert_splits


def _cpu():
    import torch

    return torch.device("cpu")


def known_case(rank, ranks):
    """Two that take turns at one thing, and two that have nothing to do with each other."""
    import torch.distributed as dist

    from wirespeed.rank.under_load import beside_each_other

    control = dist.new_group()
    only_one, active = Lock(), []

    def in_the_way():
        """Quick alone; where another one is at it, both lose far more than their turns."""
        active.append(1)
        time.sleep(0.01)
        time.sleep(0.06 if len(active) > 1 else 0)
        active.pop()

    def held(seconds):
        with only_one:
            time.sleep(seconds)
        time.sleep(0.001)  # the other one takes its turn

    def measured(*activities):
        found = beside_each_other(activities, control=control, device=_cpu(), rounds=6)
        return [to_json(one) for one in found]

    return {
        "turns": measured(
            Activity("first", lambda: held(0.01)), Activity("second", lambda: held(0.01))
        ),
        "apart": measured(
            Activity("short", lambda: time.sleep(0.01)),
            Activity("long", lambda: time.sleep(0.04)),
        ),
        "thrash": measured(Activity("one", in_the_way), Activity("other", in_the_way)),
    }


@pytest.mark.slow
def test_known_slowdowns_are_found(seen):
    first, second = seen["known_case"]
    for one, beside in zip(first["turns"], ("second", "first"), strict=True):
        assert one["beside"] == beside
        assert 1.4 < one["ratio"]["value"] < 2.6
    for one in first["apart"]:
        assert 0.6 < one["ratio"]["value"] < 1.4
    assert 0.7 < first["turns"][0]["gain"]["value"] < 1.4, "one after the other"
    assert 1.5 < first["apart"][0]["gain"]["value"] < 2.5, "neither slows the other"
    world = World(size=2, nodes=(), backend="gloo", launcher="local")
    (said,) = shape_findings([from_json(LoadFigures, one) for one in first["thrash"]], world)
    assert (said.status, said.id) == ("warn", "SHAPE-001"), "better one after the other"
    assert first == second  # the slowest rank's figures, the same on all


def gemm_case(rank, ranks):
    import torch.distributed as dist

    from wirespeed.rank.under_load import all_reduce, beside_each_other, gemm

    control, group = dist.new_group(), dist.new_group()
    activities = [gemm(_cpu(), 128), all_reduce("all_reduce 256 KiB", 1 << 18, group, _cpu())]
    return [
        asdict(o) for o in beside_each_other(activities, control=control, device=_cpu(), rounds=6)
    ]


def test_a_product_and_a_collective_slow_each_other(seen):
    first, second = seen["gemm_case"]
    assert first == second
    assert [(one["name"], one["beside"]) for one in first] == [
        ("GEMM 128", "all_reduce 256 KiB"),
        ("all_reduce 256 KiB", "GEMM 128"),
    ]
    for one in first:
        assert one["alone"] > 0 and one["together"] > 0
        assert one["ratio"]["low"] <= one["ratio"]["value"] <= one["ratio"]["high"]
        assert 1 <= one["rounds"] <= 6


def cuts_case(rank, ranks):
    """Two ways to cut four ranks at once: {01}{23} and {02}{13}."""
    import torch.distributed as dist

    from wirespeed.rank.under_load import all_reduce, beside_each_other

    control = dist.new_group()
    tensor = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    data = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    activities = [
        all_reduce("all_reduce tensor", 1 << 14, tensor, _cpu()),
        all_reduce("all_reduce data", 1 << 18, data, _cpu()),
    ]
    return [
        asdict(o) for o in beside_each_other(activities, control=control, device=_cpu(), rounds=3)
    ]


@pytest.mark.slow
def test_two_cuts_of_the_world_at_once(world):
    every = world("cuts_case", ranks=4)
    assert all(one == every[0] for one in every)
    assert [one["name"] for one in every[0]] == ["all_reduce tensor", "all_reduce data"]
    assert all(one["together"] > 0 for one in every[0])


def experts_case(rank, ranks):
    import torch.distributed as dist

    from places import place_of
    from wirespeed.collectives.catalogue import CATALOGUE
    from wirespeed.plan import Case
    from wirespeed.rank.faulty_engine import Fault, FaultyEngine
    from wirespeed.rank.place import site_of
    from wirespeed.rank.under_load import skewed_all_to_all, to_experts
    from wirespeed.rank.verify import verify

    place, control = place_of(rank, ranks), dist.new_group()
    site = site_of(place, Case(op="all_to_all_v"), CATALOGUE["all_to_all_v"], 0)
    experts = {share: to_experts(site, 256, 64, share) for share in (0.5, 0.75, 1.0)}
    found = skewed_all_to_all(place, experts, control=control, device=_cpu(), rounds=6)
    good = [verify(place, one, 1, None) for one in experts.values()]
    broken = replace(place, engine=FaultyEngine(place.engine, Fault("flip", 1), rank))
    bad = verify(broken, experts[0.75], 1, None)
    received = [one.collective.output_count(one.geometry) for one in experts.values()]
    return {
        "figures": [asdict(one) for one in found],
        "checked": [(one.wrong, one.elements) for one in (*good, bad)],
        "received": received,
    }


def test_uneven_shares_against_even_ones(seen):
    first, second = (one["figures"] for one in seen["experts_case"])
    assert first == second
    assert [one["name"] for one in first] == [
        "all_to_all_v 64 KiB, 75% to one expert",
        "all_to_all_v 64 KiB, 100% to one expert",
    ]
    for one in first:
        assert one["beside"] == "even shares" and one["rounds"] == 6
        assert one["alone"] == first[0]["alone"] > 0 and one["together"] > 0


def test_what_comes_to_the_experts_is_compared(seen):
    first, second = seen["experts_case"]
    sent = 2 * 256 * 64
    assert first["checked"] == second["checked"] == [[0, sent]] * 3 + [[1, sent]]
    received = [one["received"] for one in (first, second)]
    assert received == [[sent // 2, sent * 3 // 4, sent], [sent // 2, sent // 4, 0]]


def every_case(rank, ranks):
    """All that needs two ranks, in one world."""
    cases = (known_case, gemm_case, experts_case)
    return {case.__name__: case(rank, ranks) for case in cases}


@pytest.fixture(scope="module")
def seen(world):
    every = world("every_case")
    return {name: [by_rank[name] for by_rank in every] for name in every[0]}


@pytest.mark.parametrize(
    ("rows", "ranks", "share", "splits"),
    [
        (8, 2, 0.5, [4, 4]),
        (8, 4, 0.25, [2, 2, 2, 2]),
        (10, 4, 0.7, [7, 1, 1, 1]),
        (9, 3, 0.0, [0, 5, 4]),
        (9, 3, 1.0, [9, 0, 0]),
        (5, 1, 0.3, [5]),
    ],
)
def test_splits(rows, ranks, share, splits):
    assert expert_splits(rows, ranks, share) == splits


def test_of_each_call_counts_what_lies_within_the_shared_stretch():
    first = [(0.0, 1.0), (1.0, 2.0), (2.0, 6.0)]
    second = [(0.5, 1.5), (1.5, 2.5)]
    assert _paces([second]) == [1.0]
    assert _paces([first, second]) == [2 / (0.5 + 1 + 0.125), 1.0]
    assert _paces([[(0.0, 1.0)], [(2.0, 3.0)]]) == [-1.0, -1.0]


def test_calls_that_never_overlap_are_said_to():
    with pytest.raises(CannotMeasure, match="a never ran beside b"):
        _figures("a", "b", [1.0, 1.0], [-1.0, -1.0])
    assert _figures("a", "b", [1.0, 1.0], [-1.0, 3.0]).rounds == 1
