"""Which backend a world takes, where its ranks do not all see the same GPUs."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.errors import WorldError
from wirespeed.process import free_port
from wirespeed.rank import joining
from wirespeed.rank.place import Place

PRETENDED = Path(__file__).parents[1] / "programs" / "pretended_gpu"
NO_GPU = "torch sees no GPU here"


@pytest.mark.parametrize(
    ("told", "value", "reason"),
    [
        ([["", "GPU-a"], ["", "GPU-b"]], "nccl", "2 GPUs for 2 ranks"),
        ([["", "GPU-a"], ["", "GPU-a"]], "gloo", "ranks 0, 1 share one GPU"),
        ([["", "GPU-a"], [NO_GPU, ""]], "gloo", f"rank 1: {NO_GPU}"),
        ([["", ""], ["", ""]], "nccl", "2 GPUs for 2 ranks"),
    ],
    ids=["each its own", "one for both", "one has none", "torch does not tell"],
)
def test_what_ranks_told_decides(told: Any, value: str, reason: str, monkeypatch: Any) -> None:
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    choice = joining.of_all(told)
    assert (choice.value, choice.reason) == (value, reason)


@pytest.mark.parametrize(
    ("version", "value", "said"),
    [
        ((2, 30, 3), "nccl", "as NCCL_MULTI_RANK_GPU_ENABLE=1 allows"),
        ((2, 28, 9), "gloo", "2.28.9"),
    ],
)
def test_ranks_may_share_a_gpu_where_nccl_lets_them(
    version: tuple[int, ...], value: str, said: str, monkeypatch: Any
) -> None:
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    nccl = SimpleNamespace(version=lambda: version)
    monkeypatch.setattr(joining.torch.cuda, "nccl", nccl)
    choice = joining.of_all([["", "GPU-a"], ["", "GPU-a"]])
    assert choice.value == value
    assert said in choice.reason


class Store(dict[str, str]):
    """Where ranks of a launcher's world meet."""

    store = None
    set = dict.__setitem__
    get = dict.__getitem__


def test_a_stranger_in_the_store_chooses_no_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    def rank(number: int) -> Any:
        return SimpleNamespace(rank=number, world_size=2, local_rank=number, local_world_size=2)

    store: Any = Store()
    monkeypatch.setattr(joining.torch.cuda, "is_available", lambda: False)
    store["wirespeed/backend/1"] = f'["{NO_GPU}", ""]'
    assert joining.choose_backend("auto", rank(0), store).value == "gloo"
    assert joining.choose_backend("auto", rank(1), store).reason == NO_GPU
    for said in ('["mpi", "why not"]', '{"value": "nccl"}', "[1, 2]", "no JSON"):
        store["wirespeed/backend"] = said
        with pytest.raises(WorldError, match="that no rank has told"):
            joining.choose_backend("auto", rank(1), store)


@pytest.mark.parametrize(("user", "value"), [(None, "0"), ("1", "1")])
def test_communicators_are_waited_for_unless_the_user_says_otherwise(
    user: str | None, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch 2.6 and 2.7.0 would not, where a group is bound to a GPU."""
    name = "TORCH_NCCL_USE_COMM_NONBLOCKING"
    monkeypatch.setenv(name, user or "")
    if user is None:
        monkeypatch.delenv(name)
    known = {"is_available": lambda: True, "device_count": lambda: 2, "set_device": lambda _: None}
    monkeypatch.setattr(joining.torch, "cuda", SimpleNamespace(**known))
    identity: Any = SimpleNamespace(local_rank=3)
    assert joining._device("nccl", identity) == joining.torch.device("cuda", 1)
    assert os.environ[name] == value


def test_ranks_of_one_gpu_share_its_memory() -> None:
    told: Any = SimpleNamespace(
        device=SimpleNamespace(type="cuda"), gpus=("GPU-a", "GPU-b", "GPU-a", ""), hosts=("h",) * 4
    )
    assert [Place.sharers(told, rank) for rank in range(4)] == [[0, 2], [1], [0, 2], [3]]


@pytest.mark.slow
def test_ranks_that_see_one_gpu_each_take_nccl(tmp_path: Path) -> None:
    """As srun --gpus-per-task=1 starts them: more ranks on the node than GPUs that any of them sees."""
    world = {
        "PYTHONPATH": str(PRETENDED),
        "WIRESPEED_HOME": str(tmp_path),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    words = [sys.executable, "-m", "wirespeed", "bench", "all_reduce", "-b", "4K", "-e", "4K"]
    words += ["-n", "8", "-w", "2", "--timing", "graph", "-v"]
    ranks = []
    for rank in ("0", "1"):
        own = {"RANK": rank, "LOCAL_RANK": rank, "CUDA_VISIBLE_DEVICES": rank}
        environ = {**os.environ, **world, **own}
        ranks.append(
            subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        )
    told = [one.communicate(timeout=100)[0].decode() for one in ranks]
    assert [one.returncode for one in ranks] == [0, 0], told
    assert "2 GPUs for 2 ranks" in told[0]
    assert "graph" in told[0]
