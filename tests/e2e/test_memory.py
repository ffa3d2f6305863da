"""Sizes beyond the memory: found out before they hurt, and no reason to lose the smaller ones."""

import resource
from typing import Any

import pytest

pytestmark = pytest.mark.slow

MOST = {resource.RLIMIT_AS: 2500 * 2**20}
"""Address space of each process: torch takes 640 MiB of it; buffers of 128 MiB still fit, six times:
what rotating them through a cache of 768 MiB takes."""
ONCE = ("-w", "1", "-n", "2", "--ranks", "2", "-q", "-o", "json")


def test_the_largest_size_that_fits(cli: Any) -> None:
    done = cli("bench", "all_reduce", "--max-fit", *ONCE, limits=MOST)
    assert done.code == 0, done.err
    (measurement,) = done.json["measurements"]
    size = measurement["size_bytes"]
    assert size & (size - 1) == 0, "a power of two"
    # In and out of place buffers of the next size cannot fit beside torch; an eighth must.
    assert 2**24 <= size <= 2**29
    assert measurement["wrong"] == 0


def test_a_sweep_ends_where_memory_does(cli: Any, finding: Any) -> None:
    done = cli("bench", "all_reduce", "-b", "1M", "-e", "16G", "-f", "128", *ONCE, limits=MOST)
    assert done.code == 0, done.err
    assert [m["size_bytes"] >> 20 for m in done.json["measurements"]] == [1, 128]
    found = finding(done.json, "MEM-001")
    assert found["status"] == "warn"
    assert "it needs 64" in found["saw"] and "GiB" in found["saw"]
