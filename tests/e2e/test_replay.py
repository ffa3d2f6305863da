"""`wirespeed bench --replay` on real ranks: the job's own sequence, and what cannot be replayed."""

import json
from pathlib import Path
from typing import Any

import pytest

from wirespeed.model.codec import validated
from wirespeed.model.records import Run

QUICK = ("-w", "1", "-n", "6", "-q")
DTYPES = {"all_reduce": "Float", "_allgather_base": "BFloat16"}


def dump(folder: Path, rank: int, steps: int = 5, *, told: tuple[str, ...] = tuple(DTYPES)) -> None:
    """What torch's flight recorder writes of a rank of two: after each step 20 ms of own work."""
    entries = []
    for number in range(steps * len(told)):
        op = told[number % len(told)]
        entry: dict[str, Any] = {
            "process_group": ["0", "default_pg"],
            "profiling_name": f"nccl:{op}",
            "collective_seq_id": number,
            "input_sizes": [[4096]],
            "input_dtypes": [DTYPES.get(op, "Float")],
            "time_created_ns": (number // len(told) * 20 + number + rank) * 1_000_000,
            "time_discovered_completed_ns": (number // len(told) * 20 + number + 1) * 1_000_000,
            "retired": True,
            "state": "completed",
        }
        entries.append(entry)
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    text = json.dumps({"version": "2.10", "entries": entries, "pg_config": config})
    (folder / f"nccl_trace_rank_{rank}").write_text(text)


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    for rank in range(2):
        dump(tmp_path, rank)
    return tmp_path


def test_a_jobs_own_sequence(cli: Any, dumps: Path) -> None:
    done = cli("bench", "--replay", str(dumps), *QUICK, "-o", "json")
    run = done.json
    validated(Run, run, source="stdout")
    assert done.code == 0, done.err
    assert run == cli.run()
    assert run["world"]["size"] == 2, "as many ranks as the job had"
    replay = run["replay"]
    told = [(one["op"], one["dtype"], one["size_bytes"], one["calls"]) for one in replay["calls"]]
    assert told == [("all_reduce", "float32", 16384, 1), ("all_gather", "bfloat16", 16384, 1)]
    assert [m["op"] for m in run["measurements"]] == ["all_reduce", "all_gather"]
    assert all(m["wrong"] == 0 for m in run["measurements"])
    assert replay["unbroken_us"]["samples"] == replay["paced_us"]["samples"] == 6
    assert replay["paced_us"]["low"] >= replay["own_us"] > 15_000
    assert replay["job_step_us"]["median"] == pytest.approx(22_000)
    assert "REPLAY-001" in [one["id"] for one in run["findings"]]
    assert {"sequence", "reduction"} <= {one["name"] for one in run["choices"]}


@pytest.mark.slow
def test_wrong_data_fail_a_replay(cli: Any, dumps: Path) -> None:
    done = cli("bench", "--replay", str(dumps), *QUICK, "--inject", "flip:rank=1")
    assert done.code == 1
    assert "FAILED" in done.out
    assert "what a step of" in done.out


@pytest.mark.slow
def test_more_ranks_than_the_job_had(cli: Any, dumps: Path) -> None:
    done = cli("bench", "--replay", str(dumps), *QUICK, "--ranks", "3", "-o", "json")
    assert done.code == 0, done.err
    (found,) = [one for one in done.json["findings"] if one["id"] == "REPLAY-001"]
    assert found["status"] == "not_checked"
    assert found["next"].startswith("wirespeed bench --replay")
    assert found["next"].endswith("--ranks 2")


@pytest.mark.slow
def test_two_replays_are_compared_and_the_engine_may_be_another(cli: Any, dumps: Path) -> None:
    for _ in range(2):
        words = ("--on", "local", "--ranks", "2")
        assert cli("bench", "--replay", str(dumps), *QUICK, *words).code == 0
    runs = [one["id"] for one in cli.here("runs", "list", "-o", "json").json]
    compared = cli.here("compare", *runs, "-o", "json")
    rows = [row["measured"] for one in compared.json["versus"] for row in one["rows"]]
    assert {"sequence", "paced sequence"} <= {row.get("figure") for row in rows}


def test_what_cannot_be_replayed(cli: Any, dumps: Path, tmp_path: Path) -> None:
    path = str(dumps)
    for words, said in (
        ((path, "-b", "1M"), "--min-bytes with --replay"),
        ((path, "-o", "max"), "--replay with a reduction"),
        ((path, "--ranks", "2,4"), "--replay with a reduction or a grid"),
        (("nosuch",), "no run 'nosuch'"),
        ((path + "/nccl_trace_rank_0", "nosuch"), "nosuch"),
    ):
        done = cli.here("bench", "--replay", *words)
        assert (done.code, done.out) == (2, ""), words
        assert said in done.err
    for rank in range(2):
        dump(tmp_path, rank, told=("all_reduce", "send"))
    done = cli.here("bench", "--replay", path)
    assert (done.code, done.out) == (2, "")
    assert "calls that cannot be replayed: send" in done.err
