"""What the formulas are asked for a case."""

from types import SimpleNamespace

import pytest

from wirespeed.rank.training.space import predicted, resident_of_all
from wirespeed.training.memory import dry
from wirespeed.training.memory import measured as resident
from wirespeed.training.memory.predicted import Footprint

MODEL = Footprint(parameters=4000, tensor_bytes=(4000,))


@pytest.mark.parametrize(("device", "held"), [("cpu", 3 * 4000 + 4), ("cuda", 0)])
def test_what_is_offloaded_counts_where_ranks_train_on_the_host(
    monkeypatch: pytest.MonkeyPatch, device: str, held: int
) -> None:
    monkeypatch.setattr(dry, "footprint", lambda *_, **__: MODEL)
    stage = SimpleNamespace(
        model=None,
        plan=SimpleNamespace(precision="float32"),
        place=SimpleNamespace(local_ranks_here=1),
    )
    case = SimpleNamespace(strategy="deepspeed-zero2-offload", ranks=1, bucket_mb=None)
    setup = SimpleNamespace(
        samples=1,
        optimizer_class=None,
        optimizer_options={},
        device=SimpleNamespace(type=device),
    )
    told = predicted(stage, case, setup)
    assert told is not None and told.optimizer == held


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
