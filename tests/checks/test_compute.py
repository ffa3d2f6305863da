"""Verdicts on devices: who is wrong, who is slow, and who is neither."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

import usual
from wirespeed.checks.compute import right_findings
from wirespeed.checks.compute_rates import fast_findings
from wirespeed.checks.judge import judge
from wirespeed.checks.levels import compute_plan
from wirespeed.model.compute_records import Compute, ComputeProof, ComputeRate, WrongProducts
from wirespeed.model.records import Finding, Run, World
from wirespeed.plan import Plan
from wirespeed.reference import NoReference
from wirespeed.runs import store
from wirespeed.session.recording import _past_of

H100 = "NVIDIA H100 80GB HBM3"


def rate(host: str = "a", tera: float = 700.0, **fields: Any) -> ComputeRate:
    told: dict[str, Any] = {
        "host": host,
        "device": "GPU0",
        "product": H100,
        "rank": 0,
        "dtype": "bfloat16",
        "shape": "8192x8192x8192",
        "op": "gemm",
        "together": True,
        "per_second": tera * 1e12,
        "low": tera * 0.999e12,
        "high": tera * 1.001e12,
        "own_per_second": tera * 1e12,
        "own_spread": 0.001,
        "samples": 20,
    }
    return ComputeRate(**told | fields)


def proof(host: str = "a", digest: str = "1", **fields: Any) -> ComputeProof:
    told: dict[str, Any] = {
        "host": host,
        "device": "GPU0",
        "product": H100,
        "rank": 0,
        "dtype": "bfloat16",
        "shape": "4096x4096x2048",
        "software": "torch 2.13",
        "products": 100,
        "elements": 100 << 24,
        "digest": digest,
    }
    return ComputeProof(**told | fields)


def fast(*rates: ComputeRate, past: tuple[Run, ...] = ()) -> dict[str, list[Finding]]:
    return by_id(fast_findings(Compute(rates=rates), lambda: past))


def right(*proofs: ComputeProof, rates: tuple[ComputeRate, ...] = ()) -> dict[str, list[Finding]]:
    return by_id(right_findings(Compute(rates=rates, proofs=proofs)))


def by_id(findings: list[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for one in findings:
        found.setdefault(one.id, []).append(one)
    return found


def test_a_wrong_core_is_named_with_its_bits_and_lane() -> None:
    fault = WrongProducts(
        core="core 5",
        kind="known",
        products=3,
        made=40,
        wrong=96,
        example="product 7, row 1, column 3: 9.0 instead of 8.0",
        bits="mantissa bit 0",
        pattern="every one in columns 3 of each 16",
    )
    (one,) = right(proof("n7", device="NUMA node 1", faults=(fault,), odd=("core 5",)))["COMP-001"]
    assert (one.status, one.subject.name) == ("fail", "n7")
    assert "n7 core 5" in one.title
    assert "columns 3 of each 16" in one.because
    assert "COMP-002" not in right(proof("n7", faults=(fault,), odd=("core 5",))), "told once"


def test_the_device_with_other_bits_than_most_is_named() -> None:
    found = right(*(proof(host) for host in "abc"), proof("d", "2"))["COMP-002"]
    assert [(one.status, one.subject.name) for one in found] == [("fail", "d")]


def test_two_that_differ_accuse_nobody_and_do_not_pass() -> None:
    (one,) = right(proof("a"), proof("b", "2"))["COMP-002"]
    assert one.status == "warn"
    assert "a GPU0" in one.title
    assert "b GPU0" in one.title


def test_other_software_may_compute_otherwise() -> None:
    (one,) = right(proof("a"), proof("b", "2", software="torch 2.14"))["COMP-002"]
    assert one.status == "pass"


def test_cores_that_differ_two_and_two_are_both_told() -> None:
    found = right(proof(device="NUMA node 0", digest="", odd=("core 0", "core 1")))["COMP-002"]
    assert [one.status for one in found] == ["fail", "fail"]


def test_an_error_of_one_device_fails_and_a_type_that_none_has_does_not() -> None:
    broke = rate("b", own_per_second=0.0, reason="CUDA error: uncorrectable ECC", broke=True)
    (one,) = right(rates=(rate("a"), broke))["COMP-007"]
    assert (one.status, one.subject.name) == ("fail", "b")
    full = rate("b", own_per_second=0.0, reason="out of memory")
    assert right(rates=(rate("a"), full))["COMP-007"][0].status == "fail", "the others can"
    alone = rate("b", op="peer", own_per_second=0.0, reason="this rank sees no other GPU")
    found = right(rates=(rate("a", op="peer"), alone))["COMP-007"]
    assert [one.status for one in found] == ["not_checked"], "its node has one GPU"
    none = [rate(host, dtype="fp8", own_per_second=0.0, reason="not supported") for host in "ab"]
    assert [one.status for one in right(rates=tuple(none))["COMP-007"]] == ["not_checked"]


def test_a_device_that_broke_is_told_whatever_was_asked() -> None:
    broke = proof("b", digest="", reason="CUDA error: uncorrectable ECC", broke=True)
    world = World(size=2, nodes=(), backend="nccl", launcher="local")
    compute = Compute(proofs=(proof("a"), broke))
    only = frozenset({"COMP-001"})
    found = judge("check", world, (), (), NoReference(), only, compute=compute)
    assert [(one.id, one.status) for one in found] == [("COMP-001", "pass"), ("COMP-007", "fail")]


def test_what_none_can_prove_is_told() -> None:
    none = [proof(host, digest="", dtype="fp8", reason="not supported") for host in "ab"]
    (one,) = right(proof("a"), *none)["COMP-007"]
    assert (one.status, one.title) == ("not_checked", "gemm fp8")


def test_memory_that_changed_is_named() -> None:
    bad = rate("b", op="copy", shape="", size_bytes=1 << 30, wrong=3)
    (one,) = right(rates=(replace(bad, host="a", wrong=0), bad))["COMP-003"]
    assert (one.status, one.subject.name) == ("fail", "b")


def fleet(count: int, spread: float = 0.005) -> list[ComputeRate]:
    draw = Random(1)
    return [rate(f"n{i}", 700 * draw.lognormvariate(0, spread)) for i in range(count)]


def test_five_percent_slower_is_found_and_good_ones_are_not() -> None:
    for count in (4, 16, 1000):
        others = fleet(count)
        found = fast(*others, rate("slow", 700 * 0.95))["COMP-004"]
        assert [(one.status, one.subject.name) for one in found] == [("warn", "slow")], count
        assert [one.status for one in fast(*others)["COMP-004"]] == ["pass"]


def test_far_below_the_others_it_fails() -> None:
    (one,) = fast(*fleet(8), rate("slow", 500))["COMP-004"]
    assert one.status == "fail"
    assert "0.71" in one.saw


def test_a_wide_fleet_accuses_nobody_for_five_percent() -> None:
    assert [one.status for one in fast(*fleet(64, 0.04), rate("slow", 700 * 0.95))["COMP-004"]] == [
        "pass"
    ]


def test_fewer_cores_are_no_slow_device() -> None:
    past = tuple(earlier(700 + i, cores=64) for i in range(6))
    (one,) = fast(rate(tera=350, cores=32), past=past)["COMP-004"]
    assert one.status == "measured"


def test_of_two_devices_only_a_large_difference_tells() -> None:
    assert fast(rate("a"), rate("b", 660))["COMP-004"][0].status == "pass"
    assert fast(rate("a"), rate("b", 600))["COMP-004"][0].subject.name == "b"
    others = [rate(host, dtype=dtype) for host in "ab" for dtype in ("float16", "float32")]
    found = fast(rate("a"), rate("b", 600), *others)["COMP-004"]
    assert [one.status for one in found] == ["pass"], "what is slow is so at more than one thing"


def test_a_busy_machine_is_not_judged() -> None:
    (one,) = fast(rate("a", own_share=0.2), rate("b", 300, own_spread=0.3))["COMP-004"]
    assert one.status == "not_checked"


def earlier(tera: float, host: str = "a", cores: int = 0) -> Run:
    return usual.run(
        world=usual.world(usual.node(host), size=1, backend="nccl"),
        compute=Compute(rates=(rate(host, tera, cores=cores),)),
    )


def test_a_lone_device_is_held_against_its_own_past() -> None:
    past = tuple(earlier(700 + i) for i in range(6))
    assert fast(rate())["COMP-004"][0].status == "measured"
    assert fast(rate(), past=past)["COMP-004"][0].status == "measured", "nobody endorsed its past"
    (one,) = fast(rate(tera=660), past=past)["COMP-004"]
    assert "6 earlier runs" in one.title
    injected = tuple(replace(run, config={"inject": ["slow:rank=0"]}) for run in past)
    assert fast(rate(tera=660), past=injected)["COMP-004"][0].status == "measured"


@pytest.mark.parametrize(
    ("word", "counts"),
    [("READY", True), ("PASSED", True), ("MEASURED", True), ("FAILED", False), ("NONE", False)],
)
def test_runs_of_old_and_new_words_are_a_past(word: Any, counts: bool) -> None:
    past = tuple(replace(earlier(700 + i), verdict=word) for i in range(6))
    (found,) = fast(rate(tera=500), past=past)["COMP-004"]
    assert (found.status in ("warn", "fail")) == counts


def weather(changes: float, *shares: float) -> Compute:
    """Devices that become faster and slower together."""
    return Compute(rates=tuple(rate(f"n{i}", 600 * changes * s) for i, s in enumerate(shares)))


def test_what_changes_all_devices_alike_hides_none_that_is_slower_than_it_was_beside_them() -> None:
    draw = Random(1)

    def one_night(*shares: float, changes: float = 0.0) -> Finding:
        now = weather(changes or draw.uniform(0.95, 1.05), *shares)
        usual = (1, 0.97, 1.01, 1)[: len(shares)]
        before = (weather(draw.uniform(0.95, 1.05), *usual) for _ in range(12))
        past = [replace(earlier(1), compute=one) for one in before]
        return next(f for f in fast_findings(now, lambda: past) if f.id == "COMP-004")

    for _ in range(20):
        assert one_night(1, 0.97, 1.01, 1).status == "pass"
        found = one_night(1, 0.97 * 0.95, 1.01, 1)
        assert (found.status, found.subject.name) == ("warn", "n1")
        said = "0.950 of what it was beside the same devices in 12 earlier runs"
        assert any(said in line for line in found.evidence)
    assert one_night(1, 0.97 * 0.95, changes=0.98).subject.name == "n1"
    assert one_night(1.05, 0.97, changes=1.0).status == "pass", "the other one is faster"


def test_devices_that_lie_close_together_by_luck_accuse_none_that_is_as_noisy_as_ever() -> None:
    draw, now = Random(3), weather(1, 1, 1.001, 0.999, 1.002, 0.998, 0.93)
    nights = [weather(1, *(draw.lognormvariate(0, 0.03) for _ in range(6))) for _ in range(8)]
    past = [replace(earlier(1), compute=one) for one in nights]
    assert fast(*now.rates)["COMP-004"][0].subject.name == "n5"
    assert fast(*now.rates, past=tuple(past))["COMP-004"][0].status == "pass"


def test_a_device_that_stays_slow_is_told_every_night() -> None:
    past, told = [earlier(700 + i) for i in range(6)], []
    for night in range(12):
        now = rate(tera=660 + night % 3)
        (one,) = fast(now, past=tuple(past))["COMP-004"]
        told.append(one.status)
        past.append(replace(earlier(660 + night % 3), findings=(one,)))
    assert told == ["warn"] * 12


def test_nights_on_which_nothing_could_be_judged_are_a_past() -> None:
    nights = [replace(earlier(700 + i % 2), verdict="UNKNOWN", exit_code=3) for i in range(12)]
    (one,) = fast(rate(tera=660), past=tuple(nights))["COMP-004"]
    assert one.status == "warn"
    broken = [replace(one, verdict="NOT READY", exit_code=1) for one in nights]
    assert fast(rate(tera=660), past=tuple(broken))["COMP-004"][0].status == "measured"


def test_the_fleet_of_stored_runs_counts_too() -> None:
    past = tuple(earlier(700 + i, f"n{i}") for i in range(6))
    (one,) = fast(rate("new", 660), past=past)["COMP-004"]
    assert one.subject.name == "new"
    assert "7 devices" in one.title


def test_peak_and_heat() -> None:
    found = fast(rate(peak=989e12), rate(device="GPU1", tera=400, peak=989e12, power_W=300.0))
    (one,) = found["COMP-005"]
    assert (one.status, "GPU1" in one.title, "300 W" in one.saw) == ("warn", True, True)
    (none,) = fast(rate(peak=1979e12, tera=300, dtype="int8"))["COMP-005"]
    assert none.status == "not_applicable", "torch's int8 is far from the peak on good GPUs"
    (four,) = fast(rate(product="NVIDIA L4", peak=121e12, tera=53.8))["COMP-005"]
    assert four.status == "pass", "72 W keep a good one there"
    (hot,) = fast(rate(held=0.9, temperature_C=88.0, slowed_by=("power cap",)))["COMP-006"]
    assert hot.status == "warn"
    assert "88 °C, slowed by power cap" in hot.saw
    assert fast(rate(held=0.99))["COMP-006"][0].status == "pass"
    (noisy,) = fast(rate(held=0.7, own_share=0.2))["COMP-006"]
    assert noisy.status == "not_checked", "no pass of what could not be judged"


def test_runs_of_other_libraries_are_no_past(monkeypatch: Any) -> None:
    plan = Plan(command="check", steps=(), compute=compute_plan("quick", frozenset({"COMP-004"})))
    stored = [replace(earlier(700), versions={"torch": name}) for name in ("2.13.0", "2.12.1")]
    monkeypatch.setattr(store, "past_runs", lambda which: iter(stored))
    assert list(_past_of(plan, {"torch": "2.13.0", "python": "3.11"})()) == stored[:1]


def test_one_device_is_compared_with_nothing_but_itself() -> None:
    alone = right(proof("a", dtype="float32"))["COMP-002"][0]
    assert (alone.status, "all of" in alone.title) == ("pass", False)
    several = right(proof("a"), proof("b"))["COMP-002"][0]
    assert "on all of 2 devices" in several.title
