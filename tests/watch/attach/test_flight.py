"""The flight recorder's pipe: real processes that answer it as torch's do, and some that do not."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from wirespeed.diagnose.flight import compare
from wirespeed.watch.attach.flight import ask_for_dumps, dump_file, moved
from wirespeed.watch.attach.ranks import RankProcess

ANSWERS = """
import json, os, sys
rank, stem, dump = int(sys.argv[1]), sys.argv[2], sys.argv[3]
pipe = f"{stem}{rank}.pipe"
os.mkfifo(pipe)
with open(pipe, "rb") as asked, open(pipe, "wb"):
    while asked.read(1):
        with open(f"{dump}{rank}", "w") as file:
            file.write(sys.stdin.readline().rstrip())
"""


def entry(seq: int, state: str, at: int) -> dict[str, Any]:
    return {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": seq,
        "record_id": seq,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[4]],
        "state": state,
        "time_created_ns": 10**18 + at,
        "is_p2p": False,
    }


def dump(rank: int, last: int, waits: bool = False) -> str:
    entries = [entry(seq, "completed", seq) for seq in range(1, last + 1)]
    entries += [entry(last + 1, "started", last + 1)] if waits else []
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    return json.dumps({"version": "2.10", "rank": rank, "entries": entries, "pg_config": config})


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Callable[..., RankProcess]]:
    """`rank(0, text, text)`: a process that writes the next text at each byte in its pipe."""
    every: list[subprocess.Popen] = []

    def start(number: int, *texts: str) -> RankProcess:
        words = [
            sys.executable,
            "-c",
            ANSWERS,
            str(number),
            str(tmp_path / "p"),
            str(tmp_path / "d"),
        ]
        one = subprocess.Popen(words, stdin=subprocess.PIPE, text=True)
        every.append(one)
        assert one.stdin is not None
        one.stdin.write("".join(f"{text}\n" for text in texts))
        one.stdin.flush()
        end = time.monotonic() + 20
        while texts and not (tmp_path / f"p{number}.pipe").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(0.05)
        return process(one.pid, number, tmp_path)

    yield start
    for one in every:
        one.kill()
        one.communicate()


def process(pid: int, number: int, folder: Path, **more: str) -> RankProcess:
    names = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{folder}/p",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{folder}/d",
    }
    return RankProcess(
        pid=pid, parent=1, rank=number, world_size=3, host="a", launcher="torchrun",
        command="", environment=names | more,
    )  # fmt: skip


def test_ranks_dump_when_they_are_asked_and_the_one_behind_is_named(rank) -> None:
    ranks = [rank(0, dump(0, 6, waits=True)), rank(1, dump(1, 6, waits=True)), rank(2, dump(2, 6))]
    dumps = ask_for_dumps(ranks)
    assert sorted(dumps.by_rank) == [0, 1, 2] and dumps.unread == {}
    (one,) = compare(dumps.by_rank.values())
    assert (one.id, one.status, one.subject.name) == ("FLIGHT-002", "fail", "rank 2")


def test_two_dumps_show_whether_collectives_were_issued(rank) -> None:
    one = rank(0, dump(0, 6), dump(0, 9), dump(0, 9))
    before, after, again = (ask_for_dumps([one]).by_rank for _ in range(3))
    assert moved(before, after) and not moved(after, again)


def test_ranks_without_a_pipe_are_not_asked(tmp_path) -> None:
    plain = RankProcess(
        pid=os.getpid(), parent=1, rank=0, world_size=1, host="a", launcher="", command=""
    )
    dumps = ask_for_dumps([plain])
    assert (dumps.by_rank, dumps.unread) == ({}, {})


@pytest.mark.hostile("forged messages")
@pytest.mark.parametrize("kind", ["missing", "file", "link", "nobody reads"])
def test_nothing_is_written_into_what_is_no_pipe_of_a_reader(tmp_path, kind) -> None:
    pipe, other = tmp_path / "p0.pipe", tmp_path / "other"
    other.write_text("kept")
    if kind == "file":
        pipe.write_text("kept")
    elif kind == "link":
        pipe.symlink_to(other)
    elif kind == "nobody reads":
        os.mkfifo(pipe)
    dumps = ask_for_dumps([process(os.getpid(), 0, tmp_path)], 0.2)
    assert dumps.by_rank == {} and "its pipe: " in dumps.unread[0]
    assert other.read_text() == "kept" and (kind != "file" or pipe.read_text() == "kept")


def test_a_damaged_dump_and_none_at_all_are_told(rank) -> None:
    broken = ask_for_dumps([rank(0, dump(0, 6)[:40])], 0.4)
    assert "is no dump of the flight recorder" in broken.unread[0]
    late = ask_for_dumps([rank(2, "")], 0.3)
    assert late.unread[2] == "no dump within 0.3 s"


def test_where_the_dump_comes_without_a_name(tmp_path) -> None:
    one = process(7, 3, tmp_path)
    assert dump_file(one) == Path(f"/proc/7/root{tmp_path}/d3")
    one.environment.pop("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    one.environment["HOME"] = "/home/u"
    assert dump_file(one) == Path("/proc/7/root/home/u/.cache/torch/comm_lib_trace_rank_3")
