"""The ranks of one node: started, passed on in whole lines, and ended, in processes of their own."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from processes import gone, until
from wirespeed.process.frames import EXIT, HELLO, OUT, Frame, parse

BOUND_S = 30.0
TOKEN = "tok"
NODE = """\
import json, os, subprocess, sys
from wirespeed.launchers.node.ranks import Place, run_ranks
peers = [subprocess.Popen(["sleep", "300"]).pid] if sys.argv[1] == "peer" else []
sys.stderr.write(f"peers {peers}\\n")
codes = run_ranks(sys.argv[2:], Place(1, 2, 2, "10.0.0.1"), os.environ, peers=peers)
sys.stderr.write(json.dumps(codes) + "\\n")
"""


@contextmanager
def node(folder: Path, *words: str, peer: str = "alone") -> Iterator["subprocess.Popen[str]"]:
    environ = {**os.environ, "WIRESPEED_FRAMES": TOKEN, "WIRESPEED_GRACE": "1"}
    with (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", NODE, peer, *words],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for pid in pids(folder):
            os.kill(pid, signal.SIGKILL)
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=BOUND_S)


def pids(folder: Path) -> list[int]:
    """The peer, where there is one."""
    text = (folder / "err").read_text()
    words = text.partition("peers [")[2].partition("]")[0]
    return [int(words)] if words and Path(f"/proc/{words}").exists() else []


def frames(lines: list[str]) -> list[Frame]:
    return [frame for line in lines if (frame := parse(line, TOKEN)) and frame.rank >= 0]


def until_started(process: "subprocess.Popen[str]", ranks: int) -> list[Frame]:
    """Frames up to the last rank's start."""
    found: list[Frame] = []
    while sum(frame.kind == HELLO for frame in found) < ranks:
        assert process.stdout is not None
        found += frames([process.stdout.readline()])
    return found


def test_every_rank_is_told_its_place(tmp_path: Path) -> None:
    say = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR"
    with node(tmp_path, "sh", "-c", say) as process:
        out, _ = process.communicate(timeout=BOUND_S)
    found = frames(out.split("\n"))
    said = {frame.rank: frame.text for frame in found if frame.kind == OUT}
    assert said == {2: "2/4 0/2 1 10.0.0.1", 3: "3/4 1/2 1 10.0.0.1"}
    codes = json.loads((tmp_path / "err").read_text().splitlines()[-1])
    assert codes == {"2": 0, "3": 0}


def test_a_reader_of_one_line_at_a_time_gets_the_last_one(tmp_path: Path) -> None:
    """As Metaflow's runtime reads: one line whenever the pipe has something, through a buffer."""
    with node(tmp_path, "sh", "-c", "seq 40; exec sleep 300") as process:
        assert process.stdout is not None
        raw = process.stdout.buffer
        found: list[Frame] = []
        deadline = time.monotonic() + BOUND_S
        while sum(frame.kind == OUT for frame in found) < 80:
            assert time.monotonic() < deadline, f"lines stay in the buffer after {found[-1:]}"
            if select.select([raw], [], [], 0.2)[0]:
                found += frames([raw.readline().decode()])
        process.terminate()


@pytest.mark.slow
def test_the_others_end_once_one_has_failed(tmp_path: Path) -> None:
    with node(tmp_path, "sh", "-c", '[ "$RANK" = 3 ] && exit 7; exec sleep 300') as process:
        out, _ = process.communicate(timeout=BOUND_S)
    ends = [frame for frame in frames(out.split("\n")) if frame.kind == EXIT]
    assert [(frame.rank, frame.text.split()[0]) for frame in ends] == [(3, "7"), (2, "-15")]


@pytest.mark.slow
def test_a_killed_wrapper_is_told_as_its_rank_s_end(tmp_path: Path) -> None:
    with node(tmp_path, "sleep", "300") as process:
        hellos = until_started(process, 2)
        rank = next(frame for frame in hellos if frame.rank == 3)
        # The wrapper is the parent of the command, whose pid the first frame tells.
        stat = Path(f"/proc/{rank.text}/stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
        out, _ = process.communicate(timeout=BOUND_S)
        ends = [(f.rank, f.text) for f in frames(out.split("\n")) if f.kind == EXIT]
        assert ends[0] == (3, "-9")
        until(lambda: gone(rank.text))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_ranks(tmp_path: Path, number: signal.Signals) -> None:
    with node(tmp_path, "sleep", "300") as process:
        hellos = until_started(process, 2)
        process.send_signal(number)
        process.communicate(timeout=BOUND_S)
        until(lambda: all(gone(frame.text) for frame in hellos))


def test_ranks_that_end_for_a_lost_node_are_no_news(tmp_path: Path) -> None:
    """Else the first of them would be blamed."""
    with node(tmp_path, "sleep", "300", peer="peer") as process:
        hellos = until_started(process, 2)
        os.kill(pids(tmp_path)[0], signal.SIGKILL)
        out, _ = process.communicate(timeout=BOUND_S)
        assert [f for f in frames(out.split("\n")) if f.kind == EXIT] == []
        text = (tmp_path / "err").read_text()
        assert "another node" in text
        assert "SIGKILL" in text
        until(lambda: all(gone(frame.text) for frame in hellos))
