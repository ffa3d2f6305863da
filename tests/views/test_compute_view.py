"""Devices in each view, and in a run that was put together again."""

import csv
import io
from pathlib import Path
from typing import Any

import usual
from wirespeed.compare.figures import figures_of
from wirespeed.model.codec import to_json
from wirespeed.model.compute_records import Compute, ComputeProof, ComputeRate, WrongProducts
from wirespeed.model.records import Finding, Run
from wirespeed.runs.recovery import rebuild
from wirespeed.views import Style, prometheus, render
from wirespeed.views.html.page import page


def rates(hosts: str, **fields: Any) -> tuple[ComputeRate, ...]:
    told: dict[str, Any] = {
        "device": "GPU0",
        "product": "H100",
        "rank": 0,
        "dtype": "bfloat16",
        "shape": "8192x8192x8192",
        "op": "gemm",
        "together": True,
        "samples": 20,
        "peak": 1000e12,
        "clock_MHz": 1410.0,
        "temperature_C": 71.0,
        "power_W": 640.0,
        "slowed_by": ("power cap",),
    }
    return tuple(
        ComputeRate(
            host=host,
            per_second=(700 - n) * 1e12,
            low=690e12,
            high=(710 - n) * 1e12,
            own_per_second=(700 - n) * 1e12,
            own_spread=0.01,
            **told | fields,
        )
        for n, host in enumerate(hosts)
    )


FAULT = WrongProducts(
    core="", kind="known", products=1, made=9, wrong=3, example="…", bits="mantissa bit 0"
)
PROOFS = (
    ComputeProof(
        host="b",
        device="GPU0",
        product="H100",
        rank=1,
        dtype="bfloat16",
        software="torch",
        products=18,
        elements=1000,
        faults=(FAULT,),
    ),
    ComputeProof(
        host="a",
        device="GPU0",
        product="H100",
        rank=0,
        dtype="fp8",
        software="torch",
        reason="not supported",
    ),
)


FOUND = Finding(id="COMP-001", status="fail", title="wrong")


def run(**fields: Any) -> Run:
    told: dict[str, Any] = {
        "command": "bench",
        "verdict": "NOT READY",
        "exit_code": 1,
        "world": usual.world(backend="nccl"),
        "compute": Compute(
            rates=(*rates("abc"), *rates("a", op="copy", shape="", size_bytes=1 << 30, wrong=5)),
            proofs=PROOFS,
        ),
    }
    return usual.run(**told | fields)


def test_one_row_for_alike_devices_and_a_row_each_where_all_is_asked_for() -> None:
    brief, wide = (render(run(), name, Style()) for name in ("table", "wide"))
    assert "3 devices H100" in brief
    assert "699 TFLOP/s" in brief
    assert "c GPU0" in brief, "the slowest"
    assert "70%" in brief
    assert "640" in brief
    assert "5 elements wrong" in brief
    assert [f"{host} GPU0" in wide for host in "abc"] == [True] * 3
    assert "not supported" in brief


def test_other_formats() -> None:
    assert "### how fast the devices are" in render(run(), "md", Style())
    rows = list(csv.DictReader(io.StringIO(render(run(), "csv", Style()))))
    assert [row["host"] for row in rows] == ["a", "b", "c", "a"]
    proven = render(run(compute=Compute(proofs=PROOFS), findings=(FOUND,)), "csv", Style())
    assert "COMP-001" in proven, "no rates: its findings"
    told = prometheus.render(run(), Style())
    assert 'wirespeed_device_peak_ratio{command="bench",host="a",device="GPU0",op="gemm"' in told
    assert 'wirespeed_device_wrong_results{command="bench",host="b",device="GPU0"' in told
    assert "What the devices compute and remember" in page(run())


def test_figures_that_may_be_compared() -> None:
    found = figures_of(run())
    assert len(found) == 4
    assert {what.kind for what in found} == {"compute"}
    assert [figure.wrong for what, figure in found.items() if what.get("op") == "copy"] == [True]


def test_a_run_that_broke_off_keeps_its_devices(tmp_path: Path) -> None:
    import json

    one = run()
    assert one.compute is not None
    parts = [("compute_rate", rate) for rate in one.compute.rates]
    parts += [("compute_proof", proof) for proof in PROOFS]  # type: ignore[misc]
    lines = [json.dumps({"kind": k, "at": 1.0, "data": to_json(d)}) + "\n" for k, d in parts]
    (tmp_path / "records.jsonl").write_text("".join(lines))
    assert rebuild(tmp_path, run(compute=None), "killed").compute == one.compute
