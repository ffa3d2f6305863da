"""How calls are timed on a GPU: what is issued in which order, noted by stand-ins of torch.cuda."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from wirespeed.rank import measure, steps


class Noted:
    """torch.cuda, as far as timing uses it."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.held: list[int] = []
        self.host_is_slow = False
        self.current = self.Stream("current")
        self.CUDAGraph = lambda: SimpleNamespace(replay=lambda: self.seen.append("replay"))

    def Stream(self, name: object) -> Any:
        label = name if isinstance(name, str) else "side"
        note = lambda other: self.seen.append(f"{label} waits for {other.label}")  # noqa: E731
        return SimpleNamespace(label=label, wait_stream=note)

    def Event(self, enable_timing: bool) -> Any:
        note = lambda: self.seen.append("event")  # noqa: E731
        return SimpleNamespace(
            record=note,
            synchronize=lambda: None,
            elapsed_time=lambda _: 2.0,
            query=lambda: self.host_is_slow,
        )

    def current_stream(self, _: object) -> Any:
        return self.current

    def synchronize(self, _: object) -> None:
        self.seen.append("synchronize")

    def _sleep(self, cycles: int) -> None:
        self.seen.append("hold")
        self.held.append(cycles)

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        self.seen.append(f"on {stream.label}")
        yield
        self.seen.append(f"off {stream.label}")

    @contextmanager
    def graph(self, graph: Any, *, stream: Any, capture_error_mode: str) -> Iterator[None]:
        self.seen.append(f"capture on {stream.label} {capture_error_mode}")
        yield
        self.seen.append("captured")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Noted:
    found = Noted()
    monkeypatch.setattr(measure.torch, "cuda", found)
    return found


DEVICE = torch.device("cuda", 0)


def test_a_graph_holds_several_calls_over_all_buffers_and_streams_wait_around_it(
    cuda: Noted,
) -> None:
    shots = [lambda name=name: cuda.seen.append(name) for name in ("a", "b", "c")]
    replays = measure.as_graphs(shots, DEVICE, calls=2, graphs=2)
    assert cuda.seen == [
        *("side waits for current", "on side", "a", "b", "c", "a", "off side"),
        "current waits for side",
        *("capture on side thread_local", "a", "b", "captured"),
        *("capture on side thread_local", "c", "a", "captured"),
    ]
    assert len(replays) == 2
    cuda.seen.clear()
    for replay in replays:
        replay()
    assert cuda.seen == ["replay", "replay"]


def timer(cuda: Noted) -> measure.CudaTimer:
    def note(word: str) -> Any:
        return lambda: cuda.seen.append(word)

    return measure.CudaTimer(DEVICE, note("barrier"), note("tick"), note("all_reduce"))


def test_devices_go_on_together_and_the_launch_of_a_single_call_is_hidden(cuda: Noted) -> None:
    turn = cycle([lambda: cuda.seen.append("call")])
    assert timer(cuda).each(turn, 1) == [2e-3]
    before = ["synchronize", "tick", "barrier"]
    assert cuda.seen == [*before, "hold", "all_reduce", "event", "call", "event"]
    cuda.seen.clear()
    assert timer(cuda).batch(turn, 2) == 2e-3
    assert cuda.seen == [*before, "all_reduce", "event", "call", "call", "event"]


def test_where_a_host_is_slow_its_gpu_is_held_for_longer_up_to_a_bound(cuda: Noted) -> None:
    """Else a sample has the time in which the GPU waited for the host to issue the call."""
    nothing = lambda: None  # noqa: E731
    timer = measure.CudaTimer(DEVICE, nothing, nothing, nothing)
    timer.each(cycle([nothing]), 3)
    cuda.host_is_slow = True
    timer.each(cycle([nothing]), 12)
    first = cuda.held[0]
    assert cuda.held[:6] == [first] * 4 + [2 * first, 4 * first]
    assert cuda.held[-1] == cuda.held[-2] <= 64 * first


def test_a_torch_without_such_a_kernel_times_too(cuda: Noted, monkeypatch: Any) -> None:
    monkeypatch.delattr(Noted, "_sleep")
    assert timer(cuda).each(cycle([lambda: None]), 2) == [2e-3, 2e-3]


def test_a_rank_outside_of_all_groups_warms_up_as_long_as_the_others(
    cuda: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each decides by figures of all; a bound of its own would end its warm-up at another call."""
    seen: list[int] = []

    def warm_up(place: Any, timer: Any, turn: Any, how: Any, buffers: int) -> int:
        seen.append(buffers)
        raise InterruptedError

    for name in ("connect", "align_point", "timer_for", "sync_point"):
        monkeypatch.setattr(measure, name, lambda *_: None)
    monkeypatch.setattr(measure, "shots_of", lambda *_: [lambda: None])
    monkeypatch.setattr(measure, "warm_up", warm_up)
    control = SimpleNamespace(matrix=lambda _: torch.tensor([[1.0], [64.0]]))
    place: Any = SimpleNamespace(device=DEVICE, control=control, tick=None)
    for group in (None, object()):
        site: Any = SimpleNamespace(group=group)
        with pytest.raises(InterruptedError):
            measure.measure(place, site, measure.Measure(timing="graph"), None)
    assert seen == [8, 8]


def test_what_the_allocator_keeps_is_free_for_the_next_step(
    cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda.mem_get_info = lambda _: (10 << 30, 80 << 30)
    cuda.memory_reserved, cuda.memory_allocated = lambda _: 60 << 30, lambda _: 10 << 30
    assert steps._memory(DEVICE) == int((60 << 30) * 0.9)
