"""What runs inside a watched rank: how it counts, and that it never is in the way."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from wirespeed.watch import step
from wirespeed.watch.steps import COLUMNS

INSIDE = Path(__file__).parents[2] / "src" / "wirespeed" / "watch" / "inside"


def load(name: str) -> ModuleType:
    """A copy of its own."""
    if str(INSIDE) not in sys.path:
        sys.path.append(str(INSIDE))
    spec = importlib.util.spec_from_file_location(name, INSIDE / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What runs in a rank, with a clock that stands still."""
    module: Any = load("_wirespeed_inside")
    module.at = 50.0
    monkeypatch.setattr(module, "now", lambda: module.at)
    module.RANK.activate()
    return module


@pytest.fixture
def around(inside: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What it puts around functions of torch."""
    monkeypatch.setitem(sys.modules, "_wirespeed_inside", inside)
    module: Any = load("_wirespeed_around")
    monkeypatch.setattr(module, "now", lambda: inside.at)
    return module


class Training:
    """Notes as the training thread of a rank does, and the steps that they are."""

    def __init__(self) -> None:
        self.steps: Any = load("_wirespeed_steps").Steps(0.0)
        self.at = self.ready = self.cpu = 0.0
        self.elements: float | None = None
        """Of a batch."""

    def note(self, what: str, *values: float | None) -> None:
        self.steps.take([(what, self.at, *(values or (-1.0,)))])

    def spend(self, what: str, seconds: float) -> None:
        self.note(what)
        self.at += seconds
        self.note(f"-{what}", -1.0, self.elements)

    def backward(self, *, wait_s: float = 0.0) -> None:
        self.note("backward")
        self.at += 0.050
        self.note("sync")
        self.at += wait_s
        self.note("-backward", -1.0, 0, self.cpu)

    def optimizer(self, number: int = 7) -> None:
        self.note("optimizer")
        self.at += 0.010
        self.cpu += 0.01
        self.note("-optimizer", self.ready, number, self.cpu)

    def step(self, *, wait_s: float = 0.0, data_s: float = 0.0) -> None:
        self.spend("data", data_s)
        self.at += 0.030
        self.backward(wait_s=wait_s)
        self.optimizer()

    def row(self) -> dict[str, float]:
        """Of the last step."""
        return dict(zip(COLUMNS, self.steps.told[-1][2], strict=True))

    def sampled(self) -> Any:
        found, self.steps.sampled = self.steps.sampled, None
        return found


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Training:
    return Training()


def test_a_step_is_cut_into_its_parts(job: Training) -> None:
    job.step(wait_s=0.2, data_s=0.005)
    found = job.row()
    want = {"step": 0.295, "blocked": 0.2, "data": 0.005, "forward": 0.03, "backward": 0.05}
    want |= {"optimizer": 0.01, "checkpoint": 0.0, "load": -1.0, "cpu": -1.0}
    assert {name: found[name] for name in want} == pytest.approx(want)
    assert job.steps.at.phase == ""
    job.note("gc", 0.003)
    job.elements = 64.0
    job.step()
    assert (job.row()["load"], job.row()["gc"], job.row()["cpu"]) == pytest.approx(
        (64, 0.003, 0.01)
    )


def test_what_waits_within_a_part_is_not_part_of_it(job: Training) -> None:
    job.note("checkpoint")
    job.at += 0.1
    job.spend("checkpoint", 0.05)  # one that calls another is one
    job.note("wait")
    job.spend("wait", 0.4)
    job.note("-wait")
    job.note("-checkpoint")
    job.note("step", -1.0, 0, 0.0)
    found = job.row()
    assert (found["checkpoint"], found["blocked"]) == pytest.approx((0.15, 0.4))
    assert job.steps.boundary == "step()"


def test_what_ends_by_an_error_or_was_lost_does_no_harm(job: Training) -> None:
    job.note("-wait")  # its begin was lost
    for _ in range(200):
        job.note("checkpoint")  # its end was lost
    job.note("optimizer")
    job.note("-backward", -1.0, 0, 0.0)
    job.step(wait_s=0.1)
    assert job.row()["blocked"] == pytest.approx(0.1) and job.steps.number == 1


def test_steps_end_with_the_first_optimizer_after_a_backward(job: Training) -> None:
    for _ in range(3):  # two optimizers, and one that is called twice a step
        job.backward()
        for number in (1, 2, 1):
            job.optimizer(number)
    assert job.steps.number == 3 and (job.steps.boundary, job.steps.anchor) == ("optimizer", 1)
    for _ in range(20):  # the first is not used any more
        job.backward()
        job.optimizer(2)
    assert 3 < job.steps.number <= 13


def test_accumulated_backwards_are_one_step(job: Training) -> None:
    for _ in range(4):
        for _ in range(8):
            job.backward()
        job.optimizer()
    assert job.steps.number == 4


def test_without_optimizers_a_step_is_a_backward_and_keeps_its_number(job: Training) -> None:
    for _ in range(30):
        job.at += 0.05
        job.backward()
    assert job.steps.boundary == "backward"
    assert [number for number, *_ in job.steps.told] == list(range(21, 30))
    assert job.row()["step"] == pytest.approx(0.1)


def test_a_program_may_say_where_its_steps_end(job: Training, inside: Any) -> None:
    for _ in range(3):
        job.backward()
        job.optimizer()
        inside.RANK.step_by_hand()
        job.steps.take(inside.RANK.events)
        inside.RANK.events.clear()
    # The one before it was told still ended as the hooks saw it.
    assert job.steps.number == 4 and job.steps.boundary == "step()"


def test_one_step_in_many_is_sampled(job: Training) -> None:
    job.steps.sample_every = 4
    seen = []
    for _ in range(9):
        job.step(wait_s=0.1)
        if one := job.sampled():
            seen.append(one[0])
            spans = {phase for phase, _, _ in one[2]}
    assert seen == [4, 8]
    job.steps.sample_every = 1 << 30
    for _ in range(130):
        job.step()
        if one := job.sampled():
            seen.append(one[0])
    assert seen == [4, 8, 128]
    assert {"forward", "backward", "sync"} <= spans


def test_what_nobody_takes_is_bounded(
    job: Training, inside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(job.steps._end.__func__.__globals__, "_MOST_ROWS", 5)
    for _ in range(9):
        job.step()
    assert len(job.steps.told) == 5 and job.steps.number == 9
    assert inside.RANK.events.maxlen == 200_000


def test_the_loss_that_is_no_number_has_its_step(job: Training, around: Any) -> None:
    torch = pytest.importorskip("torch")
    around._know_types(torch)
    numbers = [3.0, 1e38, -0.0, float("nan"), float("inf"), float("-inf")]
    for kind in (torch.float64, torch.float32, torch.bfloat16):
        values = torch.tensor(numbers, dtype=kind)
        assert [around._is_bad(one) for one in values] == [False] * 3 + [True] * 3
    half = torch.tensor([65504.0, 1e9], dtype=torch.float16)
    assert [around._is_bad(one) for one in half] == [False, True]
    whole = SimpleNamespace(is_cpu=True, dtype=kind, data_ptr=lambda: 0, _local_tensor=values[3])
    assert around._is_bad(whole), "a DTensor"
    activations = torch.full((2,), float("-inf"))  # of a pipeline's stage, with a mask
    for other in (
        activations,
        torch.tensor(3),
        torch.zeros(0),
        torch.zeros(1, device="meta"),
        None,
        "loss",
    ):
        assert not around._is_bad(other)
    for number in range(5):
        if number in (2, 4):
            job.note("bad", 0.0)
        job.step()
    assert job.steps.bad_loss == 2


def test_a_fault_of_ours_ends_the_watching_and_nothing_else(inside: Any, around: Any) -> None:
    assert inside.safely(lambda: 1 / 0) is None
    assert not inside.RANK.thread and "ZeroDivisionError" in inside.RANK.hurt
    assert around._timed(len, "checkpoint")("four") == 4
    inside.RANK.activate()
    assert not inside.RANK.thread and not inside.RANK.events


def test_where_autograd_is_done_is_noted_once_a_backward_and_no_loss_is_changed(
    inside: Any, around: Any
) -> None:
    torch = pytest.importorskip("torch")
    engine, rank = torch.autograd.Variable._execution_engine, inside.RANK
    carrier, calls = torch.empty(0), []
    backward = around._backward(torch.autograd.backward, engine, carrier)
    ours = carrier._backward_hooks[0]

    def counted(grad: Any) -> None:
        calls.append(1)
        ours(grad)

    carrier._backward_hooks[0] = counted
    rank.communicates = True

    def noted() -> list[str]:
        found = [event[0] for event in rank.events]
        rank.events.clear()
        return found

    weights = torch.ones(4, 2, requires_grad=True)
    kept = (weights * weights).sum()
    for positional, named in (((), {"retain_graph": True}), ((None, True), {}), ((), {})):
        backward(kept, *positional, **named)
        assert noted() == ["backward", "sync", "-backward"], (positional, named)
    part, whole = ((weights * weights).unbind(1)[1] for _ in range(2))
    for one in (weights.sum(), torch.ones(1, requires_grad=True), part.sum(), whole):
        backward([one], [torch.ones_like(one)])
        assert noted() == ["backward", "sync", "-backward"] and not one._backward_hooks
    simple = weights.sum()  # its graph keeps nothing, and so bears many backwards
    calls.clear()
    for _ in range(20):
        backward(simple)
        assert noted() == ["backward", "sync", "-backward"]
    assert 20 <= len(calls) <= 60, "few of ours are left there"
    with pytest.raises(RuntimeError, match="second time"):
        backward(kept)
    assert noted()[-1] == "-backward"
    with pytest.raises(AssertionError):
        backward(["no tensor"])
    assert not rank.hurt


def test_a_batch_tells_its_elements_and_an_end_of_the_data_none(inside: Any, around: Any) -> None:
    torch = pytest.importorskip("torch")
    batches = iter([{"x": [torch.zeros(3, 4), torch.zeros(2)]}])

    def next_batch(_: object) -> object:
        return next(batches)

    loading = around._loading(next_batch)
    loading(None)
    with pytest.raises(StopIteration):
        loading(None)
    assert [event[3] for event in inside.RANK.events if event[0] == "-data"] == [14.0, None]


def test_a_step_by_hand_never_raises(inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setitem(sys.modules, "_wirespeed_inside", inside)
    monkeypatch.setattr(inside.RANK, "thread", 0)
    monkeypatch.setattr(inside.RANK, "on_active", no_thread)
    step()
    step()
    assert "new thread" in inside.RANK.hurt


def test_a_timed_function_keeps_its_result_its_name_and_its_errors(
    inside: Any, around: Any
) -> None:
    def save(value: int) -> int:
        inside.at += 0.25
        return 7 // value

    timed = around._timed(save, "checkpoint")
    assert timed(1) == 7 and timed.__name__ == "save" and timed.__wrapped__ is save
    with pytest.raises(ZeroDivisionError):
        timed(0)
    noted = [(what, at) for what, at, _ in inside.RANK.events]
    assert noted == [
        ("checkpoint", 50.0),
        ("-checkpoint", 50.25),
        ("checkpoint", 50.25),
        ("-checkpoint", 50.5),
    ]
    other = threading.Thread(target=timed, args=(1,))
    other.start()
    other.join()
    assert len(inside.RANK.events) == 4


def told(count: int) -> list[tuple[int, float, list[float]]]:
    return [(n, 1000.0 + n, [0.01, 0.002, *[0.0] * 7, -1.0, 64.0]) for n in range(count)]


def test_rows_of_a_second_are_one_message_and_few_bytes() -> None:
    tell: Any = load("_wirespeed_tell")
    (few,) = tell._rows(told(3), 0.0)
    assert (few["n"], few["e"], few["t"]) == (0, 1, 1000.0)
    assert few["d"][0] == [1000, 200, 0, 0, 0, 0, 0, 0, 0, -1, 64]
    many = tell._rows(told(430), 0.0)
    assert sum(len(one["d"]) * one["e"] for one in many) == 430
    assert sum(len(str(one)) for one in many) < 2500
    assert [one["n"] for one in many] == sorted(one["n"] for one in many)
    assert tell._rows([], 0.0) == []


def test_the_line_of_the_program_is_told_and_no_line_of_torch_or_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: Any = load("_wirespeed_seen")
    own = seen.own_line(threading.get_ident())
    assert own[0] == __file__ and own[2].startswith("test_the_line")
    place, text = seen.told_place(own)
    assert place == f"{own[2]} ({__file__}:{own[1]})" and text.startswith("own = seen.own_line(")
    assert seen.told_place((__file__, 0, "between_lines"))[1] == ""
    told = ("login(key='sk-0123456789abcdef', n=5)", "x.to('cpu')", 'f("0123456789')
    want = ["login(key='…', n=5)", "x.to('cpu')", 'f("…']
    monkeypatch.setattr(seen.linecache, "getline", lambda file, line: told[line])
    assert [seen.told_place(("a.py", line, "f"))[1] for line in range(3)] == want
    library = f"{sys.prefix}/lib/python3/site-packages"
    assert seen.is_own(f"{library}/transformers/trainer.py") and seen.is_own("/home/me/train.py")
    for theirs in (
        f"{library}/torch/_tensor.py",
        threading.__file__,
        "<frozen runpy>",
        seen.__file__,
    ):
        assert not seen.is_own(theirs), theirs


def python(code: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": f"{INSIDE}{os.pathsep}{folder}", **variables}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=240
    )


def test_another_sitecustomize_is_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.before = 'theirs'")
    done = python("import sys; print(sys.before)", tmp_path, WIRESPEED_WATCH=str(tmp_path / "no"))
    assert (done.stdout, done.stderr) == ("theirs\n", "")


def test_any_thread_that_lacks_a_core_counts(tmp_path: Path) -> None:
    busy = """
import os, threading, time
import _wirespeed_seen
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
starving = _wirespeed_seen.Starving()
started = starving.since_last()
work = threading.Thread(target=lambda: [sum(range(1000)) for _ in range(20_000)])
work.start(); os.nice(1); [sum(range(1000)) for _ in range(20_000)]
print(started >= 0, starving.since_last() > 0); work.join()
"""
    done = python(busy, tmp_path, WIRESPEED_WATCH="/no/such")
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_a_program_without_torch_runs_as_ever(tmp_path: Path) -> None:
    code = "import sys; print([m for m in sys.modules if 'wirespeed' in m], sys.meta_path[0])"
    watched = python(code, tmp_path, WIRESPEED_WATCH=str(tmp_path / "no"))
    assert "_wirespeed_inside" in watched.stdout and watched.stderr == ""
    alone = python(code, tmp_path)
    assert alone.stdout.startswith("[]") and alone.stderr == ""


def test_a_torch_without_what_we_look_for_is_imported_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("answer = 42")
    done = python("import torch; print(torch.answer)", tmp_path, WIRESPEED_WATCH="/no/such")
    assert (done.returncode, done.stdout) == (0, "42\n")


def test_what_is_waited_for_a_core_is_no_waiting_for_others(job: Training) -> None:
    job.note("step", 0.0, 0, 0.0)
    for _ in range(2):
        job.note("wait", job.ready)
        job.at += 0.1
        job.ready += 0.07  # the message was there, the core was not
        job.note("-wait", job.ready)
        job.note("step", job.ready, 0, 0.0)
    assert job.row()["blocked"] == pytest.approx(0.03) and job.row()["waited"] == pytest.approx(
        0.07
    )
    assert job.steps.look_every_s == pytest.approx(job.steps._typical_s / 2)
    for _ in range(4):  # short ones are not looked at each: in proportion
        job.spend("wait", 0.01)
        job.at += 0.01
    job.ready += 0.02
    job.note("step", job.ready, 0, 0.0)
    assert job.row()["blocked"] == pytest.approx(0.03) and job.row()["waited"] == pytest.approx(
        0.02
    )


def test_the_kernels_account_is_looked_at_seldom(
    inside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank, looks = inside.RANK, [0]

    def pread(*_: int) -> bytes:
        looks[0] += 1
        return b"5 %d 3\n" % (looks[0] * 10**9)

    monkeypatch.setattr(inside.os, "pread", pread)
    ends = (60.0, 60.05, 60.11)
    for at in ends:
        rank.end("-optimizer", at)
        assert rank.look_at == float("inf")  # there are cores enough: within waits none
    rank.look_every_s = 0.0
    rank.end("-optimizer", 60.15)
    due = [60.15 + ms / 1e3 for ms in (10, 31, 40, 70)]
    assert [rank.look(at) for at in due if at >= rank.look_at] == [4, 5]
    rank.end("-optimizer", 60.23)
    assert [event[2] for event in rank.events] == [1, -1, 2, 3, -1]


def test_garbage_is_noted_by_its_time_whatever_its_age(inside: Any, around: Any) -> None:
    collected = around._collecting()
    for generation, seconds in ((0, 0.1), (0, 1e-5), (2, 1e-5), (2, 0.3)):
        collected("start", {"generation": generation})
        inside.at += seconds
        collected("stop", {"generation": generation})
    assert [event[2] for event in inside.RANK.events] == pytest.approx([0.1, 0.3])


def test_sockets_of_the_job_stay_as_they_are() -> None:
    seen: Any = load("_wirespeed_seen")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as store,
    ):
        store.settimeout(None)
        socket.setdefaulttimeout(20)
        try:
            told = seen.Connections().infos()
        finally:
            socket.setdefaulttimeout(None)
        assert server.getsockname()[:2] in [key for key, _, _ in told]
        assert os.get_blocking(store.fileno()) and os.get_blocking(server.fileno())


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True])
def test_a_whole_step_may_be_compiled(tmp_path: Path, whole: bool) -> None:
    """With its call of backward, where torch.compile breaks off; whole: autograd's work, too."""
    pytest.importorskip("torch")
    code = f"""
import torch, torch._dynamo
from _wirespeed_inside import RANK
torch._dynamo.config.compiled_autograd = {whole}
weights = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(weights.parameters(), 1e-3)

@torch.compile(backend="eager")
def step(batch):
    loss = weights(batch).sum()
    loss.backward()
    return loss

for _ in range(4):
    RANK.activate()
    RANK.communicates = True  # as with other ranks
    step(torch.ones(2, 4))
    optimizer.step()
print(repr(RANK.hurt), torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""
    done = python(code, tmp_path, WIRESPEED_WATCH=str(tmp_path / "nobody"))
    assert (done.returncode, done.stdout[:3]) == (0, "'' "), done.stderr
    assert "_wirespeed_" not in done.stderr


def test_a_torch_that_another_finder_brings_is_heard_of(tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "torch.py").write_text("answer = 42")
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        f"            place = {str(tmp_path / 'hidden' / 'torch.py')!r}\n"
        "            return importlib.util.spec_from_file_location(name, place)\n"
        "sys.meta_path.insert(1, Finder())\n"
    )
    code = "import torch, _wirespeed_inside as ours; print(torch.answer, ours.RANK.hurt != '')"
    done = python(code, tmp_path, WIRESPEED_WATCH="/no/such")
    assert done.stdout == "42 True\n", done.stderr  # it was looked at, and is no torch


def test_ranks_that_were_forked_are_ranks_and_workers_of_ranks_are_not(inside: Any) -> None:
    inside.RANK.thread = 0
    inside._forked()
    inside.RANK.activate()
    assert inside.RANK.thread
    inside._forked()
    inside.RANK.activate()
    assert not inside.RANK.thread


def test_collectives_of_nccl_stand_in_a_recorder_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def recorder(name: str, group: str) -> Any:
        entries = [{"profiling_name": name, "process_group": [group, ""]}]
        told = {"entries": entries, "pg_config": {group: {"ranks": "[0]"}}, "version": "2.10"}
        return lambda: json.dumps(told).encode()

    c10d = SimpleNamespace(
        _dump_fr_trace_json=recorder("gloo:all_reduce", "control"),
        _dump_nccl_trace_json=recorder("nccl:all_gather", "0"),
    )
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(_C=SimpleNamespace(_distributed_c10d=c10d))
    )
    seen: Any = load("_wirespeed_seen")
    names = [entry["profiling_name"] for entry in seen.newest_calls()["entries"]]
    assert names == ["gloo:all_reduce", "nccl:all_gather"]
    assert set(seen.newest_calls()["pg_config"]) == {"control", "0"}
    del c10d._dump_nccl_trace_json  # a torch without NCCL
    assert [entry["profiling_name"] for entry in seen.recorded()["entries"]] == ["gloo:all_reduce"]


def test_of_the_recorders_calls_only_those_of_a_step_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries: list[dict[str, Any]] = [
        {"time_created_ns": at, "frames": [{"name": "step"}]} for at in (5, 10, 15)
    ]
    told = {"entries": entries, "pg_config": {"0": {"desc": ""}}}
    c10d = SimpleNamespace(_dump_fr_trace_json=lambda: json.dumps(told).encode())
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(_C=SimpleNamespace(_distributed_c10d=c10d))
    )
    seen: Any = load("_wirespeed_seen")
    assert seen.recorded(10)["entries"] == entries[1:]
    assert seen.recorded()["entries"] == entries
    assert seen.recorded(99)["pg_config"] == {"0": {"desc": ""}}
    entries[0]["time_created_ns"] = None  # as nobody writes it
    assert len(seen.recorded(10)["entries"]) == 3
    assert len(seen.newest_calls()["entries"]) == 3
