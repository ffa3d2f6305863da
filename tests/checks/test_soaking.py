"""The judgement on a soak, on synthetic windows: what must be found, and what must not."""

import random
from dataclasses import replace
from typing import Any

import pytest

from wirespeed.checks.soaking import soak_findings, stall_incident
from wirespeed.compare.estimate import cuts
from wirespeed.model.lasting_records import (
    Incident,
    Soak,
    SoakCell,
    SoakStall,
    SoakWindow,
    SoakWrong,
)
from wirespeed.model.records import Finding
from wirespeed.plan import Plan

PLAN = Plan(command="check", steps=())
MB = 1 << 20


def judged(soak: Soak) -> dict[str, Finding]:
    def levels(values: Any) -> list[int]:
        return [cut.at for cut in cuts(values)]

    found = soak_findings(soak, PLAN, skipped={}, change_points=levels)
    return {one.id: one for one in found}


def noisy(seed: int, windows: int = 60, cells: int = 3, **changes: Any) -> Soak:
    """A healthy soak on a shared machine: heavy-tailed, autocorrelated, a load that comes and goes."""
    draw = random.Random(seed)
    mood, made = 0.0, []
    for number in range(windows):
        mood = 0.6 * mood + draw.gauss(0, 0.08)
        figures = [_cell(draw, index, mood) for index in range(cells)]
        made.append(
            SoakWindow(
                since_s=10.0 * number,
                seconds=10.0,
                world=1,
                calls=100 * cells,
                checked_bytes=MB,
                wrong=0,
                stalls=0,
                stalled_s=0.0,
                cells=tuple(figures),
                last_share=(0.5, 0.5),
                rss_bytes=tuple(int(300 * MB + draw.gauss(0, 2 * MB)) for _ in range(2)),
                waited=(0.05, 0.05),
            )
        )
    whole = Soak(
        for_s=600,
        elapsed_s=10.0 * windows,
        window_s=10,
        worlds=1,
        calls=100 * cells * windows,
        windows=tuple(made),
    )
    return replace(whole, **changes)


def _cell(draw: random.Random, index: int, mood: float) -> SoakCell:
    median = 1e-3 * (1 + index) * (2.718 ** (mood + draw.gauss(0, 0.05)))
    return SoakCell(
        op="all_reduce",
        dtype="float32",
        size_bytes=4096 * (1 + index),
        calls=100,
        wrong=0,
        low=median * 0.8,
        median=median,
        p99=median * draw.paretovariate(1.5),
        max=median * 10,
        last_rank=draw.randrange(2),
    )


def slower(soak: Soak, factor: Any) -> Soak:
    """Every time of window i multiplied by factor(i)."""
    windows = []
    for number, window in enumerate(soak.windows):
        by = factor(number)
        cells = [replace(c, low=c.low * by, median=c.median * by) for c in window.cells]
        windows.append(replace(window, cells=tuple(cells)))
    return replace(soak, windows=tuple(windows))


def stall(at: float, rank: int, **changes: Any) -> SoakStall:
    fields: dict[str, Any] = {
        "at": "2026-11-22T01:00:00.000Z",
        "since_s": at,
        "world": 1,
        "op": "all_reduce",
        "dtype": "float32",
        "size_bytes": 4084,
        "seconds": 0.3,
        "median": 1e-3,
        "last_rank": rank,
    }
    return SoakStall(**{**fields, **changes})


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_found_where_nothing_is_wrong(seed: int) -> None:
    found = judged(noisy(seed))
    assert {one.status for one in found.values()} == {"pass"}


def test_one_wrong_element_in_a_million_calls_is_a_failure() -> None:
    wrong = SoakWrong(
        at="2026-11-22T01:00:00.000Z",
        since_s=99.0,
        world=1,
        op="all_reduce",
        dtype="int64",
        redop="sum",
        size_bytes=4084,
        seed=77,
        call=3,
        rank=1,
        host="node-b",
        wrong=1,
        elements=510,
        example="element 170: saw 1, expected 0",
        guess="bit flip",
    )
    found = judged(noisy(1, calls=1_000_000, wrong_calls=1, wrong=(wrong,)))["SOAK-001"]
    assert found.status == "fail"
    assert found.subject.name == "rank 1"
    assert "1 of 1,000,000 calls" in found.title
    assert "2026-11-22T01:00:00" in found.saw
    assert found.next == "wirespeed bench all_reduce -b 4084 -e 4084 -d int64 --seed 77 -n 1000"


def test_a_rank_that_stands_still_again_and_again_is_named_with_its_period() -> None:
    stalls = tuple(stall(30.0 * n, 0, paused=(1,)) for n in range(1, 10))
    found = judged(noisy(2, stalls=stalls, stall_calls=9))["SOAK-002"]
    assert found.status == "fail"
    assert found.subject.name == "rank 1"
    assert "every 30.0 s" in found.title


def test_a_busy_machine_is_no_rank_s_fault() -> None:
    stalls = tuple(stall(7.0 * n, 1, busy=(0, 1), seconds=1.0) for n in range(1, 60))
    found = judged(noisy(3, stalls=stalls, stall_calls=59))
    assert found["SOAK-002"].status == "pass"
    assert found["SOAK-007"].status == "warn"
    assert found["SOAK-007"].subject.kind == "job"
    assert all(stall_incident(one) is None for one in stalls)


def test_stalls_that_end_with_any_rank_name_none() -> None:
    draw = random.Random(4)
    stalls = tuple(stall(draw.uniform(0, 600), draw.randrange(8)) for _ in range(20))
    few = judged(noisy(4, stalls=stalls[:3], stall_calls=3))["SOAK-002"]
    assert few.status == "pass"
    many = judged(noisy(4, stalls=stalls, stall_calls=20, elapsed_s=100.0))["SOAK-002"]
    assert (many.status, many.subject.kind) == ("warn", "job")


@pytest.mark.parametrize("seed", range(4))
def test_a_drift_is_found(seed: int) -> None:
    found = judged(slower(noisy(seed), lambda n: 1 + n / 60))["SOAK-003"]
    assert found.status == "warn"
    assert "slower" in found.title


def test_a_step_is_found_with_its_time() -> None:
    found = judged(slower(noisy(5), lambda n: 1.0 if n < 30 else 1.8))["SOAK-003"]
    assert found.status == "warn"
    told = float(found.saw.rpartition("+")[2].removesuffix(" s"))
    assert 270 <= told <= 330


def test_drift_is_not_judged_on_a_busy_machine() -> None:
    soak = slower(noisy(6), lambda n: 1 + n / 60)
    busy = tuple(replace(one, waited=(0.1, 0.6)) for one in soak.windows)
    found = judged(replace(soak, windows=busy))["SOAK-003"]
    assert found.status == "not_checked"
    assert "60 of 60 windows" in found.because


def test_a_leak_names_the_rank() -> None:
    soak = noisy(7)
    windows = tuple(
        replace(one, rss_bytes=(one.rss_bytes[0], one.rss_bytes[1] + 2 * MB * n))
        for n, one in enumerate(soak.windows)
    )
    found = judged(replace(soak, windows=windows))["SOAK-005"]
    assert found.status == "warn"
    assert found.subject.name == "rank 1"


def test_memory_that_is_set_up_first_is_no_leak() -> None:
    soak = noisy(8)
    windows = tuple(
        replace(one, rss_bytes=tuple(size + 10 * MB * min(n, 15) for size in one.rss_bytes))
        for n, one in enumerate(soak.windows)
    )
    assert judged(replace(soak, windows=windows))["SOAK-005"].status == "pass"


def test_a_world_that_failed_is_a_failure_with_its_cause() -> None:
    died = Incident(
        at="2026-11-22T01:00:00.000Z",
        since_s=50.0,
        id="DIED-001",
        title="rank 1 died",
        subject_kind="rank",
        subject="rank 1",
        because="the out-of-memory killer",
        lost_s=8.0,
    )
    full = replace(died, id="SOAK-006", subject_kind="job", subject="job", lost_s=60.0)
    found = judged(noisy(9, incidents=(died, full)))
    assert found["SOAK-004"].status == "fail"
    assert found["SOAK-004"].subject.name == "rank 1"
    assert found["SOAK-004"].because == "the out-of-memory killer"
    assert found["SOAK-006"].status == "warn"


def test_too_short_is_not_called_good() -> None:
    found = judged(noisy(10, windows=5))
    assert found["SOAK-003"].status == found["SOAK-005"].status == "not_checked"
    assert judged(noisy(11, windows=0, calls=0))["SOAK-001"].status == "not_checked"


def test_windows_that_share_no_operation_tell_nothing_of_drift() -> None:
    soak = noisy(1)
    split = tuple(
        replace(window, cells=tuple(replace(cell, size_bytes=64 + n) for cell in window.cells))
        for n, window in enumerate(soak.windows)
    )
    found = judged(replace(soak, windows=split))["SOAK-003"]
    assert (found.status, "no operation was timed" in found.because) == ("not_checked", True)
