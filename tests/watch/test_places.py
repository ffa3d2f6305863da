"""Lines of the program: one is told of a late rank, or as one that waits for the device, or none."""

from dataclasses import replace

from watch_simulator import Fault, Job, simulate
from wirespeed.watch.judge import Judged, judge
from wirespeed.watch.places import place_of, synchronising
from wirespeed.watch.steps import RankPlaces, StepTable

SLEEP, ITEM = "step (job.py:12)", "train (job.py:20)"
TEXTS = {SLEEP: "time.sleep(0.03)", ITEM: "print(loss.item())"}


def table(*, device: str = "", looks: int = 400, at: dict[int, dict[str, int]]) -> StepTable:
    job = Job(ranks=4, steps=200, faults=(Fault(kind="sleeps", rank=2, step=60),))
    places = {rank: RankPlaces(looks, at.get(rank, {})) for rank in range(4)}
    return replace(simulate(job, 1), places=places, texts=TEXTS, device=device)


def judged(told: StepTable) -> Judged:
    return judge(told, world_size=4)


def test_the_line_of_a_late_rank_is_told() -> None:
    found = judged(table(at={2: {SLEEP: 200, ITEM: 9}, 1: {ITEM: 10}}))
    (late,) = (one for one in found.findings if one.id == "WATCH-001")
    assert "at step (job.py:12) `time.sleep(0.03)` in 50% of looks, the others 0%" in late.saw


def test_a_line_where_all_are_alike_is_none() -> None:
    everywhere = {rank: {SLEEP: 200 + rank} for rank in range(4)}
    assert place_of(table(at=everywhere), [2]) is None
    assert place_of(table(at={2: {SLEEP: 9}}, looks=12), [2]) is None


def test_where_the_code_waits_for_its_device_is_told_with_the_most_it_may_cost() -> None:
    everywhere = {rank: {ITEM: 160, SLEEP: 40} for rank in range(4)}
    found = judged(table(device="cuda", at=everywhere))
    (one,) = (one for one in found.findings if one.id == "WATCH-006")
    assert (one.status, one.title) == (
        "warn",
        "the code waits for its device at train (job.py:20) `print(loss.item())`",
    )
    assert "40% of 400 looks (95 %: 35% … 45%)" in one.saw
    assert one.costs == "steps could be up to 1.67 times quicker without"


def test_who_waits_for_a_late_rank_at_such_a_line_waits_for_no_device() -> None:
    places = {rank: {ITEM: 160} for rank in (0, 1, 3)} | {2: {SLEEP: 200}}
    found = judged(table(device="cuda", at=places))
    assert not [one for one in found.findings if one.id == "WATCH-006"]
    assert "WATCH-001" in [one.id for one in found.findings]


def test_on_cpus_such_a_line_waits_for_nothing() -> None:
    assert synchronising(table(at={0: {ITEM: 300}})) == []


def test_on_gpus_it_is_not_said_that_ranks_wait_for_nothing() -> None:
    """Without marks of the GPU: the host's few microseconds are no share of the step."""
    told = replace(simulate(Job(ranks=4, steps=200), 1), device="cuda", waits_known=False)
    seen = judge(told, world_size=4).watched
    assert not seen.exposed_known and "blocked" not in seen.parts_ms


def test_what_would_bring_most_comes_first() -> None:
    gains = judged(table(at={})).watched.gains
    assert gains[0].what == "rank 2 as quick as the others"
    assert gains[0].low <= gains[0].share <= gains[0].high
    assert [one.share for one in gains] == sorted((one.share for one in gains), reverse=True)
