"""The output of real runs of named versions; `samples/recorded/README.md` has their sources."""

from pathlib import Path

import pytest

from wirespeed.errors import InputError
from wirespeed.model.codec import to_json, validated
from wirespeed.model.records import Run
from wirespeed.runs.importers import import_bytes

RECORDED = Path(__file__).parent / "samples" / "recorded"


def read_run(name: str) -> Run:
    (run,) = import_bytes((RECORDED / name).read_bytes(), name=name)
    validated(Run, to_json(run), source="import")
    return run


def figures_at(run: Run, size: int) -> dict[tuple[str, str], float]:
    return {(f.test, f.unit): f.value for f in run.figures if f.size_bytes == size}


def test_osu_7_has_every_column() -> None:
    run = read_run("osu-7.4.txt")
    assert (run.versions, run.world.size, run.findings) == ({"osu": "7.4"}, 2, ())
    assert figures_at(run, 16) == pytest.approx(
        {
            ("Latency", "s"): 0.15e-6,
            ("Latency: P50 Tail Lat", "s"): 0.15e-6,
            ("Latency: P90 Tail Lat", "s"): 0.16e-6,
            ("Latency: P99 Tail Lat", "s"): 0.18e-6,
            # Between the names of these columns stands a single space.
            ("Bandwidth", "B/s"): 257.26e6,
            ("Bandwidth: P50 Tail BW", "B/s"): 257.55e6,
            ("Bandwidth: P90 Tail BW", "B/s"): 264.87e6,
            ("Bandwidth: P99 Tail BW", "B/s"): 269.12e6,
            ("Multiple Bandwidth / Message Rate", "B/s"): 199.35e6,
            ("Multiple Bandwidth / Message Rate: Messages/s", "1/s"): 12459118.52,
            ("MPI_Put Latency", "s"): 0.08e-6,
        }
    )
    (put,) = {f.settings for f in run.figures if f.test == "MPI_Put Latency"}
    assert put == "MPI_Put, MPI_Win_allocate, MPI_Win_flush"


def test_collectives_of_osu_7() -> None:
    run = read_run("osu-7.4.txt")
    rows = [(m.op, m.dtype, m.size_bytes, m.count, m.iterations) for m in run.measurements]
    assert rows == [
        *(("all_reduce", "int32", size, size // 4, 200) for size in (4, 8, 16)),
        *(("all_gather", "int8", 2 * size, size, 0) for size in (1, 2, 4, 8, 16)),
    ]
    last = run.measurements[-1]
    assert last.time.median == pytest.approx(0.27e-6)
    assert last.busbw == pytest.approx(16 / 0.27e-6)


def test_a_failed_validation_of_osu_7() -> None:
    run = read_run("osu-7.4-failed.txt")
    assert [(m.size_bytes, m.wrong) for m in run.measurements] == [
        (1, 0),
        (2, 0),
        (4, 0),
        (8, 0),
        (16, None),
    ]
    assert (run.verdict, [f.id for f in run.findings]) == ("FAILED", ["IMP-002"])


def test_osu_5() -> None:
    run = read_run("osu-5.3.txt")
    assert (run.versions, run.world.size, run.findings) == ({"osu": "5.3"}, 2, ())
    # This version prints no datatype; its collectives reduce floats.
    assert [(m.op, m.dtype, m.size_bytes) for m in run.measurements] == [
        ("all_reduce", "float32", size) for size in (4, 8, 16, 32, 64)
    ]
    sizes = [f.size_bytes for f in run.figures if f.test == "Bandwidth"]
    assert sizes == [1 << power for power in range(23)]
    assert set(figures_at(run, 4194304)) == {
        ("Latency", "s"),
        ("Bandwidth", "B/s"),
        ("MPI_Put Latency", "s"),
    }


def test_ds_bench_agrees_with_its_own_bus_bandwidth() -> None:
    run = read_run("ds_bench-deepspeed_0.19.8.txt")
    assert (run.world.size, run.findings) == (2, ())
    largest = {m.op: m for m in run.measurements if m.count == 4096}
    assert {op: (m.size_bytes, m.dtype, m.ranks) for op, m in largest.items()} == {
        "all_reduce": (16384, "float32", 2),
        "all_gather": (32768, "float32", 2),
        "all_to_all": (16384, "float32", 2),
        "broadcast": (16384, "float32", 2),
        "send_recv": (16384, "float32", 2),
    }
    # As printed, in Gbit/s.
    assert {op: round(m.busbw * 8 / 1e9, 3) for op, m in largest.items()} == {
        "all_reduce": 0.363,
        "all_gather": 0.182,
        "all_to_all": 0.283,
        "broadcast": 0.161,
        "send_recv": 0.769,
    }
    assert len(run.measurements) == 5 * 11


def test_ds_bench_measures_nothing_on_cpus() -> None:
    with pytest.raises(InputError):
        read_run("ds_bench-deepspeed_0.19.8-cpu.txt")
