"""`wirespeed bench` on real ranks: what was asked for is what was measured, in every format."""

import json
import re
import signal
from typing import Any

import jsonschema
import pytest

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.model.codec import validated
from wirespeed.model.records import Run
from wirespeed.runs.importers import import_bytes
from wirespeed.runs.schema import load_schema

QUICK = ("-b", "1K", "-e", "4K", "-w", "1", "-n", "3", "-q")
FEW = ("--ranks", "2", "-o", "json")
TIME_FIELDS = {"median", "mean", "low", "high", "min", "p95", "p99", "max"}
RUN_FIELDS = {
    *("schema", "id", "verdict", "exit_code", "started", "seconds", "world", "versions"),
    *("environment", "config", "findings", "measurements"),
}
FINDING_FIELDS = {
    *("id", "status", "title", "subject", "saw", "expected", "because", "costs", "fix", "next"),
    "evidence",
}
MEASUREMENT_FIELDS = {
    *("op", "engine", "dtype", "redop", "root", "in_place", "size_bytes", "ranks", "iterations"),
    *("time_us", "algbw_GBps", "busbw_GBps", "wrong"),
}


def checked(text: str) -> dict[str, Any]:
    """The run, valid for our own validator and for jsonschema's."""
    run: dict[str, Any] = json.loads(text)
    validated(Run, run, source="stdout")
    jsonschema.Draft202012Validator(load_schema()).validate(run)
    return run


@pytest.mark.slow
def test_every_operation_as_json(cli: Any) -> None:
    done = cli(
        "bench", "all", *QUICK, "-e", "1K", "--ranks", "3", "-o", "json", env=cli.no_pickles()
    )
    run = checked(done.out)
    assert done.code == run["exit_code"] == 0, done.err
    assert cli.without_pickles() == 3
    assert (run["verdict"], run["speed_judged"]) == ("MEASURED", False)
    assert set(run) >= RUN_FIELDS
    assert run["world"]["size"] == 3
    assert run["world"]["backend"] == "gloo"
    assert run["world"]["launcher"] == "local"
    assert run["world"]["nodes"][0]["ranks"] == [0, 1, 2]
    assert all(set(one) >= FINDING_FIELDS for one in run["findings"])
    assert [m["op"] for m in run["measurements"]] == list(CATALOGUE)
    for measurement in run["measurements"]:
        assert_consistent(measurement)
    assert run == cli.run(), "what is printed and what is stored differ"


@pytest.mark.slow
def test_ranks_with_unequal_buffers_decide_alike(cli: Any) -> None:
    """In all_to_all_v they differ in size between ranks, and so in how many rotate."""
    sizes = ("-b", "64K", "-e", "4M", "-f", "4", "--time-per-size", "0.1", "--ranks", "4")
    done = cli("bench", "all_to_all_v", *sizes, "--timeout", "20", "-q", "-o", "json")
    assert done.code == 0, done.err
    assert len(checked(done.out)["measurements"]) == 4


def assert_consistent(measurement: dict[str, Any]) -> None:
    assert set(measurement) >= MEASUREMENT_FIELDS
    time = measurement["time_us"]
    assert set(time) >= TIME_FIELDS
    assert 0 < time["min"] <= time["low"] <= time["median"] <= time["high"] <= time["max"]
    assert time["min"] <= time["mean"] <= time["max"]
    assert time["median"] <= time["p95"] <= time["p99"] <= time["max"]
    assert (measurement["iterations"], measurement["wrong"], measurement["ranks"]) == (3, 0, 3)
    if measurement["op"] != "barrier":
        algbw = measurement["size_bytes"] / time["median"] / 1e3
        factor = CATALOGUE[measurement["op"]].bus_factor(3)
        assert measurement["algbw_GBps"] == pytest.approx(algbw)
        assert measurement["busbw_GBps"] == pytest.approx(algbw * factor)


def test_the_table(cli: Any) -> None:
    done = cli("bench", "all_reduce", "barrier", *QUICK, "--ranks", "2")
    assert done.code == 0, done.err
    assert done.err == "", "quiet means quiet"
    for word in (
        "2 ranks",
        "all_reduce",
        "1 KiB",
        "4 KiB",
        "busbw",
        "barrier",
        "MEASURED",
        "data exact, speed not judged",
        "exit 0",
    ):
        assert word in done.out
    # The stored run gives the same in each other format.
    wide = cli.here("runs", "show", "last", "-o", "wide")
    assert wide.code == 0
    assert "float32" in wide.out
    markdown = cli.here("runs", "show", "last", "-o", "md").out
    assert re.search(r"^\| 4 KiB \| out \|.*\| 0 \|$", markdown, re.MULTILINE)
    assert cli.here("runs", "show", "last", "-o", "table").out == done.out


@pytest.mark.slow
def test_one_line_a_record(cli: Any) -> None:
    done = cli("bench", "all_reduce", *QUICK, "--ranks", "2", "-o", "jsonl")
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in done.out.splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds.count("measurement") == 2
    assert {line["run"] for line in lines if "run" in line} == {cli.run()["id"]}


@pytest.mark.slow
def test_the_layout_of_nccl_tests(cli: Any) -> None:
    """13 columns, both sides, and a parser made for that tool reads the same figures."""
    done = cli("bench", "all_reduce", "broadcast", *QUICK, "--ranks", "2", "-o", "nccl-tests")
    assert done.code == 0, done.err
    rows = [line.split() for line in done.out.splitlines() if re.match(r" +\d", line)]
    assert {len(row) for row in rows} == {13}
    assert [row[0] for row in rows] == ["1024", "4096"] * 2
    assert {(row[8], row[12]) for row in rows} == {("0", "0")}
    assert "# Out of bounds values : 0 OK" in done.out
    measured = cli.run()["measurements"]
    assert sorted({m["in_place"] for m in measured}) == [False, True]
    imported = [m for run in import_bytes(done.out.encode(), name="x") for m in run.measurements]
    assert len(imported) == len(measured) == 8
    for mine, theirs in zip(
        sorted(measured, key=lambda m: (m["op"], m["size_bytes"], m["in_place"])),
        sorted(imported, key=lambda m: (m.op, m.size_bytes, m.in_place)),
        strict=True,
    ):
        assert (mine["op"], mine["ranks"]) == (theirs.op, theirs.ranks)
        assert theirs.time.median * 1e6 == pytest.approx(mine["time_us"]["median"], rel=0.01)


@pytest.mark.slow
def test_warmups_and_iterations_are_what_was_asked_for(cli: Any) -> None:
    done = cli("bench", "all_reduce", "-w", "2", "-n", "7", "-b", "1K", "-e", "4K", *FEW)
    assert done.code == 0, done.err
    measured = done.json["measurements"]
    assert [m["size_bytes"] for m in measured] == [1024, 4096]
    assert {(m["warmup"], m["iterations"], m["stopped_by"]) for m in measured} == {(2, 7, "count")}
    steps = [line for line in done.err.splitlines() if line.startswith("[")]
    assert [step.partition("]")[0] for step in steps] == ["[1/2", "[2/2"], "one line a step"


@pytest.mark.slow
def test_dtypes_reductions_root_and_place(cli: Any) -> None:
    words = ["-d", "int32,bfloat16", "-o", "max", "-o", "sum,json", "-r", "1", "--in-place", "both"]
    done = cli("bench", "reduce", *QUICK[4:], "-b", "1K", "-e", "1K", *words, "--ranks", "2")
    assert done.code == 0, done.err
    measured = done.json["measurements"]
    cases = {(m["dtype"], m["redop"], m["in_place"]) for m in measured}
    wanted = [(d, r, p) for d in ("int32", "bfloat16") for r in ("max", "sum") for p in (0, 1)]
    assert cases == {(d, r, bool(p)) for d, r, p in wanted}
    assert len(measured) == len(cases)
    assert {(m["root"], m["wrong"]) for m in measured} == {(1, 0)}


@pytest.mark.parametrize(("groups", "ranks"), [("pairs", 2), ("every-2", 2)])
@pytest.mark.slow
def test_groups_side_by_side(cli: Any, groups: str, ranks: int) -> None:
    done = cli(
        *("bench", "all_reduce", "all_gather", *QUICK, "-e", "1K"),
        *("--ranks", "4", "--groups", groups, "-o", "json"),
    )
    assert done.code == 0, done.err
    measured = done.json["measurements"]
    assert [(m["op"], m["ranks"], m["groups"], m["wrong"]) for m in measured] == [
        ("all_reduce", ranks, groups, 0),
        ("all_gather", ranks, groups, 0),
    ]
    assert done.json["world"]["size"] == 4


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (("--timing", "batch"), {"timing": "batch", "blocking": True, "in_flight": 1}),
        (("--async",), {"timing": "each", "blocking": False, "in_flight": 1}),
        (("-m", "3"), {"timing": "each", "blocking": False, "in_flight": 3}),
    ],
)
@pytest.mark.slow
def test_the_ways_to_time(cli: Any, words: tuple[str, ...], fields: dict[str, Any]) -> None:
    ops = ("all_reduce", "send_recv", "gather", "barrier")
    done = cli("bench", *ops, *QUICK, "-e", "1K", "--ranks", "2", "-o", "json", *words)
    assert done.code == 0, done.err
    assert [m["op"] for m in done.json["measurements"]] == list(ops)
    for measurement in done.json["measurements"]:
        assert {name: measurement[name] for name in fields} == fields
        assert measurement["time_us"]["median"] > 0
        assert measurement["wrong"] == 0


@pytest.mark.slow
def test_wrong_data_fails_the_bench_and_names_the_rank(cli: Any, finding: Any) -> None:
    done = cli("bench", "all_reduce", *QUICK, "--ranks", "3", "--inject", "flip:rank=2")
    run = cli.run()
    assert done.code == run["exit_code"] == 1
    found = finding(run, "COL-001")
    assert found["status"] == "fail"
    assert "rank 2" in f"{found['title']} {found['saw']}"
    assert "bit flip" in f"{found['because']} {found['saw']} {found['title']}"
    assert {m["wrong"] for m in run["measurements"]} == {1}
    assert "FAILED" in done.out


@pytest.mark.slow
def test_without_the_data_check_nothing_is_claimed(cli: Any) -> None:
    done = cli("bench", "all_reduce", *QUICK, "-e", "1K", "--ranks", "1", "-c", "0", "-o", "json")
    assert done.code == 0, done.err
    (measurement,) = done.json["measurements"]
    assert measurement["wrong"] is None
    assert "COL-001" not in {one["id"] for one in done.json["findings"] if one["status"] == "pass"}


@pytest.mark.slow
def test_two_runs_at_once_are_not_mixed(cli: Any) -> None:
    mine = ("bench", "all_reduce", "-w", "1", "-n", "20", "--ranks", "2", "-q", "-o", "json")
    first = cli.start(*mine, "-b", "1K", "-e", "32K", "-f", "2")
    second = cli.start(*mine, "-b", "1000", "-e", "4000", "-i", "1000", "-d", "float64")
    one, two = checked(first.wait().out), checked(second.wait().out)
    assert one["id"] != two["id"]
    assert [m["size_bytes"] for m in one["measurements"]] == [1024 << i for i in range(6)]
    assert [m["size_bytes"] for m in two["measurements"]] == [1000, 2000, 3000, 4000]
    assert {m["dtype"] for m in one["measurements"]} == {"float32"}
    assert {m["dtype"] for m in two["measurements"]} == {"float64"}
    assert {m["wrong"] for m in one["measurements"] + two["measurements"]} == {0}
    stored = {folder.name[-8:] for folder in cli.folders()}
    assert stored == {one["id"], two["id"]}


@pytest.mark.slow
def test_an_operation_that_needs_more_ranks_does_not_apply(cli: Any, finding: Any) -> None:
    done = cli("bench", "all_reduce", "send_recv", *QUICK, "-e", "1K", "--ranks", "1")
    run = cli.run()
    assert done.code == 0, done.out
    assert [m["op"] for m in run["measurements"]] == ["all_reduce"]
    found = finding(run, "COL-010")
    assert found["status"] == "not_applicable"
    assert "2 ranks" in found["because"]


@pytest.mark.slow
def test_nothing_that_could_run_is_no_success(cli: Any) -> None:
    done = cli("bench", "send_recv", *QUICK, "-e", "1K", "--ranks", "1")
    assert done.code == 3, done.out
    assert cli.run()["verdict"] == "UNKNOWN"


@pytest.mark.slow
def test_repeats_are_runs_that_compare_takes(cli: Any) -> None:
    words = ("bench", "all_reduce", "--sizes", "4K", "-n", "8", "--ranks", "2", "--repeat", "3")
    done = cli(*words)
    assert done.code == 0, done.err
    ids = re.findall(r"   run ([0-9a-f]{8})$", done.out, re.MULTILINE)
    assert len(set(ids)) == 3
    assert f"wirespeed: 3 runs: {' '.join(ids)}" in done.err
    following = done.err.splitlines()[-1].removeprefix("next: wirespeed ")
    assert following == f"baseline set {' '.join(ids)}"
    done = cli(*following.split())
    assert done.out.splitlines()[-1].endswith("--repeat 3 --ranks 2")
    assert cli("compare", "last:3", "--baseline").code == 2, "the baseline is of these runs"
    assert cli("compare", "last~2", "last:2").code == 3, "one run and two decide nothing"


@pytest.mark.slow
def test_ctrl_c_keeps_the_repeats_that_have_ended(cli: Any) -> None:
    words = ("bench", "all_reduce", "--sizes", "4K", "--ranks", "2", "--repeat", "50", "-n", "8")
    running = cli.start(*words)
    cli.until(lambda: "run 3 of 50" in running.err())
    running.signal(signal.SIGINT)
    done = running.wait()
    assert done.code == 130
    assert "Traceback" not in done.err
    kept = re.search(r"wirespeed: (\d+) of 50 runs: ([0-9a-f ]+)", done.err)
    assert kept is not None
    assert int(kept[1]) >= 2
    assert all(id in done.out for id in kept[2].split())
