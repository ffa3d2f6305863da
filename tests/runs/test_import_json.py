"""The JSON of nccl-tests -J with its quirks."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from wirespeed.errors import InputError, UsageError
from wirespeed.model.codec import to_json
from wirespeed.model.records import Run
from wirespeed.runs.importers import import_bytes
from wirespeed.runs.schema import load_schema
from wirespeed.runs.store import save

TEXT = (Path(__file__).parent / "samples" / "results.json").read_text()


def one(text: str, op: str = "") -> Run:
    (run,) = import_bytes(text.encode(), name="out.json", op=op)
    Draft202012Validator(load_schema()).validate(to_json(run))
    return run


def test_the_quirks_of_version_3() -> None:
    run = one(TEXT)
    assert run.versions == {"nccl": "2.27.3"}
    assert run.seconds == 3
    assert run.world.size == 2
    assert run.world.nodes[0].gpus[1]["bus"] == "0000:10:00"
    assert [(m.op, m.dtype, m.in_place, m.wrong) for m in run.measurements] == [
        ("reduce_scatter", "float32", False, 0),
        ("reduce_scatter", "bfloat16", True, 3),  # the other side is "nan"
        ("reduce_scatter", "float16", True, 0),  # the other side is null
    ]
    # cpu_time is no duration of the operation
    assert [(f.test, f.value) for f in run.figures] == [
        ("reduce_scatter, in-place: CPU time", pytest.approx(110e-6))
    ]
    assert {m.root for m in run.measurements} == {-1}
    assert [m.iterations for m in run.measurements] == [17, 20, 20]
    assert not run.measurements[0].blocking
    assert run.verdict == "FAILED"
    assert [finding.id for finding in run.findings] == ["IMP-002", "IMP-014", "IMP-005"]
    assert run.findings[2].saw == "unhandled system error"


def test_the_per_iteration_report_gives_percentiles_and_an_interval() -> None:
    time = one(TEXT).measurements[0].time
    assert (time.min, time.median, time.p95, time.p99, time.max) == pytest.approx(
        (90e-6, 103e-6, 130e-6, 139e-6, 140e-6)
    )
    # Order statistics of 20 samples: the 6th and the 15th hold 95.9 % of the binomial.
    assert (time.low, time.high) == pytest.approx((99e-6, 107e-6))


def test_no_secret_reaches_the_run_folder() -> None:
    assert "sesame" in TEXT
    run = one(TEXT)
    assert run.environment == {
        "NCCL_DEBUG": "INFO",
        "NCCL_EMPTY": "",
        "NCCL_IB_HCA": "mlx5",
        "NCCL_TOPO_FILE": "https://***@host/topo.xml",
        "UCX_NET_DEVICES": "mlx5_0:1",
    }
    path = save(run)
    for file in path.rglob("*"):
        assert not file.is_file() or "sesame" not in file.read_text()


@pytest.mark.slow
def test_cut_at_every_byte() -> None:
    """The writer was killed: its whole results are kept."""
    counts = []
    for end in range(len(TEXT.rstrip())):
        try:
            run = one(TEXT[:end], op="reduce_scatter")
        except InputError:
            counts.append(0)
            continue
        counts.append(len(run.measurements))
        assert "IMP-001" in [finding.id for finding in run.findings]
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2, 3}


@pytest.mark.slow
def test_any_value_may_be_odd() -> None:
    """Every value replaced by every kind: a good run or one of our errors."""
    data = json.loads(TEXT)
    odd: list[object] = [None, "", "nan", -1, 1e300, 10**30, True, [], {}, [None], {"a": 1}]
    good = 0

    def visit(container: dict[str, object] | list[object]) -> None:
        nonlocal good
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        for key in keys:
            kept = container[key]  # type: ignore[index,call-overload]
            for value in odd:
                container[key] = value  # type: ignore[index,call-overload]
                try:
                    one(json.dumps(data))
                    good += 1
                except (InputError, UsageError):
                    pass
            container[key] = kept  # type: ignore[index,call-overload]
            if isinstance(kept, (dict, list)):
                visit(kept)

    visit(data)
    assert good > 500


def test_older_files_without_the_new_keys() -> None:
    data = json.loads(TEXT)
    for key in ("version", "args", "env", "nccl_version", "start_time", "errors", "config"):
        del data[key]
    run = one(json.dumps(data), op="reduce_scatter")
    assert len(run.measurements) == 3
    # (n-1)/n = 0.5 in every row: two ranks.
    assert {m.ranks for m in run.measurements} == {2}
