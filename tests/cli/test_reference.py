"""`wirespeed reference` as a user calls it: own figures, questions, bad input."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import usual
from wirespeed.cli import run as wirespeed
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import NodeFacts, Run
from wirespeed.runs.named_files import load_own
from wirespeed.runs.store import past_runs, save

H100 = ["--gpu", "H100", "--nodes", "2", "--interconnect", "ib", "--nics", "8x400"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def stored(
    id: str = "91ae33fe", model: str = "AMD EPYC", ms: float = 1.0, half: float = 0.05
) -> Run:
    node = NodeFacts(
        host="n", ranks=(0, 1), facts=from_json(Facts, {"cpu.model": model, "cpu.allowed": 8})
    )
    seconds, size = ms / 1e3, 1 << 20
    rates = {"algbw": size / seconds, "busbw": size / seconds}
    measured = usual.measurement(seconds, size, half, **rates)
    run = usual.run(id=id, measurements=(measured,), world=usual.world(node))
    save(run)
    return run


def test_a_low_figure_is_told_with_source_spread_and_three_reasons(capsys: Any) -> None:
    assert wirespeed(["reference", "ask", "all_reduce", "8G", "--busbw", "310", *H100]) == 1
    out = capsys.readouterr().out
    assert out.startswith("LOW  all_reduce 8 GiB, 310 GB/s")
    for text in ("0.70 of it", "441 GB/s … 445 GB/s", "coreweave/nccl-tests#92", "1. ", "3. "):
        assert text in out
    assert "limit 750 GB/s: 8 × 400 Gbit/s a node" in " ".join(out.split())


def test_what_is_missing_is_asked_for(capsys: Any) -> None:
    words = [
        "all_reduce",
        "1G",
        "--busbw",
        "180",
        "--gpu",
        "H100",
        "--nodes",
        "2",
        "--nics",
        "8x400",
    ]
    assert wirespeed(["reference", "ask", *words]) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "you did not say what connects the nodes: --interconnect, such as ib" in out
    assert f"next wirespeed reference ask {' '.join(words)} --interconnect ib" in out
    assert "no figure is known for such nodes" not in out
    assert wirespeed(["reference", "ask", *words, "-o", "json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verdict"], answer["expected"]) == ("unknown", None)
    answers = {one["interconnect"]: one["verdict"] for one in answer["by_interconnect"]}
    # On InfiniBand two sources got 2.4 times as much; on RoCE it is below half of the cards' rule.
    assert answers["ib"] == answers["roce"] == "low"
    assert wirespeed(["reference", "ask", *words, "--interconnect", "roce"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "368 GB/s … 384 GB/s, among them" in out
    assert (
        "nccl-tests#290: a ring gets 46 to 48 GB/s from each NDR card, 2025-03-03, read 2026-11"
        in out
    )


def printed_commands() -> list[str]:
    """Return the commands of `reference ask` on all pages that need no stored run."""
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    texts = [page.read_text() for page in pages]
    texts.append((root / "src/wirespeed/cli/reference.py").read_text())
    found = [
        line for text in texts for line in re.findall(r"wirespeed (reference ask [^`\n]*)", text)
    ]
    return sorted({line.strip() for line in found if "--busbw" in line})


def test_there_are_printed_commands() -> None:
    assert len(printed_commands()) >= 5


@pytest.mark.parametrize("line", printed_commands())
def test_each_printed_command_has_an_answer(line: str, capsys: Any) -> None:
    words = shlex.split(line)
    code = wirespeed([*words, "-o", "json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == {"normal": 0, "low": 1, "impossible": 1, "unknown": 3}[answer["verdict"]]
    if code == 3:
        assert answer["missing"], "it says what would decide"
    else:
        assert answer["expected"] or answer["hardware"]


@pytest.mark.parametrize(
    ("busbw", "code", "verdicts"),
    [
        ("480", 0, {"ib": "normal", "efa": "normal", "tcpxo": "high"}),
        # Nothing is low where the network cards are open: 310 GB/s is much for 4 × 400 Gbit/s.
        ("310", 3, {"ib": "unknown", "efa": "unknown", "tcpxo": "normal"}),
        ("20", 3, {"ib": "unknown", "efa": "unknown", "tcpxo": "unknown"}),
        ("9000", 1, {}),
    ],
)
def test_without_an_interconnect_each_has_an_answer(
    busbw: str, code: int, verdicts: dict[str, str], capsys: Any
) -> None:
    words = ["all_reduce", "8G", "--busbw", busbw, "--gpu", "H100", "--nodes", "2"]
    assert wirespeed(["reference", "ask", *words, "-o", "json"]) == code
    answer = json.loads(capsys.readouterr().out)
    assert {one["interconnect"]: one["verdict"] for one in answer["by_interconnect"]} == verdicts


def test_low_on_all_interconnects_is_low_where_tcp_is_among_them(
    tmp_path: Path, capsys: Any
) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text(
        "gpu,gpus_per_node,nodes,interconnect,collective,size,busbw_GBps,source\n"
        "H100 SXM,8,2,tcp,all_reduce,8G,40,me\n"
    )
    assert wirespeed(["reference", "add", str(mine), "-q"]) == 0
    words = ["all_reduce", "8G", "--busbw", "20", "--gpu", "H100", "--nodes", "2"]
    assert wirespeed(["reference", "ask", *words]) == 1
    assert capsys.readouterr().out.startswith("LOW  ")


@pytest.mark.parametrize(("samples", "place"), [(5, "unknown"), (6, "normal")])
def test_a_figure_of_few_samples_supports_no_verdict(samples: int, place: str, capsys: Any) -> None:
    run = stored(half=0.01)
    few = replace(run.measurements[0], iterations=samples)
    save(replace(run, id="7f3c0a1b", measurements=(few,)))
    assert wirespeed(["reference", "add", "91ae33fe", "--interconnect", "memory", "-q"]) in (0, 2)
    capsys.readouterr()
    code = wirespeed(["reference", "ask", "--run", "7f3c0a1b", "-o", "json"])
    assert (code, json.loads(capsys.readouterr().out)["verdict"]) == (
        3 if samples < 6 else 0,
        place,
    )


@pytest.mark.parametrize(
    ("words", "code", "place"),
    [
        (["all_reduce", "8G", "--busbw", "445", *H100], 0, "normal"),
        (["all_reduce", "8G", "--busbw", "478", "--gpu", "H100"], 0, "normal"),
        (["all_reduce", "1M", "--busbw", "60", "--gpu", "H100"], 0, "normal"),
        (["all_reduce", "8G", "--busbw", "9", "--gpu", "L40S"], 3, "unknown"),
        (["all_reduce", "8G", "--busbw", "4", "--gpu", "L40S"], 1, "low"),
        (["all_reduce", "8G", "--busbw", "40", "--gpu", "L40S"], 1, "impossible"),
        (["all_reduce", "8G", "--busbw", "9", "--gpu", "Future 9000"], 3, "unknown"),
    ],
)
def test_places_and_exit_codes(words: list[str], code: int, place: str, capsys: Any) -> None:
    assert wirespeed(["reference", "ask", *words, "-o", "json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == place
    assert bool(told["missing"]) == (place == "unknown")


def test_a_run_becomes_own_figures_and_judges_another(capsys: Any) -> None:
    stored()
    assert wirespeed(["reference", "add", "91ae", "--name", "monday", "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert [one.name for one in load_own()] == ["monday"]
    slow = stored("aaaaaaaa", ms=3.0)
    assert wirespeed(["reference", "ask", "all_reduce", "1M", "--run", slow.id]) == 1
    assert "your own figure: run 91ae33fe" in capsys.readouterr().out
    stored("bbbbbbbb", ms=3.0, half=0.6)
    assert wirespeed(["reference", "ask", "all_reduce", "1M", "--run", "bbbb"]) == 3
    assert "supports no verdict" in capsys.readouterr().out


def test_export_add_and_rm(tmp_path: Path, capsys: Any) -> None:
    stored(model="=cmd|x")
    assert wirespeed(["reference", "add", "last"]) == 0
    capsys.readouterr()
    assert wirespeed(["reference", "export"]) == 0
    text = capsys.readouterr().out
    assert "'=cmd|x" in text
    (tmp_path / "mine.csv").write_text(text)
    assert wirespeed(["reference", "add", "mine.csv"]) == 0
    assert {(one.name, one.system) for one in load_own()} == {
        ("91ae33fe", "=cmd|x"), ("mine", "=cmd|x")
    }  # fmt: skip
    assert wirespeed(["reference", "rm", "mine"]) == 0
    assert [one.name for one in load_own()] == ["91ae33fe"]
    assert wirespeed(["reference", "rm", "mine"]) == 2


def test_list(capsys: Any) -> None:
    assert wirespeed(["reference", "list", "--gpu", "H200", "--op", "alltoall"]) == 0
    assert "no figures" in capsys.readouterr().out
    assert wirespeed(["reference", "list", "--gpu", "H200", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told and all(one["gpu"] == "H200 SXM" and one["source"] for one in told)
    assert wirespeed(["reference", "list"]) == 0
    assert "Azure NDv5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ask", "all_deduce", "8G", "--busbw", "1", "--gpu", "H100"], "unknown operation"),
        (["ask", "all_reduce", "8X", "--busbw", "1", "--gpu", "H100"], "is not a size"),
        (["ask", "all_reduce", "8G", "--gpu", "H100"], "which figure?"),
        (["ask", "all_reduce", "8G", "--busbw", "1"], "which GPU?"),
        (["ask", "all_reduce", "8G", "--busbw", "1", "--gpu", "H100", "--nics", "8"], "--nics"),
        (["ask", "all_reduce", "2M", "--run", "last"], "no busbw of all_reduce at 2 MiB"),
        (["add", "last", "--name", "../up"], "no name for figures"),
        (["add", "missing.csv"], "cannot read missing.csv"),
        (["add", "nothing"], "no run"),
    ],
)
def test_bad_input_is_told(words: list[str], told: str, capsys: Any) -> None:
    stored()
    assert wirespeed(["reference", *words]) == 2
    seen = capsys.readouterr()
    assert told in seen.err
    assert not seen.out


def test_nothing_to_export_ran_nothing(capsys: Any) -> None:
    assert wirespeed(["reference", "export"]) == 5
    assert "no figures of your own" in capsys.readouterr().err


def test_damaged_own_figures_are_told_before_a_check_measures(home: Path, capsys: Any) -> None:
    (home / "reference").mkdir(parents=True)
    (home / "reference" / "bad.csv").write_text("collective,interconnect,source\nx,ib,me\n")
    assert wirespeed(["check", "--ranks", "2", "-q"]) == 2
    assert "bad.csv:2" in capsys.readouterr().err
    assert not (home / "runs").exists(), "no run was begun"


def test_past_runs_are_ready_newest_first_and_bounded(home: Path) -> None:
    for id in ("00000001", "00000002", "00000003"):
        stored(id)
    for place in (home / "runs").iterdir():
        if place.name.endswith("2"):
            (place / "run.json").write_text('{"verdict": "READY"')
    assert {run.id for run in past_runs()} == {"00000001", "00000003"}
    assert len(list(past_runs(most=1))) == 1
    assert list(past_runs(seconds=0)) == []


@pytest.mark.parametrize(
    ("line", "verdicts"),
    [
        ("all_reduce 8G --busbw 387 --gpu H100 --nodes 8 --interconnect ib --nics 8x400", "normal"),
        ("all_reduce 8G --busbw 387 --gpu H100 --nodes 8 --interconnect ib", "normal"),
        (
            "all_reduce 8G --busbw 92 --gpu A100 --nodes 2 --interconnect roce --nics 4x200",
            "normal unknown",
        ),
        (
            "all_to_all 256M --busbw 25 --gpu H100 --nodes 2 --interconnect roce --nics 8x400",
            "low unknown",
        ),
        (
            "all_gather 1G --busbw 3 --gpu GB10 --nodes 2 --gpus-per-node 1 --interconnect roce "
            "--nics 1x200",
            "low",
        ),
        (
            "all_reduce 8G --busbw 180 --gpu GB300 --nodes 4 --gpus-per-node 4 --interconnect roce "
            "--nics 4x400",
            "normal",
        ),
        ("all_reduce 1G --busbw 9000 --gpu H100 --nodes 2 --interconnect ib", "impossible"),
        ("all_reduce 8 --busbw 0.0001 --gpu H100 --nodes 2 --interconnect ib", "unknown"),
        ("all_reduce 1G --busbw 0.2 --gpu cpu --nodes 2 --interconnect tcp --nics 1x10", "low"),
        ("all_reduce 1G --busbw 1.1 --gpu cpu --nodes 2 --interconnect tcp --nics 1x10", "normal"),
        ("all_reduce 8G --busbw 215 --gpu H800", "normal"),
        ("all_reduce 8G --busbw 80 --gpu A800", "low unknown"),
        ("all_reduce 8G --busbw 410 --gpu MI355X", "normal"),
        ("all_reduce 8G --busbw 22 --gpu 4090", "normal"),
    ],
)
def test_questions_that_came_out_wrong(line: str, verdicts: str, capsys: Any) -> None:
    code = wirespeed(["reference", "ask", *shlex.split(line), "-o", "json"])
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] in verdicts.split()
    assert code == {"normal": 0, "low": 1, "impossible": 1, "unknown": 3}[told["verdict"]]
    assert told["limit"] or told["missing"]


def test_the_answer_shows_limit_expectation_and_what_differs(capsys: Any) -> None:
    line = ["all_reduce", "8G", "--busbw", "387", "--gpu", "H100", "--nodes", "4", *H100[4:]]
    wirespeed(["reference", "ask", *line, "-o", "json"])
    told = json.loads(capsys.readouterr().out)
    assert told["hardware"]["range_GBps"][0] < told["hardware"]["busbw_GBps"]
    assert told["limit"]["busbw_GBps"] > told["hardware"]["range_GBps"][1]
    assert all(one["source"] and one["differs"] for one in told["published"])
    assert {one["switch"] for one in told["by_switch"]} == {"sharp", "sharp off"}
    wirespeed(["reference", "ask", *line])
    out = capsys.readouterr().out
    for label in ("  limit ", "  expected ", "  published ", "differs: 2 nodes", "with SHARP"):
        assert label in out


def test_what_a_person_states_of_switches_counts_beside_a_run(capsys: Any) -> None:
    """A log tells cards and nodes, and never whether SHARP was on or whose cluster it is."""
    nodes = tuple(
        NodeFacts(
            host=f"n{n}",
            facts=Facts(),
            ranks=tuple(range(8 * n, 8 * n + 8)),
            gpus=tuple({"index": k, "name": "NVIDIA H100 80GB HBM3"} for k in range(8)),
            rdma=tuple(
                {"device": f"mlx5_{k}", "port": 1, "state": "ACTIVE", "rate_Gbitps": 400.0,
                 "link_layer": "InfiniBand"} for k in range(8)
            ),
        )
        for n in range(8)
    )  # fmt: skip
    seconds, size = 8 * 2**30 * 2 / 300e9, 8 * 2**30
    measured = usual.measurement(seconds, size, 0.01, ranks=64, algbw=152e9, busbw=300e9)
    world = replace(usual.world(nodes[0], size=64), nodes=nodes, backend="nccl")
    save(usual.run(id="5a5a5a5a", measurements=(measured,), world=world))
    verdicts = {}
    for switch in ([], ["--switch", "sharp"], ["--switch", "sharp-off"]):
        code = wirespeed(["reference", "ask", "--run", "5a5a", *switch, "-o", "json"])
        told = json.loads(capsys.readouterr().out)
        verdicts[" ".join(switch[1:])] = (told["verdict"], code)
    assert verdicts == {"": ("unknown", 3), "sharp": ("low", 1), "sharp-off": ("normal", 0)}
