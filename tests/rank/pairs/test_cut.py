"""How a world becomes nodes."""

from wirespeed.rank.pairs.fabric import cut, racks

HOSTS = ("a", "a", "b", "b", "b")
LOCAL = (0, 1, 0, 1, 2)


def test_nodes_are_measured_by_their_first_rank():
    found = cut(HOSTS, LOCAL, "nodes")
    assert found.names == ("a", "b")
    assert found.seats == ((0,), (2,))
    assert found.ranks == ((0, 1), (2, 3, 4))


def test_rails_are_as_many_as_every_node_has():
    assert cut(HOSTS, LOCAL, "rails").seats == ((0, 1), (2, 3))


def test_rails_follow_the_local_rank_not_the_global_one():
    assert cut(("a", "b", "a", "b"), (1, 0, 0, 1), "rails").seats == ((2, 0), (1, 3))


def test_ranks_stand_for_themselves():
    found = cut(HOSTS, LOCAL, "ranks")
    assert found.names[2] == "rank 2"
    assert found.seats == found.ranks == ((0,), (1,), (2,), (3,), (4,))


def test_auto_pairs_ranks_only_where_there_is_one_node():
    assert cut(HOSTS, LOCAL, "auto").over == "nodes"
    assert cut(("a", "a"), (0, 1), "auto").over == "ranks"


def test_racks_group_the_nodes():
    found = cut(("a", "b", "c", "c"), (0, 0, 0, 1), "nodes")
    assert racks(found, ("r1", "r2", "r1", "")) == ((0, 2), (1,))


def test_racks_are_nothing_where_one_is_not_known_or_each_node_has_its_own():
    found = cut(("a", "b", "c"), (0, 0, 0), "nodes")
    assert racks(found, ("r1", "", "r1")) == ()
    assert racks(found, ("r1", "r2", "r3")) == ()
