import json
from typing import Any

import numpy as np
import pytest

from watch_simulator import Job, messages, simulate
from wirespeed.watch.step_grid import ROWS
from wirespeed.watch.steps import COLUMNS, LinkUse, RankUse
from wirespeed.watch.stream import StepStore


def send(store: StepStore, **message: Any) -> dict[str, Any] | None:
    return store.add(json.dumps(message))


def hello(store: StepStore, rank: int, pid: int, *, ranks: int = 2) -> None:
    send(store, k="hi", r=rank, w=ranks, h=f"n{rank}", p=pid, a=[f"10.0.0.{rank}"], b="optimizer")


def times(store: StepStore) -> list[list[float | None]]:
    """Steps in ms by rank, None where not known."""
    told = store.table().columns["step"] * 1e3
    return [[None if np.isnan(x) else round(float(x), 3) for x in row] for row in told]


def test_what_the_agents_of_a_job_send_is_the_table_again() -> None:
    table = simulate(Job(ranks=4, steps=40, per_node=2), seed=1)
    store = StepStore()
    for message in messages(table, rows=7):
        assert store.add(message) is None
    again = store.table()
    assert again.hosts == table.hosts
    assert (again.first == table.first).all()
    assert (again.each == 1).all()
    for name in COLUMNS:
        assert np.allclose(again.columns[name], table.columns[name], atol=6e-6), name
    assert np.allclose(again.begin_s[::7], table.begin_s[::7])
    assert (again.boundary, again.addresses) == ("optimizer", table.addresses)
    assert (store.launches, store.malformed, store.world_size) == (1, 0, 4)


def test_rows_are_aligned_by_step_whatever_their_length() -> None:
    store = StepStore(2)
    send(store, k="s", r=0, n=10, d=[[100]] * 4)
    send(store, k="s", r=1, n=10, e=2, d=[[50], [70]])
    assert times(store) == [[1, 1, 1, 1], [0.5, 0.5, 0.7, 0.7]]
    send(store, k="s", r=1, n=14, e=4, d=[[60]])
    send(store, k="s", r=0, n=14, d=[[100], [200], [300], [400]])
    assert times(store) == [[1, 1, 1, 1, 2.5], [0.5, 0.5, 0.7, 0.7, 0.6]]
    assert store.table().each.tolist() == [1, 1, 1, 1, 4]


def test_lost_and_late_messages_are_a_hole_and_fill_it() -> None:
    store = StepStore(2)
    send(store, k="s", r=0, n=0, d=[[100]])
    send(store, k="s", r=0, n=3, d=[[100]])
    assert times(store)[0] == [1, None, 1]
    assert store.table().each.tolist() == [1, 2, 1]
    send(store, k="s", r=1, n=1, d=[[100], [300]])
    assert times(store)[1] == [None, 2, None]
    send(store, k="s", r=1, n=0, d=[[100, -1, 7]])
    table = store.table()
    assert np.isnan(table.columns["blocked"][1, 0])
    assert table.columns["data"][1, 0] == pytest.approx(7e-5)
    assert np.isnan(table.columns["load"][1, 0])


def test_neighbours_of_old_rows_are_put_together_and_no_step_is_lost() -> None:
    store = StepStore(2)
    for first in range(0, 3 * ROWS, 64):
        for rank in (0, 1):
            send(store, k="s", r=rank, n=first, d=[[100 + rank, 20]] * 64)
    table = store.table()
    assert len(table.first) <= ROWS
    assert table.each.sum() == 3 * ROWS
    assert (np.diff(table.first) == table.each[:-1]).all()
    assert table.each[-ROWS // 8 :].max() == 1
    assert table.each.max() <= 16
    assert np.allclose(table.columns["step"], [[0.001], [0.00101]])
    assert np.allclose(table.columns["blocked"], 0.0002)


def test_more_ranks_than_expected_find_a_place() -> None:
    store = StepStore(1)
    send(store, k="s", r=0, n=0, d=[[100]])
    send(store, k="s", r=5, n=0, d=[[200]])
    told = times(store)
    assert (told[0], told[5]) == ([1], [2])


def test_a_rank_with_another_process_is_a_new_launch() -> None:
    store = StepStore(2)
    for rank in (0, 1):
        hello(store, rank, pid=rank)
    send(store, k="s", r=0, n=0, d=[[100]])
    send(store, k="l", r=0, s=3)
    hello(store, 1, pid=11)
    send(store, k="s", r=0, n=1, d=[[100]])  # what the old process still told
    hello(store, 0, pid=10)
    send(store, k="s", r=0, n=0, d=[[300]])
    assert store.launches == 2
    assert times(store)[0] == [3]
    assert store.table().bad_loss == {}


def test_other_kinds_are_kept_or_given_back() -> None:
    store = StepStore(2)
    send(store, k="hi", r=0, w=2, h="n0", u=["CUDA"])
    send(store, k="n", r=0, s=9, l=[["10.0.0.1", 0.5, 1000, 0.001, 2]], o=1.0)
    send(store, k="m", r=1, s=9, rss=5)
    send(store, k="l", r=1, s=7)
    send(store, k="l", r=1, s=8)
    assert send(store, k="stack", r=1) == {"k": "stack", "r": 1}
    table = store.table()
    use = LinkUse(
        rank=0,
        peer="10.0.0.1",
        step=9,
        seconds=1,
        busy_s=0.5,
        sent_bytes=1000,
        rtt_s=0.001,
        retransmits=2,
    )
    assert table.links == [use]
    assert table.use == [RankUse(1, 9, 5)]
    assert table.bad_loss == {1: 7}
    assert list(store.unseen) == ["CUDA"]
    assert store.malformed == 0


def test_points_of_memory_and_connections_are_bounded() -> None:
    store = StepStore(1)
    for step in range(1000):
        send(store, k="m", r=0, s=step, rss=step)
        send(store, k="n", r=0, s=step, l=[["a", 0.5, 10, 0.001, 1]], o=1.0)
    table = store.table()
    assert len(table.use) <= 128
    assert len(table.links) <= 128
    assert table.use[0].step == 0
    assert sum(use.sent_bytes for use in table.links) == 10_000
    assert sum(use.retransmits for use in table.links) == 1000


@pytest.mark.hostile("forged messages")
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"null",
        b"[" * 4000,
        b'{"k":"s"}',
        b'{"k":5}',
        b'{"k":"s","r":-1,"n":0,"d":[[1]]}',
        b'{"k":"s","r":99999,"n":0,"d":[[1]]}',
        b'{"k":"s","r":0,"n":0,"d":[]}',
        b'{"k":"s","r":0,"n":-5,"d":[[1]]}',
        b'{"k":"s","r":0,"n":0,"e":0,"d":[[1]]}',
        b'{"k":"s","r":0,"n":0,"d":[["a"]]}',
        b'{"k":"s","r":0,"n":0,"d":[[1e400]]}',
        b'{"k":"s","r":0,"n":0,"d":[[99999999999999999999]]}',
        b'{"k":"s","r":0,"n":0,"t":NaN,"d":[[1]]}',
        b'{"k":"s","r":0,"n":0,"t":-1,"d":[[1]]}',
        b'{"k":"s","r":0,"n":9000000,"d":[[1]]}',
        b'{"k":"hi","r":0,"w":0,"h":"a"}',
        b'{"k":"hi","r":0,"w":2,"h":7}',
        b'{"k":"n","r":0,"s":1,"l":[["a",-1,0,0,0]],"o":1}',
        b'{"k":"n","r":0,"s":1,"l":[["a"]],"o":1}',
        b'{"k":"m","r":0,"s":1,"rss":-1}',
        b'{"k":"l","r":0,"s":1' + b" " * 5000 + b"}",
    ],
)
def test_what_is_malformed_is_counted_and_changes_nothing(text: bytes) -> None:
    store = StepStore(2)
    send(store, k="s", r=0, n=0, d=[[100]])
    assert store.add(text) is None
    assert store.malformed == 1
    assert times(store) == [[1], [None]]
