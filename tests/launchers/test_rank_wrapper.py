"""One rank in its wrapper: what it is told, what is said of it, and that it ends with its wrapper."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from processes import gone, until
from wirespeed.launchers import rank_wrapper
from wirespeed.launchers.rank_wrapper import DIRECTORY, GRACE, MASTER, SLOTS, wrapped
from wirespeed.node.identity import detect
from wirespeed.process.frames import ASKED, EXIT, HELLO, VARIABLE, Frame, parse

TOKEN = "t0ken"
RANK = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
HOSTILE = ("a b", "it's", '"', ";id", "$(id)", "`id`", "-n", "--", "\n", "é", "", "*", ":")
BOUND_S = 30.0

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []

    def start(
        command: Sequence[str], *, encoded: bool = False, **env: str
    ) -> "subprocess.Popen[str]":
        environ = {k: v for k, v in os.environ.items() if k not in {*RANK, "MASTER_ADDR"}}
        process = subprocess.Popen(
            wrapped(sys.executable, command, encoded=encoded),
            env={**environ, **RANK, VARIABLE: TOKEN, GRACE: "0.5", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate(timeout=BOUND_S)


def frames_of(text: str) -> list[Frame]:
    found = [parse(line, TOKEN) for line in text.split("\n") if line]
    assert None not in found, text
    return [frame for frame in found if frame is not None]


def said(text: str, kinds: str) -> str:
    return "".join(
        f.text + ("\n" if f.kind.islower() else "") for f in frames_of(text) if f.kind in kinds
    )


@pytest.mark.slow
def test_output_and_code_come_as_frames(start: Start) -> None:
    process = start(["sh", "-c", "echo out; printf 'err\\nmore' >&2; exit 3"])
    out, err = process.communicate(timeout=BOUND_S)
    assert (process.returncode, err) == (3, "")
    assert (said(out, "oO"), said(out, "eE")) == ("out\n", "err\nmore\n")
    frames = frames_of(out)
    assert (frames[0].kind, frames[-1].kind, frames[-1].text) == (HELLO, EXIT, "3")
    assert {(f.rank, f.node) for f in frames} == {(1, os.uname().nodename)}


@pytest.mark.slow
def test_a_signal_is_told_as_such(start: Start) -> None:
    process = start(["sh", "-c", "kill -9 $$"])
    out, _ = process.communicate(timeout=BOUND_S)
    assert (process.returncode, frames_of(out)[-1].text) == (137, "-9")


@pytest.mark.slow
def test_a_command_that_is_not_there(start: Start) -> None:
    process = start(["/no/such/program"])
    out, _ = process.communicate(timeout=BOUND_S)
    assert process.returncode == 127
    assert "/no/such/program" in said(out, "eE")
    assert frames_of(out)[-1].text == "127"
    assert HELLO not in {frame.kind for frame in frames_of(out)}


@pytest.mark.slow
def test_a_command_that_cannot_be_run(start: Start) -> None:
    process = start(["/etc/passwd"])
    out, _ = process.communicate(timeout=BOUND_S)
    assert (process.returncode, frames_of(out)[-1].text) == (126, "126")


@pytest.mark.slow
@pytest.mark.parametrize("encoded", [False, True])
def test_arguments_arrive_as_they_are(start: Start, encoded: bool) -> None:
    code = "import sys; print(ascii(sys.argv[1:]))"
    process = start([sys.executable, "-c", code, *HOSTILE], encoded=encoded)
    out, _ = process.communicate(timeout=BOUND_S)
    assert said(out, "oO") == f"{list(HOSTILE)!a}\n"


def test_the_rank_under_every_name_and_none_of_ours(start: Start, tmp_path: Path) -> None:
    script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT; pwd; env"
    ompi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}
    place = {MASTER: "node-0:2345", DIRECTORY: str(tmp_path)}
    process = start(["sh", "-c", script], **ompi, **place)
    out, _ = process.communicate(timeout=BOUND_S)
    lines = said(out, "oO").splitlines()
    assert lines[:2] == ["1 4 1 node-0 2345", str(tmp_path)]
    names = {line.partition("=")[0] for line in lines[2:]}
    assert names.isdisjoint({VARIABLE, MASTER, GRACE, DIRECTORY})


OPENMPI = "OMPI_COMM_WORLD_"


@pytest.mark.parametrize(
    ("environ", "node"),
    [
        ({"RANK": "3", "WORLD_SIZE": "4", "NODE_RANK": "1"}, "1"),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, "1"),
        (
            {"TORCHELASTIC_RUN_ID": "x", "RANK": "3", "WORLD_SIZE": "4", "GROUP_RANK": "2"},
            "2",
        ),
        (
            {"RANK": "3", "WORLD_SIZE": "4", "CROSS_RANK": "1", "CROSS_SIZE": "2", "LOCAL_SIZE": "2"},
            "1",
        ),
        (
            {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "4",
             "SLURM_NODEID": "1", "SLURM_LOCALID": "0"},
            "1",
        ),
        # Nodes of 2, 2 and 4 ranks: sizes alone would say node 1 of rank 4.
        (
            {f"{OPENMPI}RANK": "4", f"{OPENMPI}SIZE": "8", f"{OPENMPI}LOCAL_RANK": "0",
             f"{OPENMPI}LOCAL_SIZE": "4", SLOTS: "2,2,4"},
            "2",
        ),
        # Ranks dealt out one by one: nobody tells.
        (
            {f"{OPENMPI}RANK": "1", f"{OPENMPI}SIZE": "4", f"{OPENMPI}LOCAL_RANK": "0",
             f"{OPENMPI}LOCAL_SIZE": "2"},
            None,
        ),
    ],
)  # fmt: skip
def test_each_rank_knows_its_node(environ: dict[str, str], node: str | None) -> None:
    identity = detect(environ)
    assert identity is not None
    told = rank_wrapper._environment(environ, identity)
    assert told.get("NODE_RANK") == node
    assert told.get("GROUP_RANK") == (node or environ.get("GROUP_RANK"))
    assert SLOTS not in told


@pytest.mark.parametrize(
    ("environ", "threads"),
    [
        (RANK, "1"),
        ({**RANK, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, None),
        ({**RANK, "OMP_NUM_THREADS": "6"}, "6"),
    ],
    ids=["ranks that share a node", "alone", "told"],
)
def test_threads_are_as_under_torchrun(environ: dict[str, str], threads: str | None) -> None:
    identity = detect(environ)
    assert identity is not None
    assert rank_wrapper._environment(environ, identity).get("OMP_NUM_THREADS") == threads


def test_a_folder_that_is_not_on_this_node(start: Start, tmp_path: Path) -> None:
    process = start(["pwd"], **{DIRECTORY: "/no/such/folder", "HOME": str(tmp_path)})
    out, _ = process.communicate(timeout=BOUND_S)
    assert said(out, "oO") == f"{tmp_path}\n"


def test_without_frames_it_becomes_the_command(start: Start) -> None:
    process = start(["sh", "-c", "echo $RANK $$"], **{VARIABLE: ""})
    out, _ = process.communicate(timeout=BOUND_S)
    assert out == f"1 {process.pid}\n"


def test_without_a_rank_it_says_so() -> None:
    environ = {k: v for k, v in os.environ.items() if k not in RANK}
    words = wrapped(sys.executable, ["true"])
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=BOUND_S)
    assert done.returncode == 2
    assert "no launcher" in done.stderr


def test_a_line_that_has_begun_is_shown(start: Start) -> None:
    process = start(
        [sys.executable, "-c", "print('begun', end='', flush=True); import time; time.sleep(60)"]
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    assert "begun" in lines[1]


TREE = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; "
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"])
print(os.getpid(), child.pid, flush=True)
time.sleep(300)
"""


def pids_of(process: "subprocess.Popen[str]") -> list[int]:
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    return [int(word) for word in said(lines[1], "o").split()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_even_what_ignores_it(start: Start, number: int) -> None:
    process = start([sys.executable, "-c", TREE])
    pids = pids_of(process)
    process.send_signal(number)
    out, _ = process.communicate(timeout=BOUND_S)
    assert frames_of(out)[-1].kind == EXIT
    until(lambda: all(map(gone, pids)))


@pytest.mark.slow
@pytest.mark.parametrize(("both", "asked"), [(True, ASKED), (False, "")])
def test_an_order_to_all_processes_may_reach_the_command_first(
    start: Start, both: bool, asked: str
) -> None:
    """As slurmstepd sends it at a time limit: the rank did not fail by itself."""
    process = start(
        [
            sys.executable,
            "-c",
            "import os, time; print(os.getpid(), 0, flush=True); time.sleep(300)",
        ]
    )
    command = pids_of(process)[0]
    os.kill(command, signal.SIGTERM)
    until(lambda: gone(command))
    if both:
        process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=BOUND_S)
    assert frames_of(out)[-1].text == f"-{signal.SIGTERM} {asked}".rstrip()


def test_the_command_is_killed_with_its_wrapper(start: Start) -> None:
    process = start([sys.executable, "-c", TREE.replace("Popen(", "Popen(['true'] or ")])
    first = pids_of(process)[0]
    process.kill()
    until(lambda: gone(first))


def test_when_nobody_reads_any_more_it_ends(start: Start) -> None:
    chatty = "import os, time\nprint(os.getpid(), 0, flush=True)\n"
    chatty += "while True: time.sleep(0.05); print('x', flush=True)\n"
    process = start([sys.executable, "-c", chatty])
    first = pids_of(process)[0]
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    until(lambda: gone(first))
    assert process.wait(BOUND_S) != 0


def test_when_its_parent_is_gone_it_ends() -> None:
    """As the daemon of an engine that was killed."""
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:]); input()"
    words = [sys.executable, "-c", code, *wrapped(sys.executable, [sys.executable, "-c", TREE])]
    env = {**os.environ, **RANK, VARIABLE: TOKEN, GRACE: "0.5"}
    parent = subprocess.Popen(
        words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        pids = pids_of(parent)
    finally:
        parent.kill()
        parent.wait(BOUND_S)
    until(lambda: all(map(gone, pids)))
    for pipe in (parent.stdin, parent.stdout):
        assert pipe is not None
        pipe.close()


def test_a_rank_runs_where_there_is_no_room_to_watch_it(start: Start, tmp_path: Path) -> None:
    no_folder = str(tmp_path / "none")
    code = "import tempfile; tempfile._candidate_tempdir_list = lambda: []"
    (tmp_path / "sitecustomize.py").write_text(code)
    words = {"WIRESPEED_WATCH": "yes", "TMPDIR": no_folder, "PYTHONPATH": str(tmp_path)}
    process = start([sys.executable, "-c", "print('trained')"], **words)
    out, _ = process.communicate(timeout=BOUND_S)
    assert process.returncode == 0
    told = [parse(line, TOKEN) for line in out.split("\n")]
    texts = [one.text for one in told if one is not None]
    assert any("is not watched" in text for text in texts) and "trained" in texts
