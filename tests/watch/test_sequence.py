"""From the calls of all ranks to one step's sequence."""

from dataclasses import replace

import pytest
from tests.watch.jobs import MB, Do, calls_of, ddp, fsdp, tp_dp

from wirespeed.errors import InputError
from wirespeed.model.bench_records import MedianTime
from wirespeed.watch.sequence import Found, find_sequence

WORLD4 = (0, 1, 2, 3)
BARRIER = Do("barrier", 0, WORLD4, dtype="")


def told(found: Found) -> list[tuple[str, str, int]]:
    cases = [found.cases[call.step] for call in found.calls]
    return [(case.op, case.groups, case.size_bytes) for case in cases]


def test_buckets_of_data_parallelism():
    warm = [Do("broadcast", 3 * MB, WORLD4), Do("all_reduce", 58 * MB, WORLD4)]
    found = find_sequence(
        calls_of(ddp(4), range(4), before=warm, now_and_then={3: BARRIER, 7: BARRIER})
    )
    assert told(found) == [("all_reduce", "all", size * MB) for size in (1, 25, 25, 7)]
    assert (found.world, [one.calls for one in found.in_job]) == (4, [1, 2, 1])
    assert [call.waited for call in found.calls] == [False, False, False, True]
    assert found.calls[0].gap_s == pytest.approx(0.05 + 0.002, rel=0.2)
    assert found.calls[1].gap_s == pytest.approx(0.002, rel=0.2)
    assert found.step is not None
    assert found.step.median == pytest.approx(0.05 + 4 * 0.002, rel=0.1)
    time = found.in_job[1].time
    assert time is not None
    assert time.low <= time.median <= time.high
    assert time.median == pytest.approx(0.006, rel=0.1)
    assert found.in_job[1].last_s is not None
    assert found.in_job[1].last_s < time.median


def test_gathers_are_told_by_the_whole_that_they_give():
    found = find_sequence(calls_of(fsdp(4, layers=5), range(4)))
    ops = [op for op, _, _ in told(found)]
    assert ops == ["all_gather"] * 5 + ["all_gather", "reduce_scatter"] * 5
    assert {size for _, _, size in told(found)} == {MB}
    assert {case.dtype for case in found.cases} == {"bfloat16", "float32"}
    assert all(call.waited for call in found.calls)


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("ranks", [range(8), [0, 1, 3, 4, 6, 7]], ids=["all", "two missing"])
def test_groups_side_by_side_are_one_call(ranks, numbered):
    found = find_sequence(calls_of(tp_dp(2, 4), ranks, numbered=numbered))
    assert told(found) == [("all_reduce", "of-2", MB // 4)] * 4 + [
        ("all_reduce", "every-2", 8 * MB)
    ]
    missing = [one for one in found.choices if one.name == "ranks without a record"]
    assert bool(missing) == (len(ranks) < 8)


def test_whole_groups_without_records_are_filled_where_the_cut_is_regular():
    found = find_sequence(calls_of(tp_dp(2, 4), [0, 1, 2, 4]), 8)
    assert {groups for _, groups, _ in told(found)} == {"of-2", "every-2"}


def test_256_ranks_in_three_dimensions():
    found = find_sequence(calls_of(tp_dp(8, 32), range(256), steps=4))
    assert {groups for _, groups, _ in told(found)} == {"of-8", "every-8"}
    assert found.world == 256


def test_stages_that_differ_keep_each_ranks_order():
    def step(rank: int) -> list[Do]:
        stage = (0, 1) if rank < 2 else (2, 3)
        own = Do("all_reduce", (1 + rank // 2) * MB, stage, f"stage{stage}")
        return [own, own, Do("all_reduce", 2048, WORLD4)]

    found = find_sequence(calls_of(step, range(4)))
    assert sorted(told(found)) == sorted(
        [("all_reduce", "ranks-0-1", MB)] * 2
        + [("all_reduce", "ranks-2-3", 2 * MB)] * 2
        + [("all_reduce", "all", 2048)]
    )
    assert told(found)[-1][1] == "all"


def test_a_ring_that_was_cut_elsewhere_on_each_rank():
    calls = calls_of(ddp(4), range(4), steps=12)
    cut = {rank: of[rank : len(of) - 2 * rank] for rank, of in calls.items()}
    assert told(find_sequence(cut)) == told(find_sequence(calls))


def test_steps_that_were_sampled_far_apart():
    calls = calls_of(ddp(4), range(4), steps=40)
    kept = {rank: [one for one in of if one.seq // 4 % 5 < 2] for rank, of in calls.items()}
    found = find_sequence(kept)
    assert told(found) == told(find_sequence(calls))
    assert found.calls[0].gap_s == pytest.approx(0.052, rel=0.2)
    assert found.step is not None
    assert found.step.median == pytest.approx(0.058, rel=0.1)


def test_single_steps_take_the_time_of_a_step_from_elsewhere():
    calls = calls_of(ddp(4, (2, 2, 2, 2)), range(4), steps=40, ended=False)
    kept = {rank: [one for one in of if one.seq // 4 % 10 == 5] for rank, of in calls.items()}
    assert find_sequence(kept).step is None
    step = MedianTime(median=0.06, low=0.05, high=0.07, samples=40)
    found = find_sequence(kept, step=step)
    assert (found.step, len(found.calls)) == (step, 4)
    assert sum(call.gap_s for call in found.calls) == pytest.approx(0.06)
    assert found.calls[0].gap_s == pytest.approx(0.054, rel=0.1)


def test_no_times():
    calls = calls_of(fsdp(2, layers=3), range(2), ended=False)
    timeless = {rank: [replace(one, begin_s=0.0) for one in of] for rank, of in calls.items()}
    found = find_sequence(timeless)
    assert told(found) == told(find_sequence(calls))
    assert found.step is None
    assert {call.gap_s for call in found.calls} == {0.0}
    assert "gaps" in [one.name for one in found.choices]


def test_no_ends():
    found = find_sequence(calls_of(ddp(2), range(2), ended=False))
    assert not any(call.waited for call in found.calls)
    assert all(one.time is None and one.last_s is None for one in found.in_job)
    assert "overlap" in [one.name for one in found.choices]


def test_uneven_exchanges_are_taken_at_their_mean():
    def step(rank: int) -> list[Do]:
        return [Do("all_to_all", (1 + rank) * MB, (0, 1)), Do("all_reduce", 4096, (0, 1))]

    assert told(find_sequence(calls_of(step, range(2))))[0] == ("all_to_all", "all", MB * 3 // 2)


def test_members_of_groups_that_have_only_names():
    calls = calls_of(tp_dp(2, 2), range(4))
    bare = {rank: [replace(one, group=()) for one in of] for rank, of in calls.items()}
    assert {groups for _, groups, _ in told(find_sequence(bare))} == {"of-2", "every-2"}


def other_order(rank: int) -> list[Do]:
    a, b = Do("all_reduce", MB, (0, 1), "a"), Do("all_reduce", MB, (0, 1), "b")
    return [a, b] if rank else [b, a]


def other_sizes(rank: int) -> list[Do]:
    return [Do("all_reduce", MB + 4 * rank, (0, 1)), Do("all_gather", MB, (0, 1))]


def fewer(rank: int) -> list[Do]:
    many = 2 if rank else 3
    return [Do("all_reduce", MB, (0, 1))] * many + [Do("all_gather", MB, (0, 1), "b")]


def sends(rank: int) -> list[Do]:
    return [Do("all_reduce", MB, (0, 1)), Do("send" if rank else "recv", MB, (0, 1), "pp")]


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ({}, "no collectives of any rank"),
        (calls_of(ddp(2), range(2), steps=2), "no sequence repeats 3 times"),
        (calls_of(other_sizes, range(2)), "do not agree"),
        (calls_of(fewer, range(2)), "rank 1 has 2 collectives of group 'world'"),
        (calls_of(sends, range(2)), "cannot be replayed: recv, send"),
        (calls_of(fsdp(4, layers=2), [0]) | {1: []}, "rank 1: 0 collectives"),
    ],
    ids=["nothing", "too few steps", "sizes", "counts", "pipeline", "an empty rank"],
)
def test_what_is_refused(calls, said):
    with pytest.raises(InputError, match=said):
        find_sequence(calls)


def test_sizes_that_are_not_told_are_refused():
    bare = calls_of(lambda rank: [Do("all_reduce", 0, (0, 1), dtype="")], range(2))
    with pytest.raises(InputError, match="does not tell the sizes"):
        find_sequence(bare)


def test_groups_that_are_not_told_are_refused():
    bare = [replace(one, group=(), group_name="") for one in calls_of(ddp(2), [0])[0]]
    with pytest.raises(
        InputError, match="rank 0 does not tell the process group of its all_reduce"
    ):
        find_sequence({0: bare, 1: bare})


@pytest.mark.parametrize("after", [range(3, 40, 4), range(0, 40)], ids=["now and then", "always"])
def test_tiny_calls_count_where_most_steps_have_them(after):
    norm = Do("all_reduce", 4, WORLD4)
    found = find_sequence(
        calls_of(ddp(4), range(4), steps=40, now_and_then=dict.fromkeys(after, norm))
    )
    assert len(found.calls) == (5 if len(after) == 40 else 4)


def test_a_rank_whose_part_nothing_tells():
    def step(rank: int) -> list[Do]:
        return [Do("all_reduce", MB, (0, 1, 2)), Do("all_reduce", 4096, (0, 1, 2, 3, 4))]

    with pytest.raises(InputError, match="which collectives ranks 3, 4 issued"):
        find_sequence(calls_of(step, range(3)))


def test_orders_that_would_hang_are_refused():
    with pytest.raises(InputError, match="do not agree on the order"):
        find_sequence(calls_of(other_order, range(2), numbered=True))
