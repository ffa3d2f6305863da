"""How many ranks start here when nobody says, and which requests this machine cannot hold."""

import pytest

from wirespeed.errors import CannotMeasure
from wirespeed.node import limits
from wirespeed.node.limits import memory_available_bytes


def test_as_many_as_asked_for():
    assert limits.choose_ranks(3, "gloo").value == "3"


def test_more_ranks_than_memory_are_refused_with_the_most_that_fit():
    most = (memory_available_bytes() - limits.TORCH_BYTES) // limits.RANK_BYTES
    with pytest.raises(CannotMeasure, match=f"--ranks {4 * most} would take") as refused:
        limits.choose_ranks(4 * most, "gloo")
    # Memory comes and goes while this runs: the figure is near, and what it says is accepted.
    said = int(refused.value.next.rpartition(" ")[2])
    assert most / 2 <= said <= most * 2
    assert limits.choose_ranks(said // 2, "gloo").value == str(said // 2)


def test_unknown_memory_refuses_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "memory_available_bytes", lambda: 0)
    assert limits.choose_ranks(1000, "gloo").value == "1000"
