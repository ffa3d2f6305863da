"""What needs only the nodes' facts runs without torch: alone, by hand, and under launchers."""

import os
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Find = Callable[[dict[str, Any], str], dict[str, Any]]
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
NODES = ("check", "--only", "nodes", "-q")
PLACEMENT = ("check", "--only", "placement", "-q")
TOPO = ("topo", "-q")
COMMANDS = pytest.mark.parametrize("words", [NODES, TOPO], ids=["check", "topo"])


@pytest.fixture
def no_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which importing torch raises, in every process that inherits it."""
    folder = tmp_path / "no-torch"
    folder.mkdir()
    (folder / "torch.py").write_text("raise ImportError('torch is not here')\n")
    return {"PYTHONPATH": str(folder)}


def by_hand(cli: Any, words: tuple[str, ...], env: dict[str, str], ranks: int = 2) -> list[Any]:
    """Ranks as somebody starts them, rank 0 last."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    world = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    last_first = reversed(range(ranks))
    started = [cli.start(*words, env={**env, **world, "RANK": str(rank)}) for rank in last_first]
    return [running.wait() for running in reversed(started)]


def test_the_environment_has_no_torch(cli: Any, no_torch: dict[str, str]) -> None:
    done = cli.start_words([sys.executable, "-c", "import torch"], env=no_torch).wait()
    assert "torch is not here" in done.err


@pytest.mark.slow
@COMMANDS
def test_by_hand(cli: Any, no_torch: dict[str, str], words: tuple[str, ...]) -> None:
    first, second = by_hand(cli, (*words, "-o", "json"), no_torch)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert second.out == first.err == second.err == ""
    world = first.json["world"]
    assert (world["size"], world["launcher"], world["backend"]) == (2, "env", "")
    assert [node["ranks"] for node in world["nodes"]] == [[0, 1]]
    assert world["nodes"][0]["host"] == socket.gethostname()
    assert first.json["measurements"] == []


@pytest.mark.slow
def test_a_place_that_is_not_known_is_no_pass(cli: Any, no_torch: dict[str, str]) -> None:
    done = cli(*PLACEMENT, "-o", "json", env=no_torch)
    assert done.code == 3
    assert done.json["verdict"] == "UNKNOWN"


@pytest.mark.slow
@COMMANDS
def test_alone(cli: Any, no_torch: dict[str, str], words: tuple[str, ...]) -> None:
    done = cli(*words, "-o", "json", env=no_torch)
    assert done.code == 0, done.err
    assert done.json["world"]["size"] == 1
    assert cli.run() == done.json


@COMMANDS
@pytest.mark.slow
def test_under_torchrun(cli: Any, words: tuple[str, ...]) -> None:
    done = cli.start_words([*TORCHRUN, "-m", "wirespeed", *words, "-o", "json"]).wait()
    assert done.code == 0, done.err
    assert done.json["world"]["launcher"] == "torchrun"
    assert [node["ranks"] for node in done.json["world"]["nodes"]] == [[0, 1]]


@COMMANDS
@pytest.mark.system
def test_under_mpirun(cli: Any, no_torch: dict[str, str], words: tuple[str, ...]) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = shutil.which("mpirun", path=path)
    if program is None:
        pytest.skip("Requires: mpirun (pip install 'wirespeed[mpi]')")
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    launch = [program, "-n", "2", "--oversubscribe", "--bind-to", "none"]
    launch += ["-x", f"PYTHONPATH={no_torch['PYTHONPATH']}"]
    command = [*launch, sys.executable, "-m", "wirespeed", *words, "-o", "json"]
    done = cli.start_words(command, env=root).wait()
    assert done.code == 0, done.err
    assert done.json["world"]["launcher"] == "openmpi"
    assert [node["ranks"] for node in done.json["world"]["nodes"]] == [[0, 1]]


@pytest.mark.slow
def test_the_nodes_family_knows_the_versions_without_an_import(cli: Any, no_torch: Any) -> None:
    done = cli("check", "--only", "nodes", "-q", "-o", "json", env=no_torch)
    (node,) = done.json["world"]["nodes"]
    assert "imported" not in node["unknown"]["torch"]
    with_torch = cli("check", "--only", "nodes", "-q", "-o", "json")
    (node,) = with_torch.json["world"]["nodes"]
    assert node["facts"]["torch"]
    assert with_torch.json["versions"]["torch"] == node["facts"]["torch"]


@pytest.mark.slow
def test_a_rank_that_never_comes_is_named(cli: Any, no_torch: Any, finding: Find) -> None:
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29471", "RANK": "0"}
    words = (*PLACEMENT, "--startup-timeout", "2", "-o", "json")
    done = cli(*words, env={**no_torch, **world})
    assert done.code == 1
    assert "rank 1" in finding(done.json, "JOIN-001")["title"]


@pytest.mark.slow
def test_a_rank_without_rank_0_says_so(cli: Any, no_torch: Any, says_clearly: Any) -> None:
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29472", "RANK": "1"}
    done = cli(*TOPO, "--startup-timeout", "2", env={**no_torch, **world})
    assert "127.0.0.1:29472" in says_clearly(done, 3)


@pytest.mark.slow
def test_a_fault_that_shall_strike_needs_the_whole_run(cli: Any, no_torch: Any) -> None:
    done = cli(*PLACEMENT, "--inject", "kill:rank=0,after=1", "--ranks", "1", env=no_torch)
    assert done.code != 0


@pytest.mark.slow
def test_topo_is_stored_and_shown_again(cli: Any) -> None:
    shown = cli(*TOPO)
    assert shown.code == 0, shown.err
    assert shown.out.startswith("wirespeed topo · 1 node · local\n")
    assert shown.err == ""
    assert cli.here("runs", "show", "last").out == shown.out
    assert cli("topo", "-o", "md").out.startswith("## Topology\n")


def test_topo_refuses_what_it_cannot_do(cli: Any, says_clearly: Any) -> None:
    says_clearly(cli.here("topo", "--inject", "kill:rank=0"), 2)
    says_clearly(cli.here("topo", "-o", "nccl-tests"), 2)


def test_topo_tells_its_settings(cli: Any) -> None:
    done = cli.here("topo", "--print-config", env={"WIRESPEED_TOPO_VERBOSE": "1"})
    assert done.code == 0, done.err
    assert "verbose" in done.out
    assert cli.folders() == []
