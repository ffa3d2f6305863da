"""DeepSpeedEngine: how it sends, and real runs of the whole catalogue through deepspeed.comm."""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import Geometry
from wirespeed.collectives.engines import Call, Group
from wirespeed.collectives.engines.torch_engine import DeepSpeedEngine

QUICK = ("-b", "1021", "-e", "1021", "-w", "1", "-n", "2", "-q", "-o", "json")

needs_deepspeed = pytest.mark.skipif(
    find_spec("deepspeed") is None, reason="Requires: the extra deepspeed"
)


class Comm:
    """Stands in for deepspeed.comm before it had a batch; notes what is called."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def isend(self, tensor: torch.Tensor, peer: int, group: object) -> SimpleNamespace:
        return self._issued("isend", peer)

    def irecv(self, tensor: torch.Tensor, peer: int, group: object) -> SimpleNamespace:
        return self._issued("irecv", peer)

    def _issued(self, *what: object) -> SimpleNamespace:
        self.calls.append(what)
        return SimpleNamespace(wait=lambda: self.calls.append(("wait", *what)))


class BatchingComm(Comm):
    """As it is since it has one."""

    def P2POp(self, op: Any, tensor: torch.Tensor, peer: int, group: object) -> tuple[str, int]:
        return op.__name__, peer

    def batch_isend_irecv(self, operations: list[Any]) -> list[SimpleNamespace]:
        return [self._issued("batch", *operations)]


def engine_on(api: Comm, backend: str = "gloo") -> DeepSpeedEngine:
    engine = object.__new__(DeepSpeedEngine)
    engine.backend, engine._api = backend, api
    return engine


def ring_shift() -> Call:
    """Rank 1 of the group of global ranks 4, 5, 6."""
    return Call(
        collective=CATALOGUE["send_recv"],
        geometry=Geometry(rank=1, ranks=3, count=4),
        redop="none",
        input=torch.zeros(4),
        output=torch.zeros(4),
        group=Group((4, 5, 6), 1, None),
    )


def test_sends_and_receives_as_one_batch() -> None:
    api = BatchingComm()
    engine_on(api).bind(ring_shift())()
    batch = ("batch", ("isend", 6), ("irecv", 4))
    assert api.calls == [batch, ("wait", *batch)]


def test_without_a_batch_both_are_issued_before_either_is_waited_for() -> None:
    api = Comm()
    engine_on(api).bind(ring_shift())()
    first, second = ("isend", 6), ("irecv", 4)
    assert api.calls == [first, second, ("wait", *first), ("wait", *second)]


@pytest.mark.parametrize("op", ["send_recv", "pair_exchange"])
def test_nccl_without_a_batch_is_refused(op: str) -> None:
    def reason(api: Comm, backend: str) -> str:
        return engine_on(api, backend).why_not(CATALOGUE[op], "float32", "none", False)

    assert "batch_isend_irecv" in reason(Comm(), "nccl")
    assert reason(BatchingComm(), "nccl") == reason(Comm(), "gloo") == ""


@needs_deepspeed
@pytest.mark.system
def test_in_groups_asynchronous_and_in_flight(cli: Any) -> None:
    """Three ranks in pairs: the third is outside of every group."""
    types = ("-d", "float32,bfloat16,int64")
    how = ("--groups", "pairs", "--async", "-m", "2", "--root", "1")
    done = cli("bench", "all", "--engine", "deepspeed", "--ranks", "3", *types, *how, *QUICK)
    assert done.code == 0, done.err
    measured = done.json["measurements"]
    assert {m["op"] for m in measured} == set(CATALOGUE)
    assert {(m["engine"], m["wrong"], m["ranks"]) for m in measured} == {("deepspeed", 0, 2)}


@needs_deepspeed
@pytest.mark.system
def test_it_neither_talks_nor_builds(cli: Any) -> None:
    """Under torchrun rank 0's stdout is the report: DeepSpeed logs there unless it is told not to.

    No compiled kernel appears in the home folder, so no first start takes half a minute.
    """
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    words = ["bench", "all", "--engine", "deepspeed", *QUICK]
    done = cli.start_words(
        [*launch, "-m", "wirespeed", *words], env={"OMP_NUM_THREADS": "1"}
    ).wait()
    assert done.code == 0, done.err
    assert done.out.startswith("{"), done.out[:500]
    measured = done.json["measurements"]
    assert {m["op"] for m in measured} == set(CATALOGUE)
    assert {(m["engine"], m["wrong"]) for m in measured} == {("deepspeed", 0)}
    assert done.err == ""
    assert built(cli.folder) == []


@needs_deepspeed
@pytest.mark.system
def test_it_catches_wrong_data(cli: Any, finding: Any) -> None:
    words = ("bench", "all_reduce", "--engine", "deepspeed", "--ranks", "2", *QUICK)
    done = cli(*words, "--inject", "flip:rank=1")
    assert done.code == 1
    assert finding(done.json, "COL-001")["subject"]["name"] == "rank 1"


def built(home: Path) -> list[Path]:
    return [path for name in ("torch_extensions", "*.so") for path in home.rglob(name)]
