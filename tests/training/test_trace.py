import json
import time

import pytest

from wirespeed.training.trace import Span, align, chrome_trace, on_one_clock, passages

AHEAD_S = 123.456


def clock_case(rank: int, ranks: int):
    """Passages with true clocks, and with rank 1's put ahead."""
    import torch.distributed as dist

    from wirespeed.training import trace

    dist.barrier()
    true = passages(dist.barrier, rounds=30)
    if rank == 1:
        trace.perf_counter = lambda: time.perf_counter() + AHEAD_S
    return [true, passages(dist.barrier, rounds=30)]


def test_barriers_bring_clocks_together_within_the_error_they_state(world):
    by_rank = world("clock_case")
    for index, ahead in enumerate((0.0, AHEAD_S)):  # one machine has one clock
        found = align([each[index] for each in by_rank])
        assert found.offsets[0] == found.errors[0] == 0
        assert abs(found.offsets[1] - ahead) <= found.errors[1] + 1e-9
        assert found.errors[1] < 1


def test_the_narrowest_passages_decide():
    # Rank 1's clock is 10 ahead; the second passage is tight, the first is not.
    first = [(0.0, 5.0), (20.0, 20.2)]
    second = [(14.0, 15.5), (30.1, 30.3)]
    found = align([first, second])
    assert found.offsets[1] == pytest.approx(10.1)
    assert found.errors[1] == pytest.approx(0.2)


def test_spans_move_to_the_first_clock():
    found = align([[(0.0, 1.0)], [(10.0, 11.0)]])
    spans = [Span(0, "compute", "a", 0.5, 1.0), Span(1, "compute", "b", 10.5, 11.0)]
    moved = on_one_clock(spans, found)
    assert [(span.begin_s, span.end_s) for span in moved] == [(0.5, 1.0), (0.5, 1.0)]


def _trace(spans, **more):
    return json.loads(chrome_trace(spans, hosts=["one", "two"], **more))


def test_ranks_are_processes_and_lanes_are_threads():
    spans = [
        Span(rank, lane, f"{lane} {rank}", 100 + rank, 101.5)
        for rank in (0, 1)
        for lane in ("communication", "compute", "step")
    ]
    whole = _trace(spans, about={"model": "tiny"})
    events = whole["traceEvents"]
    names = {
        (e["name"], e["pid"], e["tid"]): e["args"]["name"]
        for e in events
        if "name" in e.get("args", {})
    }
    assert names["process_name", 1, 0] == "rank 0 on one"
    assert names["process_name", 2, 0] == "rank 1 on two"
    threads = [names["thread_name", 1, tid] for tid in (1, 2, 3)]
    assert threads == ["step", "compute", "communication"]
    complete = [e for e in events if e["ph"] == "X"]
    assert {(e["pid"], e["tid"], e["cat"], e["ts"], e["dur"]) for e in complete} == {
        (pid, tid, lane, (pid - 1) * 1e6, (1.5 - (pid - 1)) * 1e6)
        for pid in (1, 2)
        for tid, lane in enumerate(("step", "compute", "communication"), 1)
    }
    assert whole["otherData"] == {"model": "tiny"}


def test_events_of_one_thread_nest():
    spans = [
        Span(0, "communication", "a", 0, 4),
        Span(0, "communication", "b", 1, 6),
        Span(0, "communication", "c", 2, 3),
        Span(0, "communication", "d", 4, 5),
        Span(0, "communication", "e", 5, 7),
    ]
    events = [e for e in _trace(spans)["traceEvents"] if e["ph"] == "X"]
    assert sorted(e["name"] for e in events) == ["a", "b", "c", "d", "e"]
    for tid in {e["tid"] for e in events}:
        row = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["tid"] == tid]
        for one in row:
            for other in row:
                apart = one[1] <= other[0] or other[1] <= one[0]
                inside = one[0] <= other[0] and other[1] <= one[1]
                assert apart or inside or (other[0] <= one[0] and one[1] <= other[1])
    assert len({e["tid"] for e in events}) == 2


def test_a_trace_of_nothing_is_still_a_trace():
    assert _trace([])["traceEvents"] == []
