"""What runs inside a watched rank: how it counts, and that it never is in the way."""

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wirespeed.watch.steps import COLUMNS

INSIDE = Path(__file__).parents[2] / "src" / "wirespeed" / "watch" / "inside"


def load(name: str) -> ModuleType:
    """A copy of its own."""
    spec = importlib.util.spec_from_file_location(name, INSIDE / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Clock:
    def __init__(self) -> None:
        self.at = 50.0

    def __call__(self) -> float:
        return self.at

    def work(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module: Any = load("_wirespeed_inside")
    module.clock = Clock()
    monkeypatch.setattr(module, "now", module.clock)
    module.RANK.__init__()
    module.RANK.activate()
    return module


def row(inside: Any) -> dict[str, float]:
    """Of the last step."""
    return dict(zip(COLUMNS, inside.RANK.told[-1][2], strict=True))


def one_step(inside: Any, *, wait_s: float = 0.0, data_s: float = 0.0) -> None:
    rank, work = inside.RANK, inside.clock.work
    loading = rank.enter("data")
    work(data_s)
    rank.leave(loading, inside.DATA, "step")
    rank.mark()
    work(0.030)
    rank.forward_over()
    backward = rank.enter("backward")
    work(0.050)
    sync = rank.enter("sync")[1]
    work(wait_s)
    rank.sync_over(sync)
    rank.leave(backward, inside.BACKWARD, "step")
    rank.backward_over(None)
    stepping = rank.enter("optimizer")
    work(0.010)
    rank.leave(stepping, inside.OPTIMIZER, "step")
    rank.optimizer_over(inside)


def test_a_step_is_cut_into_its_parts(inside: Any) -> None:
    one_step(inside, wait_s=0.2, data_s=0.005)
    found = row(inside)
    want = {"step": 0.295, "blocked": 0.2, "data": 0.005, "forward": 0.03, "backward": 0.05}
    want |= {"optimizer": 0.01, "checkpoint": 0.0}
    assert {name: found[name] for name in want} == pytest.approx(want)
    assert inside.RANK.at.phase == ""


def test_what_waits_within_a_part_is_not_part_of_it(inside: Any) -> None:
    rank = inside.RANK
    writing = rank.enter("checkpoint")
    inside.clock.work(0.1)
    waiting = rank.enter("wait")
    inside.clock.work(0.4)
    rank.leave(waiting, inside.BLOCKED, "communication")
    rank.leave(writing, inside.CHECKPOINT, "step")
    rank.end_step()
    found = row(inside)
    assert (found["checkpoint"], found["blocked"]) == pytest.approx((0.1, 0.4))


def test_steps_end_with_the_first_optimizer_after_a_backward(inside: Any) -> None:
    rank, first, second = inside.RANK, object(), object()
    for _ in range(3):  # two optimizers, and one that is called twice a step
        rank.backward_over(None)
        rank.optimizer_over(first)
        rank.optimizer_over(second)
        rank.optimizer_over(first)
    assert rank.steps == 3 and rank.boundary == "optimizer"
    for _ in range(20):  # the first is not used any more
        rank.backward_over(None)
        rank.optimizer_over(second)
    assert 3 < rank.steps <= 13


def test_accumulated_backwards_are_one_step(inside: Any) -> None:
    for _ in range(4):
        for _ in range(8):
            inside.RANK.backward_over(None)
        inside.RANK.optimizer_over(inside)
    assert inside.RANK.steps == 4


def test_without_optimizers_a_step_is_a_backward_and_keeps_its_number(inside: Any) -> None:
    for _ in range(30):
        inside.clock.work(0.1)
        inside.RANK.backward_over(None)
    assert inside.RANK.boundary == "backward"
    assert [number for number, _, _ in inside.RANK.told] == list(range(21, 30))
    assert row(inside)["step"] == pytest.approx(0.1)


def test_a_program_may_say_where_its_steps_end(inside: Any) -> None:
    for _ in range(3):
        inside.RANK.backward_over(None)
        inside.RANK.optimizer_over(inside)
        inside.RANK.step_by_hand()
    # The one before it was told still ended as the hooks saw it.
    assert inside.RANK.steps == 4 and inside.RANK.boundary == "step()"


def test_one_step_in_many_is_sampled(inside: Any) -> None:
    inside.RANK.sample_every = 4
    seen = []
    for _ in range(9):
        one_step(inside, wait_s=0.1)
        if inside.RANK.sampled:
            seen.append(inside.RANK.sampled[0])
            spans = {(lane, name) for lane, name, _, _ in inside.RANK.sampled[3]}
            inside.RANK.sampled = None
    assert seen == [4, 8]
    inside.RANK.sample_every = 1 << 30
    for _ in range(60):
        one_step(inside)
        if inside.RANK.sampled:
            seen.append(inside.RANK.sampled[0])
            inside.RANK.sampled = None
    assert seen == [4, 8, 32]
    assert {("step", "forward"), ("step", "backward"), ("communication", "sync")} <= spans


def test_rows_that_nobody_takes_are_bounded(inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "_MOST_ROWS", 5)
    for _ in range(9):
        inside.RANK.end_step()
    assert len(inside.RANK.told) == 5 and inside.RANK.steps == 9


def test_a_fault_of_ours_ends_the_watching_and_nothing_else(inside: Any) -> None:
    assert inside._safely(lambda: 1 / 0) is None
    assert not inside.RANK.active and "ZeroDivisionError" in inside.RANK.hurt
    one_step(inside)
    inside.RANK.activate()
    assert not inside.RANK.active


def test_a_timed_function_keeps_its_result_its_name_and_its_errors(inside: Any) -> None:
    def save(value: int) -> int:
        inside.clock.work(0.25)
        return 7 // value

    timed = inside._timed(save, "checkpoint", inside.CHECKPOINT, "step")
    assert timed(1) == 7 and timed.__name__ == "save" and timed.__wrapped__ is save
    with pytest.raises(ZeroDivisionError):
        timed(0)
    inside.RANK.end_step()
    assert row(inside)["checkpoint"] == pytest.approx(0.5)
    assert inside.RANK.at.phase == ""


def told(count: int) -> list[tuple[int, float, list[float]]]:
    return [(n, 1000.0 + n, [0.01, 0.002, *[0.0] * 7, -1.0, 64.0]) for n in range(count)]


def test_rows_of_a_second_are_one_message_and_few_bytes() -> None:
    tell: Any = load("_wirespeed_tell")
    (few,) = tell._rows(told(3))
    assert (few["n"], few["e"], few["t"]) == (0, 1, 1000.0)
    assert few["d"][0] == [1000, 200, 0, 0, 0, 0, 0, 0, 0, -1, 64]
    many = tell._rows(told(430))
    assert sum(len(one["d"]) * one["e"] for one in many) == 430
    assert sum(len(str(one)) for one in many) < 2500
    assert [one["n"] for one in many] == sorted(one["n"] for one in many)
    assert tell._rows([]) == []


def test_the_line_of_the_program_is_told_and_no_line_of_torch_or_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tell: Any = load("_wirespeed_tell")
    own = tell._own_line(threading.get_ident())
    assert own[0] == __file__ and own[2].startswith("test_the_line")
    place, text = tell._told_place(own)
    assert place == f"{own[2]} ({__file__}:{own[1]})" and text.startswith("own = tell._own_line(")
    assert tell._told_place((__file__, 0, "between_lines"))[1] == ""
    told = ("login(key='sk-0123456789abcdef', n=5)", "x.to('cpu')", 'f("0123456789')
    want = ["login(key='…', n=5)", "x.to('cpu')", 'f("…']
    monkeypatch.setattr(tell.linecache, "getline", lambda file, line: told[line])
    assert [tell._told_place(("a.py", line, "f"))[1] for line in range(3)] == want
    library = f"{sys.prefix}/lib/python3/site-packages"
    assert tell._is_own(f"{library}/transformers/trainer.py") and tell._is_own("/home/me/train.py")
    for theirs in (
        f"{library}/torch/_tensor.py",
        threading.__file__,
        "<frozen runpy>",
        tell.__file__,
    ):
        assert not tell._is_own(theirs), theirs


def python(code: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": f"{INSIDE}{os.pathsep}{folder}", **variables}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )


def test_another_sitecustomize_is_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.before = 'theirs'")
    done = python("import sys; print(sys.before)", tmp_path, WIRESPEED_WATCH=str(tmp_path / "no"))
    assert (done.stdout, done.stderr) == ("theirs\n", "")


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


def test_what_is_waited_for_a_core_is_no_waiting_for_others(
    inside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank, lacked = inside.RANK, [0.0]
    monkeypatch.setattr(rank._ready, "total", lambda: lacked[0])
    rank._ready._before = 0.0
    for _ in range(2):  # the first step shows that the rank lacks cores
        waiting = rank.enter("wait")
        inside.clock.work(0.1)
        lacked[0] += 0.07  # the message was there, the core was not
        rank.leave(waiting, inside.BLOCKED, "communication")
        rank.end_step()
    first, second = (dict(zip(COLUMNS, one[2], strict=True)) for one in rank.told)
    assert (first["blocked"], second["blocked"]) == pytest.approx((0.1, 0.03))
    assert first["waited"] == second["waited"] == pytest.approx(0.07)


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
    inside.RANK.active = False
    inside._forked()
    inside.RANK.activate()
    assert inside.RANK.active
    inside._forked()
    inside.RANK.activate()
    assert not inside.RANK.active


def test_collectives_of_nccl_stand_in_a_recorder_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import json
    from types import SimpleNamespace

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
    tell: Any = load("_wirespeed_tell")
    names = [entry["profiling_name"] for entry in tell._recorder()["entries"]]
    assert names == ["gloo:all_reduce", "nccl:all_gather"]
    assert set(tell._recorder()["pg_config"]) == {"control", "0"}
    del c10d._dump_nccl_trace_json  # a torch without NCCL
    assert [entry["profiling_name"] for entry in tell._entries()["entries"]] == ["gloo:all_reduce"]
