"""NCCL's RAS of a running job, by its text protocol (NCCL 2.24 on, src/ras of its repository).

It said OK of jobs that hung: one source among several. What it answers is data of a stranger.
"""

import ipaddress
import socket
import time
from collections.abc import Iterable

from wirespeed.diagnose.reports import ras_report
from wirespeed.errors import CannotMeasure, InputError
from wirespeed.model.records import Finding
from wirespeed.watch.attach.ranks import RankProcess

PORT = 28028
BOUND_S = 8.0
_TIMEOUT_S = 5
"""How long RAS itself waits for the other processes of the job."""
_LARGEST = 16 << 20
_LONGEST_LINE = 4096
_LINES = 12


def addresses(processes: Iterable[RankProcess]) -> list[tuple[str, int]]:
    """Of this machine only: an environment must not send us elsewhere."""
    named = [one.environment.get("NCCL_RAS_ADDR", f"localhost:{PORT}") for one in processes]
    found = []
    for text in dict.fromkeys(named):
        host, _, port = text.rpartition(":")
        host = "127.0.0.1" if host.strip("[]") in ("localhost", "") else host.strip("[]")
        if port.isdecimal() and 0 < int(port) < 65536 and _is_here(host):
            found.append((host, int(port)))
    return found


def _is_here(host: str) -> bool:
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
        with socket.socket(family) as probe:
            probe.bind((host, 0))
    except (OSError, ValueError):
        return False
    return True


def ras_says(address: tuple[str, int], bound_s: float = BOUND_S) -> tuple[list[Finding], list[str]]:
    """Findings of its JSON; of a version without that the first lines of its text.

    CannotMeasure where nobody listens, or what answers is no RAS.
    """
    name = f"NCCL RAS at {address[0]}:{address[1]}"
    try:
        as_json, text = _asked(address, time.monotonic() + bound_s)
    except OSError as error:
        raise CannotMeasure(f"{name}: {error.strerror or error}") from error
    if not as_json:
        lines = [one for one in text.decode(errors="replace").splitlines() if one.strip()]
        return [], [f"{name}: {one[:200]}" for one in lines[:_LINES]]
    try:
        return ras_report(text, name), []
    except InputError as error:
        raise CannotMeasure(error.saw) from error


def _asked(address: tuple[str, int], end: float) -> tuple[bool, bytes]:
    """Whether it knows JSON, and its report."""
    with socket.create_connection(address, timeout=1.0) as peer:
        if not _told(peer, "CLIENT PROTOCOL 2", end).startswith("SERVER PROTOCOL"):
            raise OSError("what listens there is no NCCL RAS")
        _told(peer, f"TIMEOUT {_TIMEOUT_S}", end)
        as_json = _told(peer, "SET FORMAT json", end) == "OK"
        peer.sendall(b"VERBOSE STATUS\n")
        return as_json, _rest(peer, end)


def _told(peer: socket.socket, words: str, end: float) -> str:
    """The line that it answers with."""
    peer.sendall(f"{words}\n".encode())
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
        if not (part := _part(peer, 1, end)):
            raise OSError("it closed the connection")
        line += part
    return line.decode(errors="replace").strip()


def _rest(peer: socket.socket, end: float) -> bytes:
    parts, size = [], 0
    while part := _part(peer, 1 << 16, end):
        parts.append(part)
        size += len(part)
        if size > _LARGEST:
            raise OSError(f"it sent more than {_LARGEST >> 20} MiB")
    return b"".join(parts)


def _part(peer: socket.socket, size: int, end: float) -> bytes:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("it did not answer in time")
    peer.settimeout(left)
    return peer.recv(size)
