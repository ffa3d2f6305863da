"""What a call takes of memory, by hand."""

import pytest

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import Geometry
from wirespeed.collectives.oracle import SLICE, buffer_elements, needed_bytes

GIB, MIB = 1 << 30, 1 << 20
SMALL = 16 * MIB
CHECK = 112 * SLICE


def need(op: str, size: int, *, ranks: int = 4, rank: int = 1, backend: str = "gloo", **how) -> int:
    collective, itemsize = CATALOGUE[op], how.pop("itemsize", 4)
    geometry = Geometry(rank, ranks, collective.count_for(size, itemsize, ranks), 0)
    asked = {"in_place": False, "check": False, **how}
    return needed_bytes(collective, geometry, itemsize, backend=backend, **asked)


@pytest.mark.parametrize(
    ("op", "how", "buffers"),
    [
        ("all_reduce", {}, 2),
        ("all_reduce", {"in_place": True}, 1),
        ("all_reduce", {"slots": 3}, 6),
        ("all_reduce", {"itemsize": 2}, 2),
        ("broadcast", {"in_place": True}, 1),
        ("all_gather", {"backend": "nccl"}, 1.25),
        ("all_gather", {"backend": "nccl", "in_place": True}, 1),
        ("all_gather", {}, 2.25),
        ("reduce_scatter", {"in_place": True}, 2),
        ("gather", {"rank": 0}, 2.25),
        ("gather", {"rank": 1}, 0.25),
        ("scatter", {"rank": 0}, 1.25),
        ("scatter", {"rank": 2}, 0.25),
        ("all_to_all", {}, 2),
    ],
)
def test_only_what_that_call_takes(op: str, how: dict, buffers: float) -> None:
    assert 0 <= need(op, GIB, **how) - buffers * GIB <= SMALL


def test_a_check_takes_some_slices_and_no_second_copy() -> None:
    plain = need("all_reduce", GIB)
    assert need("all_reduce", GIB, check=True) - plain == CHECK
    assert need("all_reduce", MIB, check=True) < CHECK, "no whole slice"
    rotated = need("all_reduce", GIB, slots=2)
    assert need("all_reduce", GIB, slots=2, check=True) - rotated == CHECK, "the C library keeps it"


@pytest.mark.parametrize(("ranks", "size"), [(2, 4 * GIB), (6, GIB), (2, 4 * 10**9)])
def test_what_fits_in_23_gib_is_not_refused(ranks: int, size: int) -> None:
    """Nine tenths of what is free may be taken; the ranks themselves take 145 MiB each."""
    free = 0.9 * (23 * GIB - ranks * 145 * MIB)
    for op in ("all_reduce", "all_to_all", "broadcast", "reduce", "send_recv"):
        every = [need(op, size, ranks=ranks, rank=rank, check=True) for rank in range(ranks)]
        assert sum(every) < free, op


def test_a_barrier_takes_nothing() -> None:
    collective = CATALOGUE["barrier"]
    assert buffer_elements(collective, Geometry(0, 2, 0, 0), in_place=False) == 0
