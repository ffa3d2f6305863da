"""A job from its start to its end, with real ranks of the local engine."""

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from wirespeed.launchers import supervise
from wirespeed.launchers.base import Job, Piece
from wirespeed.launchers.children import JobLogs
from wirespeed.launchers.engines.local import ENGINE
from wirespeed.launchers.request import made_ready
from wirespeed.launchers.supervise import Bounds, JobEnd, Supervisor, end_findings, worst_code
from wirespeed.process.frames import VARIABLE

BOUND_S = 40.0
LOGS = JobLogs(Path("/logs"))
SHORT = Bounds(startup_s=20.0, grace_s=0.5, orderly_s=2.0)


class RunBuilder:
    """A listener that keeps all."""

    def __init__(self) -> None:
        self.lines: dict[int, list[str]] = {}
        self.words: list[str] = []
        self.reasons: list[str] = []
        self.pids: dict[int, int] = {}
        self.on_start: Callable[[int], None] = lambda count: None
        self._count = 0

    def started(self, rank: int, node: str) -> None:
        self._count += 1
        self.on_start(self._count)

    def output(self, rank: int, node: str, stream: str, text: str, *, whole: bool) -> None:
        self.lines.setdefault(rank, []).append(text)

    def ended(self, rank: int, node: str, code: int) -> None:
        pass

    def said(self, piece: str, text: str) -> None:
        self.words.append(f"{piece}: {text}")

    def ending(self, reason: str) -> None:
        self.reasons.append(reason)


def run(
    script: str,
    ranks: int,
    heard: RunBuilder | None = None,
    bounds: Bounds = SHORT,
    command: tuple[str, ...] = (),
) -> tuple[JobEnd, RunBuilder, list[Piece]]:
    heard = heard or RunBuilder()
    job = made_ready(Job(command=command or ("sh", "-c", script), ranks=ranks))
    prepared = ENGINE.prepare(job)
    job, pieces = prepared.job, prepared.pieces(Path("/unused"))
    supervisor = Supervisor(ranks, job.environment[VARIABLE], heard, bounds)
    began = time.monotonic()
    if heard.on_start.__name__ == "interrupt":
        heard.on_start = lambda count: supervisor.interrupt() if count == ranks else None
    end = supervisor.run(pieces)
    assert time.monotonic() - began < BOUND_S
    return end, heard, pieces


def test_all_ranks_end_well() -> None:
    end, heard, pieces = run('echo "I am $RANK of $WORLD_SIZE"', 3)
    assert (end.reason, end.codes, end.absent, end.silent) == (
        "finished",
        {0: 0, 1: 0, 2: 0},
        (),
        (),
    )
    assert heard.lines == {rank: [f"I am {rank} of 3"] for rank in range(3)}
    assert worst_code(end) == 0
    assert end_findings(end, pieces, LOGS) == ()


def test_the_first_that_fails_is_named_and_the_others_ended() -> None:
    script = "if [ $RANK = 1 ]; then exit 7; fi; echo $$; sleep 300"
    end, heard, pieces = run(script, 3)
    assert (end.reason, end.first, end.codes[1]) == ("failed", 1, 7)
    assert heard.reasons == ["failed"]
    assert worst_code(end) == 7
    finding = end_findings(end, pieces, LOGS)[0]
    assert (finding.id, finding.subject.name) == ("DIED-001", "rank 1")
    assert finding.next == "tail /logs/rank-1.log"
    assert "exit code 7" in finding.title
    pids = [int(lines[0]) for lines in heard.lines.values()]
    assert pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize(("program", "code"), [("/no/such/program", 127), ("/etc/passwd", 126)])
def test_a_command_that_does_not_start_blames_the_command(program: str, code: int) -> None:
    end, _, pieces = run("", 2, command=(program, "word"))
    assert (end.without_command, worst_code(end)) == ({0, 1}, code)
    finding = end_findings(end, pieces, LOGS, program)[0]
    assert (finding.id, finding.subject.kind) == ("LAUNCH-010", "job")
    assert os.uname().nodename in finding.title
    assert program in finding.title


def test_a_command_that_ends_with_127_did_start() -> None:
    end, _, pieces = run("exit 127", 1)
    assert (end.without_command, worst_code(end)) == (frozenset(), 127)
    assert end_findings(end, pieces, LOGS)[0].id == "DIED-001"


def test_the_worst_of_those_that_failed_by_themselves_is_the_exit_code() -> None:
    end, _, _ = run("sleep 0.$RANK; exit $((RANK + 3))", 3)
    assert worst_code(end) == 5


def test_a_killed_rank_is_128_and_more() -> None:
    end, _, pieces = run("if [ $RANK = 0 ]; then kill -9 $$; fi; sleep 300", 2)
    assert (end.first, end.codes[0], worst_code(end)) == (0, -9, 137)
    assert "SIGKILL" in end_findings(end, pieces, LOGS)[0].title


def test_an_interrupt_ends_all() -> None:
    heard = RunBuilder()

    def interrupt(count: int) -> None: ...

    heard.on_start = interrupt
    end, heard, pieces = run("sleep 300", 2, heard)
    assert (end.reason, worst_code(end), heard.reasons) == ("interrupted", 130, ["interrupted"])
    assert end_findings(end, pieces, LOGS)[0].id == "INT-001"


def test_a_rank_whose_wrapper_is_killed_is_not_a_success() -> None:
    """Nobody tells how it ended; its process and the wrapper are gone."""
    script = "if [ $RANK = 1 ]; then kill -9 $PPID; fi; sleep 300"
    end, _, pieces = run(script, 2)
    assert (end.reason, end.lost) == ("lost", ("rank-1",))
    assert worst_code(end) == 3
    assert "LAUNCH-007" in [one.id for one in end_findings(end, pieces, LOGS)]


def test_ranks_that_never_start_are_named_within_the_bound(tmp_path: Path) -> None:
    heard = RunBuilder()
    pieces = [Piece(name="idle", command=("sh", "-c", "echo waiting for nodes; sleep 300"))]
    end = Supervisor(2, "t", heard, replace(SHORT, startup_s=0.5)).run(pieces)
    assert (end.reason, end.absent, worst_code(end)) == ("not_started", (0, 1), 3)
    assert heard.words == ["idle: waiting for nodes"]
    told = JobLogs(tmp_path)
    told.engine("idle", "waiting for nodes")
    told.close()
    finding = end_findings(end, pieces, told)[0]
    assert (finding.id, finding.evidence) == ("JOIN-001", ("waiting for nodes",))


def test_an_engine_that_fails_before_any_rank_is_lost_with_its_words() -> None:
    heard = RunBuilder()
    pieces = [Piece(name="srun", command=("sh", "-c", "echo no such partition >&2; exit 1"))]
    end = Supervisor(2, "t", heard, SHORT).run(pieces)
    assert (end.reason, end.lost, end.pieces) == ("lost", ("srun",), {"srun": 1})
    assert heard.words == ["srun: no such partition"]
    assert worst_code(end) == 3


def test_an_engine_s_own_code_counts_when_its_ranks_are_well() -> None:
    script = 'printf \'\\036t 0 n h 0 "1"\\n\\036t 0 n x 1 "0"\\n\'; exit 5'
    pieces = [Piece(name="mpirun", command=("sh", "-c", script))]
    end = Supervisor(1, "t", RunBuilder(), SHORT).run(pieces)
    assert (end.reason, end.codes, worst_code(end)) == ("finished", {0: 0}, 5)
    assert [one.status for one in end_findings(end, pieces, LOGS)] == ["warn"]


def test_an_engine_that_we_end_after_its_ranks_takes_nothing_from_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """DeepSpeed's launcher takes longer than it may where the machine is busy."""
    monkeypatch.setattr(supervise, "FAREWELL_S", 0.3)
    script = 'printf \'\\036t 0 n h 0 "1"\\n\\036t 0 n x 1 "0"\\n\'; exec sleep 300'
    pieces = [Piece(name="deepspeed", command=("sh", "-c", script))]
    end = Supervisor(1, "t", RunBuilder(), SHORT).run(pieces)
    assert (end.reason, end.outlived, end.pieces) == (
        "finished",
        ("deepspeed",),
        {"deepspeed": -15},
    )
    assert worst_code(end) == 0
    (found,) = end_findings(end, pieces, LOGS)
    assert (found.id, found.status) == ("EXIT-001", "warn")
    assert "deepspeed still ran" in found.title


def test_lost_output_is_counted() -> None:
    script = 'printf \'\\036t 0 n h 0 "1"\\n\\036t 0 n x 4 "0"\\n\''
    end = Supervisor(1, "t", RunBuilder(), SHORT).run(
        [Piece(name="p", command=("sh", "-c", script))]
    )
    assert end.missing_frames == 3
    (finding,) = end_findings(end, [], LOGS)
    assert (finding.id, finding.status, worst_code(end)) == ("LAUNCH-009", "warn", 0)


def test_a_node_that_makes_up_ranks_gets_no_files_for_them() -> None:
    script = (
        'for r in 0 1 2 3; do printf \'\\036t %d n h 0 "1"\\n\\036t %d n x 1 "0"\\n\' $r $r; done'
    )
    heard = RunBuilder()
    end = Supervisor(2, "t", heard, SHORT).run([Piece(name="p", command=("sh", "-c", script))])
    assert (end.codes, worst_code(end)) == ({0: 0, 1: 0}, 0)
    assert len(heard.words) == 4


@pytest.mark.slow
def test_much_output_of_many_ranks_arrives_line_by_line() -> None:
    count = 4000
    end, heard, _ = run(f'i=0; while [ $i -lt {count} ]; do echo "$i $RANK"; i=$((i+1)); done', 4)
    assert (end.missing_frames, worst_code(end)) == (0, 0)
    for rank in range(4):
        assert heard.lines[rank] == [f"{i} {rank}" for i in range(count)]


def test_a_program_that_is_not_there_leaves_nothing() -> None:
    from wirespeed.errors import WorldError

    pieces = [Piece(name="a", command=("sleep", "300")), Piece(name="b", command=("/no/such",))]
    with pytest.raises(WorldError, match="/no/such"):
        Supervisor(2, "t", RunBuilder(), SHORT).run(pieces)
    me = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text().split()
    names = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in me]
    assert b"sleep\x00300\x00" not in names


def test_files_of_a_piece_are_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    piece = Piece(name="p", command=("cat", str(path)), files={str(path): "node-0 slots=2\n"})
    heard = RunBuilder()
    Supervisor(1, "t", heard, SHORT).run([piece])
    assert heard.words == ["p: node-0 slots=2"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_stdin_is_sent_and_stays_open_until_the_end() -> None:
    """A node agent reads its orders there, and its end means: stop."""
    code = (
        "import sys, time\n"
        "print('\\x1et 0 n h 0 \"1\"', flush=True)\n"
        "print('got', sys.stdin.readline().strip(), flush=True)\n"
        "print('rest', repr(sys.stdin.read()), flush=True)\n"
    )
    words = (sys.executable, "-I", "-S", "-c", code)
    piece = Piece(name="p", command=words, stdin="orders\n", ends_with_stdin=True)
    heard = RunBuilder()
    supervisor = Supervisor(2, "t", heard, replace(SHORT, startup_s=1.5))
    end = supervisor.run([piece])
    assert heard.words == ["p: got orders", "p: rest ''"]
    assert (end.reason, end.pieces) == ("not_started", {"p": 0})
