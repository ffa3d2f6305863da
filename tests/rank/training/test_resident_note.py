"""Where the kernel does not reset the high-water mark, that is said of the resident size."""

from types import SimpleNamespace

import pytest

from wirespeed.rank.training.space import resident_of_all
from wirespeed.training.memory import measured as resident


@pytest.mark.parametrize(
    ("device", "here", "elsewhere", "told"),
    [
        ("cpu", True, True, False),
        ("cpu", False, True, True),
        ("cpu", True, False, True),
        ("cuda", False, True, False),
    ],
)
def test_a_rank_that_may_not_reset_is_told_of(
    monkeypatch: pytest.MonkeyPatch, device: str, here: bool, elsewhere: bool, told: bool
) -> None:
    monkeypatch.setattr(resident, "reset_highest_resident", lambda: here)
    control = SimpleNamespace(all_true=lambda mine: mine and elsewhere)
    place = SimpleNamespace(control=control, device=SimpleNamespace(type=device))
    note = resident_of_all(SimpleNamespace(place=place))
    assert bool(note) == told
    if note:
        assert (note["id"], note["status"]) == ("TRAIN-009", "not_checked")
        assert "whole process" in note["title"]
