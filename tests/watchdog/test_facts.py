import pytest

from wirespeed.watchdog.facts import RankStatus, ranks_text


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "rank 3"),
        ([0, 1], "ranks 0-1"),
        ([5, 0, 2, 1], "ranks 0-2, 5"),
        ([1, 3, 5], "ranks 1, 3, 5"),
    ],
)
def test_ranks_are_listed_in_runs(ranks, text):
    assert ranks_text(ranks) == text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"connected": False}, "never connected"),
        ({"phase": "importing", "detail": "torch", "since": 4.0}, "importing (torch) for 4.00 s"),
        ({"phase": "running", "since": 2.0}, "running before its first operation for 2.00 s"),
        (
            {"phase": "running", "op": "barrier", "sequence": 7, "since": 31.0},
            "in barrier (operation 7) for 31.0 s",
        ),
        ({"phase": "finished", "sequence": 9}, "finished after 9 operations"),
        (
            {"phase": "failed", "op": "barrier", "sequence": 7, "since": 1.0},
            "failed in barrier (operation 7) for 1.00 s",
        ),
    ],
)
def test_what_a_rank_does_in_words(fields, text):
    assert RankStatus(rank=0, **{"connected": True, **fields}).doing() == text


def test_the_name_has_the_host_once_it_is_known():
    assert RankStatus(rank=3).name == "rank 3"
    assert RankStatus(rank=3, host="node-a").name == "rank 3 on node-a"
