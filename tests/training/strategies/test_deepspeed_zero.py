"""DeepSpeed ZeRO against one process on the full batch, in real worlds of two gloo ranks.

The world imports this file as well, for `all_cases`.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.training.contract import Setup, Trainer
from wirespeed.training.strategies.deepspeed_zero import build

needs_deepspeed = pytest.mark.skipif(
    find_spec("deepspeed") is None, reason="Requires: deepspeed (the extra deepspeed)"
)

VARIANTS = ("0", "1", "2", "3", "2-optimizer", "3-parameter")
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "buckets": {"bucket_mb": 0.0001},
    "accumulated": {"micro_batches": 2, "max_norm": 0.05},
}
RANKS, STEPS, SAMPLES = 2, 4, 4
OPTIONS = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}
BOUND_S = 120


class Toy(nn.Module):
    """Tied weights, a frozen layer, a buffer, and a bias that is larger than the tiny buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 24)
        self.inner = nn.Linear(24, 24)
        self.frozen = nn.Linear(24, 24, bias=False)
        self.frozen.weight.requires_grad_(False)
        self.out = nn.Linear(24, 32)
        self.out.weight = self.embed.weight
        self.register_buffer("scale", torch.rand(24))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.frozen(torch.tanh(self.inner(self.embed(tokens)))) * self.scale)
        return self.out(hidden)  # type: ignore[no-any-return]


def toy(seed: int) -> Toy:
    torch.manual_seed(seed)
    return Toy()


def batch(step: int, micro: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The full batch of all ranks."""
    torch.manual_seed(1000 + 10 * step + micro)
    tokens = torch.randint(0, 32, (RANKS * SAMPLES, 6))
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(model: nn.Module, pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    inputs, targets = pair
    return nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def of_rank(
    pair: tuple[torch.Tensor, torch.Tensor], rank: int
) -> tuple[torch.Tensor, torch.Tensor]:
    part = slice(rank * SAMPLES, (rank + 1) * SAMPLES)
    return pair[0][part], pair[1][part]


def train(
    trainer: Trainer, rank: int, micro_batches: int = 1, max_norm: float | None = None
) -> Iterator[float]:
    """The step loop of the contract; clipping in the first half only, so that it must end too."""
    for step in range(STEPS):
        for micro in range(micro_batches - 1):
            with trainer.no_sync():
                loss = loss_of(trainer.model, of_rank(batch(step, micro), rank)) / micro_batches
                trainer.backward(loss)
        last = loss_of(trainer.model, of_rank(batch(step, micro_batches - 1), rank))
        trainer.backward(last / micro_batches)
        trainer.finish()
        if max_norm is not None and step < STEPS // 2:
            trainer.clip(max_norm)
        trainer.step()
        yield float(last.detach())


def alone(
    micro_batches: int = 1, max_norm: float | None = None, **_: Any
) -> dict[str, torch.Tensor]:
    """The same training in one process on the full batch."""
    model = toy(seed=0)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], **OPTIONS)
    for step in range(STEPS):
        for micro in range(micro_batches):
            (loss_of(model, batch(step, micro)) / micro_batches).backward()
        if max_norm is not None and step < STEPS // 2:
            norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            assert norm > 2 * max_norm, "the test must clip"
        optimizer.step()
        optimizer.zero_grad()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@contextmanager
def redirected_stdout() -> Iterator[list[str]]:
    """Afterwards it holds all that this process wrote to its stdout, compiled code included."""
    written: list[str] = []
    with tempfile.TemporaryFile("w+") as file:
        sys.stdout.flush()
        before = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            yield written
        finally:
            sys.stdout.flush()
            os.dup2(before, 1)
            os.close(before)
            file.seek(0)
            written.append(file.read())


def setup_of(variant: str, rank: int, **way: Any) -> Setup:
    way.pop("max_norm", None)
    group = dist.group.WORLD
    assert group is not None
    return Setup(
        group=group,
        device=torch.device("cpu"),
        optimizer_class=torch.optim.AdamW,
        optimizer_options=OPTIONS,
        variant=variant,
        samples=SAMPLES,
        **way,
    )


def one_case(variant: str, way: dict[str, Any], rank: int) -> dict[str, Any]:
    trainer = build(toy(seed=rank), setup_of(variant, rank, **way))
    began = {name: value.tolist() for name, value in trainer.full_parameters().items()}
    losses = list(train(trainer, rank, way.get("micro_batches", 1), way.get("max_norm")))
    after = {name: value.tolist() for name, value in trainer.full_parameters().items()}
    held = sum(p.numel() for p in trainer.model.parameters())
    state = state_elements(trainer)
    trainer.close()
    return {"began": began, "after": after, "losses": losses, "held": held, "state": state}


def state_elements(trainer: Trainer) -> int:
    """Elements of AdamW's first moments that this rank keeps."""
    optimizer: Any = trainer.model.optimizer
    inner = getattr(optimizer, "optimizer", optimizer)
    return sum(state["exp_avg"].numel() for state in inner.state.values() if "exp_avg" in state)


def refusal_of_half_the_world(rank: int) -> str:
    halves = [dist.new_group([one]) for one in range(RANKS)]
    half = halves[rank]
    assert half is not None
    setup = setup_of("1", rank)
    smaller = Setup(
        group=half,
        device=setup.device,
        optimizer_class=setup.optimizer_class,
        variant="1",
    )
    try:
        build(toy(seed=0), smaller)
    except CannotMeasure as error:
        return str(error)
    return ""


def all_cases(rank: int, ranks: int) -> dict[str, Any]:
    """Every case in the same processes, one after the other; run in a world."""
    with redirected_stdout() as out:
        together = interleaved(rank)  # first, while torch is as it was imported
        found: dict[str, Any] = {
            f"{variant} {name}": one_case(variant, way, rank)
            for variant in VARIANTS
            for name, way in WAYS.items()
        }
        found |= {"together": together, "kinds": in_bfloat16(rank)}
        found["half"] = refusal_of_half_the_world(rank)
    return found | {"out": out[0]}


def interleaved(rank: int) -> dict[str, Any]:
    """Steps of several engines in turn, the first closed while others go on."""
    import torch._dynamo  # it replaces torch.manual_seed; DeepSpeed is not the one to blame

    known = (nn.functional, nn.Module, nn.Linear, torch)
    before = [dict(vars(one)) for one in known]
    trainers = {
        variant: build(toy(seed=rank), setup_of(variant, rank))
        for variant in ("3", "2", "3-parameter", "0")
    }
    after: dict[str, Any] = {}
    steps = {variant: train(trainer, rank) for variant, trainer in trainers.items()}
    for _ in range(STEPS):
        for one in steps.values():
            next(one)
    for variant, trainer in trainers.items():
        after[variant] = {name: p.tolist() for name, p in trainer.full_parameters().items()}
        trainer.close()
    after["changed"] = [
        f"{one.__name__}.{name}"
        for one, was in zip(known, before, strict=True)
        for name, value in was.items()
        if callable(value) and vars(one).get(name) is not value
    ]
    return after


def in_bfloat16(rank: int) -> dict[str, list[str]]:
    """Kinds of the scores under autocast, where DeepSpeed takes it for CUDA's."""
    plain = torch.is_autocast_enabled
    torch.is_autocast_enabled = lambda kind="cpu": plain(kind)  # asked without a kind: CUDA's
    kinds = {}
    for variant in ("0", "3"):
        trainer = build(toy(seed=rank), setup_of(variant, rank))
        found = []
        for enabled in (True, False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                inputs, targets = of_rank(batch(0, 0), rank)
                scores = trainer.model(inputs).flatten(0, 1)
                loss = nn.functional.cross_entropy(scores.float(), targets.flatten())
            trainer.backward(loss)
            trainer.finish()
            trainer.step()
            found.append(str(scores.dtype))
        kinds[variant] = [*found, str(torch.is_autocast_enabled())]
        trainer.close()
    torch.is_autocast_enabled = plain
    return kinds


@pytest.fixture(scope="module")
def found(world: Callable[..., list[Any]]) -> list[dict[str, Any]]:
    """What each rank found."""
    return world("all_cases", ranks=RANKS, timeout=BOUND_S)


@pytest.mark.system
@needs_deepspeed
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_one_process_on_the_full_batch(
    found: list[dict[str, Any]], variant: str, way: str
) -> None:
    expected = alone(**WAYS[way])
    for rank in found:
        after = rank[f"{variant} {way}"]["after"]
        assert set(after) == set(expected)
        for name, value in expected.items():
            torch.testing.assert_close(torch.tensor(after[name]), value, rtol=1e-5, atol=1e-8)


@pytest.mark.system
@needs_deepspeed
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_rank_begins_with_rank_0s_values(found: list[dict[str, Any]], variant: str) -> None:
    expected = dict(toy(seed=0).named_parameters())
    for rank in found:
        for name, value in rank[f"{variant} plain"]["began"].items():
            torch.testing.assert_close(torch.tensor(value), expected[name].detach())


@pytest.mark.system
@needs_deepspeed
def test_each_stage_shards_what_it_says(found: list[dict[str, Any]]) -> None:
    whole = sum(p.numel() for p in toy(0).parameters() if p.requires_grad)
    everything = sum(p.numel() for p in toy(0).parameters())
    for rank in found:
        assert rank["0 plain"]["state"] == whole
        for variant in VARIANTS[1:]:
            # Rounded up to whole alignment units of each rank.
            assert whole / RANKS <= rank[f"{variant} plain"]["state"] < 0.6 * whole, variant
        assert rank["2 plain"]["held"] == everything
        assert rank["3 plain"]["held"] < everything / 2


@pytest.mark.system
@needs_deepspeed
def test_a_group_that_is_not_the_world_is_refused(found: list[dict[str, Any]]) -> None:
    for number, rank in enumerate(found):
        assert f"1 of the 2 ranks: {number}" in rank["half"]


@pytest.mark.system
@needs_deepspeed
def test_nothing_goes_to_stdout(found: list[dict[str, Any]]) -> None:
    assert [rank["out"] for rank in found] == ["", ""]


@pytest.mark.system
@needs_deepspeed
def test_engines_that_live_at_once_do_not_disturb_each_other(
    found: list[dict[str, Any]],
) -> None:
    """Strategies are interleaved in rounds: ZeRO must change nothing for whoever runs beside it."""
    expected = alone()
    for rank in (one["together"] for one in found):
        for variant in ("3", "2", "3-parameter", "0"):
            for name, value in expected.items():
                torch.testing.assert_close(
                    torch.tensor(rank[variant][name]), value, rtol=1e-5, atol=1e-8
                )
        assert rank["changed"] == []


@pytest.mark.system
@needs_deepspeed
def test_autocast_around_the_model_reaches_it(found: list[dict[str, Any]]) -> None:
    """DeepSpeed turns it off where it asks `torch.is_autocast_enabled()`, which tells of CUDA."""
    kinds = ["torch.bfloat16", "torch.float32", "torch.bfloat16", "False"]
    for rank in found:
        assert rank["kinds"] == {"0": kinds, "3": kinds}


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[None]:
    """A world of this process alone."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("lonely")
def test_a_model_without_trained_parameters_is_refused() -> None:
    with pytest.raises(UsageError, match="no parameter to train"):
        build(nn.ReLU(), setup_of("1", 0))


@pytest.mark.usefixtures("lonely")
def test_a_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(CannotMeasure, match=r"cannot be imported") as caught:
        build(toy(seed=0), setup_of("1", 0))
    assert "wirespeed[deepspeed]" in caught.value.next
