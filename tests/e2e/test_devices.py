"""Whole commands on devices: what they compute, and a core that computes wrong."""

from typing import Any


def test_rates_of_the_cores_here(cli: Any) -> None:
    words = ("gemm", "memory", "copy", "-d", "float32", "--time-per-size", "0.05", "--sizes", "16M")
    done = cli("bench", *words, "--ranks", "2", "-o", "json", "-q")
    assert done.code == 0, done.err
    compute = done.json["compute"]
    assert [one["op"] for one in compute["rates"]] == ["gemm", "copy", "triad", "numa"]
    assert all(one["own_per_second"] > 0 and one["own_share"] <= 1 for one in compute["rates"])
    assert [one["wrong"] for one in compute["rates"]] == [None, 0, 0, 0]
    (proof,) = compute["proofs"]
    assert "faults" not in proof
    shown = cli.here("runs", "show", done.json["id"])
    assert "products compared bit for bit" in shown.out


def test_a_core_with_a_stuck_lane_is_named(cli: Any, finding: Any) -> None:
    """Its node has one core at least, so that rank 0 has one for sure."""
    words = ("-l", "quick", "--only", "COMP-001,COMP-002", "--inject", "lane:rank=0")
    done = cli("check", *words, "--ranks", "1", "-o", "json", "-q")
    assert done.code == 1, done.err
    told = finding(done.json, "COMP-001")
    assert told["status"] == "fail"
    assert "core" in told["title"]
    assert "columns 3 of each 16" in told["because"]
    assert done.json["compute"]["rates"] == [], "only what was selected needs"
