"""Kinds of files that were read wrongly: each figure belongs to one series, and what is odd is shown."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wirespeed.compare.compare import SideRuns, compare, points_of, trend
from wirespeed.compare.figures import figures_of
from wirespeed.errors import InputError
from wirespeed.model.bench_records import ToolFigure
from wirespeed.model.codec import to_json, validated
from wirespeed.model.records import Run
from wirespeed.runs.importers import import_bytes
from wirespeed.runs.importers.repeats import level_change
from wirespeed.runs.store import find, load, save
from wirespeed.views import Style, render

PRINTS = Path(__file__).parent / "samples" / "prints"


def read(text: str, name: str = "in.log") -> list[Run]:
    runs = import_bytes(text.encode(), name=name)
    for run in runs:
        validated(Run, to_json(run), source="import")
    return runs


def one(text: str, name: str = "in.log") -> Run:
    (run,) = read(text, name)
    return run


def sample(name: str) -> str:
    return (PRINTS / name).read_text()


def ids(run: Run) -> list[str]:
    return [finding.id for finding in run.findings]


# nccl-tests

HEAD = "# nThread 1 nGpus 4 minBytes 1048576 maxBytes 1073741824 iters: 20 agg iters: 1 graph: 0\n"
DEVICES = "".join(
    f"#  Rank  {rank} Group  0 Pid   77 on  node-a device  {rank} [0000:1b:00] NVIDIA H100 80GB HBM3\n"
    for rank in range(4)
)
COLUMNS = "# size count type redop root  {time} algbw busbw #wrong  {time} algbw busbw #wrong\n"
CLOSING = "# Out of bounds values : 0 OK\n# Collective test concluded: all_reduce_perf\n"


def row(size: int, seconds: float) -> str:
    algbw = size / seconds / 1e9
    half = f"{seconds * 1e6:.2f}  {algbw:.2f}  {algbw * 1.5:.2f}  0"
    return f"  {size}  {size // 4}  float  sum  -1  {half}  {half}\n"


def table(*rows: str, time: str = "time") -> str:
    return HEAD + DEVICES + COLUMNS.format(time=time) + "".join(rows) + CLOSING


def test_cycles_are_one_figure_with_their_spread() -> None:
    """-N 3: the sizes come again and again, the third time at half the speed."""
    sizes = (1 << 30, 1 << 26)
    cycles = ((4.0e-3, 5e-4), (4.04e-3, 5.1e-4), (8.0e-3, 9.9e-4))
    run = one(table(*(row(size, t) for c in cycles for size, t in zip(sizes, c, strict=True))))
    assert len(run.measurements) == 4
    large = next(m for m in run.measurements if m.size_bytes == 1 << 30 and not m.in_place)
    assert large.time.median == pytest.approx(4.04e-3)
    assert (large.time.min, large.time.max) == pytest.approx((4.0e-3, 8.0e-3))
    assert large.samples == 3, "too few for an interval of 95 %"
    assert large.busbw == pytest.approx((1 << 30) / 4.04e-3 * 1.5, rel=1e-3)
    (found,) = run.findings
    assert (found.id, found.status, len(found.evidence)) == ("IMP-011", "warn", 4)
    steady = one(table(*(row(1 << 30, 4e-3 + n * 1e-5) for n in range(8))))
    assert not steady.findings
    assert [m.samples for m in steady.measurements] == [8, 8]
    time = steady.measurements[0].time
    assert time.low < time.median < time.high


def test_cpu_time_is_no_duration() -> None:
    run = one(table(row(1 << 30, 12e-6), time="cputime"))
    assert not run.measurements, "no bandwidth that a reference could judge"
    assert [(f.unit, f.size_bytes) for f in run.figures] == [("s", 1 << 30)] * 2
    assert run.figures[0].value == pytest.approx(12e-6)
    assert ids(run) == ["IMP-014"]


def test_a_rate_that_no_link_carries_is_marked_and_never_compared() -> None:
    run = one(table(row(1 << 26, 4e-4), row(1 << 30, 12e-6)))
    assert {m.size_bytes for m in run.measurements} == {1 << 26}
    assert [(f.beyond, f.size_bytes) for f in run.figures] == [(True, 1 << 30)] * 2
    assert ids(run) == ["IMP-013"]
    assert {what.get("size_bytes") for what in figures_of(run)} == {1 << 26}
    perftest = sample("perftest-4.5.txt").replace("Gb/sec", "MiB/sec").replace("196.24", "1e9")
    assert not one(perftest).findings
    shouted = one(sample("perftest-4.5.txt").replace("196.24 ", "19624.00"))
    assert [f.beyond for f in shouted.figures] == [False, True]
    assert ids(shouted) == ["IMP-013"]
    assert "above any link" in render(shouted, "table", Style())


def test_a_summary_within_a_row() -> None:
    """alltoallv prints its summary where the row is not yet complete."""
    summary = (
        "# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: mode=generated nranks=4 spread=1.000\n#   rank=0 x\n"
    )
    rows = "".join(
        f"   {size}  {size // 16}  float  none  -1{summary}"
        f"  {us:.2f}  {size / us / 1e3:.2f}  {size / us / 1e3 * 0.75:.2f}  0{summary}"
        f"  {us:.2f}  {size / us / 1e3:.2f}  {size / us / 1e3 * 0.75:.2f}  N/A\n"
        for size, us in ((1 << 24, 120.0), (1 << 25, 230.0))
    )
    run = one(table(rows).replace("all_reduce_perf", "alltoallv_perf"))
    assert [(m.op, m.size_bytes, m.in_place, m.wrong) for m in run.measurements] == [
        ("all_to_all_v", 1 << 24, False, 0),
        ("all_to_all_v", 1 << 24, True, None),
        ("all_to_all_v", 1 << 25, False, 0),
        ("all_to_all_v", 1 << 25, True, None),
    ]
    assert run.measurements[0].time.median == pytest.approx(120e-6)
    assert not run.findings


def test_a_slow_process_is_named() -> None:
    run = one(sample("nccl_tests-straggler.json"))
    (found,) = run.findings
    assert (found.id, found.subject.kind, found.subject.name) == ("IMP-012", "rank", "rank 1")
    data = json.loads(sample("nccl_tests-straggler.json"))
    times = data["results"][0]["out_of_place_per_iter"]["per_process_max_times_us"]
    times[1] = [t * 1.01 for t in times[0]]
    assert not one(json.dumps(data)).findings, "one per cent is no straggler"


def test_two_documents_of_nccl_tests_are_two_runs() -> None:
    first = sample("nccl_tests-straggler.json")
    assert (
        len(read(first + first.replace('"time": 646.0', '"time": 600.0').replace("640.", "641.")))
        == 2
    )
    (run,) = read(first + first)
    assert "copies" in [choice.name for choice in run.choices]


# Series: what the file tells apart stays apart.


def test_each_call_of_osu_is_a_series() -> None:
    run = one(sample("osu-7.4.txt"))
    at_one_byte = {f.test: f.value for f in run.figures if f.size_bytes == 1}
    assert at_one_byte == pytest.approx(
        {"MPI_Put Latency": 0.61e-6, "MPI_Get latency": 0.38e-6, "Latency": 0.29e-6}
    )
    assert len(figures_of(run)) == 8
    text = sample("osu-7.4.txt")
    flushed = text.replace("MPI_Win_flush", "MPI_Win_fence")
    assert len(figures_of(one(text + flushed))) == 12, "another synchronization is another series"
    on_gpu = one(text.replace("OSU MPI Allreduce", "OSU MPI-CUDA Allreduce"))
    assert {m.engine for m in on_gpu.measurements} == {"osu MPI-CUDA"}


def test_queue_pairs_make_series_of_their_own() -> None:
    text = sample("perftest-4.5.txt")
    run = one(text + text.replace("qps   : 4", "qps   : 1").replace("196.24", "180.00"))
    large = {f.settings: f.value for f in run.figures if f.size_bytes == 8388608}
    assert sorted(large.values()) == pytest.approx([180e9 / 8, 196.24e9 / 8])
    assert {"qps 4" in settings for settings in large} == {True, False}


def test_the_sum_of_both_ways_and_each_way() -> None:
    text = sample("perftest-4.5.txt").replace("RDMA_Write BW", "RDMA_Write Bidirectional BW")
    line = next(line for line in text.splitlines() if "8388608" in line)
    total, local, remote = (
        line.replace("196.24", rate).replace("196.25", rate)
        for rate in ("380.00", "195.00", "185.00")
    )
    run = one(text.replace(line, "\n".join((total, local, remote))))
    rates = {f.test: f.value for f in run.figures if f.size_bytes == 8388608}
    assert rates == pytest.approx(
        {
            "ib_write_bw bidirectional": 380e9 / 8,
            "ib_write_bw bidirectional: local": 195e9 / 8,
            "ib_write_bw bidirectional: remote": 185e9 / 8,
        }
    )
    document = sample("perftest-23.10.json")
    local_part = document[document.index('"results"') : document.rindex("}")].replace(
        '"results"', '"results_local"'
    )
    both = one(document[: document.rindex("}")].rstrip() + ",\n" + local_part + "}\n")
    assert [f.test for f in both.figures] == ["ib_send_bw", "ib_send_bw: local"]


def test_rows_of_an_endless_test_are_one_figure_and_a_level_that_changes_is_told() -> None:
    """ib_write_bw --run_infinitely prints a row every few seconds."""
    text = sample("perftest-4.5.txt")
    line = next(line for line in text.splitlines() if "8388608" in line)
    rates = [196.2, 196.1, 196.3, 196.2, 98.1, 98.2, 98.1, 98.0, 196.2, 196.3]
    run = one(
        text.replace(line, "\n".join(line.replace("196.24", f"{rate:.2f}") for rate in rates))
    )
    (large,) = [f for f in run.figures if f.size_bytes == 8388608]
    assert large.samples == 10
    assert large.low is not None and large.high is not None
    assert large.low < large.value < large.high
    (found,) = run.findings
    assert found.id == "IMP-011"
    assert "row 5 to row 8 of 10" in found.title
    block = text.replace(line, "\n".join(line.replace("196.24", f"{rate:.2f}") for rate in rates))
    stamped = "".join(
        f"2026-02-16T10:00:{number:02d}.000Z {text}\n"
        for number, text in enumerate(block.splitlines())
    )
    (timed,) = one(stamped).findings
    first = next(n for n, text in enumerate(block.splitlines()) if "98.10" in text)
    assert f"2026-02-16 10:00:{first:02d} to 2026-02-16 10:00:{first + 3:02d}" in timed.title


def test_endless_cycles_of_nccl_tests_with_time_stamps() -> None:
    """-N 0 -T: the level changes in the fourth cycle and stays."""
    stamp = "  2026-05-04 10:11:{:02d}\n"
    times = [4e-3] * 3 + [8e-3] * 5
    rows = (row(1 << 30, t).rstrip("\n") + stamp.format(n) for n, t in enumerate(times))
    run = one(table(*rows))
    (found,) = run.findings
    assert found.id == "IMP-011"
    assert "cycle 4 to 8 of 8, 2026-05-04 10:11:03 to 2026-05-04 10:11:07" in found.title
    assert {m.samples for m in run.measurements} == {8}


def test_both_ways_under_the_same_keys() -> None:
    """iperf3 3.7 to 3.10 write `sum_sent` twice: JSON readers keep the second alone."""
    run = one(sample("iperf3-3.9-bidir.json"))
    assert {f.place: f.value for f in run.figures if f.unit == "B/s"} == pytest.approx(
        {"node-x -> node-y": 2e9, "node-y -> node-x": 0.5e9}
    )
    assert {f.settings.startswith("both ways at once") for f in run.figures} == {True}


def test_both_ways_as_iperf3_of_debian_12_wrote_them() -> None:
    """Recorded over loopback with `--bidir -t 2 -J`."""
    run = one(sample("iperf3-3.12-bidir.json"))
    assert {f.place: f.value for f in run.figures if f.unit == "B/s"} == pytest.approx(
        {"vm -> 127.0.0.1": 7563150150.44 / 8, "127.0.0.1 -> vm": 9609784734.85 / 8}
    )
    assert {f.settings for f in run.figures} == {"both ways at once, blocks of 131072 B, bbr"}


def test_both_ways_of_which_a_json_reader_kept_the_second() -> None:
    """What jq makes of the same file: the sums of the way back, the streams of both."""
    data = json.loads(sample("iperf3-3.9-bidir.json"))
    streams = [
        {"receiver": {"bits_per_second": 16e9, "sender": True}},
        {"receiver": {"bits_per_second": 4e9, "sender": False}},
    ]
    data["end"]["streams"] = streams
    run = one(json.dumps(data))
    assert {f.place: f.value for f in run.figures if f.unit == "B/s"} == pytest.approx(
        {"node-x -> node-y": 2e9, "node-y -> node-x": 0.5e9}
    )


def stream(*rates: float) -> str:
    events: list[dict[str, Any]] = [json.loads(sample("iperf3-3.17-stream.jsonl").split("\n")[0])]
    for second, rate in enumerate(rates):
        told = {"start": second, "end": second + 1, "seconds": 1.0, "bits_per_second": rate}
        events.append({"event": "interval", "data": {"sum": {**told, "omitted": False}}})
    mean = {"seconds": len(rates), "bits_per_second": sum(rates) / len(rates)}
    events.append({"event": "end", "data": {"sum_sent": mean, "sum_received": mean}})
    return "".join(json.dumps(event) + "\n" for event in events)


def test_the_stream_of_iperf3() -> None:
    run = one(sample("iperf3-3.17-stream.jsonl"))
    rate = run.figures[0]
    assert (rate.test, rate.place, rate.samples) == ("tcp, 2 streams", "node-x -> node-y", 8)
    assert rate.value == pytest.approx(24.05e9 / 8, rel=1e-3)
    assert not run.findings
    early = one("\n".join(sample("iperf3-3.17-stream.jsonl").split("\n")[:6]) + "\n")
    assert early.figures[0].value == pytest.approx(24.06e9 / 8, rel=1e-3), "of five seconds"


def test_a_rate_that_changes_within_the_run_is_told_with_its_second() -> None:
    (found,) = one(stream(*[24e9] * 6, *[12e9] * 4, *[24e9] * 5)).findings
    assert found.id == "IMP-011"
    assert "from second 6 to 10" in found.title
    assert not one(stream(*[24e9 + n * 1e8 for n in (0, 3, 1, 2, 4, 0, 1, 3, 2, 1)])).findings


@pytest.mark.parametrize(
    ("values", "stretch"),
    [
        ([10.0] * 6 + [5.0] * 6, (6, 11)),
        ([5.0] * 4 + [10.0] * 8, (0, 3)),
        ([10.0] * 5 + [5.0] * 3 + [10.0] * 5, (5, 7)),
        ([10.0, 9.9, 10.1, 9.8, 10.2, 10.0, 9.9], None),
        ([10.0, 5.0, 10.0, 5.0, 10.0, 5.0, 10.0], None),
        ([10.0, 5.0], None),
        ([], None),
    ],
)
def test_levels(values: list[float], stretch: tuple[int, int] | None) -> None:
    assert level_change(values) == stretch


# Runs that were stored before series had settings.


def stored_before(run: Run, names: dict[str, str] | None = None) -> Run:
    """As version 0.1 stored such an import."""
    old = [
        replace(f, settings="", test=(names or {}).get(f.test, f.test), value=f.value * 1.001)
        for f in run.figures
    ]
    measured = [replace(m, engine=m.engine.split()[0]) for m in run.measurements]
    return replace(
        run,
        id="0" * 8,
        started="2026-01-02T03:04:05.000Z",
        figures=tuple(old),
        measurements=tuple(measured),
    )


@pytest.mark.parametrize(
    "name", ["perftest-4.5.txt", "iperf3-3.17-stream.jsonl", "iperf3-3.9-bidir.json"]
)
def test_runs_stored_before_keep_comparing(name: str) -> None:
    run = one(sample(name))
    before = stored_before(run)
    assert figures_of(before).keys() != figures_of(run).keys()
    (versus,) = compare([SideRuns((before,)), SideRuns((run,))], fail_on=0.05).versus
    assert len(versus.rows) == len(figures_of(run))
    assert (versus.unpaired.before, versus.unpaired.after) == (0, 0)
    series = trend(points_of([before, run])).series
    assert len(series) == len(figures_of(run))


def test_the_last_of_their_kind_are_found_across_versions() -> None:
    run = one(sample("perftest-4.5.txt"))
    before, name = stored_before(run), "last~1"
    save(before)
    save(run)
    assert load(find(name)).id == before.id
    save(one(sample("perftest-4.5.txt").replace("qps   : 4", "qps   : 8")))
    # Eight queue pairs are another kind than four; of the run before nobody knows.
    assert load(find(name)).id == before.id


def osu(*calls: str) -> str:
    return "".join(
        f"# OSU {call} Latency Test v7.4\n# Size          Latency (us)\n8     {number}.0\n"
        for number, call in enumerate(calls, 1)
    )


def test_osu_stored_before_pairs_where_it_is_sure_which_call_it_was() -> None:
    put = one(osu("MPI_Put"))
    before = stored_before(put, {"MPI_Put Latency": "Latency"})
    (versus,) = compare([SideRuns((before,)), SideRuns((put,))], fail_on=0.05).versus
    assert len(versus.rows) == 1
    mixed = one(osu("MPI_Put", "MPI_Get"))
    (versus,) = compare([SideRuns((before,)), SideRuns((mixed,))], fail_on=0.05).versus
    assert not versus.rows, "it may have been either"
    on_gpu = one(
        "# OSU MPI-CUDA Allreduce Latency Test v7.4\n# Size   Avg Latency(us)\n8     4.0\n"
    )
    (versus,) = compare([SideRuns((stored_before(on_gpu),)), SideRuns((on_gpu,))], 0.05).versus
    assert len(versus.rows) == 1


def test_two_runs_of_today_pair_by_their_whole_name_alone() -> None:
    first, second = one(osu("MPI_Put")), one(osu("MPI_Get"))
    (versus,) = compare([SideRuns((first,)), SideRuns((second,))], fail_on=0.05).versus
    assert not versus.rows


# Matrices


def matrix(slow: dict[tuple[int, int], float], gpus: int = 4) -> str:
    text = sample("nvbandwidth-0.7.txt")
    begin = text.index("           0", text.index("device_to_device_memcpy_write_ce."))
    end = text.index("\nSUM device_to_device")
    lines = ["           " + "         ".join(map(str, range(gpus)))]
    for i in range(gpus):
        cells = ["N/A" if i == j else f"{slow.get((i, j), 386 + j / 10):.2f}" for j in range(gpus)]
        lines.append(f" {i}  " + "  ".join(cells))
    return text[:begin] + "\n".join(lines) + "\n" + text[end:]


def test_the_text_of_nvbandwidth() -> None:
    run = one(sample("nvbandwidth-0.7.txt"))
    assert run.versions == {"nvbandwidth": "v0.7", "cuda": "12.4", "driver": "550.54.15"}
    cells = {(f.test, f.place): f for f in run.figures}
    assert len(cells) == 4 + 12 + 4
    assert cells["host_to_device_memcpy_ce", "CPU 0 -> GPU 3"].value == pytest.approx(55.64e9)
    pair = cells["device_to_device_memcpy_write_ce", "GPU 2 -> GPU 1"]
    assert pair.value == pytest.approx(386.41e9)
    assert cells["host_device_latency_sm", "CPU 0 <-> GPU 0"].unit == "s"
    assert not run.findings


@pytest.mark.parametrize(
    ("slow", "names"),
    [
        ({}, []),
        ({(i, j): 190.0 for i in range(4) for j in range(4) if 2 in (i, j)}, ["GPU 2"]),
        ({(i, 2): 190.0 for i in range(4)}, ["GPU 2"]),
        ({(2, j): 190.0 for j in range(4)}, ["GPU 2"]),
        # two boards: nobody is slow
        ({(i, j): 190.0 for i in range(4) for j in range(4) if (i < 2) != (j < 2)}, []),
    ],
    ids=["good", "row and column", "column", "row", "boards"],
)
def test_a_slow_row_or_column_names_the_gpu(
    slow: dict[tuple[int, int], float], names: list[str]
) -> None:
    found = one(matrix(slow)).findings
    assert [finding.id for finding in found] == ["IMP-010"] * len(names)
    assert [finding.title.split(" falls")[0] for finding in found] == names


def test_the_matrices_of_the_cuda_samples() -> None:
    text = sample("p2p_test-cuda12.txt")
    run = one(text)
    assert len(run.figures) == 2 * 16, "the CPU's latencies are times to enqueue"
    figures = {(f.test, f.place): f.value for f in run.figures}
    write = "Unidirectional P2P=Enabled Bandwidth (P2P Writes)"
    assert figures[write, "GPU 1 -> GPU 2"] == pytest.approx(271.77e9)
    assert figures[f"{write}: within the GPU", "GPU 2"] == pytest.approx(1580.21e9)
    assert figures["P2P=Enabled Latency (P2P Writes)", "GPU 0 -> GPU 3"] == pytest.approx(2.5e-6)
    assert not run.findings
    lines = text.split("\n")
    slow = next(n for n, line in enumerate(lines) if line.startswith("     1 273.34"))
    lines[slow] = "     1  21.34 1561.72  21.77  21.05 "
    (found,) = one("\n".join(lines)).findings
    assert (found.id, found.title) == ("IMP-010", "GPU 1 falls behind the others")


def test_a_slow_slot_names_the_gpu() -> None:
    figures = {f"GPU {n}": 55.6e9 for n in range(8)} | {"GPU 5": 27.0e9}
    text = sample("nvbandwidth-0.7.txt")
    begin = text.index("           0", text.index("host_to_device_memcpy_ce."))
    end = text.index("\nSUM host_to_device")
    columns = "           " + "  ".join(map(str, range(8)))
    cells = " 0  " + "  ".join(f"{value / 1e9:.2f}" for value in figures.values())
    (found,) = one(f"{text[:begin]}{columns}\n{cells}\n{text[end:]}").findings
    assert (found.id, found.title) == ("IMP-010", "GPU 5 falls behind the others")


# Other tools


def test_ds_bench() -> None:
    run = one(sample("ds_bench-0.14.txt"))
    assert [(m.op, m.engine, m.size_bytes, m.ranks) for m in run.measurements] == [
        ("all_reduce", "ds_bench", 1024, 16),
        ("all_reduce", "ds_bench", 1 << 30, 16),
        ("all_gather", "ds_bench", 16 * (64 << 20), 16),
    ]
    # As it prints them in Gbit/s: 1765.055 and 1337.762.
    assert run.measurements[1].busbw == pytest.approx(1765.055e9 / 8, rel=1e-4)
    assert run.measurements[2].busbw == pytest.approx(1337.762e9 / 8, rel=1e-4)
    assert run.measurements[1].algbw == pytest.approx(1.0737e9 / 9.125e-3, rel=1e-3)


def test_ds_bench_raw_and_in_gbytes() -> None:
    text = (
        "---- Performance of broadcast on 4 devices ----------------------\n"
        "Size (Bytes)   Description   Duration (us)   Throughput (GBps)   BusBW (GBps)\n"
        "4194304    1048576x4    172.352    24.336    24.336\n"
    )
    (m,) = one(text).measurements
    assert (m.op, m.size_bytes, m.dtype) == ("broadcast", 4194304, "float32")
    assert m.busbw == pytest.approx(24.336e9, rel=1e-4)


@pytest.mark.parametrize("name", ["rccl_tests.json", "rccl_tests.csv"])
def test_rccl_tests(name: str) -> None:
    run = one(sample(name), name)
    assert [(m.op, m.size_bytes, m.in_place, m.ranks, m.wrong) for m in run.measurements] == [
        ("all_reduce", 1 << 20, False, 16, 0),
        ("all_reduce", 1 << 20, True, 16, 0),
        ("all_reduce", 1 << 30, False, 16, 0),
    ]
    assert run.measurements[2].busbw == pytest.approx(352.5e9, rel=1e-3)
    assert run.world.told and (run.world.told.nodes, run.world.told.gpus_per_node) == (2, 8)
    wrong = sample(name).replace('"wrong":0}', '"wrong":3}').replace(", 0\n", ", 3\n")
    assert one(wrong, name).verdict == "FAILED"


def test_ibms_table() -> None:
    run = one(sample("ibm_all_reduce.txt"))
    assert (run.world.size, run.versions) == (16, {"nccl": "2.27.3"})
    largest = run.measurements[-1]
    assert (largest.op, largest.engine, largest.size_bytes) == ("all_reduce", "torch", 8 * 10**9)
    assert largest.busbw == pytest.approx(193.99e9, rel=1e-4)
    assert (largest.time.min, largest.time.max) == pytest.approx((77244.1e-6, 77402.8e-6))
    assert largest.time.low == largest.time.high, "the ends are no interval"


def test_nccl_inspector() -> None:
    run = one(sample("nccl_inspector-v4.jsonl"))
    (m,) = run.measurements
    assert (m.op, m.engine, m.ranks, m.size_bytes) == ("all_reduce", "nccl-inspector", 4, 256 << 20)
    assert m.iterations == 12
    assert m.time.median == pytest.approx(801.5e-6, rel=1e-3)
    assert m.busbw == pytest.approx(1.5 * m.algbw, rel=1e-3)
    assert [(node.host, node.ranks) for node in run.world.nodes] == [
        ("node-0", (0,)),
        ("node-1", (1,)),
    ]


def inspected(**call: Any) -> str:
    header = {"id": "0x1", "rank": 0, "n_ranks": 4, "nnodes": 1}
    told = {"coll": "AllGather", "coll_msg_size_bytes": 1 << 20, "coll_exec_time_us": 100, **call}
    return json.dumps({"header": header, "metadata": {"hostname": "a"}, "coll_perf": told}) + "\n"


def test_the_sizes_and_clocks_of_nccl_inspector() -> None:
    """Of all_gather it writes one rank's bytes, and a bandwidth of all ranks' together."""
    algbw = {"coll_algobw_gbs": 4 * 1.048576e6 / 1e-4 / 1e9, "coll_busbw_gbs": 31.457}
    gpu = inspected(coll_sn=1, coll_timing_source="kernel_gpu", **algbw)
    host = inspected(coll_sn=2, coll_timing_source="collective_cpu", **algbw)
    run = one(gpu + host)
    assert [(m.engine, m.size_bytes) for m in run.measurements] == [
        ("nccl-inspector", 4 << 20),
        ("nccl-inspector collective_cpu", 4 << 20),
    ]
    assert run.measurements[0].busbw == pytest.approx(0.75 * run.measurements[0].algbw, rel=1e-3)


def test_records_of_nccl_inspector_behind_one_header() -> None:
    first, second = inspected(coll_sn=1), json.loads(inspected(coll_sn=2))
    run = one(first + json.dumps({"coll_perf": second["coll_perf"]}) + "\n")
    assert [(m.ranks, m.iterations) for m in run.measurements] == [(4, 2)]


def test_superbenchs_diagnosis() -> None:
    run = one(sample("superbench_diagnosis-0.9.jsonl"))
    assert run.verdict == "FAILED"
    assert [(f.subject.kind, f.subject.name) for f in run.findings] == [
        ("node", "node-7"),
        ("node", "node-9"),
    ]
    assert not run.figures, "deviations from a baseline that the file does not hold are no figures"


@pytest.mark.parametrize(
    "text", ["a,b,c\n1,2,3\n", '{"a": 1}\n', "numCycle, name, inPlace, algBw, busBw\n"]
)
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        read(text)


def test_a_figure_of_one_place_is_one_series() -> None:
    figure = ToolFigure(tool="osu", test="Latency", unit="s", value=1e-6)
    assert figure != replace(figure, settings="MPI")
