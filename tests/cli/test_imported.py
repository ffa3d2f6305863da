"""An imported log answers for itself: its nodes, its verdict, and what is told of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from wirespeed.cli import run as wirespeed
from wirespeed.runs.named_files import load_own
from wirespeed.runs.store import find, load

HEAD = (
    "# nThread 1 nGpus 1 minBytes 4 maxBytes 2147483648 step: 2(factor) iters: 50 validation: 1\n"
)
DEVICE = "#   Rank {0:2} Pid {0} on {1} device {2} [0x27] NVIDIA A100-SXM4-80GB\n"
COLUMNS = (
    "#       size         count      type   redop     time   algbw   busbw  error     time   algbw"
    "   busbw  error\n"
)
ROWS = (
    "   536870912     134217728     float     sum    25775   20.83   41.33  2e-06    25779   20.83"
    "   41.33  2e-06\n"
    "  1073741824     268435456     float     sum    46911   22.89   45.42  2e-06    46889   22.90"
    "   45.44  2e-06\n"
)
CLOSING = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 13.0489\n"
SHORT = HEAD + "".join(DEVICE.format(n, "w-0", n) for n in range(5)) + "...\n"
ONE = ["runs", "import", "all_reduce.log"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def log(text: str = SHORT, extra: str = "") -> None:
    Path("all_reduce.log").write_text(text + extra + COLUMNS + ROWS + CLOSING)


def answer(words: list[str], capsys: Any) -> dict[str, Any]:
    capsys.readouterr()
    wirespeed(["reference", "ask", "all_reduce", "1G", "--run", "last", *words, "-o", "json"])
    return dict(json.loads(capsys.readouterr().out))


def test_a_shortened_list_tells_nodes_and_is_graded_by_itself(capsys: Any) -> None:
    log()
    assert wirespeed([*ONE, "--ranks", "128"]) == 0
    assert "NORMAL  all_reduce 1 GiB: 1.00 of 45.4 GB/s, the only known" in capsys.readouterr().out
    told = load(find("last")).world.told
    assert told is not None
    assert (told.nodes, told.gpus_per_node, told.guessed) == (16, 8, True)
    assert wirespeed(["runs", "list", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["nodes"] == 16
    known = answer([], capsys)
    assert (known["verdict"], round(known["share"], 2)) == ("normal", 1.0)
    assert wirespeed(["reference", "ask", "--run", "last"]) == 0
    assert "all_reduce 1 GiB" in capsys.readouterr().out, "the best of what it measured"
    assert wirespeed(["reference", "ask", "broadcast", "--run", "last"]) == 2
    assert "measured no broadcast" in capsys.readouterr().err
    assert wirespeed(["reference", "ask"]) == 2
    capsys.readouterr()
    assert wirespeed(["runs", "list", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["nodes"] == 16
    assert "what connects the nodes is not known: InfiniBand" in known["expected"]["notes"][0]
    assert wirespeed(["reference", "add", "last"]) == 2
    assert "--interconnect, such as ib" in capsys.readouterr().err


def test_what_is_told_at_the_import_is_kept(capsys: Any) -> None:
    log("")
    shape = ["--gpu", "A100", "--nodes", "16", "--gpus-per-node", "8", "--interconnect", "ib"]
    assert wirespeed([*ONE, *shape]) == 0
    known = answer([], capsys)
    assert known["verdict"] == "normal"
    assert known["world"] == "16 nodes of 8 × A100 SXM, InfiniBand"
    assert (known["beside_the_only_figure"], known["assumed_spread"]) == ("near", 0.04)
    assert wirespeed(["reference", "add", "last", "--name", "ours"]) == 0
    assert {(one.gpu, one.nodes, one.interconnect) for one in load_own()} == {
        ("A100 SXM", 16, "ib")
    }


def test_what_is_missing_is_asked_for_and_completed(capsys: Any) -> None:
    log("")
    assert wirespeed([*ONE, "--ranks", "128"]) == 0
    assert "is it normal? wirespeed reference ask all_reduce" in capsys.readouterr().out
    assert wirespeed(["reference", "ask", "all_reduce", "1G", "--run", "last"]) == 2
    assert "--gpu and --nodes with it" in capsys.readouterr().err
    words = ["--gpu", "A100", "--nodes", "16", "--interconnect", "ib"]
    assert answer(words, capsys)["verdict"] == "normal"
    assert wirespeed(["reference", "add", "last", *words]) == 0
    assert load_own()[0].nodes == 16


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ("n:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0\n", "ib"),
        ("n:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE; OOB eth0\n", "roce"),
        ("n:1:1 [0] NCCL INFO Using network Socket\n", "tcp"),
        ("n:1:1 [0] NCCL INFO Using network AWS Libfabric\n", "efa"),
        ("n:1 NCCL INFO Using network Socket\nm:1 NCCL INFO Using network IB\n", ""),
    ],
)
def test_nccls_own_lines_tell_the_interconnect(extra: str, told: str) -> None:
    log(extra=extra)
    assert wirespeed([*ONE, "--ranks", "128"]) == 0
    world = load(find("last")).world
    assert world.told is not None
    assert world.told.interconnect == told


def test_a_second_node_in_a_shortened_list_tells_the_first_ones_size() -> None:
    ranks = [DEVICE.format(n, f"w-{n // 4}", n % 4) for n in range(6)]
    log(HEAD + "".join(ranks) + "...\n")
    assert wirespeed([*ONE, "--ranks", "128"]) == 0
    told = load(find("last")).world.told
    assert told is not None
    assert (told.gpus_per_node, told.nodes, told.guessed) == (4, 32, False)


def test_contradictions_end_in_words(capsys: Any) -> None:
    log()
    assert wirespeed([*ONE, "--ranks", "128", "--gpu", "H100"]) == 2
    assert "is of A100 SXM" in capsys.readouterr().err
    assert wirespeed([*ONE, "--ranks", "64", "--nodes", "2", "--gpus-per-node", "8"]) == 2
    assert "--ranks 64, but" in capsys.readouterr().err
    assert wirespeed([*ONE, "--ranks", "128", "--gpus-per-node", "16"]) == 0


@pytest.mark.parametrize(
    ("busbw", "code", "place", "beside"),
    [("42.7", 0, "normal", "below"), ("45", 0, "normal", "near"), ("48", 0, "normal", "above"),
     ("30", 1, "low", "below"), ("90", 0, "high", "above")],
)  # fmt: skip
def test_a_lone_figure_grades(busbw: str, code: int, place: str, beside: str, capsys: Any) -> None:
    shape = ["--gpu", "A100", "--nodes", "16", "--interconnect", "ib"]
    words = ["reference", "ask", "all_reduce", "1G", "--busbw", busbw, *shape]
    assert wirespeed(words) == code
    out = " ".join(capsys.readouterr().out.split())
    assert f"{float(busbw) / 45.42:.2f} of the only known figure" in out
    assert "±4 % assumed of a lone figure" in out
    assert wirespeed([*words, "-o", "json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["beside_the_only_figure"]) == (place, beside)


@pytest.mark.parametrize(("busbw", "code", "place"), [("44.00", 0, "NORMAL"), ("20.00", 1, "LOW")])
def test_cluster_nccl_tests_ends_with_the_verdict(
    busbw: str, code: int, place: str, capsys: Any
) -> None:
    """The device list is shortened, so that nodes and GPU are the cluster file's."""
    from wirespeed.cli.cluster.nccl_tests import _report
    from wirespeed.clusters.deployment import settle
    from wirespeed.clusters.file import ClusterFile
    from wirespeed.clusters.operations.nccl_tests import Ended

    gpus = {"per_node": 8, "type": "NVIDIA-A100-SXM4-80GB", "default_nodes": 16}
    cluster = {"name": "mine", "namespace": "here"}
    deployment = settle(ClusterFile.model_validate({"cluster": cluster, "gpus": gpus}))
    wirespeed(["reference", "add", _figure()])
    capsys.readouterr()
    algbw = float(busbw) / 1.984375
    row = ROWS.splitlines()[1].replace("45.42", busbw).replace("45.44", busbw)
    row = row.replace("22.89", f"{algbw:.2f}").replace("22.90", f"{algbw:.2f}")
    log = (
        HEAD + COLUMNS + row.replace("46911", f"{1.073741824e9 / algbw / 1e3:.0f}") + "\n" + CLOSING
    )
    assert _report(deployment, "all_reduce", ("all_reduce_perf",), Ended(log=log, code=0)) == code
    assert f"{place}  all_reduce 1 GiB" in capsys.readouterr().out


def _figure() -> str:
    Path("mine.csv").write_text(
        "gpu,gpus_per_node,nodes,interconnect,collective,size,busbw_GBps,source\n"
        "A100 SXM,8,16,tcp,all_reduce,1G,45,me\n"
    )
    return "mine.csv"


def test_a_slow_one_of_an_unknown_network_stays_unknown(capsys: Any) -> None:
    log()
    wirespeed([*ONE, "--ranks", "128"])
    words = ["reference", "ask", "all_reduce", "1G", "--busbw", "30", "--run", "last"]
    assert wirespeed(words) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "next wirespeed reference ask all_reduce 1G --busbw 30 --run last --interconnect ib" in out
    )
