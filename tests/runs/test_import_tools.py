"""What dcgmi, nvbandwidth, iperf3 and SuperBench wrote, as runs; the samples are real, some cut."""

import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from wirespeed.compare.figures import figures_of
from wirespeed.errors import InputError
from wirespeed.model.bench_records import ToolFigure
from wirespeed.model.codec import from_json, to_json, validated
from wirespeed.model.records import Run
from wirespeed.runs.importers import import_bytes, told
from wirespeed.runs.rows import rows_of
from wirespeed.views import Style, prometheus, render
from wirespeed.views.html import page

SAMPLES = Path(__file__).parent / "samples" / "tools"


def one(data: object, name: str = "tool.json") -> Run:
    text = data if isinstance(data, str) else json.dumps(data)
    (run,) = import_bytes(text.encode(), name=name)
    whole = to_json(run)
    validated(Run, whole, source="import")
    assert from_json(Run, whole) == run
    return run


def sample(name: str) -> str:
    return (SAMPLES / name).read_text()


def by_test(run: Run) -> dict[str, ToolFigure]:
    return {f.test: f for f in run.figures}


def dcgm(*results: dict[str, Any], **about: Any) -> dict[str, Any]:
    tests = [{"name": "PCIe", "results": list(results)}]
    body = {"test_categories": [None, {"category": "Integration", "tests": [None, *tests]}]}
    return {"DCGM GPU Diagnostic": {**body, "version": "3.1.0", **about}}


def test_dcgm_names_what_failed_and_says_what_was_not_run() -> None:
    run = one(sample("dcgm.json"))
    assert (run.verdict, run.exit_code) == ("FAILED", 1)
    assert run.versions == {"dcgm": "4.2.3", "driver": "580.82.09"}
    failed, *rest = run.findings
    assert failed.title == "DCGM: software failed on GPU 0"
    assert "Persistence mode for GPU 0 is disabled" in failed.saw
    assert "setting" in failed.fix  # by DCGM's severity
    assert [(f.id, f.status, f.title) for f in rest] == [
        ("IMP-009", "not_checked", "DCGM: memory on GPU 0: not run"),
        ("IMP-009", "not_checked", "DCGM: pcie on GPU 0: not run"),
    ]


def test_dcgm_before_version_4_after_a_warning_with_its_bandwidths() -> None:
    data = dcgm(
        {"gpu_ids": "0,1", "status": "PASS", "info": ["GPU to Host bandwidth:\t\t26.41 GB/s"]},
        {"gpu_id": "2", "status": "Warn", "warnings": ["clocks are throttled"]},
        {"gpu_id": "3", "status": "NewWord"},
    )
    run = one("WARNING: no hostengine\n" + json.dumps(data))
    assert run.verdict == "NONE", "passes of another tool are no verdict"
    assert {(f.status, f.title) for f in run.findings} == {
        ("pass", "DCGM: PCIe passed on GPU 0,1"),
        ("warn", "DCGM: PCIe warns on GPU 2"),
        ("not_checked", "DCGM: PCIe on GPU 3: not run"),
    }
    (rate,) = run.figures
    assert (rate.test, rate.place, rate.value) == ("PCIe GPU to Host", "GPU 0,1", 26.41e9)


def test_dcgm_4_tells_what_is_of_no_gpu_in_the_summary_alone() -> None:
    data = dcgm({"entity_group": "GPU", "entity_id": 0, "status": "Skip"})
    (test,) = data["DCGM GPU Diagnostic"]["test_categories"][1]["tests"][1:]
    told = {"warning": "the plugin crashed", "error_severity": 2}
    test["test_summary"] = {"status": "Fail", "warnings": [told]}
    run = one(data)
    assert (run.verdict, run.findings[0].saw) == ("FAILED", "the plugin crashed")
    test["results"][0] |= {"status": "Fail", "warnings": [told]}
    assert [f.title for f in one(data).findings] == ["DCGM: PCIe failed on GPU 0"], "once"


def test_a_warning_of_dcgm_is_no_failure() -> None:
    """nvvs, called without dcgmi, says beside its results that nobody should."""
    run = one(dcgm({"gpu_ids": "0", "status": "PASS"}) | {"Warning": "use dcgmi"})
    assert (run.verdict, run.findings[-1].status) == ("NONE", "warn")


def test_dcgm_that_could_not_run_is_a_failure() -> None:
    run = one({"DCGM GPU Diagnostic": {"runtime_error": "unsupported GPU", "version": "4.2.3"}})
    assert (run.verdict, run.findings[0].saw) == ("FAILED", "unsupported GPU")


def test_dcgm_again_and_again_is_a_run_each_time() -> None:
    """As dcgmi/Diag.cpp of DCGM 4 writes it: nothing comes after the time that failed."""
    good, bad = (dcgm({"gpu_ids": "0", "status": word}) for word in ("PASS", "FAIL"))
    told = {"iterations": [good, bad], "Overall Result": "Fail", "warning": "a diagnostic error"}
    first, second = import_bytes(json.dumps(told).encode(), name="x.json")
    assert (first.verdict, second.verdict) == ("NONE", "FAILED")
    assert [one.status for one in first.findings] == ["pass"]
    assert [one.saw for one in second.findings] == ["status FAIL", "a diagnostic error"]


def test_nvbandwidth_has_places_in_the_way_of_the_bytes() -> None:
    run = one(sample("nvbandwidth.json"))
    assert run.world.nodes[0].host == "iZgw8301mt8dtx23c8lk6rZ"
    assert run.world.nodes[0].gpus[0]["name"] == "Tesla P100-PCIE-16GB"
    assert run.versions["cuda"] == "13.0"
    told_figures = by_test(run)
    assert told_figures["host_to_device_memcpy_ce"].place == "CPU 0 -> GPU 0"
    assert told_figures["device_to_host_memcpy_ce"].place == "GPU 0 -> CPU 0"
    assert told_figures["host_to_device_memcpy_ce"].value == pytest.approx(11.0798e9)
    assert 1e-7 < told_figures["host_device_latency_sm"].value < 1e-5
    assert [f.id for f in run.findings] == ["IMP-009"]  # one GPU has no peer


def matrix(slow: set[tuple[int, int]], *, size: int = 8, slower: str = "150.0") -> dict[str, Any]:
    """What nvbandwidth writes of `size` GPUs where the copies of `slow` fall behind."""
    rows = [
        ["N/A" if i == j else slower if (i, j) in slow else f"{370 + i / 10}" for j in range(size)]
        for i in range(size)
    ]
    case = {
        "name": "device_to_device_memcpy_write_ce",
        "status": "Passed",
        "bandwidth_description": "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)",
        "bandwidth_matrix": rows,
    }
    return {"nvbandwidth": {"version": "v0.8", "testcases": [case]}}


def test_a_pair_that_falls_behind_is_named_and_kinds_of_places_are_not() -> None:
    assert not one(matrix(set())).findings
    (found,) = one(matrix({(2, 5)})).findings
    assert (found.id, found.status) == ("IMP-010", "warn")
    assert "GPU 5 -> GPU 2: 150 GB/s" in found.saw
    two_sockets = {(i, j) for i in range(8) for j in range(8) if (i < 4) != (j < 4)}
    assert not one(matrix(two_sockets)).findings


def test_nvbandwidth_that_failed() -> None:
    data = matrix(set())
    data["nvbandwidth"]["testcases"][0] |= {
        "status": "Error",
        "error": "CUDA_ERROR_ECC_UNCORRECTABLE",
    }
    run = one(data)
    assert (run.verdict, run.findings[0].saw) == ("FAILED", "CUDA_ERROR_ECC_UNCORRECTABLE")


def test_iperf3_has_the_interval_of_its_seconds() -> None:
    run = one(sample("iperf3.json"))
    rate, resent = run.figures
    assert (rate.test, rate.place) == ("tcp, 1 stream", "node-0 -> node-1")
    assert (rate.samples, resent.unit) == (10, "")
    assert rate.low is not None and rate.high is not None
    assert 9e6 < rate.low <= rate.value <= rate.high < 12e6  # it was told to send 80 Mbit/s
    assert run.world.nodes[0].host == "node-0"
    assert run.started.startswith("2026-11-26")


def test_iperf3_backwards_both_ways_and_by_udp() -> None:
    data = json.loads(sample("iperf3.json"))
    data["start"]["test_start"]["reverse"] = 1
    assert one(data).figures[0].place == "node-1 -> node-0"
    data["start"]["test_start"]["reverse"] = 0
    data["end"]["sum_received_bidir_reverse"] = {"bits_per_second": 8e6}
    data["end"]["sum_sent_bidir_reverse"] = {"retransmits": 7}
    assert [(f.place, f.value) for f in one(data).figures[2:]] == [
        ("node-1 -> node-0", 1e6),
        ("node-1 -> node-0", 7),
    ]
    udp = {"bits_per_second": 8e8, "lost_percent": 10, "jitter_ms": 0.5}
    data |= {"end": {"sum": udp}}
    data["start"]["test_start"]["protocol"] = "UDP"
    told_figures = by_test(one(data))
    assert told_figures["udp, 1 stream"].value == pytest.approx(0.9e8)  # what came through
    assert told_figures["udp, 1 stream: lost share"].value == pytest.approx(0.1)
    assert told_figures["udp, 1 stream: jitter"].value == pytest.approx(5e-4)


def test_an_iperf3_server_knows_what_it_sent() -> None:
    """And not what came through: its sum of that is 0."""
    data = json.loads(sample("iperf3.json"))
    data["start"] |= {"accepted_connection": {"host": "node-1", "port": 1}}
    del data["start"]["connecting_to"]
    data["start"]["test_start"]["reverse"] = 1
    data["end"]["sum_received"]["bits_per_second"] = 0
    data["end"]["sum_sent"]["bits_per_second"] = 8e6
    rate = one(data).figures[0]
    assert rate.value == 1e6
    assert rate.place.startswith("node-0 -> "), "it sends"


def test_iperf3_that_could_not_connect_is_a_failure() -> None:
    start = {"connected": [], "version": "iperf 3.12", "system_info": "Linux node-0 6.1"}
    run = one({"start": start, "intervals": [], "end": {}, "error": "unable to connect to server"})
    assert (run.verdict, run.findings[0].id) == ("FAILED", "IMP-008")


def test_superbench_has_units_nodes_and_failures() -> None:
    run = one(sample("superbench.jsonl"), "results-summary.jsonl")
    hosts = [f"sb-validation-0{n}" for n in (1, 2, 3)]
    assert [node.host for node in run.world.nodes] == hosts
    figures = {(f.test, f.place): f for f in run.figures}
    flops = figures["gemm-flops/FP16_TC", "sb-validation-01:2"]
    assert (flops.unit, flops.value) == ("FLOP/s", pytest.approx(277.403e12))
    step = figures["bert_models/pytorch-bert-base/steptime_train_float32", "sb-validation-01"]
    assert (step.unit, step.value) == ("s", pytest.approx(0.1146, rel=1e-3))
    wire = figures["ib-loopback/IB_write_8388608_Avg_0", "sb-validation-01:0"]
    assert wire.value == pytest.approx(25.1e9, rel=0.01)
    assert [(f.subject.name, f.saw) for f in run.findings] == [
        ("sb-validation-03", "mem-bw/return_code: 1"),
        (
            "sb-validation-01",
            "sb-validation-01:0: 100 µs in kernel-launch/event_overhead, median 5.90 µs",
        ),
    ]
    rows = rows_of(run, "20261126-101112-abcdef01")
    assert rows.run.measurements == len(run.figures) == len(rows.figures)
    assert [row.status for row in rows.nodes] == ["warn", "", "fail"]


def test_superbench_as_it_writes_itself() -> None:
    """The node last, and benchmarks by their names in the configuration."""
    data = {
        "nccl-bw:nvlink/return_code": 124,
        "nccl-bw:nvlink/allreduce_8388608_busbw:0": 200.5,
        "nccl-bw:nvlink/allreduce_8388608_time:0": 60,
        "model-benchmarks:gpt/pytorch-gpt2-large/fp16_train_step_time:3": 12.5,
        "monitor/gpu_temperature:0": 60,
        "node": "n1",
    }
    run = one("\n".join(json.dumps(data | {"node": host}) for host in ("n1", "n2")))
    assert [node.host for node in run.world.nodes] == ["n1", "n2"]
    assert [(f.test, f.place, f.unit, f.value) for f in run.figures[:4]] == [
        ("nccl-bw:nvlink/allreduce_8388608_busbw", "n1:0", "B/s", 200.5e9),
        ("nccl-bw:nvlink/allreduce_8388608_time", "n1:0", "s", pytest.approx(60e-6)),
        ("model-benchmarks:gpt/pytorch-gpt2-large/fp16_train_step_time", "n1:3", "s", 12.5e-3),
        ("monitor/gpu_temperature", "n1:0", "", 60),
    ]
    assert [f.saw for f in run.findings] == ["nccl-bw:nvlink/return_code: 124"] * 2


def test_a_node_that_falls_behind_is_told_once() -> None:
    lines = [
        {"node": f"n{n}", "mem-bw/h2d_bw:0": 20.0 if n == 3 else 26.0 + n / 100, "a/b_time": 5.0}
        | {f"mem-bw/h2d_bw:{rank}": 13.0 for rank in (1, 2)}  # slower everywhere: no news
        | {f"mem-bw/h2d_bw:{rank}": 26.0 for rank in range(3, 16)}
        for n in range(8)
    ]
    run = one("\n".join(map(json.dumps, [*lines, {"node": "n3", "mem-bw/d2h_bw:1": float("nan")}])))
    assert [(f.id, f.subject.kind, f.subject.name) for f in run.findings] == [
        ("IMP-010", "node", "n3")
    ]


def test_all_views_show_them_and_compare_takes_them() -> None:
    before, after = one(matrix(set())), one(matrix({(0, 1)}))
    pages = [render(after, format, Style()) for format in ("table", "wide", "md", "csv", "jsonl")]
    pages += [prometheus.render(after, Style()), page.page(after)]
    for text in pages:
        assert "device_to_device_memcpy_write_ce" in text
    first, second = figures_of(before), figures_of(after)
    assert len(first) == 56 and first.keys() == second.keys()
    (worse,) = [what for what in first if second[what].log > first[what].log + 0.1]
    assert worse.get("place") == "GPU 1 -> GPU 0", "less of a rate is worse"


@pytest.mark.parametrize("name", ["dcgm.json", "nvbandwidth.json", "iperf3.json"])
def test_cut_files_say_where(name: str) -> None:
    text = sample(name)
    with pytest.raises(InputError, match=f"{name}: no valid JSON: .* at line"):
        import_bytes(text[: len(text) * 2 // 3].encode(), name=name)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"nvbandwidth": []}', "without a list `results`"),
        ('{"nvbandwidth": {"testcases": 7}}', "no results of nvbandwidth"),
        ('{"DCGM Diagnostic": {"test_categories": [{"tests": {}}]}}', "no results of dcgm"),
        ('{"start": {"version": "iperf 3.9"}, "end": []}', "no results of iperf3"),
        ('{"node": "a", "x/y": "text"}', "no results of superbench"),
        ('{"nvbandwidth": ' + "[" * 100_000, "damaged|no valid JSON"),
        ('{"start": {"version": "iperf 3.9"}}', "without a list `results`"),
    ],
)
def test_foreign_content_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        import_bytes(text.encode(), name="x.json")


def test_what_is_too_large_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told, "_LARGEST_DOCUMENT", 500)
    with pytest.raises(InputError, match="a JSON document of more than"):
        one(matrix(set()))
    lines = [{"node": f"n{n}", "mem-bw/h2d_bw:0": 26.0} for n in range(100)]
    text = "\n".join(map(json.dumps, lines))
    assert len(one(text).figures) == 100, "a line is a document"
    monkeypatch.setattr(told, "MOST_FIGURES", 99)
    with pytest.raises(InputError, match="100 figures"):
        one(text + '\n{"what follows is not looked at')


@pytest.mark.hostile("fuzzed files")
@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.iterdir()))
def test_odd_values_are_refused_or_left_out(name: str, count_attacks: Any) -> None:
    """Whatever a value becomes: a run of the schema, or an InputError."""
    random, text = Random(7), sample(name)
    values = [found.span(1) for found in re.finditer(r'[:\[,]\s*("[^"]*"|-?[\d.]+)', text)]
    odd = ("null", "[]", "{}", '"x"', "-1", "1e999", "NaN", '""', "true", "[[1]]", "1e300")
    count_attacks("fuzzed files", 60)
    for _ in range(60):
        start, end = random.choice(values)
        changed = text[:start] + random.choice(odd) + text[end:]
        try:
            for run in import_bytes(changed.encode(), name=name):
                validated(Run, to_json(run), source="import")
        except InputError as error:
            assert "Traceback" not in str(error)
