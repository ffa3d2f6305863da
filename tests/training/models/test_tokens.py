"""Random tokens by seed, and the bytes of a real file."""

import math
import os

import pytest
import torch

from wirespeed.errors import InputError, UsageError
from wirespeed.training.models.catalogue import TextTokens, model_named, random_tokens

WORDS = bytes(range(256)) * 2


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.bin"
    path.write_bytes(WORDS)
    return path


def test_random_tokens_follow_from_the_seed():
    one, again, other = (random_tokens(50, 8, seed, 3) for seed in (1, 1, 2))
    assert one[0].equal(again[0])
    assert not one[0].equal(other[0])
    assert one[0].shape == one[1].shape == (3, 8)
    assert one[0].dtype == torch.int64
    assert one[0][:, 1:].equal(one[1][:, :-1])
    many = random_tokens(50, 100, 3, 100)[0]
    assert set(many.flatten().tolist()) == set(range(50))


def test_a_text_s_bytes_are_its_tokens(text):
    inputs, targets = TextTokens.open(str(text), 256, 16)(7, 5)
    assert inputs.shape == targets.shape == (5, 16)
    for row, after in zip(inputs.tolist(), targets.tolist(), strict=True):
        assert bytes(row) + bytes(after[-1:]) in WORDS
        assert row[1:] == after[:-1]


def test_batches_of_a_text_follow_from_the_seed_and_reach_its_ends(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(bytes(range(6)))
    tokens = TextTokens.open(str(path), 256, 4)
    starts = {tokens(seed, 1)[0][0, 0].item() for seed in range(40)}
    assert starts == {0, 1}
    assert tokens(3, 8)[0].equal(tokens(3, 8)[0])


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [(b"", InputError, "is empty"), (b"x" * 64, InputError, "has 64 bytes")],
)
def test_a_text_that_is_too_short(tmp_path, content, error, says):
    path = tmp_path / "text"
    path.write_bytes(content)
    with pytest.raises(error, match=says) as caught:
        model_named("tiny", text=str(path))
    assert "65 bytes" in caught.value.expected


def test_just_long_enough(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(bytes(range(65)))
    inputs, targets = model_named("tiny", text=str(path)).batch(1, 2)
    assert inputs.tolist() == [list(range(64))] * 2
    assert targets.tolist() == [list(range(1, 65))] * 2


def test_a_text_that_is_missing_or_no_file(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        model_named("tiny", text=str(tmp_path / "none"))
    with pytest.raises(UsageError, match="Is a directory"):
        model_named("tiny", text=str(tmp_path))
    with pytest.raises(UsageError, match="no regular file"):
        model_named("tiny", text="/dev/null")
    os.mkfifo(tmp_path / "fifo")  # which nobody writes to
    with pytest.raises(UsageError, match="no regular file"):
        model_named("tiny", text=str(tmp_path / "fifo"))


def test_a_vocabulary_below_a_byte_s(text):
    with pytest.raises(UsageError, match="the vocabulary 100"):
        model_named("tiny", text=str(text), vocab=100)


def test_a_text_that_shrinks_or_vanishes_meanwhile(text):
    spec = model_named("tiny", text=str(text))
    text.write_bytes(b"x")
    with pytest.raises(InputError, match="became shorter"):
        spec.batch(1, 8)
    text.unlink()
    with pytest.raises(InputError, match="cannot be read any more"):
        spec.batch(1, 8)


@pytest.mark.parametrize("name", ["mlp", "convnet"])
def test_other_models_refuse_a_transformer_s_options(name, text):
    with pytest.raises(UsageError, match=f"{name} has no text"):
        model_named(name, text=str(text))
    with pytest.raises(UsageError, match=f"{name} has no kv heads"):
        model_named(name, kv_heads=2)


def test_an_unknown_model_names_the_known():
    with pytest.raises(UsageError, match="'gigantic'") as caught:
        model_named("gigantic")
    assert "tiny, small" in caught.value.expected


def test_random_tokens_carry_nothing_to_learn():
    inputs, targets = random_tokens(4, 2000, 1, 1)
    pairs = torch.bincount(inputs[0] * 4 + targets[0], minlength=16) / 2000
    entropy = -(pairs * pairs.log()).sum().item()
    assert entropy == pytest.approx(math.log(16), abs=0.02)
