"""What makes it a decoder: causal, positions relative, heads shared, weights tied."""

import math
from dataclasses import replace

import pytest
import torch

from wirespeed.training.models import networks
from wirespeed.training.models.catalogue import model_named
from wirespeed.training.models.networks import Attention, rope_table, turned
from wirespeed.training.models.sizes import TRANSFORMERS


@pytest.fixture(autouse=True)
def seeded(one_thread):
    torch.manual_seed(1)


def test_no_token_sees_a_later_one():
    model = model_named("tiny", layers=2).build()
    tokens = torch.randint(256, (1, 16))
    changed = tokens.clone()
    changed[0, 10] = (changed[0, 10] + 1) % 256
    with torch.no_grad():
        one, other = model(tokens), model(changed)
    torch.testing.assert_close(one[:, :10], other[:, :10])
    assert (one[:, 10:] - other[:, 10:]).abs().amax(-1).min() > 0


def test_rope_makes_scores_depend_on_the_distance_alone():
    query, key = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    turns = rope_table(32, 8, 10_000.0, torch.device("cpu"))

    def score(i, j):
        return (turned(query, turns[i : i + 1]) * turned(key, turns[j : j + 1])).sum().item()

    assert score(3, 1) == pytest.approx(score(30, 28), rel=1e-4)
    assert score(3, 1) != pytest.approx(score(3, 2), rel=1e-2)
    assert turned(query, turns[:1]).equal(query)


def test_rope_turns_the_pairs_by_the_published_angles():
    turns = rope_table(5, 8, 500_000.0, torch.device("cpu"))
    angle = 4 * 500_000.0 ** (-2 * 3 / 8)
    assert turns[4, 3].real.item() == pytest.approx(math.cos(angle))
    assert turns[4, 3].imag.item() == pytest.approx(math.sin(angle))


@pytest.mark.parametrize("kernel", [True, False])
def test_shared_heads_equal_all_heads_with_repeated_keys_and_values(kernel, monkeypatch):
    monkeypatch.setattr(networks, "_kernel_shares_heads", lambda query: kernel)
    size = TRANSFORMERS["tiny"]
    shared = Attention(replace(size, kv_heads=2))
    full = Attention(size)
    width = size.d_head
    with torch.no_grad():
        full.query.weight.copy_(shared.query.weight)
        full.output.weight.copy_(shared.output.weight)
        for mine, theirs in ((full.key, shared.key), (full.value, shared.value)):
            heads = theirs.weight.view(2, width, size.d_model)
            mine.weight.copy_(heads.repeat_interleave(2, 0).flatten(0, 1))
        x, turns = torch.randn(2, 9, size.d_model), rope_table(9, width, 1e4, torch.device("cpu"))
        torch.testing.assert_close(shared(x, turns), full(x, turns))


def test_tied_weights_are_one_parameter_with_both_gradients():
    spec = model_named("tiny", tied=True, layers=1)
    model = spec.build()
    assert model.head.weight is model.embedding.weight
    names = [name for name, _ in model.named_parameters()]
    assert "head.weight" not in names
    spec.loss(model, spec.batch(1, 2)).backward()
    # Every row has a gradient by the output, also of tokens that are not in the batch.
    assert (model.embedding.weight.grad.abs().sum(1) > 0).all()


def test_the_model_has_no_buffers_and_starts_near_even_odds():
    spec = model_named("tiny")
    model = spec.build()
    assert not list(model.buffers())
    assert spec.loss(model, spec.batch(1, 4)).item() == pytest.approx(math.log(256), abs=0.1)


def test_the_same_seed_builds_the_same_model_and_another_another():
    spec = model_named("tiny", layers=1)
    weights = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        weights.append(spec.build().head.weight)
    assert weights[0].equal(weights[1])
    assert not weights[0].equal(weights[2])


@pytest.mark.parametrize("name", ["tiny", "mlp", "convnet"])
def test_the_mean_over_equal_shards_is_the_whole_s(name):
    spec = model_named(name)
    model = spec.build()
    inputs, targets = spec.batch(5, 4)
    with torch.no_grad():
        whole = spec.loss(model, (inputs, targets))
        parts = [spec.loss(model, (inputs[i : i + 2], targets[i : i + 2])) for i in (0, 2)]
    torch.testing.assert_close(sum(parts) / 2, whole)


def test_it_learns_a_text(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(b"abcdefgh" * 40)
    spec = model_named("tiny", layers=1, context=32, text=str(text))
    model = spec.build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(30):
        loss = spec.loss(model, spec.batch(step, 4))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss.item() < 1


def test_bfloat16_runs_and_is_near():
    spec = model_named("tiny", layers=1)
    model, batch = spec.build(), spec.batch(1, 2)
    exact = spec.loss(model, batch).item()
    assert spec.loss(model.bfloat16(), batch).item() == pytest.approx(exact, rel=0.02)
