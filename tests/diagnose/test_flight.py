"""Dumps of torch's flight recorder: who is behind, who differs, who is missing."""

import json
from pathlib import Path
from typing import Any

import pytest

from wirespeed.diagnose.diagnose import diagnose
from wirespeed.diagnose.sources import find_sources
from wirespeed.errors import InputError
from wirespeed.model.records import Finding


def entry(seq: int, name: str = "all_reduce", size: int = 1024, state: str = "completed") -> Any:
    """As torch 2.6's `_dump_nccl_trace_json` writes it, without frames."""
    return {
        "record_id": seq,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": f"nccl:{name}",
        "input_sizes": [[size]],
        "output_sizes": [[size]],
        "state": state,
        "is_p2p": False,
        "timeout_ms": 600000,
    }


def write(folder: Path, dumps: dict[int, list[Any]], world: int) -> None:
    ranks = json.dumps(list(range(world)))
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    for rank, entries in dumps.items():
        data = {"version": "2.5", "pg_config": config, "entries": entries}
        (folder / f"nccl_trace_rank_{rank}").write_text(json.dumps(data))


def found(folder: Path) -> list[Finding]:
    return list(diagnose(find_sources([str(folder)])).findings)


def test_the_rank_that_never_came_is_named(tmp_path: Path) -> None:
    done = [entry(seq) for seq in range(1, 6)]
    waits = [*done, entry(6, "all_gather", 64, "started")]
    write(tmp_path, {0: waits, 1: waits, 2: done, 3: waits}, 4)
    (one,) = found(tmp_path)
    assert (one.id, one.status, one.subject.name) == ("FLIGHT-002", "fail", "rank 2")
    assert "collective 6" in one.title and "all_gather [64]" in one.title
    assert "5 nccl:all_reduce [1024] completed" in one.saw


def test_ranks_that_run_another_collective_are_named(tmp_path: Path) -> None:
    start = [entry(1), entry(2)]
    write(
        tmp_path,
        {
            0: [*start, entry(3, "all_reduce", 8, "started")],
            1: [*start, entry(3, "broadcast", 8, "started")],
            2: [*start, entry(3, "all_reduce", 8, "started")],
        },
        3,
    )
    (one,) = found(tmp_path)
    assert (one.id, one.subject.name) == ("FLIGHT-001", "rank 1")
    assert "broadcast" in one.saw and "all_reduce" in one.saw


def test_another_size_is_another_collective(tmp_path: Path) -> None:
    write(tmp_path, {0: [entry(1, size=8)], 1: [entry(1, size=8)], 2: [entry(1, size=9)]}, 3)
    (one,) = found(tmp_path)
    assert (one.id, one.subject.name) == ("FLIGHT-001", "rank 2")


def test_all_wait_and_a_dump_is_missing(tmp_path: Path) -> None:
    waits = [entry(1), entry(2, state="started")]
    write(tmp_path, {0: waits, 1: waits}, 3)
    (one,) = found(tmp_path)
    assert (one.id, one.status, one.confidence) == ("FLIGHT-003", "warn", "cannot tell")
    assert "no dump of rank 2" in one.saw


def test_dumps_that_agree_raise_nothing(tmp_path: Path) -> None:
    write(tmp_path, {rank: [entry(1), entry(2)] for rank in range(3)}, 3)
    (one,) = found(tmp_path)
    assert (one.id, one.status) == ("FLIGHT-000", "pass")


@pytest.mark.parametrize("text", ['{"entries": 5}', '{"entries": [{"seq": 1}]}', '{"entries": ['])
def test_a_damaged_dump_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "nccl_trace_rank_0").write_text(text)
    with pytest.raises(InputError, match="no dump of the flight recorder"):
        found(tmp_path)


def test_one_damaged_dump_among_others_is_left_out_and_told(tmp_path: Path) -> None:
    write(tmp_path, {0: [entry(1)], 1: [entry(1)]}, 2)
    (tmp_path / "nccl_trace_rank_2").write_text('{"entries": [')
    assert [(one.id, one.status) for one in found(tmp_path)] == [
        ("FLIGHT-003", "warn"),
        ("FLIGHT-004", "not_checked"),
    ]
