"""What a gate decides, from made looks: each rule by a case, and 100,000 calls on healthy nodes."""

import random
from dataclasses import replace
from typing import Any

import pytest

from wirespeed.fleet.gate.decision import (
    Decision,
    Fleet,
    Memory,
    Remembered,
    Rules,
    Seen,
    Standing,
    decide,
    exit_code,
    held,
    most_out,
)
from wirespeed.fleet.gate.look import node_problems
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, Subject

NOW = 1_800_000_000.0
HEALTH, PROLOG = Rules(purpose="slurm-health"), Rules(purpose="slurm-prolog")
IN_SERVICE = Standing()
OURS = Standing(out=True, ours=True, reason="wirespeed[…]: x")


def failed(id: str = "GPU-002", status: Any = "fail") -> Finding:
    return Finding(id=id, status=status, title=f"n: {id}", subject=Subject("node", "n"))


def after(
    *calls: tuple[float, tuple[Finding, ...]],
    rules: Rules = HEALTH,
    standing: Standing = IN_SERVICE,
    takes: tuple[float, ...] = (),
) -> Decision:
    """The decision of the last of these calls, so many seconds after NOW."""
    memory = Memory(takes=takes)
    for at, findings in calls:
        decision = decide(rules, Seen(at=NOW + at, findings=findings), memory, standing)
        memory = decision.memory
    return decision


def test_a_lasting_fault_counts_at_once_and_a_warning_never() -> None:
    assert after((0, (failed(),))).act == "take"
    assert after((0, (failed(status="warn"),))).act == "pass"
    assert (
        after((0, (failed(),)), rules=replace(HEALTH, allow=frozenset({"GPU-002"}))).act == "pass"
    )


@pytest.mark.parametrize("id", ["GPU-004", "COUNT-002"])
def test_a_passing_fault_counts_at_the_third_look_of_an_hour(id: str) -> None:
    seen = (failed(id),)
    assert after((0, seen), (60, seen)).act == "pass"
    assert after((0, seen), (60, ()), (120, seen), (180, seen)).act == "take"
    assert after((0, seen), (1800, seen), (3700, seen)).act == "pass"
    assert after((0, seen), (1, seen), (2, seen), (3, seen)).act == "pass", (
        "one moment, four epilogs"
    )
    assert after((0, seen), (1, seen), (40, seen), (80, seen)).act == "take"


def test_what_is_not_known_follows_the_rule_and_is_told() -> None:
    seen = Seen(at=NOW, missing=("NVML: no answer within 2 s",))
    passed = decide(PROLOG, seen, Memory(), Standing())
    assert (passed.act, passed.health, passed.why) == ("pass", "unknown", seen.missing[0])
    assert decide(replace(PROLOG, unknown="fail"), seen, Memory(), Standing()).act == "take"
    worse = replace(seen, findings=(failed(),))
    assert decide(PROLOG, worse, Memory(), Standing()).act == "take"


def test_it_comes_back_after_ten_good_minutes_and_three_looks() -> None:
    good: tuple[tuple[float, tuple[Finding, ...]], ...] = ((60, ()), (300, ()), (600, ()))
    assert after(*good, standing=OURS, takes=(NOW,)).act == "keep"
    assert after(*good, (660, ()), standing=OURS, takes=(NOW,)).act == "return"
    assert after((0, ()), (700, ()), standing=OURS, takes=(NOW,)).act == "keep"
    broken = (*good, (620, (failed(),)), (660, ()))
    assert after(*broken, standing=OURS, takes=(NOW,)).act == "keep"


def test_many_looks_in_a_row_need_no_room() -> None:
    """A look each two seconds for twenty minutes, which is what a second time needs."""
    every = tuple((2.0 * n, ()) for n in range(601))
    decision = after(*every, standing=OURS, takes=(NOW - 9000, NOW))
    assert decision.act == "return"
    assert len(decision.memory.looks) == 1
    broken = (*every[:300], (600.5, (failed("GPU-004"),)), *every[301:])
    assert after(*broken, standing=OURS, takes=(NOW - 9000, NOW)).act == "return"


def test_each_further_time_it_must_be_good_for_twice_as_long() -> None:
    """And the third time within a day only a person brings it back."""
    good = tuple((60.0 * minute, ()) for minute in range(12))
    assert after(*good, standing=OURS, takes=(NOW,)).act == "return"
    assert after(*good, standing=OURS, takes=(NOW - 9000, NOW)).act == "keep"
    long = tuple((60.0 * minute, ()) for minute in range(22))
    assert after(*long, standing=OURS, takes=(NOW - 9000, NOW)).act == "return"
    thrice = after(*long, standing=OURS, takes=(NOW - 9000, NOW - 5000, NOW))
    assert thrice.act == "keep"
    assert "a person must bring it back" in thrice.why
    assert after(*long, standing=OURS, takes=(NOW - 90_000, NOW - 5000, NOW)).act == "return"


def test_what_a_person_does_is_left_alone() -> None:
    """Drained by hand it stays so; brought back by hand its past is forgotten."""
    theirs = Standing(out=True, reason="new DIMM")
    for seen in ((), (failed(),)):
        decision = after((0, seen), standing=theirs)
        assert (decision.act, decision.refuses) == ("pass", False)
        assert "new DIMM" in decision.why
    brought_back = after((0, ()), takes=(NOW - 7000, NOW - 5000, NOW - 3000))
    assert brought_back.memory.takes == ()
    assert after((0, ()), takes=(NOW - 5,)).memory.takes == (NOW - 5,), "on its way out"


@pytest.mark.parametrize(
    ("share", "nodes", "most"), [(0.05, 4, 1), (0.05, 100, 5), (0.05, 1, 1), (0.1, 59, 5)]
)
def test_how_many_may_be_out(share: float, nodes: int, most: int) -> None:
    assert most_out(share, nodes) == most


def test_no_more_are_taken_than_may_be() -> None:
    bad = after((0, (failed(),)))
    assert held(bad, 0.05, Fleet(nodes=100, taken=("a", "b", "c", "d"))) is bad
    full = held(bad, 0.05, Fleet(nodes=100, taken=("a", "b", "c", "d", "e")))
    assert (full.act, full.refuses) == ("hold", False)
    assert held(bad, 0.05, None).act == "hold", "who cannot count takes nothing"
    assert held(bad, 0.05, Fleet(nodes=0)).act == "hold", "an empty answer is no count"
    assert held(after((0, ())), 0.05, None).act == "pass"


def test_only_a_refusal_is_exit_code_1_where_it_acts() -> None:
    for refuses, code in ((True, 1), (False, 0)):
        for health in ("good", "bad", "unknown"):
            told = exit_code(PROLOG, refuses=refuses, health=health, problems=True)
            assert told == code
    assert exit_code(replace(PROLOG, dry_run=True), refuses=True, health="bad", problems=False) == 0
    assert exit_code(HEALTH, refuses=False, health="unknown", problems=False) == 3


def test_a_clock_that_was_wrong_does_no_harm() -> None:
    future = Remembered(at=NOW + 1e6, health="bad", ids=("GPU-004",))
    memory = Memory(looks=(future, future, future), takes=(NOW + 1e6,))
    decision = decide(HEALTH, Seen(at=NOW, findings=(failed("GPU-004"),)), memory, Standing())
    assert decision.act == "pass"
    assert len(decision.memory.looks) == 1


# 100,000 calls on healthy nodes.


def healthy(chance: random.Random) -> NodeFacts:
    """A node of any size, at rest or at work, with all that a driver may or may not tell."""
    count = chance.choice((0, 1, 4, 8))
    hot = chance.random()
    gpus = tuple(
        {
            "index": index,
            "name": "NVIDIA H100 80GB HBM3",
            "pci": f"0000:{0x1A + index:02x}:00.0",
            "uuid": f"GPU-{index}",
            "pcie_width": 16,
            "pcie_width_max": 16,
            "pcie_gen": 5 if hot > 0.5 else 1,
            "pcie_gen_max": 5,
            "performance_state": 0 if hot > 0.5 else 8,
            "idle": hot <= 0.5,
            "ecc_uncorrected": 0,
            "sram": {"uncorrected": 0, "exceeded": 0},
            "slowed_by": ["power cap"] if hot > 0.8 else [],
            "temperature_C": int(30 + 50 * hot),
            "slowdown_C": 87,
            "clock_sm_MHz": int((1900 if hot > 0.5 else 345) * chance.uniform(0.95, 1.0)),
            "clock_sm_max_MHz": 1980,
            "remapped_rows": {"corrected": index, "uncorrected": 0, "pending": 0, "failure": 0},
            "fabric": {"state": "completed", "status": 0, "unhealthy": []},
            "nvlinks": [True] * 18,
            "nvlink_errors": {},
        }
        for index in range(count)
    )
    facts = {
        "gpu.count": count,
        "gpu.on_bus": [gpu["pci"] for gpu in gpus],
        "gpu.mute": [],
        "gpu.driverless": [],
        "gpu.xids": [],
        "kernel_log.first_s": 0.0,
        "uptime_s": chance.uniform(1e3, 1e7),
        "machine.hides_devices": "",
        "memory.available_bytes": chance.randint(2 << 30, 1 << 40),
        "memory.total_bytes": 1 << 40 if count else 16 << 30,
        "memlock.soft": "unlimited",
        "shm.size_bytes": 8 << 30,
    }
    facts["memory.available_bytes"] = max(
        facts["memory.available_bytes"], facts["memory.total_bytes"] // 10
    )
    ports = tuple({"device": f"mlx5_{n}", "port": 1, "state": "ACTIVE"} for n in range(count))
    return NodeFacts(host="n", ranks=(0,), facts=from_json(Facts, facts), gpus=gpus, rdma=ports)


CALLS, NODES = 100_000, 200


@pytest.mark.slow
def test_of_100_000_calls_on_healthy_nodes_none_is_taken() -> None:
    """Each node is looked at again and again, also where its clock jumps or something hangs."""
    chance = random.Random(19)
    every: tuple[Any, ...] = ("slurm-prolog", "slurm-epilog", "slurm-health", "k8s", "k8s-node")
    taken = 0
    for _ in range(NODES):
        findings, memory = tuple(node_problems(healthy(chance))), Memory()
        now = NOW
        for _ in range(CALLS // NODES):
            now += chance.choice((1.0, 60.0, 3600.0, -30.0))
            missing = ("its home: no answer",) if chance.random() < 0.01 else ()
            seen = Seen(at=now, findings=findings, missing=missing)
            rules = Rules(purpose=chance.choice(every))
            decision = decide(rules, seen, memory, Standing())
            taken += decision.refuses or decision.health == "bad"
            memory = decision.memory
    assert taken == 0
