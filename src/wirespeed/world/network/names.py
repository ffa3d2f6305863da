"""What a host name leads to, this host's own or another's, within a bound."""

import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

__all__ = ["BOUND_S", "Named", "resolve_name"]

BOUND_S = 1.0
"""Seconds; a resolver with a dead name server may take half a minute."""
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
Lookup = Callable[..., Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Named:
    """A host name and the addresses that it resolves to, in the resolver's order."""

    name: str
    addresses: tuple[str, ...] = ()
    usable: str = ""
    """The first of them that a socket here can be bound to: what gloo takes."""
    reason: str = ""
    """Why there is no address."""

    @property
    def loopback(self) -> bool:
        """Whether the usable address, or else the first one, is of the loopback interface."""
        first = self.usable or next(iter(self.addresses), "")
        return bool(first) and ip_address(first.partition("%")[0]).is_loopback


def resolve_name(
    name: str | None = None, *, bound_s: float = BOUND_S, lookup: Lookup = socket.getaddrinfo
) -> Named:
    """The addresses of `name` (this host's own if None); never raises, never waits above `bound_s`.

    `lookup` stands in for getaddrinfo in tests.
    """
    own = socket.gethostname() if name is None else name
    answers: list[Named] = []
    # getaddrinfo has no bound of its own; a daemon does not keep the process from ending.
    thread = threading.Thread(
        target=lambda: answers.append(_ask(own, lookup)), name="look-up", daemon=True
    )
    thread.start()
    thread.join(bound_s)
    if answers:
        return answers[0]
    return Named(own, reason=f"no answer to {own!r} within {bound_s:g} s")


def _ask(name: str, lookup: Lookup) -> Named:
    try:
        found = lookup(name, None, socket.AF_UNSPEC, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that is no valid IDNA
        why = error.strerror if isinstance(error, OSError) else None
        return Named(name, reason=f"{name!r} does not resolve: {why or error}")
    ends = [(entry[0], entry[4]) for entry in found if entry[0] in _FAMILIES]
    addresses = tuple(dict.fromkeys(str(end[0]) for _, end in ends))
    usable = next((str(end[0]) for family, end in ends if _can_bind(family, end)), "")
    return Named(name, addresses, usable, "" if addresses else f"{name!r} has no IP address")


def _can_bind(family: int, end: Any) -> bool:
    """Whether the address is one of this node's; port 0, so that nothing is taken."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(end)
    except OSError:
        return False
    return True
