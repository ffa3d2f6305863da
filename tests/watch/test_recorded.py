"""Where the calls of a job are found."""

import shutil
from pathlib import Path

import msgspec
import pytest
from tests.watch.jobs import calls_of, ddp

from wirespeed.errors import InputError, UsageError
from wirespeed.watch.recorded import CALLS, recorded_calls, recorded_step

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def folder(tmp_path):
    """Of a watched run that stored the calls of two ranks."""
    calls = calls_of(ddp(2), range(2), steps=3)
    lines = [msgspec.json.encode(one) + b"\n" for of in calls.values() for one in of]
    (tmp_path / CALLS).write_bytes(b"".join(lines) + b'{"rank": 1, "op"')
    return tmp_path


def test_of_a_watched_run(folder):
    """A last line that was being written is left out."""
    assert recorded_calls([str(folder)]) == calls_of(ddp(2), range(2), steps=3)


def test_a_watched_run_tells_how_long_a_step_takes(folder):
    assert recorded_step([str(folder)]) is None, "it has calls only"
    shutil.copy(GOLDEN / "watched.run.json", folder / "run.json")
    step = recorded_step([str(folder)])
    assert step is not None
    assert 0 < step.low <= step.median <= step.high
    assert recorded_step([str(folder / CALLS), "another"]) is None


def test_of_a_flight_recorder(tmp_path):
    entry = {
        "process_group": ["0", "default_pg"],
        "profiling_name": "gloo:all_reduce",
        "collective_seq_id": 1,
        "input_sizes": [[1024]],
        "input_dtypes": ["Float"],
        "time_created_ns": 5_000_000_000,
    }
    dump = tmp_path / "nccl_trace_rank_3"
    dump.write_bytes(msgspec.json.encode({"version": "2.10", "entries": [entry]}))
    ((rank, (call,)),) = recorded_calls([str(dump)]).items()
    assert (rank, call.op, call.size_bytes, call.begin_s) == (3, "all_reduce", 4096, 5.0)


def test_a_run_that_watched_nothing(tmp_path, monkeypatch):
    run = tmp_path / "runs" / "20261124-101112-aaaaaaaa"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"has no calls\.jsonl"):
        recorded_calls(["aaaaaaaa"])


def test_neither_a_run_nor_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="no run 'nosuch'"):
        recorded_calls(["nosuch"])


def test_a_damaged_line_is_told_with_its_number(folder):
    path = folder / CALLS
    path.write_bytes(b'{"rank": "zero"}\n' + path.read_bytes())
    with pytest.raises(InputError, match=r"calls\.jsonl:1 is no call"):
        recorded_calls([str(folder)])
