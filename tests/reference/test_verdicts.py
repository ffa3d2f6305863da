"""Rules of the verdict: what outranks what, what a fact may change, what is said where it is open."""

import random
from itertools import product
from typing import Any

import pytest

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.reference import Expectation
from wirespeed.reference.ask import IMPOSSIBLE, WHAT_DECIDES, Answer, Asked, ask, expected_of
from wirespeed.reference.capability import shares
from wirespeed.reference.figures import INTERCONNECTS
from wirespeed.reference.shape import PEAKS, shape_told

GIB, MIB = 2**30, 2**20
NDR: dict[str, Any] = {"interconnect": "ib", "nics": 8, "nic_Gbitps": 400.0}


def asked(
    gpu: str, op: str, size: int, gbps: float, nodes: int = 1, per_node: int = 8, **more: Any
) -> Answer:
    shape = shape_told(gpu, per_node=per_node, nodes=nodes, **more)
    return ask(shape, op, Asked(size, gbps * 1e9), expected_of(shape, op, size))


def test_a_measured_figure_of_the_same_world_outranks_a_gate() -> None:
    here = asked("H100", "all_reduce", 8 * GIB, 387, 8, **NDR)
    assert here.place == "normal"
    assert asked("H100", "all_reduce", 8 * GIB, 387, 8, site="azure", **NDR).place == "normal"
    assert asked("H100", "all_reduce", 8 * GIB, 387, 8, interconnect="ib").place == "normal"


def test_a_gate_holds_at_its_own_site_only() -> None:
    gb300: dict[str, Any] = {"interconnect": "mnnvl", "per_node": 4}
    for site, place in (("", "normal"), ("azure", "low"), ("elsewhere", "normal")):
        assert asked("GB300", "all_reduce", 16 * GIB, 780, 18, site=site, **gb300).place == place


def test_what_is_expected_never_exceeds_what_the_cards_carry() -> None:
    found = asked("A100", "all_reduce", 8 * GIB, 92, 2, interconnect="roce", nics=4, nic_Gbitps=200)
    assert found.place in ("normal", "unknown")
    assert found.limit is not None and found.limit.busbw == pytest.approx(100e9 * 15 / 8)
    assert found.expected is not None and found.expected <= found.limit.busbw


def test_half_speed_at_a_smaller_size_is_not_normal() -> None:
    roce: dict[str, Any] = {"interconnect": "roce", "nics": 8, "nic_Gbitps": 400.0}
    assert asked("H100", "all_to_all", 256 * MIB, 25, 2, **roce).place in ("low", "unknown")
    assert asked("H100", "all_to_all", 256 * MIB, 60, 2, **roce).place == "normal"


def test_far_below_the_wire_is_low_though_nobody_published_it() -> None:
    link: dict[str, Any] = {"interconnect": "roce", "nics": 1, "nic_Gbitps": 200.0, "per_node": 1}
    assert asked("GB10", "all_gather", GIB, 3, 2, **link).place == "low"
    assert asked("Future 9000", "all_gather", GIB, 3, 2, **link).place == "low", (
        "of whatever product"
    )
    assert asked("GB10", "all_gather", GIB, 22, 2, **link).place == "normal"


@pytest.mark.parametrize("gbps", [3440.0, 308_000.0])
@pytest.mark.parametrize("nics", [{}, {"nics": 8, "nic_Gbitps": 400.0}])
def test_what_no_algorithm_reaches_is_impossible(gbps: float, nics: Any) -> None:
    found = asked("H100", "all_reduce", 8 * GIB, gbps, 2, interconnect="ib", **nics)
    assert found.place == "impossible"
    assert found.above.endswith(IMPOSSIBLE)
    assert asked("H100", "all_reduce", 8 * GIB, gbps, 2).place == "impossible", (
        "over whatever network"
    )


@pytest.mark.parametrize(
    ("gpu", "op", "limit"),
    [
        ("A100", "all_reduce", 300.0),
        ("H100", "all_reduce", 450 * 2 * 7 / 8),
        ("H100", "all_gather", 450.0),
        ("MI300X", "all_reduce", 448.0),
        ("RTX 4090", "all_reduce", 31.5),
        ("L40S", "broadcast", 31.5),
    ],
)
def test_the_limit_within_a_node(gpu: str, op: str, limit: float) -> None:
    found = asked(gpu, op, 8 * GIB, 1)
    assert found.limit is not None
    assert found.limit.busbw == pytest.approx(limit * 1e9, rel=0.01)
    assert asked(gpu, op, 8 * GIB, 1.05 * limit).place == "impossible"
    assert asked(gpu, op, 8 * GIB, 0.3 * limit).place != "impossible"


@pytest.mark.parametrize(
    ("op", "nodes", "limit"),
    [
        ("all_reduce", 2, 400 * 15 / 8),
        ("all_reduce", 8, 2 * 400 * 63 / 64),
        ("all_gather", 2, 500.0),
        ("all_to_all", 4, 50 * 31 / 24),
        ("broadcast", 4, 400.0),
        ("send_recv", 4, 400.0),
    ],
)
def test_the_limit_between_nodes(op: str, nodes: int, limit: float) -> None:
    """all_gather between two nodes: not 750 by the cards, but NVLink and the slot of one GPU."""
    found = asked("H100", op, 8 * GIB, 1, nodes, **NDR)
    assert found.limit is not None
    assert found.limit.busbw == pytest.approx(limit * 1e9, rel=0.01)


def test_each_share_of_a_link_has_an_interval_and_a_source() -> None:
    kinds = {one.interconnect for one in shares()}
    assert kinds == set(INTERCONNECTS) - {"memory"}
    for one in shares():
        assert 0 < one.low <= one.usual <= one.high <= 2
        assert one.source and one.when in ("", "nvls", "sharp", "two nodes")


def test_one_gpu_a_node_is_bound_by_its_slot() -> None:
    """NVIDIA/nccl-tests#232: one H100 and four cards of 400 Gbit/s on each of two nodes give 50 GB/s."""
    cards: dict[str, Any] = {"interconnect": "roce", "nics": 4, "nic_Gbitps": 400.0, "per_node": 1}
    found = asked("H100", "all_reduce", 8 * GIB, 50, 2, **cards)
    assert found.place == "normal"
    assert found.limit is not None and found.limit.busbw == pytest.approx(63e9, rel=0.01)


@pytest.mark.parametrize("op", ["gather", "scatter"])
def test_what_ends_at_one_root_goes_through_its_card(op: str) -> None:
    found = asked("H100", op, 8 * GIB, 80, 2, **NDR)
    assert found.place == "normal", "of eight cards the one next to the root's GPU carries it all"
    assert found.hardware is not None and found.hardware.busbw < 100e9
    assert asked("H100", op, 8 * GIB, 10, 2, **NDR).place == "low"


def test_uneven_parts_may_all_stay_within_a_node() -> None:
    found = asked("H100", "all_to_all_v", 8 * GIB, 300, 2, **NDR)
    assert (found.place, found.hardware) == ("unknown", None)
    assert asked("H100", "all_to_all", 8 * GIB, 300, 2, **NDR).place == "impossible"


@pytest.mark.parametrize(
    ("gpu", "per_node", "gbps", "place"),
    [
        ("A100", 2, 230, "normal"), ("A100", 2, 75, "unknown"), ("A100", 2, 20, "low"),
        ("A100", 8, 75, "low"), ("V100", 2, 45, "unknown"), ("V100", 2, 8, "low"),
        ("B200", 2, 200, "low"),
    ],
)  # fmt: skip
def test_a_part_of_a_board_may_have_a_part_of_the_links(
    gpu: str, per_node: int, gbps: float, place: str
) -> None:
    found = asked(gpu, "all_gather", 8 * GIB, gbps, 1, per_node)
    assert found.place == place
    if place == "unknown":
        assert any("nvidia-smi topo -m" in need for need in found.missing)


def test_sharp_unknown_has_two_answers_and_what_decides() -> None:
    found = asked("H100", "all_reduce", 16 * GIB, 315, 12, **NDR)
    assert [one.shape.switch for one in found.by_switch] == ["sharp off", "sharp"]
    assert [one.place for one in found.by_switch] == ["normal", "unknown"]
    assert found.place == "normal"
    for switch, place in (("sharp off", "normal"), ("sharp", "unknown")):
        said = asked("H100", "all_reduce", 16 * GIB, 315, 12, switch=switch, **NDR)
        assert (said.place, said.by_switch) == (place, ())


def test_an_open_answer_names_what_decides() -> None:
    found = asked("H100", "all_reduce", 8 * GIB, 308, 8, **NDR)
    assert {one.place for one in found.by_switch} == {"normal", "low"}
    assert found.place == "unknown"
    assert WHAT_DECIDES in found.missing


def test_a_fact_that_makes_a_figure_low_says_what_it_raised() -> None:
    before = asked("A100", "all_reduce", GIB, 45, 16, interconnect="ib")
    cards: dict[str, Any] = {"nics": 8, "nic_Gbitps": 200.0}
    after = asked("A100", "all_reduce", GIB, 45, 16, interconnect="ib", **cards)
    assert (before.place, after.place) == ("normal", "low")
    assert "8 × 200 Gbit/s" in after.raised
    assert not before.raised


WORLDS = [
    ("H100", 2, "ib", 8, 400.0), ("H100", 8, "ib", 8, 400.0), ("A100", 2, "roce", 4, 200.0),
    ("H200", 4, "efa", 16, 200.0), ("B200", 4, "efa", 8, 400.0), ("MI300X", 2, "roce", 8, 400.0),
    ("H100", 2, "tcpxo", 8, 200.0), ("GB200", 36, "mnnvl+ib", 4, 400.0),
]  # fmt: skip


@pytest.mark.parametrize("world", WORLDS, ids=str)
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "all_to_all"])
def test_more_facts_make_no_figure_worse_without_a_reason(world: Any, op: str) -> None:
    gpu, nodes, link, nics, rate = world
    per_node = 4 if gpu.startswith("GB") else 8
    for gbps, size in product((2, 10, 40, 90, 180, 300, 380, 440, 480), (64 * MIB, GIB, 8 * GIB)):
        fewer = asked(gpu, op, size, gbps, nodes, per_node, interconnect=link)
        more = asked(
            gpu, op, size, gbps, nodes, per_node, interconnect=link, nics=nics, nic_Gbitps=rate
        )
        if fewer.place in ("normal", "high") and more.place == "low":
            assert more.raised, (gbps, size)


def test_what_a_person_states_is_never_overridden() -> None:
    cards: dict[str, Any] = {"nics": 4, "nic_Gbitps": 400.0, "per_node": 4}
    roce = asked("GB300", "all_reduce", 8 * GIB, 180, 4, interconnect="roce", **cards)
    assert (roce.shape.interconnect, roce.place) == ("roce", "normal")
    both = asked("GB300", "all_reduce", 16 * GIB, 800, 36, interconnect="mnnvl+ib", **cards)
    assert (both.shape.interconnect, both.place) == ("mnnvl+ib", "normal")
    assert asked("GB300", "all_reduce", 8 * GIB, 930, 18, 4).shape.interconnect == "mnnvl", (
        "unasked"
    )


def test_what_the_users_own_runs_reached_is_possible() -> None:
    shape = shape_told("A100", per_node=8, nodes=1)
    for busbw, place in ((400e9, "normal"), (200e9, "impossible")):
        own = Expectation(time_s=None, busbw=busbw, source="run 91ae", origin="own")
        assert ask(shape, "all_reduce", Asked(8 * GIB, 400e9), own).place == place


def test_a_bridge_that_is_sold_apart_is_asked_for() -> None:
    for said, place in (("", "unknown"), ("nvlink", "normal"), ("pcie", "impossible")):
        found = asked("A100 PCIe", "all_reduce", 8 * GIB, 205, 1, 2, interconnect=said)
        assert found.place == place
        assert any("--interconnect nvlink" in need for need in found.missing) == (not said)
    assert asked("A100 PCIe", "all_reduce", 8 * GIB, 20).place == "normal", "eight have no bridge"


@pytest.mark.parametrize(
    ("gpu", "nodes", "more", "need"),
    [
        ("H100", 2, {"interconnect": "ib"}, "--nics"),
        ("H100", 2, {}, "--interconnect"),
        ("Future 9000", 1, {}, "nvbandwidth"),
    ],
)
def test_cannot_tell_says_what_to_tell_or_measure(
    gpu: str, nodes: int, more: Any, need: str
) -> None:
    found = asked(gpu, "all_reduce", 8 * GIB, 200, nodes, **more)
    assert found.place == "unknown"
    assert any(need in text for text in found.missing)


def test_whatever_is_asked_has_an_answer_that_holds_together() -> None:
    """Random worlds: no error, an interval in order, and nothing expected above the limit."""
    draw = random.Random(37)
    gpus = [row.name for row in PEAKS] + ["cpu", "Future 9000", "GB300", ""]
    places = set()
    for _ in range(1500):
        nodes = draw.choice((1, 1, 2, 3, 8, 64, 500))
        cards = draw.choice(
            ((None, None), (1, 10.0), (1, 200.0), (4, 200.0), (8, 400.0), (16, 800.0))
        )
        shape = shape_told(
            draw.choice(gpus),
            per_node=draw.choice((1, 2, 4, 8, 16)),
            nodes=nodes,
            interconnect=draw.choice(("", *INTERCONNECTS)),
            nics=cards[0],
            nic_Gbitps=cards[1],
            switch=draw.choice(("", "nvls off", "sharp", "sharp off")),
        )
        op, size = draw.choice(list(CATALOGUE)), draw.choice((0, 8, 2**20, 2**28, 2**33))
        figure = Asked(size, 10 ** draw.uniform(6, 13))
        found = ask(shape, op, figure, expected_of(shape, op, size))
        places.add(found.place)
        if found.hardware is not None and found.limit is not None:
            assert 0 <= found.hardware.low <= found.hardware.busbw <= found.hardware.high
            assert found.hardware.high <= 1.001 * found.limit.busbw
        if found.place == "low":
            assert found.reasons or found.by_interconnect
        if found.place == "impossible":
            assert found.above.endswith(IMPOSSIBLE)
    assert places == {"impossible", "low", "normal", "high", "unknown"}


@pytest.mark.parametrize("rate", [5.0, 5000.0])
def test_links_that_nobody_verified_fail_nobody(rate: float) -> None:
    """The same figures fail an MI300X, whose links are from its maker's page."""
    places = {}
    for gpu in ("MI350X", "MI300X"):
        shape = shape_told(gpu, per_node=8, nodes=1)
        places[gpu] = ask(shape, "all_reduce", Asked(2**33, rate * 1e9), None, shipped=())
    assert places["MI350X"].place == "unknown"
    assert any("not verified" in need for need in places["MI350X"].missing)
    assert places["MI300X"].place in ("low", "impossible")
