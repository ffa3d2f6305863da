"""What a process may have become by its imports and still be forked into ranks."""

import gc
import threading
from collections.abc import Iterator

import pytest

from wirespeed.rank import forked

PARTS = ["steps"]


@pytest.fixture(autouse=True)
def usual_collection() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_imports_that_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "import_for", lambda parts: None)
    assert forked._imported(PARTS, "gloo")


def test_a_thread_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    monkeypatch.setattr(forked, "import_for", lambda parts: thread.start())
    try:
        assert not forked._imported(PARTS, "gloo")
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(("backend", "same"), [("gloo", True), ("auto", False), ("nccl", False)])
def test_where_ranks_may_use_a_gpu_each_imports_by_itself(
    monkeypatch: pytest.MonkeyPatch, backend: str, same: bool
) -> None:
    monkeypatch.setattr(forked, "count_gpus", lambda: 1)
    monkeypatch.setattr(forked, "import_for", lambda parts: None)
    assert forked._imported(PARTS, backend) is same


def test_neither_after_an_import_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(parts: list[str]) -> None:
        raise OSError("libnothing.so")

    monkeypatch.setattr(forked, "import_for", fail)
    assert not forked._imported(PARTS, "gloo")
