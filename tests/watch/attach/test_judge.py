"""Who holds up a job, from looks that are written down."""

from collections.abc import Sequence
from typing import Any

import pytest

from wirespeed.errors import UsageError
from wirespeed.model.records import Finding, Subject
from wirespeed.node.python_stacks import Frame, Thread
from wirespeed.watch.attach.judge import Seen, exit_code, judge, seen, subject_of
from wirespeed.watch.attach.look import NodeLook, RankLook
from wirespeed.watch.attach.ranks import RankProcess

USER = Frame("train", "job.py", 12, "/home/user/job.py")
TORCH = "/venv/lib/python3.12/site-packages/"


def library(function: str, file: str, line: int = 7) -> Frame:
    return Frame(function, file, line, TORCH + file)


ALL_REDUCE = (
    library("all_reduce", "torch/distributed/distributed_c10d.py"),
    library("wrapper", "torch/distributed/c10d_logger.py"),
    USER,
)
BARRIER = (library("barrier", "torch/distributed/distributed_c10d.py"), USER)
SLEEP = (Frame("load", "job.py", 4, "/home/user/job.py"), USER)
SAVE = (library("_save", "torch/serialization.py"), library("save", "torch/serialization.py"), USER)


def rank(
    number: int,
    *stacks: Sequence[Frame],
    state: str = "S",
    size: int = 3,
    gil: bool = False,
    unread: str = "",
    **figures: float,
) -> RankLook:
    """One stack: it stays; several: at each reading the next one."""
    many = stacks if len(stacks) > 1 else stacks * 4
    values = {"cores": 0.0, "switches": 0, "io_bytes": 0, "cuda": False} | figures
    return RankLook(
        process=RankProcess(
            pid=1000 + number,
            parent=999,
            rank=number,
            world_size=size,
            host="a",
            launcher="torchrun",
            command="python job.py",
        ),
        states=(state,) * 4,
        stacks=tuple((Thread("MainThread", 1000 + number, gil, tuple(one)),) for one in many),
        unread=unread,
        waits_in_kernel="",
        **values,
    )


def job(*ranks: RankLook, **known: tuple[int, ...]) -> Seen:
    return seen([NodeLook(host="a", seconds=3.0, ranks=ranks, **known)])


def verdict(*ranks: RankLook, **known: Any) -> tuple[str, str, str]:
    """Verdict, id and subject of the first finding."""
    found, told = judge(job(*ranks, **known))
    return told, found[0].id, found[0].subject.name


def waiting(number: int, **options: Any) -> RankLook:
    return rank(number, ALL_REDUCE, **options)


@pytest.mark.parametrize(
    "odd, told",
    [
        (
            rank(2, SLEEP),
            "does not move: load (job.py:4); ranks 0-1 wait in all_reduce at train",
        ),
        (rank(2, (USER,), gil=True), "does not move: train (job.py:12)"),
        (rank(2, ALL_REDUCE, state="T"), "is stopped by a signal"),
        (rank(2, (), state="T", unread="py-spy is not installed"), "is stopped by a signal"),
        (rank(2, SLEEP, state="t"), "is held by a debugger"),
        (rank(2, SLEEP, state="Z"), "has no process any more"),
    ],
)
def test_the_one_that_holds_up_the_others_is_named(odd: Any, told: str) -> None:
    found, said = judge(job(waiting(0), waiting(1), odd))
    assert said == "HUNG" and exit_code(said) == 1
    assert found[0].id == "WATCH-008" and found[0].subject == Subject("rank", "rank 2")
    assert told in found[0].title
    assert found[0].evidence[0].startswith("rank") and found[0].next != "None"


def test_a_rank_that_its_launcher_lost_is_named() -> None:
    assert verdict(waiting(0), waiting(1), ended=(2,)) == ("HUNG", "WATCH-008", "rank 2")


@pytest.mark.parametrize(
    "busy",
    [
        rank(0, SAVE, cores=1.0),
        rank(0, SAVE, SLEEP, SAVE),
        rank(0, SAVE, io_bytes=1 << 30),
        rank(0, ALL_REDUCE, cores=0.4),
    ],
)
def test_one_that_works_is_not_accused(busy: Any) -> None:
    assert verdict(busy, waiting(1), waiting(2)) == ("PROGRESSING", "WATCH-015", "rank 0")


def test_what_it_works_on_is_told() -> None:
    found, _ = judge(job(rank(0, SAVE, cores=1.0), waiting(1), waiting(2)))
    assert found[0].title == "rank 0: writes a checkpoint; waiting meanwhile: ranks 1-2"


def test_all_move() -> None:
    ranks = [rank(n, ALL_REDUCE, SLEEP, ALL_REDUCE) for n in range(3)]
    assert verdict(*ranks) == ("PROGRESSING", "WATCH-015", "job")


def mostly(number: int, waits: int, of: int = 12) -> RankLook:
    return rank(number, *([ALL_REDUCE] * waits + [SLEEP] * (of - waits)), cores=0.3)


def test_who_hardly_ever_waits_is_told_as_late_and_the_job_goes_on() -> None:
    found, said = judge(job(mostly(0, 9), mostly(1, 10), mostly(2, 1)))
    assert (said, found[0].status, found[0].subject.name) == ("SLOW", "warn", "rank 2")
    assert (exit_code(said), subject_of(said, found)) == (0, "rank 2")
    assert "waited at 8% of 12 readings, each of the others at 75% or more" in found[0].saw


@pytest.mark.parametrize("others, last, of", [(9, 3, 12), (5, 0, 12), (6, 0, 8)])
def test_few_readings_or_small_differences_accuse_nobody(others: int, last: int, of: int) -> None:
    found, _ = judge(job(mostly(0, others, of), mostly(1, others, of), mostly(2, last, of)))
    assert found[0].status == "pass"


def test_all_wait_in_one_collective() -> None:
    assert verdict(*map(waiting, range(3))) == ("HUNG", "WATCH-008", "job")


def test_gpus_make_waiting_look_like_a_hang() -> None:
    ranks = [rank(n, ALL_REDUCE, cuda=True, cores=1.0) for n in range(3)]
    assert verdict(*ranks) == ("CANNOT TELL", "WATCH-016", "job")


def test_beside_ranks_that_wait_for_gpus_a_sleeper_is_named() -> None:
    ranks = [rank(n, ALL_REDUCE, cuda=True, cores=1.0) for n in range(2)]
    told = verdict(*ranks, rank(2, SLEEP, cuda=True))
    assert told == ("HUNG", "WATCH-008", "rank 2")


def test_different_collectives() -> None:
    told = verdict(waiting(0), waiting(1), rank(2, BARRIER))
    assert told == ("HUNG", "WATCH-009", "rank 2")


def test_of_two_that_differ_none_is_blamed() -> None:
    told = verdict(waiting(0, size=2), rank(1, BARRIER, size=2))
    assert told == ("HUNG", "WATCH-009", "job")


def test_whom_they_wait_for_was_not_looked_at() -> None:
    found, said = judge(job(waiting(0, size=8), waiting(1, size=8), beside=(2, 3)))
    assert said == "CANNOT TELL" and exit_code(said) == 3
    assert "ranks 2-7 of the job were not looked at" in found[0].because
    assert found[0].next == "wirespeed attach 999, their launcher"


def test_nobody_waits_and_nobody_moves() -> None:
    assert verdict(*(rank(n, SLEEP) for n in range(3)))[:2] == ("CANNOT TELL", "WATCH-016")


def test_one_stands_and_one_works() -> None:
    told = verdict(rank(0, SLEEP), rank(1, SAVE, cores=1.0), waiting(2))
    assert told == ("CANNOT TELL", "WATCH-016", "rank 0")


def test_cpu_time_without_a_stack_is_no_progress() -> None:
    """Who waits in NCCL spins: three hung ranks look as busy as three that train."""
    blind = {"unread": "py-spy is not installed; pip install"}
    found, said = judge(job(*(rank(n, (), cores=0.9, **blind) for n in range(3))))
    assert said == "CANNOT TELL"
    assert found[1].id == "WATCH-016" and "pip install" in found[1].because
    assert verdict(*(rank(n, (), **blind) for n in range(3)))[0] == "CANNOT TELL"
    stopped = rank(2, (), state="T", **blind)
    assert verdict(rank(0, (), **blind), stopped)[0] == "HUNG"


def test_one_rank_whose_stack_is_not_read_blocks_a_good_verdict() -> None:
    blind = rank(2, (), cores=0.9, unread="no permission")
    mixed = [rank(n, SAVE, cores=0.9) for n in range(2)] + [blind]
    assert judge(job(*mixed))[1] == "CANNOT TELL"
    assert judge(job(*mixed), issued=True)[1] == "PROGRESSING"


def test_ranks_that_all_ended() -> None:
    found, said = judge(job(*(rank(n, (), state="") for n in range(3))))
    assert said == "CANNOT TELL" and "ended while" in found[0].because


def test_ranks_of_several_nodes_are_judged_together() -> None:
    nodes = [
        NodeLook(host="a", seconds=3.0, ranks=(waiting(0), waiting(1))),
        NodeLook(host="b", seconds=3.0, ranks=(rank(2, SLEEP),)),
    ]
    found, said = judge(seen(nodes))
    assert (said, found[0].subject.name) == ("HUNG", "rank 2")
    with pytest.raises(UsageError, match="rank 0 is on a and on c: these are two jobs"):
        seen([*nodes, NodeLook(host="c", seconds=3.0, ranks=(waiting(0),))])


# Other sources.


def recorded(number: int) -> list[tuple[str, Finding]]:
    title = f"rank {number} never came to collective 7"
    who = Subject("rank", f"rank {number}")
    return [
        ("the flight recorder", Finding(id="FLIGHT-002", status="fail", title=title, subject=who))
    ]


def test_the_recorder_names_whom_stacks_do_not() -> None:
    found, said = judge(job(*(rank(n, ALL_REDUCE, cuda=True) for n in range(3))), recorded(1))
    assert (said, found[0].subject.name) == ("HUNG", "rank 1")
    assert found[0].evidence[0].startswith("rank 1: all_reduce")


def test_sources_that_disagree_tell_nothing() -> None:
    held = job(waiting(0), waiting(1), rank(2, SLEEP))
    found, said = judge(held, recorded(1))
    assert said == "CANNOT TELL" and "sources disagree" in found[0].title
    assert judge(held, recorded(2))[1] == "HUNG"


def test_a_moment_of_a_job_that_moves_blames_nobody() -> None:
    moving = [rank(n, ALL_REDUCE, SLEEP) for n in range(3)]
    assert judge(job(*moving), recorded(1))[1] == "PROGRESSING"


def test_the_fewest_stand_first() -> None:
    found, _ = judge(job(waiting(0), waiting(1), rank(2, SLEEP)))
    assert [text.partition(":")[0] for text in found[0].evidence] == ["rank 2", "ranks 0-1"]
