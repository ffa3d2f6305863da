"""Who else measures on this machine, whoever started it: it informs, and keeps nobody out.

Each run has one socket a node in the abstract name space of the network namespace, which is what a
node is here; the kernel lists the names for everybody and forgets them with the process. Who comes
later sends those who are there a word, which waits in their sockets until they ask. A name is text of
somebody else: it is matched, shown, and believed no further.
"""

import hashlib
import os
import re
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "WIRESPEED_NEIGHBOURS"
"""Runs that have another word here do not see each other (tests)."""
_NAME = re.compile(
    r"wirespeed/([0-9a-f]{8})/(?P<mark>[0-9a-f]{16})/(?P<pid>\d{1,10})/(?P<since>\d{1,11})/"
    r"(?P<command>[a-z]{1,16})"
)
_LISTED = Path("/proc/net/unix")
_MOST_BYTES = 16 << 20
_MOST = 256


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another run here, as it calls itself."""

    mark: str
    pid: int
    since: int
    """Seconds since the epoch."""
    command: str


class Presence:
    """This run is here, until `leave`. Where the system has no such sockets nobody is seen."""

    def __init__(self, command: str, mark: str, environ: Mapping[str, str] | None = None) -> None:
        """mark: 16 hexadecimal digits, the same for all processes of the run and for no other's."""
        variables = os.environ if environ is None else environ
        self._scope = hashlib.sha256(variables.get(VARIABLE, "").encode()).hexdigest()[:8]
        self._mark = mark
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        name = f"wirespeed/{self._scope}/{mark}/{os.getpid()}/{time.time():.0f}/{command}"
        with suppress(OSError):
            self._socket.bind(f"\0{name}")
        self._seen: dict[str, Neighbour] = {}
        for other in _listed():
            if self._take(other):
                with suppress(OSError):  # it has just gone, or has been told by many
                    self._socket.sendto(b"", f"\0{other}")

    def others(self) -> tuple[Neighbour, ...]:
        """The runs that were here when this one came, and that have come since; oldest first."""
        for _ in range(_MOST):
            try:
                _, name = self._socket.recvfrom(1)
            except OSError:
                break
            # The kernel says who sent it: the name that this socket is bound to.
            if isinstance(name, bytes):
                self._take(name[1:].decode(errors="replace"))
        return tuple(sorted(self._seen.values(), key=lambda one: (one.since, one.mark)))

    def leave(self) -> None:
        self._socket.close()

    def _take(self, name: str) -> bool:
        """Whether that is another run of ours."""
        found = _NAME.fullmatch(name)
        if found is None or found[1] != self._scope or found["mark"] == self._mark:
            return False
        if len(self._seen) < _MOST:
            one = Neighbour(found["mark"], int(found["pid"]), int(found["since"]), found["command"])
            self._seen.setdefault(one.mark, one)
        return True


def _listed() -> list[str]:
    """Names of the abstract sockets in this network namespace; none where they cannot be read."""
    try:
        with _LISTED.open("rb") as file:
            lines = file.read(_MOST_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    names = (line.rpartition(" ")[2] for line in lines)
    return [name[1:] for name in names if name.startswith("@wirespeed/")]
