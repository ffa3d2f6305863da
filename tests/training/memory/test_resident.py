"""The high-water mark of the resident size, of this very process and of made-up ones."""

import pytest

from wirespeed.training.memory.measured import (
    give_back_freed,
    highest_resident,
    reset_highest_resident,
)


def test_it_rises_with_what_is_touched_and_falls_when_reset():
    if not reset_highest_resident():
        pytest.skip("Requires: a kernel that resets VmHWM")
    before = highest_resident()
    block = bytearray(b"x" * (64 << 20))
    after = highest_resident()
    assert after - before > 50 << 20
    del block
    reset_highest_resident()
    assert highest_resident() < after - (50 << 20)


def test_what_the_allocator_keeps_is_given_back():
    """Freed blocks between others that live: the allocator keeps their pages, and gives them back."""
    if not reset_highest_resident():
        pytest.skip("Requires: a kernel that resets VmHWM")
    blocks = [bytearray(b"x" * (60 << 10)) for _ in range(1000)]
    del blocks[:999]
    reset_highest_resident()
    kept = highest_resident()
    give_back_freed()
    reset_highest_resident()
    assert kept - highest_resident() > 40 << 20
    del blocks


def test_unknown_where_the_kernel_does_not_tell(tmp_path):
    assert highest_resident(tmp_path) is None
    (tmp_path / "status").write_text("Name:\tx\nVmRSS:\t5 kB\n")
    assert highest_resident(tmp_path) is None
    (tmp_path / "status").write_text("VmPeak:\t9 kB\nVmHWM:\t  7 kB\n")
    assert highest_resident(tmp_path) == 7 * 1024


def test_a_kernel_that_refuses(tmp_path):
    assert reset_highest_resident(tmp_path / "nowhere") is False
