"""Bounds and grace periods with a clock of our own."""

import pytest

from wirespeed.watchdog.protocol import Beat, Hello, ProtocolError
from wirespeed.watchdog.rank_table import RankTable, lingering, trigger


def local(rank: int) -> bool:
    return True


def remote(rank: int) -> bool:
    return False


def beat(phase="running", sequence=1, ticks=0, bound=0.0, age=0.0, detail="") -> Beat:
    return Beat(phase, detail, "op", sequence, ticks, age, bound)


def joined(size: int = 2, now: float = 0.0) -> RankTable:
    table = RankTable(size, 0.0, op_timeout=30.0, startup_timeout=120.0)
    for rank in range(size):
        table.hello(Hello("n", rank, size, "node", rank + 1), f"10.0.0.1:{rank}", now)
        table.beat(rank, beat(), now)
    return table


def keep_alive(table: RankTable, ranks, start: int, end: int, **fields) -> list[int]:
    """A beat each second; returns the seconds at which somebody was overdue."""
    overdue = []
    for second in range(start, end):
        for rank in ranks:
            table.beat(rank, beat(**fields), second)
        if table.overdue(second):
            overdue.append(second)
    return overdue


def test_no_progress_is_overdue_just_after_the_bound():
    table = joined()
    assert keep_alive(table, [0, 1], 1, 40) == list(range(31, 40))
    assert table.overdue(39) == {0, 1}


def test_each_kind_of_progress_starts_the_clock_again():
    table = joined()
    for now, change in ((25, {"sequence": 2}), (50, {"ticks": 1, "sequence": 2})):
        table.beat(0, beat(**change), now)
    table.record(1, 50)
    assert not table.overdue(79)
    assert table.overdue(81) == {0, 1}


def test_the_rank_tells_how_long_ago_its_operation_began():
    table = joined()
    table.beat(0, beat(sequence=2, age=4.0), 20)
    assert table.statuses(20)[0].since == 4.0


def test_missing_ranks_are_overdue_at_the_startup_bound_and_excuse_the_others():
    table = RankTable(2, 0.0, op_timeout=30.0, startup_timeout=120.0)
    table.hello(Hello("n", 0, 2, "node", 1), "10.0.0.1:1", 1)
    assert keep_alive(table, [0], 1, 125, phase="ready") == list(range(121, 125))
    assert table.overdue(124) == {1}


def test_the_clock_of_the_others_runs_from_when_the_slow_rank_is_through():
    table = joined()
    table.beat(1, beat("running", detail="compile", bound=100.0), 0)
    for second in range(90):
        table.beat(1, beat("running", detail="compile", bound=100.0), second)
        assert not table.overdue(second)
    table.beat(1, beat("running", sequence=2), 90)
    assert not table.overdue(110)
    assert table.overdue(120) == {0}


def test_a_phase_is_overdue_past_its_own_bound():
    table = joined()
    table.beat(1, beat("running", detail="compile", bound=50.0), 0)
    assert not table.overdue(49)
    assert table.overdue(51) == {1}


def test_two_slow_ranks_do_not_excuse_each_other_for_ever():
    table = joined()
    for rank in (0, 1):
        table.beat(rank, beat(detail="compile", bound=50.0), 0)
    assert keep_alive(table, [0, 1], 1, 60, detail="compile", bound=50.0)[0] == 51


def test_a_pause_of_the_session_is_nobodys_silence():
    table = joined()
    table.shift(100.0)
    assert not table.overdue(125)
    assert table.overdue(131)


def test_finished_ranks_are_never_overdue():
    table = joined()
    table.bye(0, 0, 1)
    assert table.overdue(100) == {1}


def test_a_death_is_decided_after_its_grace():
    table = joined()
    table.lost(1, 10.0)
    assert trigger(table, 10.4, remote) is None
    assert trigger(table, 10.5, remote) == "ended"
    table.ended(1, -9, 10.5)
    (death,) = table.deaths()
    assert (death.rank, death.at, death.returncode) == (1, 10.0, -9)


def test_an_ended_process_whose_goodbye_is_still_being_read_is_no_death():
    table = joined()
    table.ended(1, 0, 10.0)
    table.record(1, 10.4)
    assert trigger(table, 10.6, local) is None
    table.bye(1, 0, 10.7)
    table.lost(1, 10.7)
    assert table.deaths() == ()


def test_an_ended_process_whose_connection_was_inherited_is_a_death():
    table = joined()
    table.ended(1, -9, 10.0)
    assert trigger(table, 10.6, local) == "ended"


def test_an_exception_waits_for_a_death_that_may_explain_it():
    table = joined(3)
    table.failed(0, "closed", "", 10.0)
    assert trigger(table, 10.9, remote) is None
    table.lost(1, 10.9)
    assert trigger(table, 11.0, remote) is None
    assert trigger(table, 11.4, remote) == "ended"
    assert [death.rank for death in table.deaths()] == [1]


def test_nothing_is_waited_for_once_all_have_raised():
    table = joined()
    for rank in (0, 1):
        table.failed(rank, "no", "", 10.0)
    assert trigger(table, 10.0, remote) == "ended"


def test_local_processes_are_given_time_to_end_after_goodbye():
    table = joined()
    for rank in (0, 1):
        table.bye(rank, 0, 10.0)
    assert trigger(table, 10.0, remote) == "finished"
    assert trigger(table, 15.0, local) is None
    table.ended(0, 0, 15.0)
    assert trigger(table, 20.0, local) == "finished"
    assert lingering(table, local) == {1}


def test_an_unknown_phase_is_refused():
    with pytest.raises(ProtocolError, match="phase"):
        joined().beat(0, beat("dancing"), 1)
