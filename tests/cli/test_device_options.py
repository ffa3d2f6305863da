"""`bench gemm|memory|copy`: what is asked, and what says nothing of devices."""

from typing import Any

import pytest

from wirespeed.checks.levels import compute_plan
from wirespeed.cli.computing import _shapes


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("gemm", "all_reduce"), "all_reduce beside gemm"),
        (("gemm", "--groups", "nodes"), "--groups with gemm"),
        (("memory", "-o", "max"), "-o max with memory"),
        (("gemm", "-d", "complex64"), "no products of type 'complex64'"),
        (("gemm", "--products", "12x12"), "neither a shape nor a model"),
        (("memory", "--products", "llama-8b"), "without gemm"),
        (("all_reduce", "--for", "5m"), "without gemm"),
        (("copy", "--sizes", "2"), "--sizes '2'"),
        (("gemm", "--ranks", "1,2"), "a grid of worlds with devices"),
        (("gemm", "--for", "soon"), "no length of time"),
        (("all_reduce", "--inject", "lane:rank=0"), "nothing that 'lane:rank=0' could strike"),
        (("gemm", "--inject", "flip:rank=0"), "nothing that 'flip:rank=0' could strike"),
        (("memory", "--inject", "rare:rank=0"), "nothing that 'rare:rank=0' could strike"),
        (("gemm", "--inject", "kill:rank=0,at=all_reduce"), "nothing that 'kill:"),
    ],
)
def test_what_makes_no_sense_is_refused(
    cli: Any, says_clearly: Any, words: tuple[str, ...], says: str
) -> None:
    assert says in says_clearly(cli.here("bench", *words), 2)


def test_products_of_a_model() -> None:
    """llama-8b: 4096 wide, 32 heads of which 8 have keys and values, 14336 within, 128256 words."""
    shapes = list(_shapes("cpu", "llama-8b,64x32x16"))
    assert shapes[0] == (256, 4096 + 2 * 1024, 4096)
    assert (256, 4096, 14336) in shapes
    assert shapes[-1] == (64, 32, 16)


def test_which_levels_look_at_devices() -> None:
    assert compute_plan("medium", frozenset()) is None
    assert compute_plan("long", frozenset({"COL-001"})) is None
    whole = compute_plan("long", frozenset())
    assert whole is not None
    assert whole.sustain_s
    quick = compute_plan("quick", frozenset({"COMP-001"}))
    assert quick is not None
    assert (quick.works, quick.sustain_s, bool(quick.proofs)) == ((), 0.0, True)
    hot = compute_plan("quick", frozenset({"COMP-006"}))
    assert hot is not None
    assert [one.on for one in hot.works] == ["cpu", "gpu"]
