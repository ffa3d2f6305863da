"""What a stack says: waiting for others, or work."""

import pytest

from wirespeed.node.python_stacks import Frame, Thread
from wirespeed.watch.attach.frames import main_frames, own_frame, source_line, waits_in, works_on

HERE = "/venv/lib/python3.12/site-packages/"


def lib(function: str, file: str) -> Frame:
    return Frame(function, file, 7, HERE + file)


USER = Frame("train", "job.py", 12, "/home/u/job.py")


@pytest.mark.parametrize(
    "inner",
    [
        lib("all_reduce", "torch/distributed/distributed_c10d.py"),
        lib("wait_tensor", "torch/distributed/_functional_collectives.py"),
        lib("_engine_run_backward", "torch/autograd/graph.py"),
        lib("synchronize", "torch/cuda/__init__.py"),
        lib("all_gather_into_tensor", "deepspeed/comm/torch.py"),
        lib("_create_c10d_store", "torch/distributed/rendezvous.py"),
    ],
)
def test_waiting(inner: Frame) -> None:
    assert waits_in((inner, USER)) is inner
    assert waits_in((lib("__call__", "torch/_ops.py"), inner, USER)) is inner


@pytest.mark.parametrize(
    "inner",
    [
        USER,
        lib("forward", "torch/nn/modules/linear.py"),
        lib("_save", "torch/serialization.py"),
        lib("save", "torch/distributed/checkpoint/state_dict_saver.py"),
        lib("_next_data", "torch/utils/data/dataloader.py"),
    ],
)
def test_not_waiting(inner: Frame) -> None:
    assert waits_in((inner, USER)) is None
    assert waits_in(()) is None


def test_the_users_own_line_tells_what_no_frame_does(tmp_path) -> None:
    file = tmp_path / "job.py"
    file.write_text("work = start()\nwork.wait()\nvalue = next(batches)\n")
    lines = [Frame("train", "job.py", number, str(file)) for number in (2, 3, 9)]
    assert source_line(lines[0]) == "work.wait()" and source_line(lines[2]) == ""
    assert [waits_in((line,)) is not None for line in lines] == [True, False, False]


@pytest.mark.parametrize("name", ["secret", "pipe.py"])
def test_only_regular_python_files_are_read(tmp_path, name) -> None:
    import os

    path = tmp_path / name
    path.write_text("root:hash") if name == "secret" else os.mkfifo(path)
    assert source_line(Frame("f", name, 1, str(path))) == ""


@pytest.mark.parametrize(
    "frame, label",
    [
        (lib("save", "torch/serialization.py"), "writes a checkpoint"),
        (Frame("save_checkpoint", "job.py", 3), "writes a checkpoint"),
        (lib("compile_fx", "torch/_inductor/compile_fx.py"), "compiles"),
        (Frame("evaluate", "job.py", 3), "evaluates"),
        (lib("_next_data", "torch/utils/data/dataloader.py"), "waits for its data loader"),
        (USER, ""),
    ],
)
def test_work(frame: Frame, label: str) -> None:
    assert works_on((frame, USER)) == label


def test_the_users_frame_is_in_no_library() -> None:
    assert (
        own_frame(
            (
                lib("a", "torch/x.py"),
                Frame("b", "queue.py", 3, "/usr/lib/python3.11/queue.py"),
                USER,
            )
        )
        is USER
    )
    assert own_frame((lib("a", "torch/x.py"),)) is None


def test_a_thread_that_trains_beside_the_main_one() -> None:
    poll = Thread("MainThread", 1, False, (Frame("poll", "worker.py", 3),))
    trains = Thread(
        "actor", 2, False, (lib("all_reduce", "torch/distributed/distributed_c10d.py"),)
    )
    assert main_frames((poll, trains)) == trains.frames
    assert main_frames((poll,)) == poll.frames and main_frames(()) == ()
