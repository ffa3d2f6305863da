"""What the host's own name leads to: this machine's real resolver, and bounds for a dead one."""

import socket
import threading
import time

import pytest

from wirespeed.node.identity import distinct_names, own_seat
from wirespeed.node.interfaces import Named, resolve_name


def test_this_machine_s_own_name_is_what_getaddrinfo_says() -> None:
    named = resolve_name()
    assert named.name == socket.gethostname()
    try:
        found = socket.getaddrinfo(named.name, None, socket.AF_UNSPEC, socket.SOCK_STREAM)
    except socket.gaierror:
        assert not named.addresses
        assert "does not resolve" in named.reason
    else:
        assert list(named.addresses) == list(dict.fromkeys(entry[4][0] for entry in found))


def test_localhost_is_usable_and_loopback() -> None:
    named = resolve_name("localhost")
    assert named.usable in ("127.0.0.1", "::1")
    assert named.loopback


def test_a_name_of_nobody_says_so() -> None:
    named = resolve_name("no-such-host.invalid", bound_s=20)
    assert (named.addresses, named.usable, named.loopback) == ((), "", False)
    assert "'no-such-host.invalid' does not resolve" in named.reason


def test_another_host_s_address_is_not_usable() -> None:
    # 203.0.113.0/24 is for documentation (RFC 5737): no interface has it.
    named = resolve_name("203.0.113.9")
    assert named.addresses == ("203.0.113.9",)
    assert named.usable == ""
    assert not named.loopback


def test_the_first_address_that_can_be_bound_is_used() -> None:
    def lookup(*_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))
            for address in ("203.0.113.9", "127.0.1.1", "127.0.0.1")
        ]

    named = resolve_name("node", lookup=lookup)
    assert named.addresses == ("203.0.113.9", "127.0.1.1", "127.0.0.1")
    assert named.usable == "127.0.1.1"


def test_a_resolver_that_hangs_is_left_in_time() -> None:
    release = threading.Event()

    def lookup(*_: object) -> list[object]:
        release.wait(30)
        return []

    began = time.monotonic()
    named = resolve_name("node", bound_s=0.2, lookup=lookup)
    release.set()
    assert time.monotonic() - began < 10
    assert named == Named("node", reason="no answer to 'node' within 0.2 s")


@pytest.mark.parametrize("name", ["a" * 64, "-", ".."])
def test_a_name_that_cannot_be_one_raises_nothing(name: str) -> None:
    assert resolve_name(name, bound_s=20).reason


def test_namespaces_of_one_name_are_told_apart_and_ranks_of_one_are_not() -> None:
    seats = [("a", 1), ("b", 1), ("a", 2), ("a", 1), ("a", 3)]
    assert distinct_names(seats) == ("a", "b", "a#2", "a", "a#3")


def test_our_own_seat_stays_the_same() -> None:
    assert own_seat() == own_seat()
    assert own_seat()[0] == socket.gethostname()
