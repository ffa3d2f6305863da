from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from watch_simulator import Fault, Job, simulate
from wirespeed.watch.judge import judge
from wirespeed.watch.network import slow_parts
from wirespeed.watch.steps import COLUMNS, LinkUse, StepTable

HOSTS = ("a", "b", "c", "d")


def table(uses: Iterable[LinkUse], hosts: tuple[str, ...] = HOSTS) -> StepTable:
    return StepTable(
        hosts=list(hosts),
        first=np.arange(1),
        each=np.ones(1, np.int64),
        columns={name: np.ones((len(hosts), 1), np.float32) for name in COLUMNS},
        begin_s=np.zeros(1),
        links=list(uses),
        addresses={f"10.0.0.{rank}": host for rank, host in enumerate(hosts)},
    )


def use(source: int, target: int, rate: float, *, step: int = 1, busy: float = 0.5) -> LinkUse:
    return LinkUse(
        rank=source,
        peer=f"10.0.0.{target}",
        step=step,
        seconds=1.0,
        busy_s=busy,
        sent_bytes=int(rate * busy),
        rtt_s=0.001,
        retransmits=0,
    )


def every_pair(rate: float) -> dict[tuple[int, int], float]:
    return {(a, b): rate for a in range(4) for b in range(4) if a != b}


def named(rates: dict[tuple[int, int], float]) -> list[tuple[str, str]]:
    found = slow_parts(table(use(*ends, rate) for ends, rate in rates.items()))
    return [(one.node or f"{one.route.source} -> {one.route.target}", one.way) for one in found]


def test_a_node_whose_routes_out_are_slow() -> None:
    slow = {ends: 1e8 if ends[0] == 2 else 1e9 for ends in every_pair(1e9)}
    assert named(slow) == [("c", "sends")]


def test_a_node_whose_routes_both_ways_are_slow() -> None:
    assert named({ends: 1e8 if 1 in ends else 1e9 for ends in every_pair(1e9)}) == [("b", "both")]


def test_a_node_that_receives_slowly() -> None:
    slow = {ends: 1e8 if ends[1] == 3 else 1e9 for ends in every_pair(1e9)}
    assert named(slow) == [("d", "receives")]


def test_what_a_ring_asks_for_in_short_messages_is_no_slow_route() -> None:
    """Of a real job: gloo sends to the left, and answers to the right, 60 bytes at a time."""
    bulk = {(3, 2): 11.5e6, (2, 1): 11.1e6, (1, 0): 361e6, (0, 3): 203e6}
    asked = {(0, 1): 5.7e3, (1, 2): 3.5e3, (2, 3): 3.9e3, (3, 0): 22.7e3}
    uses = [use(*ends, rate, busy=6e8 / rate) for ends, rate in bulk.items()]
    uses += [
        replace(use(*ends, rate, busy=1e5 / rate), rtt_s=0.015) for ends, rate in asked.items()
    ]
    found = slow_parts(table(replace(one, seconds=2 * one.busy_s) for one in uses))
    assert [(one.node, one.way) for one in found] == [("c", "both")]
    assert 10 < found[0].factor < 40


def test_a_slow_route_that_carries_little_is_found_beside_what_carries_much() -> None:
    """As of a pipeline beside its data-parallel groups; a policer drops, and keeps no queue."""
    pairs = every_pair(1e9)
    uses = [use(*ends, rate, busy=1.0) for ends, rate in pairs.items() if sum(ends) == 3]
    uses += [use(*ends, rate, busy=0.005) for ends, rate in pairs.items() if sum(ends) != 3]
    slow = replace(use(1, 3, 2e6, busy=2.5), rtt_s=0.0001)
    uses = [one for one in uses if (one.rank, one.peer) != (1, slow.peer)] + [slow]
    found = slow_parts(table(replace(one, seconds=2 * one.busy_s) for one in uses))
    assert [(one.route.source, one.route.target) for one in found] == [("b", "d")]


def test_one_route_is_no_node() -> None:
    assert named(every_pair(1e9) | {(0, 3): 1e8}) == [("a -> d", "")]


def test_routes_that_are_alike_are_not_named() -> None:
    rates = {ends: 1e9 * (1 + 0.1 * index) / 2 for index, ends in enumerate(every_pair(1e9))}
    assert named({ends: min(rate, 7e8) for ends, rate in rates.items()}) == []


def test_in_a_ring_who_sends_is_named() -> None:
    ring = {(0, 1): 1e9, (1, 2): 1e8, (2, 3): 1e9, (3, 0): 1e9}
    assert named(ring) == [("b", "sends")]


def test_what_the_neighbour_of_a_slow_node_hands_on_is_no_second_one() -> None:
    ring = {(0, 1): 1e9, (1, 0): 1e9, (1, 2): 1e8, (2, 3): 1e8, (3, 0): 5e8}
    assert named(ring) == [("c", "both")]
    assert named(ring | {(3, 0): 1e8}) == [("c", "both"), ("d", "both")]


def test_noise_of_another_node_does_not_hide_the_slowest() -> None:
    """Node d is a little slow both ways, c sends ten times slower: c alone is named."""
    rates = every_pair(1e9)
    rates |= {ends: 6e8 for ends in rates if 3 in ends} | {
        ends: 1e8 for ends in rates if ends[0] == 2
    }
    assert named(rates) == [("c", "sends")]


def test_of_two_nodes_the_direction_is_named() -> None:
    hosts = ("a", "b")
    found = slow_parts(table([use(0, 1, 1e8), use(1, 0, 1e9)], hosts))
    assert [(one.node, one.route.source, one.route.target) for one in found] == [("", "a", "b")]


def test_connections_within_a_node_and_idle_ones_do_not_count() -> None:
    hosts = ("a", "a", "b", "b")
    uses = [use(0, 1, 1e7), use(0, 2, 1e9), use(2, 0, 1e9), use(3, 0, 1e8, busy=0.01)]
    assert slow_parts(table(uses, hosts)) == []
    assert slow_parts(table([])) == []


def test_a_job_says_since_when_and_names_the_node_only() -> None:
    fault = Fault(kind="network", rank=5, step=90, size=0.6)
    job = Job(ranks=16, per_node=2, steps=200, faults=(fault,))
    found = [one for one in judge(simulate(job, 1), world_size=16).findings if one.status != "pass"]
    assert [(one.id, one.subject.name) for one in found] == [("WATCH-002", "node-2")]
    assert "since step 89" in found[0].title
    assert "GB/s while data were under way" in found[0].saw
