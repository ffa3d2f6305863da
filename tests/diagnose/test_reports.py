"""JSON reports among logs: NCCL's RAS, and the lines of its Inspector."""

import json
from pathlib import Path
from typing import Any

import pytest

from wirespeed.diagnose.diagnose import Reading, diagnose
from wirespeed.diagnose.sources import find_sources
from wirespeed.errors import InputError

OPS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def process(rank: int, **status: object) -> dict[str, Any]:
    return {
        "rank": rank,
        "host": f"node-{rank // 2}",
        "pid": 4000 + rank,
        "cuda_dev": rank % 2,
        "nvml_dev": rank % 2,
        "status": status,
    }


def ras(
    counts: list[int], dead: tuple[int, ...] = (), stopped: tuple[int, ...] = (), **more: object
) -> str:
    """As `ncclras -f json` prints it. counts: AllReduce of each rank that answers."""
    fine = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False}
    away = {*dead, *stopped}
    here = [rank for rank in range(len(counts)) if rank not in away]
    ranks = [
        process(rank, **(fine | {"abort_flag": False} | more))
        | {"collective_counts": dict.fromkeys(OPS, 5) | {"AllReduce": counts[rank]}}
        for rank in here
    ]
    gone = [process(rank, unresponsive=True, considered_dead=rank in dead) for rank in sorted(away)]
    comm = {
        "hash": "0x1f2e",
        "secondary_hash": "0x1:0x2",
        "size": len(counts),
        "ranks_count": len(here),
        "missing_ranks_count": len(gone),
        "ranks": ranks,
        "missing_ranks": gone,
    }
    report = {
        "nccl_version": "2.30.7",
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2026-11-20 10:00:00",
        "communicators_count": 1,
        "communicators": [comm],
        "ras": {"collection_time_sec": 0.012, "timeouts_count": len(away)},
    }
    return json.dumps(report, indent=2)


def read(folder: Path, text: str, name: str = "any-name") -> Reading:
    (folder / name).write_text(text)
    return diagnose(find_sources([str(folder)]))


def test_a_dead_process_is_the_cause(tmp_path: Path) -> None:
    (one,) = read(tmp_path, ras([9, 9, 9, 9], dead=(3,))).findings
    assert (one.id, one.status, one.subject.name) == ("RAS-101", "fail", "rank 3")
    assert "process 4003 on node-1" in one.saw


def test_a_stopped_process_is_a_symptom(tmp_path: Path) -> None:
    told = read(tmp_path, ras([9, 9, 9, 9], stopped=(1,)))
    assert next((one.id, one.status) for one in told.findings) == ("RAS-102", "warn")
    assert told.exit_code == 3


def test_a_rank_that_is_behind_is_named(tmp_path: Path) -> None:
    (one,) = read(tmp_path, ras([40, 40, 12, 40])).findings
    assert (one.id, one.status, one.subject.name) == ("RAS-104", "fail", "rank 2")
    assert "1 ranks at 12, 3 ranks at 40" in one.saw


@pytest.mark.parametrize("counts", [[40, 41, 41, 41], [10, 10, 40, 40]])
def test_a_moment_or_a_tie_names_nobody(tmp_path: Path, counts: list[int]) -> None:
    (one,) = read(tmp_path, ras(counts)).findings
    assert (one.id, one.status, one.subject.kind) == ("RAS-104", "warn", "job")


def test_nothing_wrong_is_not_good(tmp_path: Path) -> None:
    told = read(tmp_path, ras([7, 7]))
    assert [one.id for one in told.findings] == ["RAS-100"]
    assert told.exit_code == 3


def test_an_asynchronous_error_is_told(tmp_path: Path) -> None:
    assert [one.id for one in read(tmp_path, ras([7, 7], async_error=6)).findings] == ["RAS-103"]


def test_a_report_that_breaks_off_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no whole report"):
        read(tmp_path, ras([7, 7])[:-60])


def inspector(rank: int, us: list[float], size: int = 1 << 20) -> str:
    lines = [
        {
            "header": {"id": "0x7f8c", "rank": rank, "n_ranks": 4, "nnodes": 2},
            "metadata": {
                "inspector_output_format_version": "v4.0",
                "dump_timestamp_us": 1748030377748202,
                "hostname": f"node-{rank // 2}",
                "pid": 100 + rank,
            },
            "coll_perf": {
                "coll": "AllReduce",
                "coll_sn": number,
                "coll_msg_size_bytes": size,
                "coll_exec_time_us": time,
                "coll_algobw_gbs": size / time / 1e3,
                "coll_busbw_gbs": size / time / 1e3 * 1.5,
            },
        }
        for number, time in enumerate(us)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


@pytest.mark.parametrize(("own", "said"), [(300, "comes late"), (2000, "longer than all others")])
def test_the_rank_whose_times_are_unlike_is_a_symptom(tmp_path: Path, own: int, said: str) -> None:
    for rank in range(4):
        (tmp_path / f"pid{rank}.log").write_text(inspector(rank, [own if rank == 2 else 1000] * 8))
    told = diagnose(find_sources([str(tmp_path)]))
    (one,) = told.findings
    assert (one.id, one.status, one.subject.name) == ("INSP-001", "warn", "rank 2")
    assert said in one.title and "node-1" in one.title
    assert told.exit_code == 3


def test_ranks_alike_raise_nothing_and_half_a_line_is_told(tmp_path: Path) -> None:
    text = "".join(inspector(rank, [1000 + rank] * 8) for rank in range(4))
    found = read(tmp_path, text[:-30]).findings
    assert [one.id for one in found] == ["INSP-000", "INSP-002"]
    assert "1.6 GB/s" in found[0].title


def test_two_ranks_or_few_calls_accuse_nobody(tmp_path: Path) -> None:
    text = inspector(0, [1000] * 8) + inspector(1, [100] * 8) + inspector(2, [100] * 2)
    assert [one.id for one in read(tmp_path, text).findings] == ["INSP-000"]
