"""Who is accused, who is not, and why: fleets made by hand, each with one thing that is so."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from wirespeed.fleet import chance
from wirespeed.fleet.job_ends import JobEnd, JobTable
from wirespeed.fleet.lemons import DAY_S, Judged, find_lemons

NODES, DAYS, HOURS = 40, 60, 6
NOW = DAYS * DAY_S


def jobs(seed: int = 0, *, of: int = 2, fails: float = 0.03) -> list[JobEnd]:
    """Back to back on all nodes, some on each, other neighbours each time; some fail by themselves."""
    rng = np.random.default_rng(seed)
    return list(_jobs(rng, of, fails))


def _jobs(rng: np.random.Generator, of: int, fails: float) -> Iterator[JobEnd]:
    for slot in range(DAYS * 24 // HOURS):
        order = rng.permutation(NODES)
        for k in range(0, NODES, of):
            bad = rng.random() < fails
            start = slot * HOURS * 3600.0
            yield JobEnd(
                job=f"{slot}-{k}",
                workload=f"user-{rng.integers(30)}",
                start_s=start,
                end_s=start + (rng.uniform(0.2, 1.0) if bad else 1.0) * HOURS * 3600,
                nodes=tuple(f"n{place}" for place in sorted(order[k : k + of])),
                how="failed" if bad else "good",
            )


def spoilt(found: list[JobEnd], node: str, share: float, seed: int = 1, **how) -> list[JobEnd]:
    """That share of the node's jobs fails because of it, somewhere on their way."""
    rng = np.random.default_rng(seed)
    return [
        replace(
            one,
            end_s=one.start_s + rng.uniform(0.2, 1.0) * (one.end_s - one.start_s),
            **{"how": "failed", **how},
        )
        if node in one.nodes and rng.random() < share
        else one
        for one in found
    ]


def judged(found: list[JobEnd]) -> Judged:
    return find_lemons(JobTable.of(found), NOW)


def accused(found: list[JobEnd]) -> list[str]:
    return [one.node for one in judged(found).suspects if one.accused]


@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_accused_of_what_is_chance(seed: int) -> None:
    assert accused(jobs(seed, of=1 + 3 * seed, fails=0.1)) == []


def test_a_node_that_fails_jobs_is_found_and_its_siblings_are_not() -> None:
    found = judged(spoilt(jobs(), "n7", 0.2))
    assert [one.node for one in found.suspects if one.accused] == ["n7"]
    lemon = found.suspects[0]
    assert lemon.failures > 3 * lemon.expected
    assert not lemon.rivals
    assert (found.nodes, found.outages) == (NODES, 0)


def test_several_are_found_though_they_share_jobs() -> None:
    found = spoilt(spoilt(spoilt(jobs(of=2), "n1", 0.25), "n2", 0.25, 2), "n3", 0.25, 3)
    assert set(accused(found)) == {"n1", "n2", "n3"}


def test_failures_that_the_scheduler_tells_of_nodes_weigh_more() -> None:
    told = spoilt(jobs(of=4), "n7", 0.06, how="node", culprit="n7")
    hidden = spoilt(jobs(of=4), "n7", 0.06)
    assert accused(told) == ["n7"]
    assert accused(hidden) == []
    (one, *_) = judged(told).suspects
    assert one.evidence > 3


def test_a_node_that_fails_jobs_as_they_start_is_found() -> None:
    rng = np.random.default_rng(3)
    found = [
        replace(one, how="failed", end_s=one.start_s + rng.uniform(5, 90))
        if "n7" in one.nodes and rng.random() < 0.2
        else one
        for one in jobs()
    ]
    assert accused(found) == ["n7"]


def test_a_crash_loop_counts_once() -> None:
    loop = [
        JobEnd(
            job=f"loop-{k}",
            workload="debugging",
            start_s=NOW - 5000 + 100 * k,
            end_s=NOW - 4960 + 100 * k,
            nodes=("n7",),
            how="failed",
        )
        for k in range(40)
    ]
    found = judged([*jobs(), *loop])
    assert not any(one.accused for one in found.suspects)
    assert found.loops >= 39


def test_a_program_that_fails_wherever_it_runs_is_not_its_nodes_fault() -> None:
    """Most of the time it runs on one node, and fails half of the time after hours."""
    rng = np.random.default_rng(5)
    found = [
        replace(one, workload="broken", how="failed" if rng.random() < 0.5 else "good")
        if ("n7" in one.nodes and rng.random() < 0.5) or rng.random() < 0.02
        else one
        for one in jobs(of=1)
    ]
    assert accused(found) == []


@pytest.mark.parametrize("how", ["failed", "node"])
def test_an_outage_is_nobodys_fault(how) -> None:
    found = []
    for one in jobs(of=2):
        slot, k = map(int, one.job.split("-"))
        out = (
            slot % 30 == 7 and k < NODES // 2
        )  # each time half of the jobs, also of the same nodes
        end = one.start_s + 9000.0 + k
        found.append(
            replace(
                one, nodes=(f"n{k}", f"n{k + 1}"), **({"how": how, "end_s": end} if out else {})
            )
        )
    said = judged(found)
    assert not any(one.accused for one in said.suspects)
    assert said.outages == 8 * NODES // 4


def test_chance_has_a_limit_for_any_number_of_failures() -> None:
    assert [chance._most_by_chance(mean) for mean in (0.03, 5.0, 700.0)] == [1, 12, 769]
    assert 100_000 < chance._most_by_chance(100_000.0) < 101_000


def test_nodes_that_always_run_together_are_named_together_and_not_accused() -> None:
    found = []
    for one in spoilt(jobs(of=2), "n6", 0.3):
        k = int(one.job.split("-")[1])
        found.append(replace(one, nodes=(f"n{k}", f"n{k + 1}"), how="good"))
    found = spoilt(found, "n6", 0.3)
    said = judged(found)
    assert not any(one.accused for one in said.suspects)
    first = said.suspects[0]
    assert {first.node, *first.rivals} == {"n6", "n7"}


def test_a_node_of_another_kind_is_held_to_its_kind() -> None:
    """All nodes of one group fail ten times as often: a bad kind, no bad node."""
    rng = np.random.default_rng(6)
    found = []
    for one in jobs(of=1, fails=0.02):
        old = int(one.nodes[0][1:]) < 15
        broke = old and rng.random() < 0.05
        found.append(
            replace(
                one,
                group="old" if old else "new",
                how="node" if broke else one.how,
                culprit=one.nodes[0] if broke else "",
            )
        )
    assert accused(found) == []


def test_what_is_long_ago_is_over() -> None:
    found = [
        replace(one, start_s=one.start_s - 100 * DAY_S, end_s=one.end_s - 100 * DAY_S)
        for one in spoilt(jobs(), "n7", 0.5)
    ]
    assert accused([*found, *jobs(9)]) == []


def test_no_jobs_and_one_job_accuse_nobody() -> None:
    assert find_lemons(JobTable.of([]), NOW).suspects == ()
    (one, *_) = jobs()
    assert accused([replace(one, how="node", culprit=one.nodes[0])]) == []
