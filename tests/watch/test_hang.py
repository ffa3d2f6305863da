"""Who is accused of a hang, and who is not: by the messages of ranks and their nodes."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from wirespeed.watch.hang import Liveness

HOSTS = dict.fromkeys(range(4), "node-1")


class Job:
    """Four ranks, whose time passes by the second."""

    def __init__(self) -> None:
        self.live, self.now = Liveness(), 100.0
        self.moves = [0] * 4
        self.cpu = [0.0] * 4

    def tell(self, rank: int, **message: Any) -> None:
        self.live.take(json.dumps({"r": rank, **message}), self.now)

    def beat(self, rank: int, phase: str, *, moves: bool = False, cores: float = 0.0) -> None:
        self.moves[rank] += moves
        self.cpu[rank] += cores
        used = {} if moves else {"c": self.cpu[rank], "io": 5}
        self.tell(rank, k="t", s=7, m=self.moves[rank], p=phase, **used)

    def train(self, seconds: int = 5) -> None:
        for _ in range(seconds):
            self.now += 1
            for rank in range(4):
                self.beat(rank, "backward", moves=True, cores=0.5)

    def hold(self, seconds: int, *, others: str = "sync", skip: Sequence[int] = ()) -> None:
        """The ranks but `skip` wait."""
        for _ in range(seconds):
            self.now += 1
            for rank in range(4):
                if rank not in skip:
                    self.beat(rank, others)

    def found(self) -> list[tuple[str, str]]:
        return [(one.id, one.subject.name) for one in self.live.hang(self.now, HOSTS)]


@pytest.fixture
def job() -> Job:
    made = Job()
    made.train()
    return made


def test_nobody_is_accused_while_steps_are_made(job: Job) -> None:
    assert job.found() == [] and job.live.still_s(job.now) == 0


def test_a_stopped_rank_is_named_once_nothing_has_moved_for_eight_seconds(job: Job) -> None:
    job.hold(6, skip=[2])
    job.tell(2, k="o", pid=77, st="T", stack=["train (train.py:9)"])
    assert job.found() == []
    job.hold(3, skip=[2])
    (one,) = job.live.hang(job.now, HOSTS)
    assert (one.id, one.status, one.subject.name) == ("WATCH-008", "fail", "rank 2")
    assert "is stopped" in one.title and "ranks 0, 1, 3 wait for it" in one.title
    assert "train (train.py:9)" in one.evidence


def test_a_rank_that_holds_its_interpreter_is_silent_and_there(job: Job) -> None:
    job.hold(10, skip=[1])
    job.tell(1, k="o", pid=77, st="S", stack=[])
    (one,) = job.live.hang(job.now, HOSTS)
    assert one.subject.name == "rank 1" and "holds its interpreter" in one.title


def test_who_sleeps_is_named_with_the_line_it_is_in(job: Job) -> None:
    for _ in range(10):
        job.hold(1, skip=[3])
        job.beat(3, "")
        job.tell(3, k="st", s=7, stack=["wait_for_lock (train.py:31)"], d={})
    (one,) = job.live.hang(job.now, HOSTS)
    assert one.subject.name == "rank 3" and "sleeps" in one.title
    assert "wait_for_lock (train.py:31)" in one.saw


def test_a_loader_that_gives_nothing_is_called_one(job: Job) -> None:
    for _ in range(10):
        job.hold(1, skip=[0])
        job.beat(0, "data")
    (one,) = job.live.hang(job.now, HOSTS)
    assert one.subject.name == "rank 0" and "waits for its data loader" in one.title


def test_who_has_ended_while_others_wait_has_left_the_loop(job: Job) -> None:
    job.tell(2, k="bye", s=8, pid=3)
    job.live.over(2, "ended with exit code 0")
    job.hold(10, skip=[2])
    (one,) = job.live.hang(job.now, HOSTS)
    assert one.subject.name == "rank 2" and "has left the loop" in one.title
    assert "ended with exit code 0" in one.saw


@pytest.mark.parametrize(
    ("phase", "cores", "moves"),
    [("", 1.0, False), ("checkpoint", 0.0, False), ("data", 0.0, True)],
    ids=["computes or compiles", "writes a checkpoint", "reads batch after batch"],
)
def test_who_works_is_not_accused(job: Job, phase: str, cores: float, moves: bool) -> None:
    for _ in range(40):
        job.hold(1, skip=[2])
        job.beat(2, phase, cores=cores, moves=moves)
    assert job.found() == []
    assert "wait for rank 2" in job.live.working(job.now)


def test_all_compute_and_nobody_waits(job: Job) -> None:
    for _ in range(30):
        job.hold(1, others="", skip=[])
    assert job.found() == []


def _entry(
    number: int, name: str, state: str = "scheduled", retired: bool = False
) -> dict[str, Any]:
    return {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number,
        "record_id": number,
        "profiling_name": f"gloo:{name}",
        "input_sizes": [[8]],
        "input_dtypes": ["Float"],
        "state": state,
        "retired": retired,
        "time_created_ns": number * 10**6,
    }


def test_all_wait_and_one_in_another_collective(job: Job) -> None:
    for _ in range(10):
        job.hold(1)
        for rank in range(4):
            open_one = _entry(9, "all_gather" if rank == 1 else "all_reduce")
            entries = [_entry(8, "all_reduce", retired=True), open_one]
            dump = {"entries": entries, "pg_config": {}, "pg_status": {}, "version": "2.10"}
            job.tell(rank, k="st", s=7, stack=[], d=dump)
    (one,) = job.live.hang(job.now, HOSTS)
    assert (one.id, one.subject.name) == ("WATCH-009", "rank 1")
    assert "all_gather" in " ".join(one.evidence)


def test_all_wait_and_nothing_tells_why(job: Job) -> None:
    job.hold(12)
    assert job.found() == [("WATCH-008", "job")]


def test_on_gpus_an_open_collective_is_waiting_though_the_host_spins(job: Job) -> None:
    entry = {**_entry(9, "all_reduce", "started"), "profiling_name": "nccl:all_reduce"}
    for _ in range(12):
        job.now += 1
        for rank in range(4):
            if rank != 2:
                job.beat(rank, "", cores=1.0)
                job.tell(rank, k="st", s=7, stack=[], d={"entries": [entry], "pg_status": {}})
    job.tell(2, k="o", pid=4, st="T", stack=[])
    assert job.found() == [("WATCH-008", "rank 2")]


def test_it_is_over_when_something_moves(job: Job) -> None:
    job.hold(12, skip=[2])
    job.tell(2, k="o", pid=77, st="T", stack=[])
    assert job.found()
    job.train(2)
    assert job.found() == [] and job.live.still_s(job.now) == 0


@pytest.mark.hostile("forged messages")
@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"r":-1,"k":"t"}', '{"r":1}', '{"r":"x","k":"t"}', "{" * 5000, '{"r":1,"k":"st","d":'
     '{"entries":[{"process_group":5}]}}', '{"r":1,"k":"t","s":1e400}', "x" * 100_000],
)  # fmt: skip
def test_nonsense_is_passed_over(job: Job, text: str) -> None:
    job.live.take(text, job.now)
    assert job.found() == []
