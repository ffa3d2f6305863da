"""What ranks tell each other: every shape comes back, and bytes of a stranger run nothing."""

import json
import pickle
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from wirespeed.errors import UsageError, WorldError
from wirespeed.training import exchange
from wirespeed.training.exchange import MOST_BYTES, gathered, gathered_states, read

CPU = torch.device("cpu")
TIMES = 1000


@dataclass(frozen=True, kw_only=True)
class Seat:
    host: str
    port: int
    token: bytes = b""


SHAPE = ([Seat], (int, float, str, bool))


def value(rank: int, long: int) -> Any:
    seats = [Seat(host="é" * long, port=rank, token=bytes([rank, 255]))] * (rank + 1)
    return seats, (rank, 1e-9, "\ud800", True)


def tree(rank: int) -> dict[str, Any]:
    """Everything that a state can hold, and more than one piece of it."""
    kinds = [torch.bool, torch.bfloat16, torch.complex64, torch.int64, torch.float8_e4m3fn]
    return {
        "kinds": [torch.arange(6).to(kind).view(2, 3) for kind in kinds],
        "odd": (torch.tensor(rank), torch.empty(0, 3), torch.arange(6.0).view(2, 3).t()),
        "large": torch.full((MOST_BYTES // 4 + 5,), float(rank)),
        7: {"betas": (0.9, None), "inf": float("inf"), "name": "x", "flag": False},
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        alike = one.shape == other.shape and one.dtype == other.dtype
        return alike and bool((one.float() == other.float()).all())
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(map(same, one, other))
    return bool(one == other) and type(one) is type(other)


# On ranks.


def honest(rank: int, ranks: int) -> Any:
    """All ranks, a group without the first, and a rank that takes part without keeping."""
    for long in (1, 200, 70_000):
        told = gathered(value(rank, long), SHAPE, None, CPU)
        assert told == [value(one, long) for one in range(ranks)]
    pair, alone = dist.new_group([1, 2]), dist.new_group([0])
    if rank:
        assert gathered(rank, int, pair, CPU) == [1, 2]
    every = gathered_states(tree(rank), pair if rank else alone, CPU)
    assert same(every, [tree(1), tree(2)] if rank else [tree(0)])
    every = gathered_states(tree(rank), None, CPU, keeps=rank == 0)
    assert rank or same(every, [tree(one) for one in range(ranks)])
    return True


class Bomb:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.path),)


def hostile(rank: int, ranks: int, path: str) -> list[str]:
    """Rank 1 sends what it likes; what the others make of each."""
    bomb = pickle.dumps(Bomb(path))
    texts = [bomb, bomb * 20, b"\xff", b"[" * 200_000, b"9" * 5000, b'["a"]', b"1e999", b"{}"]
    said = []
    for text in [*texts, b" " * (MOST_BYTES + 1)]:
        if rank == 1:
            said.append(_refusal(lambda text=text: exchange._texts(text, None, CPU)))
        else:
            said.append(_refusal(lambda: gathered(1.0, float, None, CPU)))
    return said


def hostile_states(rank: int, ranks: int) -> list[str]:
    outlines: list[Any] = [
        ["tensor", "torch.float32", [10**15]],
        ["tensor", "torch.float32", [10**30]],
        ["tensor", "torch.float32", [-1]],
        ["tensor", "os.system", [1]],
        ["tensor", "torch.float32", ["x"]],
        ["dict", [[1], 2]],
        ["dict", [1]],
        {"a": 1},
        ["set", 1],
    ]
    said = []
    for outline in outlines:
        if rank == 1:
            exchange._texts(json.dumps(outline).encode(), None, CPU)
        else:
            said.append(_refusal(lambda: gathered_states(None, None, CPU)))
    return said


def forbidden(rank: int, ranks: int) -> str:
    try:
        dist.all_gather_object([None] * ranks, rank)
    except AssertionError as error:
        return str(error)
    return "sent"


def _refusal(act: Any) -> str:
    try:
        act()
    except WorldError as error:
        return str(error)
    return "taken"


# Here.


@pytest.mark.slow
def test_everything_comes_back_as_it_was(world: Any) -> None:
    assert world("honest", ranks=3) == [True] * 3


@pytest.mark.slow
def test_no_world_of_these_tests_can_send_a_pickle(world: Any) -> None:
    """So that every strategy, with its proof and its checkpoint, is known to do without."""
    assert world("forbidden", ranks=2) == ["a pickle was to be sent between ranks"] * 2


@pytest.mark.slow
def test_a_poisoned_text_is_refused_and_its_sender_named(world: Any, tmp_path: Path) -> None:
    """Each of these ran its program, or ended a rank with a traceback, through all_gather_object."""
    path = tmp_path / "ran"
    said, own = world("hostile", ranks=2, arguments={"path": str(path)})
    assert not path.exists()
    assert all(one.startswith("rank 1 sent what cannot be read") for one in said), said
    assert str(MOST_BYTES) in said[-1] and str(MOST_BYTES) in own[-1]


@pytest.mark.slow
def test_an_outline_that_is_none_is_refused(world: Any) -> None:
    said, _ = world("hostile_states", ranks=2)
    assert all(one.startswith("rank 1 sent what cannot be read") for one in said), said


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        (int, True),
        (int, 1.0),
        (float, float("nan")),
        (float, "1"),
        (str, None),
        (bytes, "0g"),
        ([int], {}),
        ([int], [1, "1"]),
        ((int, int), [1]),
        (Seat, ["a", 1]),
        (Seat, {"host": "a"}),
    ],
)
def test_another_shape_is_refused(shape: Any, data: Any) -> None:
    with pytest.raises(ValueError, match=r"should be|fromhex"):
        read(shape, data)


def test_what_cannot_travel_is_said() -> None:
    with pytest.raises(UsageError, match="a set"):
        exchange._outline({"step": {1}}, [])


def fuzzed(seed: int, times: int) -> int:
    """How many mutations of good texts were read; the others were refused in the one way."""
    draw, found = random.Random(seed), 0
    good = [
        json.dumps(value(1, 3), default=exchange._fields_of),
        json.dumps(exchange._outline({1: (torch.zeros(2), [None, 1.5, "a"])}, [])),
    ]
    for number in range(times):
        data = bytearray(good[number % 2].encode())
        for _ in range(draw.randint(1, 4)):
            at, kind = draw.randrange(len(data)), draw.randrange(3)
            if kind == 0:
                data[at] = draw.choice(b'[]{},:"0129eE-.\\utn\x00\xff')
            elif kind == 1:
                del data[at : at + draw.randint(1, 9)]
                data = data or bytearray(b" ")
            else:
                data[at:at] = data[: draw.randint(1, 40)]
        try:
            told = json.loads(bytes(data).decode())
            read(SHAPE, told) if number % 2 == 0 else exchange._tree(told, [], "meta")
            found += 1
        except exchange._NOT_READ:
            pass
    return found


def test_no_bytes_raise_anything_else() -> None:
    assert 0 < fuzzed(1, TIMES) < TIMES / 2


@pytest.mark.system
def test_no_bytes_raise_anything_else_for_long() -> None:
    assert fuzzed(2, 100 * TIMES)
