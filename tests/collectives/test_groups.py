"""How the world is cut into groups."""

import pytest

from wirespeed.collectives.collective import check_groups, members_of
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
    ],
)
def test_cuts(spec, groups):
    assert members_of(spec, HOSTS, LOCAL) == groups


def test_rails_need_two_nodes():
    assert members_of("rails", ["a", "a"], [0, 1]) == []


@pytest.mark.parametrize("spec", ["every-0", "every-x", "racks", ""])
def test_unknown_cuts_are_refused(spec):
    with pytest.raises(UsageError, match="unknown groups"):
        check_groups(spec)
