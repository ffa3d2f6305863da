"""Whose checkpoints these are: the folder's owner on every node, and files that belong together."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.errors import CannotMeasure
from wirespeed.node.lock import Lock
from wirespeed.rank.training.lasting import Keeper
from wirespeed.training.checkpoint_files import CheckpointFiles
from wirespeed.training.checkpoint_state import to_bytes


def keeper(folder: Path, rank: int, others: Any) -> Keeper:
    """Of one of two ranks on two nodes, each of which writes; others(value): what the other tells."""

    def objects(value: Any, *_: Any) -> list[Any]:
        told = [value, others(value)]
        return told if rank == 0 else told[::-1]

    control = SimpleNamespace(objects=objects)
    made = Keeper.__new__(Keeper)
    made._place = SimpleNamespace(rank=rank, hosts=("a", "b"), control=control)  # type: ignore[assignment]
    made._folder, made._each, made._writes, made._lock = folder, True, True, None
    made._files, made._steps = CheckpointFiles(folder, rank, {"model": "tiny"}), []
    return made


@pytest.mark.parametrize("shared", [True, False])
def test_each_node_locks_a_folder_of_its_own(tmp_path: Path, shared: bool) -> None:
    """Where both see one folder, rank 0's lock is not in rank 1's way."""
    theirs = Lock.take(tmp_path / "first", "wirespeed train")
    folder = tmp_path / ("first" if shared else "second")
    one = keeper(folder, 1, lambda value: theirs.token if isinstance(value, str) else [])
    assert one.claim() is None
    assert len(list(folder.glob(".wirespeed-lock.*"))) == 1
    assert (one._lock is None) == shared
    one.release()
    theirs.release()


@pytest.mark.parametrize("rank", [0, 1])
def test_all_ranks_are_refused_where_one_is(tmp_path: Path, rank: int) -> None:
    theirs = Lock.take(tmp_path, "wirespeed train")
    told = ["/x is in use by pid 7", "one job", "ps -fp 7"]
    one = keeper(tmp_path, rank, lambda value: told if isinstance(value, list) and rank else "")
    with pytest.raises(CannotMeasure, match="is in use by pid "):
        one.claim()
    theirs.release()


def test_files_of_two_jobs_are_no_checkpoint(tmp_path: Path) -> None:
    one = keeper(tmp_path, 0, lambda value: ("", "b") if isinstance(value, tuple) else value)
    one._files.job = "a"
    one._files.write(7, to_bytes({}))
    assert one._load(7) == "step-7 is of several jobs: its files do not belong together"


def test_who_was_taken_for_dead_writes_no_more(tmp_path: Path) -> None:
    one = keeper(tmp_path, 0, lambda value: [] if isinstance(value, list) else "")
    one.claim()
    one._state = lambda: b"x"  # type: ignore[method-assign]
    assert one.save(1) == ""
    (tmp_path / ".wirespeed-lock.2").write_text("{}")
    assert "was taken over by another job" in one.save(2)
    assert one._files.steps() == [1]
    one.release()
