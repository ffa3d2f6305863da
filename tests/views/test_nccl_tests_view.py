"""The layout of nccl-tests as other people's parsers read it, and as our own importer does.

The rules of the two parsers below are facts about microsoft/superbenchmark
(cuda_nccl_bw_performance.py) and NVIDIA/cloudai (nccl_test report generation), written anew.
"""

import math
import re
from dataclasses import replace

import pytest

from wirespeed.model.records import Measurement, Run
from wirespeed.runs.importers import import_bytes
from wirespeed.views import Style, render


def text_of(run: Run) -> str:
    return render(run, "nccl-tests", Style())


def one_op(run: Run, op: str = "all_reduce") -> Run:
    return replace(run, measurements=tuple(m for m in run.measurements if m.op == op))


def as_superbench(text: str, *, in_place: bool = False) -> dict[int, tuple[float, float, float]]:
    """size: (time, algbw, busbw). The last header with out-of-place opens the table, the closing
    line ends it; columns are counted from the right, by their names in the header."""
    lines = text.splitlines()
    first = max(n for n, line in enumerate(lines) if "out-of-place" in line)
    last = max(n for n, line in enumerate(lines) if "Out of bounds values" in line)
    table = lines[first + 1 : last]
    header = next(line for line in table if "time" in line and "busbw" in line)
    names = header[1:].split()
    found = {}
    for line in table:
        cells = line.split()
        if cells and cells[0].isdigit() and int(cells[names.index("size")]):
            picked = []
            for name in ("time", "algbw", "busbw"):
                places = [n for n, other in enumerate(names) if other == name]
                picked.append(float(cells[places[in_place] - len(names)]))
            found[int(cells[0])] = (picked[0], picked[1], picked[2])
    return found


def as_cloudai(text: str) -> tuple[list[list[str]], int, str, int]:
    """Rows that begin with a digit and have 13 cells; devices a node; GPU; ranks."""
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d", line)]
    hosts: dict[str, int] = {}
    gpu, ranks = "Unknown", 0
    for line in text.splitlines():
        if all(word in line for word in ("Rank", "device", "NVIDIA")):
            ranks += 1
            found = re.search(r"on\s+([\w\-.]+)\s+device\s+(\d+)", line)
            assert found
            hosts[found[1]] = max(hosts.get(found[1], -1), int(found[2]))
            gpu = line.split("NVIDIA ")[1].strip()
    return [row for row in rows if len(row) == 13], max(hosts.values(), default=-1) + 1, gpu, ranks


def test_superbench_reads_both_sides(bench: Run) -> None:
    text = text_of(one_op(bench))
    out = as_superbench(text)
    assert list(out) == [1024, 65536, 1048576]
    assert out[65536] == (420.0, 0.16, 0.21)
    inside = as_superbench(text, in_place=True)
    assert inside[65536] == (410.0, 0.16, 0.21)
    assert math.isnan(inside[1048576][0])  # not measured: read without an error, and no figure


def test_superbench_passes_over_a_barrier(bench: Run) -> None:
    assert as_superbench(text_of(one_op(bench, "barrier"))) == {}


def test_cloudai_reads_rows_and_devices(check: Run) -> None:
    rows, per_node, gpu, ranks = as_cloudai(text_of(one_op(check)))
    assert [row[0] for row in rows] == ["1024", "16777216"]
    assert (per_node, gpu, ranks) == (2, "H100 80GB HBM3", 4)
    assert all(len(row) == 13 for row in rows)
    assert rows[1][2:8] == ["float", "sum", "-1", "1200.00", "13.98", "20.97"]


def test_every_row_of_every_operation_has_13_columns(bench: Run, check: Run) -> None:
    for run in (bench, check):
        text = text_of(run)
        rows = [line for line in text.splitlines() if re.match(r"\s*\d", line)]
        assert rows
        assert {len(line.split()) for line in rows} == {13}
        headers = [line for line in text.splitlines() if "algbw" in line]
        assert {len(line[1:].split()) for line in headers} == {13}


def test_the_layout_of_the_lines(check: Run) -> None:
    lines = text_of(one_op(check)).splitlines()
    assert lines[1] == (
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 16777216 step: 16384(factor) warmup iters: 7 "
        "iters: 57 agg iters: 1 validation: 1 graph: 0"
    )
    assert (
        "#  Rank  3 Group  0 Pid      0 on     node-b device  1 [0000:1c:00] NVIDIA H100 80GB HBM3"
    ) in lines
    assert lines[-1] == "# Collective test concluded: all_reduce_perf"
    assert lines[-4] == "# Out of bounds values : 0 OK"
    assert re.fullmatch(r"# Avg bus bandwidth    : 10\.\d+ ", lines[-3])
    row = next(line for line in lines if line.startswith("    16777216"))
    assert row == (
        "    16777216       4194304     float     sum      -1  1200.00   13.98   20.97       0"
        "      nan     nan     nan     N/A"
    )


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (1e-9, "   0.00"),
        (58.2e-6, "  58.20"),
        (4366.46e-6, "4366.46"),
        (10908e-6, "10908.0"),
        (123456e-6, " 123456"),
        (1234567e-6, "1234567"),
        (99999.97e-6, " 100000"),
        (12.5, "1.2e+07"),
    ],
)
def test_figures_fill_their_width_as_in_nccl_tests(seconds: float, shown: str, bench: Run) -> None:
    one = bench.measurements[0]
    run = replace(bench, measurements=(replace(one, time=replace(one.time, median=seconds)),))
    (row,) = [line for line in text_of(run).splitlines() if line.startswith("        1024")]
    assert row[52:61] == f"  {shown}"


def test_wrong_data_is_in_its_column_and_in_the_closing_line(check: Run) -> None:
    text = text_of(one_op(check, "all_gather"))
    rows, *_ = as_cloudai(text)
    assert [row[8] for row in rows] == ["0", "512"]
    assert "# Out of bounds values : 512 FAILED" in text


def key(m: Measurement) -> tuple[object, ...]:
    root = (m.op, m.dtype, m.redop, m.root, m.in_place, m.size_bytes, m.count)
    return (*root, m.wrong, m.in_flight)


@pytest.mark.parametrize("command", ["check", "bench"])
def test_our_importer_reads_it_back(command: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(command)
    run = replace(run, measurements=tuple(m for m in run.measurements if m.op != "barrier"))
    tables = import_bytes(text_of(run).encode(), name="view.txt")
    again = [m for table in tables for m in table.measurements]
    assert sorted(map(key, again), key=str) == sorted(map(key, run.measurements), key=str)
    by_key = {key(m): m for m in run.measurements}
    for m in again:
        assert m.ranks == run.world.size
        assert m.time.median == pytest.approx(by_key[key(m)].time.median, rel=1e-3)
        assert m.busbw == pytest.approx(by_key[key(m)].busbw, rel=0.02, abs=0.006e9)
    assert all(table.world.size == run.world.size for table in tables)
    cut_or_damaged = {"IMP-001", "IMP-003", "IMP-006"}
    assert not cut_or_damaged & {f.id for table in tables for f in table.findings}


def test_a_configuration_measured_twice_has_two_rows(bench: Run) -> None:
    one = bench.measurements[0]
    slower = replace(one, time=replace(one.time, median=2 * one.time.median))
    rows, *_ = as_cloudai(text_of(replace(bench, measurements=(one, slower))))
    assert [row[5] for row in rows] == ["310.00", "620.00"]


def test_groups_are_in_the_device_lines(check: Run) -> None:
    for groups, expected in (
        ("all", [0, 0, 0, 0]),
        ("nodes", [0, 0, 1, 1]),
        ("rails", [0, 1, 0, 1]),
        ("pairs", [0, 0, 1, 1]),
        ("every-2", [0, 1, 0, 1]),
    ):
        measurements = tuple(replace(m, groups=groups, ranks=2) for m in one_op(check).measurements)
        text = text_of(replace(check, measurements=measurements))
        assert [int(n) for n in re.findall(r"Rank +\d+ Group +(\d+)", text)] == expected
