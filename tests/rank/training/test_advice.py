"""The bucket model's advice, beside what was measured: right, wrong, or not known."""

import pytest

torch = pytest.importorskip("torch", reason="Requires: torch")

from wirespeed.plan import TrainCase  # noqa: E402
from wirespeed.rank.training.rounds import PARTS, Samples  # noqa: E402
from wirespeed.rank.training.step_forecast import advice_told  # noqa: E402

NOISE = (1.0, 1.01, 0.99, 1.0, 1.02, 0.98)


def samples(bucket_mb: float, *steps: float) -> Samples:
    """One step a round, in seconds."""
    case = TrainCase(strategy="bucketed", bucket_mb=bucket_mb, ranks=2, samples=8)
    return Samples(case, [torch.full((2, 1, len(PARTS)), step).double() for step in steps])


@pytest.mark.parametrize(
    ("ratio", "rounds", "status", "word"),
    [
        (1.3, 6, "warn", "wrong"),
        (1.0, 6, "pass", "right"),
        (0.7, 6, "pass", "right"),
        (1.3, 3, "not_checked", "not known"),
    ],
)
def test_it_is_checked(ratio: float, rounds: int, status: str, word: str) -> None:
    noise = NOISE[:rounds]
    told = advice_told(samples(0.6, *(ratio * one for one in noise)), samples(25, *noise))
    assert (told["id"], told["status"]) == ("TRAIN-011", status)
    assert word in told["title"] and "0.6 MB" in told["title"] and "25 MB" in told["title"]
    assert f"{ratio:.2f}" in told["saw"]
    assert ("no interval" in told["saw"]) is (rounds < 6)
    assert (told["fix"] == "--bucket-mb 25") == (status == "warn")
