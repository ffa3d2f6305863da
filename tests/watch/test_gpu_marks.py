"""What the marks of a rank's GPU tell. The GPU is a stand-in, whose clock is behind the host's."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from tests.watch.test_inside import load


class Gpu:
    """A stream that works off what it is handed, and events on it."""

    def __init__(self) -> None:
        self.at = self.reached = 0.0
        self.capturing, self.fails = False, False
        gpu = self

        class Event:
            device = None
            made = 0

            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing
                Event.made += 1

            def record(self, stream: str = "main") -> None:
                if gpu.fails:
                    raise RuntimeError("CUDA error: an illegal memory access was encountered")
                self.at = min(gpu.at, gpu.reached) if stream == "aside" else gpu.at

            def query(self) -> bool:
                assert not gpu.capturing, "asking now would break the capture"
                return self.at <= gpu.reached

            def elapsed_time(self, later: "Event") -> float:
                return (later.at - self.at) * 1e3

        self.Event = Event
        self.is_current_stream_capturing = lambda: self.capturing
        self.current_device = lambda: 0
        self.current = "main"
        self.current_stream = lambda: self.current
        self.set_device = lambda _: None
        self.Stream = lambda: "aside"


class Job:
    """The host hands in a step's work, and goes on."""

    def __init__(self) -> None:
        self.gpu, self.host = Gpu(), 0.0
        self.module: Any = load("_wirespeed_gpu")
        self.module.now = lambda: self.host
        self.rank = SimpleNamespace(events=[], marks=None, in_backward=False, autograd=0)
        self.rank.thread = threading.get_ident()
        self.used = {0}
        lib = SimpleNamespace(_cuda_hasPrimaryContext=lambda device: device in self.used)
        torch = SimpleNamespace(cuda=self.gpu, _C=lib)
        self.marks = self.rank.marks = self.module.Marks(torch, self.rank)
        self.of_steps = self.module.StepMarks()
        self.pending: list[Any] = []

    def step(self, *, own_s: float, waits: tuple[float, ...] = ()) -> None:
        self.gpu.at += own_s
        for seconds in waits:
            self.marks.begin()
            self.gpu.at += seconds
            self.host += 1e-5
            self.marks.end()
        self.marks.edge()
        for event in self.rank.events:
            self.of_steps.take(*event)
        self.rank.events.clear()
        self.pending.append(self.of_steps.ended())

    def over(self) -> list[tuple[float, float]]:
        """(seconds of the step, of them waited) of what the GPU has ended."""
        count = self.marks.settle(iter(self.pending))
        done, self.pending = self.pending[:count], self.pending[count:]
        known = [one for one in done if one is not None and one.seconds >= 0]
        return [(round(one.seconds, 6), one.waited) for one in known]


@pytest.fixture
def job() -> Job:
    return Job()


def test_a_step_has_the_gpus_time_once_the_gpu_has_ended_it(job: Job) -> None:
    job.step(own_s=1.0)
    job.step(own_s=0.5, waits=(0.2, 0.3))
    job.step(own_s=2.0)
    assert job.over() == []
    job.gpu.reached = 2.0  # of the second the end was marked at 2.0
    assert job.over() == [(1.0, pytest.approx(0.5))]
    assert len(job.pending) == 1
    job.gpu.reached = job.gpu.at
    assert job.over() == [(2.0, 0)]


def test_a_wait_within_a_wait_counts_once_and_events_are_used_again(job: Job) -> None:
    for _ in range(200):
        job.marks.sync()  # DDP's own waits for its buckets, …
        job.gpu.at += 0.1
        job.marks.begin()  # … each by `Work.wait`
        job.gpu.at += 0.2
        job.marks.end()
        job.marks.synced()
        job.step(own_s=0.7)
        job.gpu.reached = job.gpu.at
        for seconds, waited in job.over():
            assert (seconds, waited) == (1.0, pytest.approx(0.3))
    assert job.gpu.Event.made < 20


def test_what_an_exception_leaves_open_ends_with_the_step(job: Job) -> None:
    job.marks.begin()
    job.step(own_s=1.0)
    job.step(own_s=0.5, waits=(0.5,))
    job.gpu.reached = job.gpu.at
    assert job.over() == [(1.0, 0.5)]
    job.marks.synced()  # of no backward
    job.step(own_s=0.5, waits=(0.25,))
    job.gpu.reached = job.gpu.at
    assert job.over() == [(0.75, 0.25)]


def test_nothing_is_asked_or_marked_while_a_graph_is_captured(job: Job) -> None:
    job.step(own_s=1.0)
    begin = job.module._capture_begins(lambda: setattr(job.gpu, "capturing", True), job.rank)
    end = job.module._capture_ends(lambda: setattr(job.gpu, "capturing", False), job.rank)
    begin()
    job.gpu.reached = job.gpu.at
    assert job.over() == [] and job.pending
    job.step(own_s=1.0, waits=(1.0,))
    assert job.pending[-1] is None
    end()
    job.over()
    assert not job.pending

    def refused() -> None:
        raise RuntimeError("capture failed")

    with pytest.raises(RuntimeError):
        job.module._capture_begins(refused, job.rank)()
    job.step(own_s=1.0)
    job.gpu.reached = job.gpu.at
    job.over()
    assert not job.pending


def test_what_another_stream_waits_for_holds_nothing_up(job: Job) -> None:
    """FSDP gathers and reduces on streams of its own, beside what computes."""
    job.step(own_s=1.0)
    job.gpu.current = "gathers"
    job.marks.begin()
    job.gpu.at += 0.2
    job.marks.end()
    job.gpu.current = "main"
    job.step(own_s=0.5, waits=(0.3,))
    job.gpu.reached = job.gpu.at
    assert job.over() == [(1.0, pytest.approx(0.3))]


def test_a_device_that_the_program_does_not_use_gets_no_mark(job: Job) -> None:
    job.used.clear()
    job.step(own_s=1.0)
    assert job.pending == [None] and not job.gpu.Event.made


def test_a_mark_on_another_device_makes_a_step_unknown_and_no_more(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mismatch(*_: object) -> float:
        raise RuntimeError("device mismatch")

    job.step(own_s=1.0)
    job.step(own_s=1.0, waits=(0.5,))
    job.gpu.reached = job.gpu.at
    with monkeypatch.context() as broken:
        broken.setattr(job.gpu.Event, "elapsed_time", mismatch)
        assert job.over() == [] and not job.pending
    job.step(own_s=1.0, waits=(0.5,))
    job.gpu.reached = job.gpu.at
    assert job.over() == [(1.5, pytest.approx(0.5))]


def test_a_capture_whose_end_is_lost_ends_after_a_minute(job: Job) -> None:
    job.marks.capture_begins()
    job.step(own_s=1.0)
    job.gpu.reached = job.gpu.at
    assert job.over() == [] and job.pending
    job.host += 61
    job.over()
    assert not job.pending


def test_an_error_of_cuda_is_the_programs_and_marking_ends(job: Job) -> None:
    job.gpu.fails = True
    job.marks.begin()
    assert job.rank.marks is None


def test_collectives_that_are_waited_for_at_once_and_streams_of_fsdp_are_waits(job: Job) -> None:
    def wait(*_: object) -> None:
        job.gpu.at += 0.25

    called = job.module._called(wait, job.rank)
    called("group", ["tensor"], SimpleNamespace(asyncOp=False))
    called("group", ["tensor"], SimpleNamespace(asyncOp=True))
    called("group", ["tensor"])  # torch before 2.8 does not tell
    here = SimpleNamespace(current_stream=lambda: "this")
    job.rank.in_backward = True
    waits = job.module._stream_waits(wait, here, job.rank)
    waits("this", "event")  # the program's own streams, of copies
    theirs = {"__name__": "torch.distributed.fsdp", "waits": waits}
    exec("waits('this', 'event'); waits('another', 'event')", theirs)
    other = threading.Thread(target=lambda: exec("waits('this', 'event')", theirs))
    other.start()
    other.join()
    assert [kind for kind, *_ in job.rank.events] == ["gpu", "-gpu"] * 2


def own_work(
    host_s: list[float], gpu_s: list[float], *, looks_every: int = 10**9, steps: int = 400
) -> list[float]:
    """ms of own work a step of each rank, as its agent tells it, over the last hundred steps.

    Hosts hand a step in each `host_s`, and before every `looks_every`th wait until their GPU is done;
    a GPU works for `gpu_s`, and then waits for the others. Not more than 64 steps are handed in ahead.
    """
    module: Any = load("_wirespeed_gpu")
    ranks = range(len(host_s))
    needs = [module.HostNeed() for _ in ranks]
    own: list[list[float]] = [[] for _ in ranks]
    handed, ended, ends = [0.0] * len(ranks), 0.0, [0.0]
    for step in range(steps):
        for i in ranks:
            free = ends[step] if step % looks_every == 0 else ends[max(0, step - 64)]
            handed[i] = max(handed[i], free) + host_s[i]
        ready = [max(ended, handed[i]) + gpu_s[i] for i in ranks]
        last = max(ready)
        for i in ranks:
            seconds, waited = last - ended, last - ready[i]
            need = needs[i].of(handed[i], last)
            own[i].append(seconds - max(0.0, min(waited, seconds - need)))
        ended = last
        ends.append(ended)
    return [round(1e3 * sum(one[-100:]) / 100, 1) for one in own]


@pytest.mark.parametrize("looks_every", [1, 20, 10**9])
def test_a_host_that_is_a_little_quicker_makes_nobody_late(looks_every: int) -> None:
    """Its GPU waits for nearly all of a step, since it is ahead by many."""
    quick, slow = own_work([0.0120, 0.0123], [0.0005, 0.0005], looks_every=looks_every)
    assert slow - quick < 0.6, (quick, slow)


@pytest.mark.parametrize("looks_every", [1, 20])
def test_a_rank_that_is_late_by_its_host_is_late_by_what_it_takes_longer(looks_every: int) -> None:
    well, late = own_work([0.012, 0.032], [0.0005, 0.0005], looks_every=looks_every)
    assert late - well == pytest.approx(20, abs=1)


@pytest.mark.parametrize("looks_every", [1, 20, 10**9])
@pytest.mark.parametrize("host_s", [0.002, 0.030])
def test_a_rank_that_is_late_by_its_gpu_is_late_by_what_it_takes_longer(
    looks_every: int, host_s: float
) -> None:
    """Whether or not the host waits for room in the queue."""
    well, late = own_work([host_s] * 2, [0.050, 0.060], looks_every=looks_every)
    assert late - well == pytest.approx(10, abs=1.5)
