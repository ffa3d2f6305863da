"""What is planned: each node and pair in time, cheaper than by chance; what becomes of suspects."""

import numpy as np
import pytest

from wirespeed.fleet.plan import Batch, Seen, Suspect, batches, node_hours, recheck

NAMES = [f"n{number}" for number in range(24)]


def ids(batch: Batch) -> list[int]:
    return [int(name[1:]) for name in batch.nodes]


def test_all_of_a_new_fleet_is_due() -> None:
    seen = Seen.nothing(NAMES)
    found = batches(seen, range(24), within=14, size=12)
    assert [len(one.nodes) for one in found] == [12, 12]
    assert [one.pairs for one in found] == [66, 66]
    assert sorted(node for one in found for node in ids(one)) == list(range(24))


def test_what_was_seen_lately_is_not_due_and_other_company_is_sought() -> None:
    seen = Seen.nothing(NAMES)
    for half in (range(12), range(12, 24)):
        seen.met(list(half))
    (first, *_) = batches(seen, range(24), within=14, size=12)
    assert first.pairs == 36, "six of each half: each met the others never"
    assert not batches(seen, range(12), within=14, size=12)
    seen.later(15)
    assert len(batches(seen, range(12), within=14, size=12)) == 1


def test_only_idle_nodes_only_so_many_node_hours_and_never_two_alone() -> None:
    seen = Seen.nothing(NAMES)
    (one,) = batches(seen, [3, 5, 7, 11], within=14, size=64)
    assert ids(one) == [3, 5, 7, 11]
    assert not batches(seen, [3, 5, 7], within=14, size=64)
    some = batches(seen, range(24), within=14, size=8, most_node_hours=node_hours(8) * 2.5)
    assert len(some) == 2


def test_pairs_of_leaves_need_one_node_of_each() -> None:
    leaves = [NAMES[:8], NAMES[8:16], NAMES[16:23]]
    seen = Seen.nothing(NAMES, leaves)
    assert seen.pair_days.shape == (4, 4), "the last one is a leaf by itself"
    seen.met([0, 8, 16, 23])
    nodes, pairs = seen.coverage(14)
    assert (nodes, pairs) == (4 / 24, 6 / 9), "no two nodes of one leaf have met"
    seen.met([1, 2])
    assert seen.coverage(14)[1] == 7 / 9
    assert seen.node_days[3] == np.inf


def test_of_an_older_look_the_newer_one_counts() -> None:
    seen = Seen.nothing(NAMES[:4])
    seen.met([0, 1], 3.0)
    seen.met_pair(0, 1, 9.0)
    assert seen.pair_days[0, 1] == seen.pair_days[1, 0] == 3.0
    assert seen.coverage(2.0) == (0.0, 0.0)
    assert seen.coverage(3.0) == (0.5, 1 / 6)


@pytest.mark.parametrize(
    "leaves", [[], [[f"n{n}" for n in range(a, a + 16)] for a in range(0, 64, 16)]]
)
def test_in_two_weeks_more_is_seen_than_by_chance_for_no_more(leaves: list[list[str]]) -> None:
    """A quarter of 64 nodes is idle six times a day, others each time."""
    size = 8 if leaves else 16

    def weeks(planned: bool) -> tuple[float, float, float]:
        random, spent = np.random.default_rng(1), 0.0
        seen = Seen.nothing([f"n{n}" for n in range(64)], leaves)
        for _ in range(14 * 6):
            idle = sorted(random.permutation(64)[:16].tolist())
            if planned:
                chosen = [ids(one) for one in batches(seen, idle, within=14, size=size)]
            else:
                often = 0.25 if leaves else 0.72
                chosen = (
                    [random.permutation(idle)[:size].tolist()] if random.random() < often else []
                )
            spent += sum(node_hours(len(one)) for one in chosen)
            for one in chosen:
                seen.met(one)
            seen.later(1 / 6)
        return (*seen.coverage(14), spent)

    ours, chance = weeks(planned=True), weeks(planned=False)
    assert ours[2] <= chance[2]
    assert ours[0] == 1.0
    assert ours[1] > 0.9
    assert 2 - sum(ours[:2]) < 0.6 * (2 - sum(chance[:2])), "what was not seen"


def test_a_suspect_is_checked_again_with_good_nodes_of_other_leaves() -> None:
    suspect = Suspect(name="bad", blamed=1, companies=1)
    leaf = {"a": 0, "b": 0, "c": 1, "d": 2}
    (one,) = recheck([suspect], ["a", "b", "c", "d"], ["bad", "a", "b", "c", "d"], leaf)
    assert (one.why, one.suspect, one.nodes) == ("suspect", "bad", ("bad", "a", "c", "d"))
    assert not recheck([suspect], [*"abcd"], ["bad", "a", "b"], leaf), "too few good ones are idle"
    assert not recheck([suspect], ["a", "b", "c"], ["a", "b", "c"], leaf), "it is not idle itself"


def test_in_a_small_fleet_a_suspect_is_checked_again_with_whom_there_is() -> None:
    x, y, out = (
        Suspect(name=name, blamed=n, companies=n) for name, n in (("x", 1), ("y", 1), ("out", 2))
    )
    for suspects, good, idle, nodes in (
        ([x], ["a"], "xa", "xa"),
        ([x], ["a"], "bxa", "xab"),  # of b nothing is known
        ([x, y], [], "xy", "xy"),
        ([x, out], [], ["x", "out"], ""),
        ([x], ["a", "b"], "x", ""),
    ):
        found = recheck(suspects, good, [*idle], {})
        assert [one.nodes for one in found] == ([tuple(nodes)] if nodes else [])


def test_suspects_are_within_what_may_be_spent_too() -> None:
    suspects = [Suspect(name=name, blamed=1, companies=1) for name in ("x", "y")]
    idle = [*"xyabcdef"]
    for most, checks in ((0.0, 0), (node_hours(4), 1), (2 * node_hours(4), 2)):
        assert len(recheck(suspects, idle[2:], idle, {}, most_node_hours=most)) == checks


def test_who_is_blamed_again_in_other_company_is_to_be_taken_out() -> None:
    assert Suspect(name="a", blamed=2, companies=2).take_out
    assert not Suspect(name="a", blamed=3, companies=1).take_out, (
        "it may be what they have in common"
    )
    assert not recheck([Suspect(name="a", blamed=2, companies=2)], list("bcd"), list("abcd"), {})
