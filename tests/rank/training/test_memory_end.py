"""What counts as memory that ran out, and what is said of it."""

import errno

import pytest

torch = pytest.importorskip("torch", reason="Requires: torch")

from wirespeed.checks.correctness import trouble_finding  # noqa: E402
from wirespeed.plan import TrainCase  # noqa: E402
from wirespeed.rank.training.failures import (  # noqa: E402
    CaseFull,
    NoMemory,
    does_not_fit,
    memory_ran_out,
    reason_of,
    unless_full,
)
from wirespeed.rank.training.space import Fitted, too_large  # noqa: E402

CASE = TrainCase(strategy="ddp", bucket_mb=25.0, ranks=2, samples=64)
PETABYTE = 1 << 50


def refused() -> RuntimeError:
    """What torch's allocator really says."""
    with pytest.raises(RuntimeError) as told:
        torch.empty(PETABYTE, dtype=torch.uint8)
    return told.value


def test_what_the_real_allocator_says_is_understood() -> None:
    error = refused()
    assert memory_ran_out(error)
    assert reason_of(error).startswith("DefaultCPUAllocator: can't allocate memory")
    assert str(PETABYTE) in reason_of(error)


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (RuntimeError("Connection closed by peer"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_only_memory_counts(error: Exception, full: bool) -> None:
    assert memory_ran_out(error) is full


def test_other_errors_pass_through() -> None:
    def broken() -> None:
        raise RuntimeError("Connection closed by peer")

    with pytest.raises(RuntimeError, match="closed by peer"):
        unless_full(broken, pytest.fail)


def test_the_exception_is_gone_before_anybody_is_told() -> None:
    """Its frames hold the tensors of the step."""
    import weakref

    seen = []

    def step() -> None:
        tensor = torch.ones(10)
        seen.append(weakref.ref(tensor))
        torch.empty(PETABYTE)

    def full(reason: str) -> None:
        assert "DefaultCPUAllocator" in reason
        assert seen[0]() is None, "the tensors of the step are still alive"
        seen.append(None)

    assert unless_full(step, full) is None
    assert len(seen) == 2
    assert unless_full(lambda: 5, pytest.fail) == 5


def test_the_finding_names_strategy_rank_batch_and_what_to_try() -> None:
    full = CaseFull([(0, "no"), (1, "no")])
    found = trouble_finding(does_not_fit(CASE, saw=full.saw, limit=1 << 30))
    assert (found.id, found.status) == ("TRAIN-003", "warn")
    assert found.title.startswith("ddp 25 MB on 2 ranks, 32 samples a rank, does not fit")
    assert found.saw == "memory ran out on ranks 0, 1: no"
    assert "1 GiB" in found.expected
    assert "--batch 32" in found.fix
    assert found.next == "wirespeed train --strategy ddp --fit"
    alone = NoMemory(1, CASE.label, "no")
    found = trouble_finding(does_not_fit(CASE, saw=alone.reason, limit=None, rank=alone.rank))
    assert found.subject.name == "rank 1"
    assert "rank 1" in found.saw


def test_a_batch_that_fits_by_itself_is_not_called_too_large() -> None:
    small = too_large(CASE, Fitted(samples=8, too_many=9, limit_bytes=1 << 30))
    assert small["fix"] == "--batch 16"
    large = too_large(CASE, Fitted(samples=64, too_many=0, limit_bytes=1 << 30))
    assert "by itself its batch fits" in large["title"]
    assert "--batch 128" not in large["fix"]
