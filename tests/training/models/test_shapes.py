"""What a large job sends, by hand for two models; and how it is cut down."""

import pytest

from wirespeed.collectives.collective import members_of
from wirespeed.errors import UsageError
from wirespeed.training.models.shapes import SHAPES, Degrees, scaled, shape_of

LLAMA, MIXTRAL = SHAPES["llama-70b"], SHAPES["mixtral-8x7b"]
JOB = Degrees(tensor=8, pipeline=4, data=16)


def bf16(model, job, ranks, **more):
    return shape_of(model, job, ranks, dtype="bfloat16", itemsize=2, **more)


def test_what_llama_70b_sends_on_512_ranks():
    shape = bf16(LLAMA, JOB, 512)
    assert (shape.tokens, shape.width, shape.columns, shape.lost) == (8192, 8192, 3584, ())
    layer = 8192 * (2 * 8192 + 2 * 1024 + 3 * 28672)
    assert [(g.kind, g.groups, g.ranks, g.size_bytes) for g in shape.groups] == [
        ("tensor", "of-8", 8, 8192 * 8192 * 2),
        ("pipeline", "every-128", 4, 8192 * 8192 * 2 // 8),
        ("data", "of-16-every-8", 16, layer // 8 * 2),
    ]
    assert all(g.size_bytes == g.job_size_bytes and g.ranks == g.job_ranks for g in shape.groups)
    assert shape.job == "tensor 8 × pipeline 4 × data 16"


def test_experts_take_their_share_of_the_tokens_and_leave_the_gradients():
    job = Degrees(tensor=2, pipeline=1, data=16, expert=8)
    tensor, data, expert = bf16(MIXTRAL, job, 32, tokens=1000).groups
    assert tensor.size_bytes == 1000 * 4096 * 2
    assert data.size_bytes == 4096 * (2 * 4096 + 2 * 1024 + 8) // 2 * 2
    assert (expert.groups, expert.size_bytes) == ("of-8-every-2", 1000 * 4096 * 2)


@pytest.mark.parametrize(
    ("ranks", "here"),
    [
        (2, (2, 1, 1)),
        (4, (2, 1, 2)),
        (6, (3, 1, 2)),
        (7, (7, 1, 1)),
        (8, (2, 2, 2)),
        (16, (4, 2, 2)),
        (64, (8, 2, 4)),
        (128, (8, 2, 8)),
        (512, (8, 4, 16)),
        (1024, (8, 4, 32)),
    ],
)
def test_a_job_on_other_ranks(ranks, here):
    found = scaled(JOB, ranks)
    assert (found.tensor, found.pipeline, found.data) == here
    assert found.ranks == ranks


def test_experts_stay_within_data_parallel_groups():
    assert scaled(Degrees(2, 1, 16, 8), 8) == Degrees(2, 1, 4, 4)
    assert scaled(Degrees(1, 1, 8, 8), 6) == Degrees(1, 1, 6, 6)


def test_groups_are_those_of_megatron():
    here = Degrees(tensor=2, pipeline=2, data=4, expert=2)
    cut = {k: members_of(here.groups(k), [""] * 16, [0] * 16) for k in ("tensor", "pipeline")}
    assert cut["tensor"][:2] == [(0, 1), (2, 3)]
    assert cut["pipeline"][:2] == [(0, 8), (1, 9)]
    assert members_of(here.groups("data"), [""] * 16, [0] * 16)[:2] == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert members_of(here.groups("expert"), [""] * 16, [0] * 16)[:2] == [(0, 2), (1, 3)]
    assert Degrees(1, 1, 4).groups("data") == "all"


def test_no_call_and_no_matrix_is_larger_than_asked():
    shape = bf16(LLAMA, JOB, 8, most_bytes=4 << 20)
    assert (shape.tokens, shape.job_tokens, shape.columns) == (256, 8192, 256)
    assert max(g.size_bytes for g in shape.groups) <= 4 << 20
    assert min(g.job_size_bytes for g in shape.groups) > 4 << 20
    tokens = bf16(MIXTRAL, Degrees(1, 1, 8, 8), 8, most_bytes=1 << 20)
    assert max(g.size_bytes for g in tokens.groups) <= 1 << 20


@pytest.mark.parametrize(
    ("model", "job", "said"),
    [
        (LLAMA, Degrees(7, 1, 1), "--tp 7, and llama-70b has 64 heads"),
        (LLAMA, Degrees(1, 81, 1), "--pp 81, and llama-70b has 80 layers"),
        (LLAMA, Degrees(1, 1, 8, 4), "llama-70b has no experts"),
        (MIXTRAL, Degrees(1, 1, 9, 3), "--ep 3 with --dp 9 for the 8 experts"),
        (MIXTRAL, Degrees(1, 1, 2, 4), "--ep 4 with --dp 2 for the 8 experts"),
        (LLAMA, Degrees(1, 1, 1), "a shape of one rank"),
        (LLAMA, Degrees(8, 4, 16), "cannot be cut down to 17 ranks"),
    ],
)
def test_what_cannot_be_cut(model, job, said):
    with pytest.raises(UsageError, match=said):
        bf16(model, job, 17)


def test_a_bound_below_a_token_of_each_rank_is_refused():
    with pytest.raises(UsageError, match="8 tokens of llama-70b") as refused:
        bf16(LLAMA, JOB, 8, most_bytes=1 << 10)
    assert refused.value.expected == "-e 128 KiB or more"
    assert bf16(LLAMA, JOB, 8, most_bytes=128 << 10).tokens == 8
