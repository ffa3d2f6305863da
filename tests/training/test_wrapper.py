"""The public wrapper on two real ranks: what users do to it between and within steps."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

World = Callable[..., list[Any]]
STRATEGIES = ("naive", "flat", "overlap", "bucketed")


def by_strategy(rank: int, ranks: int) -> dict[str, dict[str, Any]]:
    """Strategy -> case -> what happened (True: as it should be)."""
    return {strategy: _cases(strategy, rank) for strategy in STRATEGIES}


CASES: dict[str, Callable[[Any, int], Any]] = {}


def _case(function: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    CASES[function.__name__] = function
    return function


def _cases(strategy: str, rank: int) -> dict[str, Any]:
    def wrap(module: Any, **more: Any) -> Any:
        from wirespeed import DistributedDataParallel

        return DistributedDataParallel(module, strategy=strategy, **more)

    return {name: case(wrap, rank) for name, case in CASES.items()}


def _module(rank: int, kind: str = "plain") -> Any:
    import torch

    from toys import TOYS

    torch.manual_seed(100 + rank)
    return TOYS[kind]()


def _data(rank: int, step: int = 0) -> Any:
    from toys import batch

    inputs, targets = batch(7 + step, 8)
    return inputs[rank * 4 : rank * 4 + 4], targets[rank * 4 : rank * 4 + 4]


def _backward(model: Any, rank: int, step: int = 0) -> None:
    from toys import loss

    loss(model, _data(rank, step)).backward()


def _alone(steps: int = 1, kind: str = "plain") -> list[Any]:
    """Gradients of the sum of the whole batches' losses, on one process."""
    from toys import batch, loss

    model = _module(0, kind)
    for step in range(steps):
        loss(model, batch(7 + step, 8)).backward()
    return [parameter.grad for parameter in model.parameters()]


def _same(model: Any, wanted: list[Any]) -> list[str]:
    import torch

    wrong = []
    for (name, parameter), gradient in zip(model.named_parameters(), wanted, strict=True):
        none = parameter.grad is None, gradient is None
        if (any(none) and not all(none)) or (
            not any(none) and not torch.allclose(parameter.grad, gradient, rtol=1e-5, atol=1e-7)
        ):
            wrong.append(f"{name}: {parameter.grad} for {gradient}")
    return wrong


@_case
def ranks_begin_alike(wrap: Any, rank: int) -> bool:
    import torch

    model, first = wrap(_module(rank, "buffered")), _module(0, "buffered")
    ours, wanted = model.state_dict(), first.state_dict()
    return list(ours) == list(wanted) and all(
        torch.equal(ours[name], tensor) for name, tensor in wanted.items()
    )


@_case
def gradients_are_the_mean(wrap: Any, rank: int) -> list[str]:
    model = wrap(_module(rank))
    _backward(model, rank)
    model.finish_gradient_synchronization()
    return _same(model.module, _alone())


@_case
def finishing_twice_changes_nothing(wrap: Any, rank: int) -> list[str]:
    model = wrap(_module(rank))
    _backward(model, rank)
    model.finish_gradient_synchronization()
    if rank == 1:  # were it to send anything, the next collective would not match
        model.finish_gradient_synchronization()
    return _same(model.module, _alone())


@_case
def gradients_cleared_to_none_or_zero_in_turn(wrap: Any, rank: int) -> list[str]:
    model, wrong = wrap(_module(rank)), []
    for step in range(6):
        _backward(model, rank)
        model.finish_gradient_synchronization()
        wrong += _same(model.module, _alone())
        model.zero_grad(set_to_none=step % 3 == 0)
    return wrong


@_case
def gradients_that_are_not_cleared_add_up(wrap: Any, rank: int) -> list[str]:
    model = wrap(_module(rank))
    for step in range(3):
        _backward(model, rank, step)
        model.finish_gradient_synchronization()
    return _same(model.module, _alone(3))


@_case
def a_second_forward_without_finish(wrap: Any, rank: int) -> list[str]:
    model = wrap(_module(rank))
    for step in range(3):
        _backward(model, rank, step)
    model.finish_gradient_synchronization()
    return _same(model.module, _alone(3))


@_case
def passes_within_no_sync(wrap: Any, rank: int) -> list[str]:
    model = wrap(_module(rank))
    with model.no_sync():
        _backward(model, rank, 0)
        _backward(model, rank, 1)
        model.finish_gradient_synchronization()
    own = [one.grad.clone() for one in model.parameters()]
    _backward(model, rank, 2)
    model.finish_gradient_synchronization()
    apart = all(not one.equal(two.grad) for one, two in zip(own, model.parameters(), strict=True))
    return _same(model.module, _alone(3)) + ([] if apart else ["no_sync sent"])


@_case
def no_sync_after_a_pass_that_was_sent(wrap: Any, rank: int) -> list[str]:
    model = wrap(_module(rank))
    _backward(model, rank, 0)
    with model.no_sync():
        _backward(model, rank, 1)
    _backward(model, rank, 2)
    model.finish_gradient_synchronization()
    return _same(model.module, _alone(3))


@_case
def all_passes_within_no_sync(wrap: Any, rank: int) -> list[str]:
    model = wrap(_module(rank))
    with model.no_sync():
        _backward(model, rank, 0)
        _backward(model, rank, 1)
    model.finish_gradient_synchronization()
    return _same(model.module, _alone(2))


@_case
def no_sync_ends_with_an_error(wrap: Any, rank: int) -> list[str]:
    model = wrap(_module(rank))
    try:
        with model.no_sync():
            raise KeyError
    except KeyError:
        _backward(model, rank)
    model.finish_gradient_synchronization()
    return _same(model.module, _alone())


@_case
def without_gradients_here_or_everywhere(wrap: Any, rank: int) -> list[str]:
    """`rarely` is used on rank 1 only: rank 0 gets half of its gradient; `never` keeps None."""
    model, wrong = wrap(_module(rank, "sometimes")), []
    for _ in range(3):
        _backward(model, rank)
        model.finish_gradient_synchronization()
        wrong += _same(model.module, _alone(kind="sometimes"))
        model.zero_grad()
    return wrong


@_case
def used_nowhere_at_first_then_on_one_rank(wrap: Any, rank: int) -> list[str]:
    model = wrap(_module(rank, "sometimes"))
    _backward(model, 0)
    model.finish_gradient_synchronization()
    wrong = [] if model.rarely.weight.grad is None else ["a gradient from nowhere"]
    model.zero_grad()
    _backward(model, rank)
    model.finish_gradient_synchronization()
    return wrong + _same(model.module, _alone(kind="sometimes"))


@_case
def a_rank_without_any_backward(wrap: Any, rank: int) -> list[str]:
    import torch

    model = wrap(_module(rank))
    if rank == 0:
        _backward(model, rank)
    else:
        model(_data(rank)[0])
    model.finish_gradient_synchronization()
    halves = [one.grad for one in _half().parameters()]
    ours = [one.grad for one in model.parameters()]
    return [] if all(torch.allclose(a, b) for a, b in zip(ours, halves, strict=True)) else ["other"]


def _half() -> Any:
    from toys import loss

    model = _module(0)
    (loss(model, _data(0)) / 2).backward()
    return model


@_case
def a_look_without_gradients_in_between(wrap: Any, rank: int) -> list[str]:
    import torch

    model = wrap(_module(rank))
    _backward(model, rank)
    if rank == 0:
        with torch.no_grad():
            model(_data(rank)[0])
    model.finish_gradient_synchronization()
    return _same(model.module, _alone())


@_case
def second_order_gradients(wrap: Any, rank: int) -> list[str]:
    from toys import loss

    model = wrap(_module(rank))
    loss(model, _data(rank)).backward(create_graph=True)
    model.finish_gradient_synchronization()
    return _same(model.module, _alone())


@_case
def one_module_wrapped_again(wrap: Any, rank: int) -> list[str]:
    module = _module(rank)
    first = wrap(module)
    _backward(first, rank)
    first.close()
    module.zero_grad()
    second = wrap(module)
    _backward(second, rank)
    second.finish_gradient_synchronization()
    return _same(module, _alone()) + [
        "hooks left" for one in module.parameters() if len(_hooks(one)) != _expected(second)
    ]


def _hooks(parameter: Any) -> Any:
    return parameter._post_accumulate_grad_hooks or {}


def _expected(model: Any) -> int:
    return int(hasattr(model._synchroniser, "_hooks"))


@_case
def a_model_that_differs_between_ranks(wrap: Any, rank: int) -> bool:
    from wirespeed.errors import WorldError

    try:
        wrap(_module(rank, "plain" if rank == 0 else "tied"))
    except WorldError as error:
        return "rank 1 is another" in str(error)
    return False


@_case
def a_sparse_gradient(wrap: Any, rank: int) -> bool:
    import torch

    from wirespeed.errors import UsageError

    model = wrap(torch.nn.Embedding(4, 2, sparse=True))
    try:
        model(torch.tensor([rank])).sum().backward()
        if rank == 0 or _is_late(model):
            model.finish_gradient_synchronization()
    except UsageError as error:
        model._synchroniser._handed_in = False
        return "sparse" in str(error)
    return False


def _is_late(model: Any) -> bool:
    return not hasattr(model._synchroniser, "_hooks")


@_case
def a_second_backward_of_a_forward_before(wrap: Any, rank: int) -> bool:
    """Overlapping strategies say so; the others simply add up."""
    from toys import loss
    from wirespeed.errors import UsageError

    model = wrap(_module(rank))
    first, second = (loss(model, _data(rank, step)) for step in range(2))
    first.backward()
    try:
        second.backward()
        refused = False
    except UsageError as error:
        refused = "no_sync" in str(error)
    model.finish_gradient_synchronization()
    return refused != _is_late(model) and (refused or not _same(model.module, _alone(2)))


def calls_by_strategy(rank: int, ranks: int) -> dict[str, list[int]]:
    """Strategy -> all_reduce calls by the end of the backward pass, and after finish."""
    import torch.distributed as dist

    from wirespeed import DistributedDataParallel

    plain, calls = dist.all_reduce, []

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(1)
        return plain(*args, **options)

    dist.all_reduce = counted
    counts = {}
    for strategy in STRATEGIES:
        # Matrices of 288 bytes, vectors of 48 and 24: both matrices have a bucket for themselves.
        model = DistributedDataParallel(_module(rank), strategy=strategy, bucket_mb=0.0003)
        calls.clear()
        _backward(model, rank)
        counts[strategy] = [len(calls)]
        model.finish_gradient_synchronization()
        counts[strategy].append(len(calls))
    return counts


@pytest.mark.slow
def test_what_is_sent_when(world: World) -> None:
    """Four parameters; naive and overlap send one message more, about gradients that nobody had."""
    for counts in world("calls_by_strategy"):
        assert counts == {"naive": [0, 5], "flat": [0, 1], "overlap": [4, 5], "bucketed": [4, 4]}


@pytest.fixture(scope="module")
def happened(world: World) -> list[dict[str, dict[str, Any]]]:
    return world("by_strategy")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_on_both_ranks(happened: list[dict[str, dict[str, Any]]], strategy: str, case: str) -> None:
    for rank in happened:
        assert rank[strategy][case] in (True, [])


def on_one_rank(rank: int, ranks: int) -> dict[str, Any]:
    import math

    from torch import nn

    from wirespeed import DistributedDataParallel as Ddp

    module = _module(0)
    wrapped = Ddp(module, bucket_mb=0.0001)
    frozen = nn.Linear(2, 2).requires_grad_(False)
    other = nn.Linear(2, 2)
    state = {key: value + 1 for key, value in module.state_dict().items()}
    wrapped.load_state_dict(state)
    bad_sizes = (0, -1, math.nan, math.inf)
    return {
        "attribute": wrapped.inner is module.inner,
        "absent": _error(lambda: wrapped.nothing),
        "state": all(one.equal(state[name]) for name, one in wrapped.state_dict().items()),
        "frozen": _error(lambda: Ddp(frozen)),
        "no parameters": _error(lambda: Ddp(nn.Tanh())),
        "lazy": _error(lambda: Ddp(nn.LazyLinear(3))),
        "strategy": _error(lambda: Ddp(other, strategy="best")),
        "sizes": [_error(lambda size=size: Ddp(other, bucket_mb=size)) for size in bad_sizes],
        "size of naive": _error(lambda: Ddp(other, strategy="naive", bucket_mb=-1)),
    }


def _error(act: Callable[[], Any]) -> str:
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.fixture(scope="module")
def one_rank(world: World) -> dict[str, Any]:
    said: dict[str, Any] = world("on_one_rank", ranks=1)[0]
    return said


def test_the_module_is_reachable(one_rank: dict[str, Any]) -> None:
    assert one_rank["attribute"] is True
    assert one_rank["state"] is True
    assert one_rank["absent"].startswith("AttributeError")


@pytest.mark.parametrize("case", ["frozen", "no parameters"])
def test_nothing_to_train_is_said(one_rank: dict[str, Any], case: str) -> None:
    assert "UsageError" in one_rank[case]
    assert "no trainable parameter" in one_rank[case]


def test_lazy_parameters_are_said(one_rank: dict[str, Any]) -> None:
    assert "UsageError" in one_rank["lazy"]
    assert "lazy" in one_rank["lazy"]


def test_bad_sizes_and_names_are_said(one_rank: dict[str, Any]) -> None:
    assert "bucketed" in one_rank["strategy"]
    for said in (*one_rank["sizes"], one_rank["size of naive"]):
        assert said.startswith("UsageError: a bucket of")


def _python(code: str) -> str:
    words = [sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout


def test_importing_the_package_leaves_torch_alone() -> None:
    assert _python("import wirespeed, sys; print('torch' in sys.modules)") == "False\n"


@pytest.mark.slow
def test_without_a_process_group() -> None:
    said = _python(
        "import torch, wirespeed\n"
        "try: wirespeed.DistributedDataParallel(torch.nn.Linear(1, 1))\n"
        "except wirespeed.errors.UsageError as error: print(error.saw)\n"
    )
    assert said == "there is no process group\n"


def test_an_unknown_name_of_the_package() -> None:
    import wirespeed

    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = wirespeed.Nothing
