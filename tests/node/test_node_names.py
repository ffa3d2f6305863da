import socket

from wirespeed.node.identity import distinct_names, own_seat


def test_namespaces_of_one_name_are_told_apart_and_ranks_of_one_are_not() -> None:
    seats = [("a", 1), ("b", 1), ("a", 2), ("a", 1), ("a", 3)]
    assert distinct_names(seats) == ("a", "b", "a#2", "a", "a#3")


def test_our_own_seat_stays_the_same() -> None:
    assert own_seat() == own_seat()
    assert own_seat()[0] == socket.gethostname()
