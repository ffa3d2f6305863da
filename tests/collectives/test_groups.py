"""How the world is cut into groups."""

import pytest

from wirespeed.collectives.collective import check_groups, cut_of, members_of
from wirespeed.errors import UsageError

HOSTS = ["a", "a", "a", "b", "b", "b"]
LOCAL = [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    ("spec", "groups"),
    [
        ("all", [(0, 1, 2, 3, 4, 5)]),
        ("nodes", [(0, 1, 2), (3, 4, 5)]),
        ("rails", [(0, 3), (1, 4), (2, 5)]),
        ("pairs", [(0, 1), (2, 3), (4, 5)]),
        ("every-2", [(0, 2, 4), (1, 3, 5)]),
        ("every-4", [(0, 4), (1, 5)]),
        ("of-3", [(0, 1, 2), (3, 4, 5)]),
        ("of-2-every-2", [(0, 2), (1, 3)]),
        ("ranks-0-2/3+5", [(0, 1, 2), (3, 5)]),
        ("ranks-4+1/2", [(4, 1)]),
        ("ranks-0-6", []),
    ],
)
def test_cuts(spec, groups):
    assert members_of(spec, HOSTS, LOCAL) == groups


def test_rails_need_two_nodes():
    assert members_of("rails", ["a", "a"], [0, 1]) == []


@pytest.mark.parametrize(
    "spec", ["every-0", "every-x", "of-0", "of-2-every-0", "ranks-", "ranks-1/", "racks", ""]
)
def test_unknown_cuts_are_refused(spec):
    with pytest.raises(UsageError, match="unknown groups"):
        check_groups(spec)


def test_a_rank_is_in_one_group_only():
    with pytest.raises(UsageError, match="name a rank twice"):
        members_of("ranks-0-2/2+3", HOSTS, LOCAL)


@pytest.mark.parametrize(
    ("groups", "unknown", "name"),
    [
        ([(0, 1, 2, 3, 4, 5, 6, 7)], (), "all"),
        ([(0, 1), (2, 3), (4, 5), (6, 7)], (), "of-2"),
        ([(0, 2, 4, 6), (1, 3, 5, 7)], (), "every-2"),
        ([(0, 2), (1, 3), (4, 6), (5, 7)], (), "of-2-every-2"),
        ([(0, 1), (2, 3), (4, 5)], (), "ranks-0-1/2-3/4-5"),
        ([(0, 1), (2, 3), (4, 5)], (6, 7), "of-2"),
        ([(0, 1), (2, 3), (4, 5)], (6,), "ranks-0-1/2-3/4-5"),
        ([(7, 3, 4, 5)], (), "ranks-7+3-5"),
    ],
)
def test_the_name_of_a_cut(groups, unknown, name):
    assert cut_of(groups, 8, unknown) == name
    found = members_of(name, [""] * 8, [0] * 8)
    assert set(groups) <= set(found)
    assert unknown or found == groups
