"""What of a pause between operators is a wait."""

import numpy as np
import pytest

from wirespeed.watch.calls import Call
from wirespeed.watch.traces.cover import Cover, seconds_before, stretches
from wirespeed.watch.traces.rank_trace import RankTrace
from wirespeed.watch.traces.waiting import Waiting


def call(begin_ms: float, end_ms: float) -> Call:
    return Call(
        rank=0, op="all_reduce", group=(0, 1), group_name="0", seq=-1, size_bytes=0, dtype="",
        begin_s=begin_ms / 1e3, end_s=end_ms / 1e3,
    )  # fmt: skip


def waited_ms(calls: list[Call], *busy: tuple[float, float]) -> float:
    parts = [(begin / 1e3, end / 1e3) for begin, end in busy]
    trace = RankTrace(source="", kind="kineto", compute=Cover(parts), calls=calls)
    return float(Waiting(trace).before(np.array([1e3]))[0]) * 1e3


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([call(2, 8)], 5),  # from the end of the operator to the end of the call
        ([call(5, 8)], 3),  # it began in the pause
        ([call(2, 9), call(4, 8)], 6),  # of several the last to end counts
        ([call(2, 25)], 7),  # an end that is told after the thread went on
        ([call(0, 2)], 0),  # hidden behind an operator
        ([call(12, 14)], 0),
    ],
)
def test_a_pause_is_a_wait_as_long_as_a_call_is_under_way(
    calls: list[Call], expected: float
) -> None:
    assert waited_ms(calls, (0, 3), (10, 30)) == pytest.approx(expected)


def test_a_step_of_python_between_operators_is_none() -> None:
    busy = [(0.1 * i, 0.1 * i + 0.06) for i in range(100)]
    assert waited_ms([call(0, 9.97)], *busy) <= 0.04
    assert waited_ms([call(0, 5.08)], *busy) == pytest.approx(0.02, abs=0.001)


def test_seconds_before_any_time() -> None:
    times = np.array([-1.0, 0.5, 1.5, 2.5, 9.0])
    np.testing.assert_allclose(
        seconds_before(stretches([(0, 1), (2, 3)]), times), [0, 0.5, 1, 1.5, 2]
    )
    assert not seconds_before(stretches([]), times).any()
