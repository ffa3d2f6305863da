"""Who is blamed, from facts alone."""

import re

import pytest

from wirespeed.checks.registry import EXPLAINED
from wirespeed.model.codec import from_json, to_json
from wirespeed.model.records import Finding
from wirespeed.process import returncode_text
from wirespeed.watchdog.attribution import blame, is_consequence
from wirespeed.watchdog.facts import Death, Facts, Raised, RankStatus

OP, OTHER = "all_reduce float32 1 MiB", "all_gather float32 1 MiB"
CLOSED = "RuntimeError: [gloo/pair.cc:547] Connection closed by peer [10.0.0.2]:4444"


def at(rank, sequence=6, op=OP, phase="running", **fields):
    defaults = {"host": f"node-{rank}", "pid": 100 + rank, "connected": True, "since": 31.0}
    return RankStatus(rank=rank, phase=phase, op=op, sequence=sequence, **{**defaults, **fields})


def facts(*statuses, **fields):
    fields.setdefault("overdue", frozenset(s.rank for s in statuses))
    return Facts(statuses=statuses, **fields)


def named(found):
    return [(finding.id, finding.subject.name) for finding in found]


def test_nothing_wrong_no_findings():
    assert blame(facts(at(0), at(1), overdue=frozenset())) == ()


@pytest.mark.parametrize("first", [0.0, 0.09])
def test_a_death_comes_before_exceptions_that_follow(first):
    found = blame(
        facts(
            *map(at, range(3)),
            deaths=(Death(rank=1, at=10.0 + first, returncode=-11),),
            raised=(
                Raised(rank=0, at=10.0, error=CLOSED),
                Raised(rank=2, at=10.3, error="KeyError: 'unknown consequence'"),
            ),
        )
    )
    assert named(found) == [("DIED-001", "rank 1")]
    assert "signal 11 (SIGSEGV)" in found[0].title
    assert any("rank 2 on node-2: KeyError" in line for line in found[0].evidence)


def test_an_exception_comes_before_deaths_that_follow():
    found = blame(
        facts(
            *map(at, range(3)),
            deaths=(Death(rank=2, at=10.4, returncode=-6),),
            raised=(Raised(rank=1, at=10.0, error="ValueError: bad shape"),),
        )
    )
    assert named(found) == [("RAISED-001", "rank 1")]


def test_two_killed_at_once_are_both_named_but_not_those_a_launcher_ended():
    deaths = [(0, 10.05, -15), (1, 10.0, -9), (2, 10.04, -9), (3, 10.6, -9)]
    found = blame(
        facts(*map(at, range(4)), deaths=[Death(rank=r, at=t, returncode=c) for r, t, c in deaths])
    )
    assert named(found) == [("DIED-001", "rank 1"), ("DIED-001", "rank 2")]


def test_the_same_exception_on_all_ranks_is_one_finding():
    raised = tuple(Raised(rank=r, at=10 + r / 10, error="MemoryError: no") for r in range(3))
    found = blame(facts(*map(at, range(3)), raised=raised))
    assert named(found) == [("RAISED-001", "rank 0")]
    assert "and so did ranks 1-2" in found[0].title


def test_a_consequence_without_other_cause_is_shown_in_the_end():
    status = [at(0, since=1.0), at(1, since=1.0, phase="failed")]
    found = blame(
        facts(*status, overdue=frozenset(), raised=(Raised(rank=1, at=1.0, error=CLOSED),))
    )
    assert named(found) == [("RAISED-001", "rank 1")]


@pytest.mark.parametrize("since", [31.0, 0.2])
def test_a_timeout_blames_the_rank_behind_only_if_that_is_stuck(since):
    status = [at(0, phase="failed"), at(1, sequence=5, since=since), at(2, phase="failed")]
    late = tuple(Raised(rank=r, at=1.0, error="RuntimeError: Timed out waiting") for r in (0, 2))
    found = blame(facts(*status, overdue=frozenset(), raised=late))
    stuck = since > 2.5
    assert named(found) == [("HANG-002", "rank 1") if stuck else ("RAISED-001", "rank 0")]


def test_missing_ranks_come_before_ranks_that_wait_for_them():
    waiting = [at(r, sequence=0, op="", phase="joining") for r in (0, 1)]
    missing = [RankStatus(rank=r) for r in (2, 3)]
    found = blame(facts(*waiting, *missing))
    assert named(found) == [("JOIN-001", "rank 2"), ("JOIN-001", "rank 3")]
    assert "2 joining" in found[0].costs


def test_who_gave_up_waiting_is_not_to_blame_for_the_missing():
    gone = at(2, sequence=0, connected=False, phase="unknown")
    waited = "torch.distributed.DistStoreError: wait timeout after 90000ms"
    raised = tuple(Raised(rank=rank, at=90.0, error=waited) for rank in (0, 1))
    found = blame(facts(at(0), at(1), gone, overdue=frozenset(), raised=raised))
    assert named(found) == [("JOIN-001", "rank 2")]
    assert "gave up" in found[0].title


def test_all_in_the_same_phase_of_starting_blames_nobody():
    found = blame(facts(*(at(r, sequence=0, op="", phase="joining") for r in range(3))))
    assert named(found) == [("HANG-004", "job")]
    assert "while joining" in found[0].title


def test_silence_comes_before_being_behind():
    found = blame(facts(at(0), at(1, sequence=5), at(2, silent=31.0), silent=frozenset({2})))
    assert named(found) == [("HANG-001", "rank 2")]


@pytest.mark.parametrize(
    ("state", "word"), [("T", "SIGSTOP"), ("t", "debugger"), ("D", "device"), ("S", "interpreter")]
)
def test_the_process_state_tells_the_cause_of_silence(state, word):
    found = blame(facts(at(0), at(1), silent=frozenset({1}), states={1: state}))
    assert word in found[0].because
    assert f"process state {state}" in found[0].saw


def test_behind_is_named_with_the_others_operation():
    found = blame(facts(at(0), at(1, sequence=5), at(2), at(3)))
    assert named(found) == [("HANG-002", "rank 1")]
    assert found[0].expected.startswith(f"operation 6, {OP}, where 3 in {OP}")


def test_when_most_are_behind_the_one_ahead_is_named():
    found = blame(facts(at(0, sequence=7), at(1), at(2), at(3)))
    assert named(found) == [("HANG-002", "rank 0")]
    assert "is ahead" in found[0].title


def test_a_slow_rank_is_told_from_a_stuck_one():
    found = blame(facts(at(0), at(1, sequence=5, since=0.4), overdue=frozenset({0})))
    assert "slow, not stuck" in found[0].because


def test_a_rank_that_finished_early_and_one_that_does_not_finish():
    early = blame(facts(at(0), at(1, sequence=5, phase="finished"), at(2)))
    assert named(early) == [("HANG-002", "rank 1")]
    assert "finished after 5 operations" in early[0].title
    late = blame(facts(at(0, phase="finished"), at(1), at(2, phase="finished")))
    assert named(late) == [("HANG-002", "rank 1")]
    assert "does not come to an end" in late[0].title


@pytest.mark.parametrize(
    ("labels", "odd"),
    [([OP, OP, OTHER, OP], [2]), ([OP, OTHER], [0, 1]), ([OP, OP, OTHER, "barrier"], [2, 3])],
)
def test_the_minority_runs_another_operation(labels, odd):
    found = blame(facts(*(at(r, op=label) for r, label in enumerate(labels))))
    assert named(found) == [("HANG-003", f"rank {rank}") for rank in odd]


def test_history_shows_where_ranks_parted_before_they_stood_still():
    ahead = at(0, sequence=7, recent=((5, OP), (6, "broadcast"), (7, OP)))
    behind = at(1, sequence=6, op=OTHER, recent=((5, OP), (6, OTHER)))
    found = blame(facts(ahead, behind))
    assert named(found) == [("HANG-003", "rank 0"), ("HANG-003", "rank 1")]
    assert "operation 6: broadcast" in found[0].saw


def test_all_waiting_in_one_operation_blames_nobody():
    found = blame(facts(at(0), at(1), stacks={0: "File x", 1: "File y"}))
    assert named(found) == [("HANG-004", "job")]
    assert "2 machines" in found[0].title


def test_many_culprits_are_summed_up():
    found = blame(facts(*(at(r, sequence=5 if r < 20 else 6) for r in range(64))))
    assert len(found) == 8
    assert "12 more: ranks 8-19" in found[-1].evidence[0]


def test_interruption_is_no_verdict_on_the_cluster():
    found = blame(facts(at(0), at(1), interrupted="Ctrl-C"))
    assert [(f.id, f.status) for f in found] == [("INT-001", "not_checked")]


def test_abnormal_exits_are_warnings_beside_the_cause():
    done = {"phase": "finished", "exit_code": 0}
    status = [at(0, returncode=-6, **done), at(1, returncode=0, **done), at(2, **done)]
    found = blame(facts(*status, overdue=frozenset(), lingering=frozenset({2})))
    assert [(f.id, f.status, f.subject.name) for f in found] == [
        ("EXIT-001", "warn", "rank 0"),
        ("EXIT-001", "warn", "rank 2"),
    ]
    assert "still runs" in found[1].title


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (-9, "killed by signal 9 (SIGKILL)"),
        (137, "exit code 137: killed by signal 9 (SIGKILL)"),
        (3, "ended with exit code 3"),
        (0, "ended with exit code 0"),
        (255, "ended with exit code 255"),
        (None, "ended without goodbye"),
    ],
)
def test_return_codes_in_words(code, text):
    assert returncode_text(code) == text


@pytest.mark.parametrize(
    ("error", "consequence"),
    [
        (CLOSED, True),
        ("DistBackendError: NCCL error: remote process exited or there was a network error", True),
        ("DistNetworkError: recvValue failed: Connection was likely closed", True),
        ("RuntimeError: Timed out waiting 30000ms for recv operation to complete", True),
        ("ValueError: bad shape", False),
        ("torch.OutOfMemoryError: CUDA out of memory", False),
        ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", False),
        ("DistBackendError: NCCL error in: NCCLUtils.cpp:94, unhandled cuda error", False),
    ],
)
def test_which_messages_only_say_that_a_peer_is_gone(error, consequence):
    assert is_consequence(error) is consequence


def test_every_finding_is_complete_and_explained():
    cases = [
        facts(at(0), at(1), deaths=(Death(rank=1, at=1.0, returncode=code),))
        for code in (-9, -7, 3, 0, None)
    ]
    cases += [
        facts(at(0), at(1), raised=(Raised(rank=1, at=1.0, error="E: x", trace="l\n" * 99),)),
        facts(at(0), at(1), silent=frozenset({1})),
        facts(at(0), at(1, sequence=5)),
        facts(at(0, sequence=7), at(1), at(2)),
        facts(at(0), at(1, op=OTHER)),
        facts(at(0), at(1)),
        facts(at(0), RankStatus(rank=1)),
        facts(at(0), at(1), interrupted=""),
        facts(at(0), at(1), claims=(1, "pid 7 on a (10.0.0.1:5)", "pid 8 on b (10.0.0.2:6)")),
        facts(at(0), at(1), strangers=2, strangers_seen=("10.0.0.3:7: no line of this run",)),
        facts(at(0, phase="finished", exit_code=0, returncode=-6), overdue=frozenset()),
    ]
    seen = set()
    for case in cases:
        for finding in blame(case):
            seen.add(finding.id)
            assert from_json(Finding, to_json(finding)) == finding
            for field in ("title", "saw", "expected", "because", "costs", "next"):
                text = getattr(finding, field)
                assert text and not re.search(r"\bNone\b|Signals\.|  ", text), (field, text)
            assert len(finding.evidence) <= 100
    assert seen == {id for id, one in EXPLAINED.items() if one.family == "watchdog"}
