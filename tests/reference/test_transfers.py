"""Copies, network cards and messages: their limits, what others got, and what is asked for."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from wirespeed.cli import run as wirespeed
from wirespeed.reference.shape import shape_told
from wirespeed.reference.transfers import Row, ask_transfer, shipped_transfers, transfer_named

GOOD = [one for one in shipped_transfers() if one.kind == "measured"]
BAD = [one for one in shipped_transfers() if one.kind == "untuned"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("line", "code", "verdict"),
    [
        ("host_to_device_memcpy_ce --busbw 52 --gpu H100", 0, "normal"),
        ("h2d 512M --busbw 12 --gpu H100", 1, "low"),
        ("h2d --busbw 440 --gpu H100", 1, "impossible"),
        ("d2h --busbw 26 --gpu L40S", 0, "normal"),
        ("d2d --busbw 390 --gpu H200", 0, "normal"),
        ("d2d --busbw 150 --gpu H200", 1, "low"),
        ("d2d --busbw 26 --gpu A40 --interconnect pcie", 0, "normal"),
        ("d2d --busbw 26 --gpu A40", 3, "unknown"),
        ("device_to_device_bidirectional_memcpy_read_ce --busbw 750 --gpu H100", 0, "normal"),
        ("ib_write_bw 64K --busbw 49 --interconnect ib --nics 1x400", 0, "normal"),
        ("ib_write_bw 64K --busbw 392 --interconnect ib --nics 1x400", 1, "impossible"),
        ("ib_write_bw 64K --busbw 24 --interconnect ib --nics 1x400", 1, "low"),
        ("ib_write_bw 64 --busbw 1 --interconnect ib --nics 1x400", 3, "unknown"),
        ("ib_write_bw 64K --busbw 24 --interconnect ib", 3, "unknown"),
        ("osu_bibw 1M --busbw 48 --interconnect ib --nics 1x200", 0, "normal"),
        ("osu_latency 8 --time 1.1 --interconnect ib", 0, "normal"),
        ("osu_latency 8 --time 25 --interconnect ib", 1, "low"),
        ("osu_latency 8 --time 25 --interconnect tcp", 0, "normal"),
        ("osu_latency 8 --time 16 --interconnect efa", 3, "unknown"),
        ("osu_latency 8 --time 1.1", 3, "unknown"),
        # No slot in the table: its link is of PCIe 6, and copies from the host get PCIe 5.
        ("h2d --busbw 55 --gpu B300", 3, "unknown"),
        # Links that were read nowhere fail nobody.
        ("d2d --busbw 5 --gpu MI355X", 3, "unknown"),
        ("d2d --busbw 500 --gpu MI355X", 3, "unknown"),
        ("d2d --busbw 60 --gpu MI355X", 0, "normal"),
    ],
)
def test_questions_about_links(line: str, code: int, verdict: str, capsys: Any) -> None:
    assert wirespeed(["reference", "ask", *shlex.split(line), "-o", "json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == verdict
    assert bool(told["missing"]) == (verdict == "unknown")
    assert wirespeed(["reference", "ask", *shlex.split(line)]) == code
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["osu_latency", "8", "--busbw", "1"], "--time US"),
        (["h2d", "--time", "5", "--gpu", "H100"], "--busbw GB/s"),
        (["all_reduce", "1G", "--time", "5", "--gpu", "H100"], "--busbw GB/s"),
    ],
)
def test_a_rate_is_no_latency(words: list[str], needed: str, capsys: Any) -> None:
    assert wirespeed(["reference", "ask", *words]) == 2
    assert needed in capsys.readouterr().err


def place(one: Row) -> str:
    own = one.source.split(":")[0]
    others = [other for other in shipped_transfers() if other.source.split(":")[0] != own]
    test = transfer_named(one.test)
    assert test is not None
    cards: dict[str, Any] = {}
    if one.card_Gbitps:
        cards = {"nics": 1, "nic_Gbitps": one.card_Gbitps}
    shape = shape_told(one.gpu, per_node=2, nodes=1, interconnect=one.interconnect or "", **cards)
    return ask_transfer(test, shape, 0, one.base, others).place


@pytest.mark.parametrize("one", GOOD, ids=lambda one: f"{one.system} {one.test}")
def test_a_measured_figure_is_never_called_bad(one: Row) -> None:
    assert place(one) in ("normal", "high", "unknown")


@pytest.mark.parametrize("one", BAD, ids=lambda one: f"{one.system} {one.test}")
def test_a_known_bad_figure_is_never_called_good(one: Row) -> None:
    assert place(one) in ("low", "impossible", "unknown")


def test_the_published_ones_are_listed(capsys: Any) -> None:
    words = ["reference", "list", "--transfers", "--gpu", "H100"]
    assert wirespeed([*words, "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed and all(one["gpu"] == "H100 SXM" and one["source"] for one in listed)
    assert wirespeed([*words, "--op", "h2d"]) == 0
    assert "host_to_device_memcpy_ce" in capsys.readouterr().out
    assert wirespeed([*words, "-o", "csv"]) == 2


def test_each_row_has_a_source_and_a_known_test() -> None:
    assert all(one.source and one.read and transfer_named(one.test) for one in shipped_transfers())
    assert [place(one) for one in GOOD].count("normal") >= 0.7 * len(GOOD)
    assert BAD
