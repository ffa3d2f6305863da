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


WORLD, TENSOR, DATA = "0", ("1", "2"), ("3", "4")
MEMBERS = {"0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3], "3": [0, 2], "4": [1, 3]}


def _in_groups(rank: int, open_one: tuple[str, str]) -> dict[str, Any]:
    """What an agent tells of a rank that is in two groups of two, and now in `open_one`."""
    tensor, data = TENSOR[rank // 2], DATA[rank % 2]
    made = [(tensor, "all_gather"), (tensor, "all_gather"), (data, "all_reduce")] * 2
    after = [(tensor, "all_gather")] * 2 if open_one[0] == data else []
    calls, numbers = [*made, *after, open_one], dict.fromkeys(MEMBERS, 0)
    entries = []
    for place, (group, name) in enumerate(calls):
        entry = _entry(place, name, retired=place < len(calls) - 1)
        number = numbers[group] = numbers[group] + 1
        entries.append({**entry, "process_group": [group, ""], "collective_seq_id": number})
    own = {name: {"ranks": ranks} for name, ranks in MEMBERS.items() if rank in ranks}
    return {"entries": entries, "pg_config": own, "pg_status": {}}


@pytest.mark.parametrize(
    ("doing", "named", "said"),
    [
        # Rank 2 calls what the others do not; 3 waits for it in their group, 0 and 1 after a step.
        (
            {0: ("3", "all_reduce"), 1: ("4", "all_reduce"), 2: (WORLD, "broadcast"),
             3: ("2", "all_gather")},
            "rank 2",
            "rank 2 calls gloo:broadcast [8] of group 0 where ranks 0-1, 3 call gloo:all_gather [8] "
            "of their own groups",
        ),
        # Rank 3 goes on with its step where all others evaluate.
        (
            {0: (WORLD, "all_reduce"), 1: (WORLD, "all_reduce"), 2: (WORLD, "all_reduce"),
             3: ("2", "all_gather")},
            "rank 3",
            "rank 3 calls gloo:all_gather [8] of group 2 where ranks 0-2 call gloo:all_reduce [8] "
            "of group 0",
        ),
        # Two evaluate and two do not.
        (
            {0: (WORLD, "all_reduce"), 1: ("1", "all_gather"), 2: ("2", "all_gather"),
             3: (WORLD, "all_reduce")},
            "job",
            "all ranks that are heard wait for each other",
        ),
    ],
    ids=["calls another", "leaves one out", "two and two"],
)  # fmt: skip
def test_ranks_of_several_groups_wait_for_each_other_because_of_one(
    job: Job, doing: dict[int, tuple[str, str]], named: str, said: str
) -> None:
    job.hold(10)
    for rank, open_one in doing.items():
        stack = [f"line of {rank} (train.py:9)"]
        job.tell(rank, k="st", s=7, stack=stack, d=_in_groups(rank, open_one))
    (one,) = job.live.hang(job.now, HOSTS)
    assert (one.subject.name, one.title) == (named, said)
    if named != "job":
        assert f"line of {named[5:]} (train.py:9)" in one.evidence
        assert any(text.startswith("stack of rank 0") for text in one.evidence)


@pytest.mark.parametrize("told_by", [(0, 1, 2), (0, 1, 3)], ids=["with the odd one", "without"])
def test_a_job_that_ends_by_a_mismatch_tells_who_called_something_else(
    job: Job, told_by: tuple[int, ...]
) -> None:
    """gloo aborts the rank to whom too much comes, whoever was wrong; the others tell their calls."""
    for rank in told_by:
        last = _entry(9, "all_gather" if rank == 2 else "all_reduce", retired=True)
        entries = [_entry(8, "all_reduce", "completed", retired=True), last]
        job.tell(rank, k="st", s=7, stack=[], d={"entries": entries, "pg_config": {}})
        job.tell(rank, k="bye", s=7, pid=rank)
    found = [(one.id, one.subject.name) for one in job.live.ended_apart()]
    assert found == ([("WATCH-009", "rank 2")] if 2 in told_by else [])


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
