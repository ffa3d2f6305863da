"""The watchdog with real processes and sockets: each fault ends the run and names its rank."""

import signal
import subprocess
import sys
import time

import pytest

from wirespeed.errors import CannotMeasure, StorageError
from wirespeed.watchdog import Monitor, RankStatus, new_token
from wirespeed.watchdog.protocol import Record

OP = "all_reduce float32 1 MiB"
RUN = ["phase", "running"]
WORK = [RUN, ["ops", 5, OP, 0.01]]
WAIT = [RUN, ["ops", 5, OP, 0.01], ["blocked_in_c"]]
DONE = [*WORK, ["finish", 0]]


def subjects(outcome):
    return [(finding.id, finding.subject.name) for finding in outcome.findings]


def test_a_good_run_finishes_without_findings(watched):
    world = watched([DONE, DONE, DONE])
    outcome = world.outcome()
    assert (outcome.kind, outcome.ok, outcome.findings) == ("finished", True, ())
    assert [s.sequence for s in outcome.statuses] == [5, 5, 5]
    assert [p.wait(5) for p in world.processes.values()] == [0, 0, 0]


def test_what_comes_after_the_outcome_is_not_recorded(watched):
    world = watched([WAIT, WAIT])
    world.reached(5, 0, 1)
    world.monitor.heard(0, Record("measurement", {"n": 1}), time.monotonic())
    world.signal(1, signal.SIGKILL)
    world.outcome(5)
    world.monitor.heard(0, Record("measurement", {"n": 2}), time.monotonic())
    assert [data["n"] for _, kind, data in world.records if kind == "measurement"] == [1]


@pytest.mark.slow
def test_kill_9_names_rank_signal_and_operation(watched):
    world = watched([WAIT, WAIT, WAIT])
    world.reached(5, 0, 1, 2)
    world.signal(1, signal.SIGKILL)
    outcome = world.outcome(5)
    assert outcome.kind == "died"
    assert subjects(outcome) == [("DIED-001", "rank 1")]
    (finding,) = outcome.findings
    assert "killed by signal 9 (SIGKILL)" in finding.title
    assert "out-of-memory" in finding.because
    assert f"in {OP} (operation 5)" in finding.saw
    assert f"2 in {OP} (operation 5)" in finding.costs
    world.all_end()
    assert "this rank is ended" in world.log(0)


def test_death_where_nobody_can_tell_the_signal(watched):
    world = watched([WAIT, WAIT], own=False)
    world.reached(5, 0, 1)
    world.signal(1, signal.SIGKILL)
    outcome = world.outcome(5)
    assert subjects(outcome) == [("DIED-001", "rank 1")]
    assert "connection ended without goodbye" in outcome.findings[0].saw


@pytest.mark.slow
def test_sigstop_names_the_rank_and_shows_its_stack(watched):
    stuck = [*WORK, ["stuck_in_python"]]
    world = watched([WAIT, stuck, WAIT])
    world.reached(5, 0, 1, 2)
    time.sleep(0.5)  # rank 1 has begun its last operation; let it get stuck, too
    world.signal(1, signal.SIGSTOP)
    outcome = world.outcome(12)
    assert outcome.kind == "hung"
    assert subjects(outcome) == [("HANG-001", "rank 1")]
    (finding,) = outcome.findings
    assert "is stopped" in finding.title
    assert "process state T" in finding.saw
    assert any("stuck_in_python" in line for line in finding.evidence), finding.evidence
    assert "stuck_in_python" in outcome.stacks[1]
    world.all_end()


@pytest.mark.slow
def test_sigstop_of_a_remote_rank_is_silence(watched):
    world = watched([WAIT, WAIT], own=False)
    world.reached(5, 0, 1)
    world.signal(0, signal.SIGSTOP)
    outcome = world.outcome(12)
    assert subjects(outcome) == [("HANG-001", "rank 0")]
    assert "no heartbeat for" in outcome.findings[0].saw
    assert "did not answer" in " ".join(outcome.findings[0].evidence)
    world.signal(0, signal.SIGCONT)
    world.all_end()


@pytest.mark.slow
def test_interpreter_stuck_in_native_code_is_silent_but_shows_its_stack(watched):
    world = watched([WAIT, [*WORK, ["ops", 1, OP, 0.6], ["hold_the_gil"]]])
    outcome = world.outcome(15)
    assert subjects(outcome) == [("HANG-001", "rank 1")]
    assert "holds the interpreter" in outcome.findings[0].because
    assert any("rank_program.py" in line for line in outcome.findings[0].evidence)


@pytest.mark.slow
def test_exception_names_the_rank_and_carries_the_traceback(watched):
    world = watched([WAIT, [*WORK, ["raise", "no more luck"]], WAIT])
    outcome = world.outcome(10)
    assert outcome.kind == "raised"
    assert subjects(outcome) == [("RAISED-001", "rank 1")]
    (finding,) = outcome.findings
    assert "RuntimeError: no more luck" in finding.title
    assert any("in fail" in line for line in finding.evidence)
    world.all_end()


def test_consequences_of_a_death_are_not_blamed(watched):
    closed = "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:40044"
    # Rank 0 raises first, as seen by the session; rank 2 dies within the grace.
    world = watched([[*WORK, ["raise", closed]], WAIT, [*WORK, ["ops", 1, OP, 0.0], ["exit", 7]]])
    outcome = world.outcome(10)
    assert subjects(outcome) == [("DIED-001", "rank 2")]
    assert "exit code 7" in outcome.findings[0].title


@pytest.mark.slow
def test_a_rank_that_never_joins_is_named_with_what_others_wait_for(watched):
    joining = [["phase", "joining"], ["blocked_in_c"]]
    world = watched([joining, None, joining], startup_timeout_s=2.0)
    outcome = world.outcome(10)
    assert outcome.kind == "never_joined"
    assert subjects(outcome) == [("JOIN-001", "rank 1")]
    assert "the others: 2 joining" in outcome.findings[0].costs
    world.all_end()


def test_a_rank_that_ends_before_it_connects_died(watched):
    world = watched([WAIT, None])
    world.monitor.process_ended(1, 3)
    outcome = world.outcome(5)
    assert subjects(outcome) == [("DIED-001", "rank 1")]
    assert "never connected" in outcome.findings[0].saw


@pytest.mark.slow
def test_a_slow_import_is_named_when_others_are_further(watched):
    world = watched(
        [
            [["phase", "joining"], ["blocked_in_c"]],
            [["phase", "importing", "torch"], ["stuck_in_python"]],
        ],
        startup_timeout_s=2.0,
    )
    outcome = world.outcome(10)
    assert subjects(outcome) == [("JOIN-001", "rank 1")]
    assert "importing (torch)" in outcome.findings[0].title
    assert any("stuck_in_python" in line for line in outcome.findings[0].evidence)


@pytest.mark.slow
def test_another_collective_is_named_against_the_majority(watched):
    other = [*WORK, ["ops", 1, "all_gather float32 1 MiB", 0.0], ["blocked_in_c"]]
    usual = [*WORK, ["ops", 1, OP, 0.0], ["blocked_in_c"]]
    world = watched([usual, usual, other, usual])
    outcome = world.outcome(10)
    assert outcome.kind == "hung"
    assert subjects(outcome) == [("HANG-003", "rank 2")]
    assert (
        "runs all_gather float32 1 MiB while 3 others run all_reduce" in outcome.findings[0].title
    )


@pytest.mark.slow
def test_another_collective_one_to_one_names_both_even_when_one_moved_on(watched):
    # A root's broadcast returns at once, so rank 0 is one operation ahead when all stands still.
    first = [*WORK, ["ops", 1, "broadcast", 0.0], ["ops", 1, OP, 0.0], ["blocked_in_c"]]
    second = [*WORK, ["ops", 1, "all_gather", 0.0], ["blocked_in_c"]]
    outcome = watched([first, second]).outcome(10)
    assert subjects(outcome) == [("HANG-003", "rank 0"), ("HANG-003", "rank 1")]
    assert "operation 6: broadcast" in outcome.findings[0].saw


@pytest.mark.slow
def test_a_rank_behind_is_named_with_its_stack(watched):
    further = [*WORK, ["ops", 1, OP, 0.0], ["blocked_in_c"]]
    world = watched([further, further, [*WORK, ["stuck_in_python"]]])
    outcome = world.outcome(10)
    assert subjects(outcome) == [("HANG-002", "rank 2")]
    assert "has begun 5 operations, others 6" in outcome.findings[0].title
    assert any("stuck_in_python" in line for line in outcome.findings[0].evidence)


@pytest.mark.slow
def test_all_stuck_in_the_same_operation_blames_nobody(watched):
    outcome = watched([WAIT, WAIT, WAIT]).outcome(10)
    (finding,) = outcome.findings
    assert (finding.id, finding.subject.name) == ("HANG-004", "job")
    assert OP in finding.title
    assert set(outcome.stacks) == {0, 1, 2}


@pytest.mark.slow
def test_time_outs_raised_by_the_peers_of_a_stopped_rank_blame_the_stopped_one(watched):
    gives_up = [*WORK, ["ops", 1, OP, 3.0], ["raise", "Timed out waiting 3000ms for recv"]]
    world = watched([gives_up, [*WORK, ["ops", 1, OP, 0.0], ["stuck_in_python"]]], op_timeout_s=30)
    world.reached(6, 0, 1)
    world.signal(1, signal.SIGSTOP)
    assert subjects(world.outcome(15)) == [("HANG-001", "rank 1")]


@pytest.mark.slow
def test_ticks_and_announced_bounds_are_no_hang(watched):
    slow = [RUN, ["ops", 1, OP, 0.0], ["ticks", 30, 0.1], ["finish", 0]]
    # Rank 1 announces its slow phase; rank 0 waits for it beyond the bound of one operation.
    announced = [["phase", "running", "compiling", 10.0], ["ops", 1, OP, 3.0], ["finish", 0]]
    outcome = watched([slow, announced, [RUN, ["ops", 1, OP, 3.2], ["finish", 0]]]).outcome(15)
    assert (outcome.kind, outcome.findings) == ("finished", ())


def test_abnormal_exit_after_goodbye_is_a_warning(watched):
    world = watched([DONE, [*WORK, ["records", 3], ["abort_at_exit"], ["finish", 0]]])
    outcome = world.outcome(15)
    assert outcome.ok
    (finding,) = outcome.findings
    assert (finding.id, finding.status) == ("EXIT-001", "warn")
    assert finding.subject.name == "rank 1"
    assert "signal 6 (SIGABRT)" in finding.title
    assert len(world.records) == 3


def test_interrupt_ends_all_ranks(watched):
    world = watched([WAIT, WAIT])
    world.reached(5, 0, 1)
    world.monitor.interrupt("Ctrl-C")
    outcome = world.outcome(5)
    assert outcome.kind == "interrupted"
    assert "Ctrl-C" in outcome.findings[0].title
    assert f"2 in {OP}" in outcome.findings[0].saw
    world.all_end()


@pytest.mark.slow
def test_thousands_of_records_arrive_in_order_from_every_rank(watched):
    world = watched([[RUN, ["records", 5000], ["finish", 0]]] * 2)
    assert world.outcome(60).ok
    for rank in (0, 1):
        numbers = [data["number"] for r, kind, data in world.records if r == rank]
        assert numbers == list(range(5000))


@pytest.mark.slow
def test_a_session_that_is_busy_itself_blames_nobody(watched):
    work = [RUN, ["ops", 2, OP, 1.0]]
    world = watched([[*work, ["records", 1], ["finish", 0]], [*work, ["finish", 0]]])
    world.monitor._on_record = lambda *record: time.sleep(4.0)
    assert (world.outcome().kind, world.outcome().findings) == ("finished", ())


def test_a_session_that_was_stopped_itself_does_not_count_that_time():
    monitor = Monitor(1, new_token(), on_record=lambda *_: None)
    try:
        monitor._step(time.monotonic() - 100.0)
        assert monitor.statuses()[0].silent < -90.0
    finally:
        monitor.close()


@pytest.mark.slow
def test_two_monitors_at_once_keep_apart(watched):
    worlds = [watched([[RUN, ["records", 50 + n], ["finish", 0]]] * 2) for n in (0, 1)]
    assert all(world.outcome().ok for world in worlds)
    assert [len(world.records) for world in worlds] == [100, 102]


def test_ranks_end_by_themselves_when_the_session_is_killed(tmp_path, watched):
    code = (
        "import time\nfrom wirespeed.watchdog import Monitor\n"
        "m = Monitor(1, 'secret', on_record=print)\nprint(m.start(), flush=True)\ntime.sleep(60)\n"
    )
    session = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    world = watched([])
    try:
        assert session.stdout is not None
        world.port, world.token = int(session.stdout.readline()), "secret"
        world.spawn(0, 1, WAIT)
        time.sleep(1.0)
        assert world.processes[0].poll() is None, world.log(0)
    finally:
        session.kill()
        session.communicate()
    world.all_end()
    assert "the session process is gone" in world.log(0)


def test_closing_the_monitor_ends_the_ranks(watched):
    world = watched([WAIT, WAIT])
    world.reached(5, 0, 1)
    world.monitor.close()
    world.all_end()
    assert world.monitor.outcome() is None


@pytest.mark.slow
def test_an_error_in_on_record_ends_the_run_and_is_raised_to_the_owner(watched):
    world = watched([WAIT, None])
    world.reached(5, 0)

    def full(rank, kind, data):
        raise StorageError("the disk is full")

    world.monitor._on_record = full
    world.spawn(1, 2, [RUN, ["records", 1], ["blocked_in_c"]])
    with pytest.raises(StorageError, match="disk is full"):
        world.outcome(10)
    world.all_end()


def test_a_port_in_use_is_a_clear_error():
    with Monitor(1, new_token(), on_record=lambda *_: None) as first:
        port = first.start()
        second = Monitor(1, new_token(), on_record=lambda *_: None, port=port)
        with pytest.raises(CannotMeasure, match="cannot listen"):
            second.start()


@pytest.mark.slow
def test_status_changes_are_seen(watched):
    seen: list[RankStatus] = []
    world = watched([[RUN, ["ops", 3, OP, 0.6], ["finish", 0]]])
    while world.monitor.wait(0.05) is None:
        seen += world.monitor.statuses()
    seen += world.monitor.statuses()
    assert [s.phase for s in seen][-1] == "finished"
    assert {s.sequence for s in seen} >= {1, 2, 3}
