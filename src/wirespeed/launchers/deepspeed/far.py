"""`python -m wirespeed.launchers.deepspeed.far [--carried FOLDER] --job …`: a rank under DeepSpeed.

Takes the environment that was carried around DeepSpeed: with `--carried` (pdsh) from its own file
of that folder, else from one variable. For the rest it is `rank_wrapper`; but under pdsh it also
ends with its ssh connection.

Under pdsh nothing reaches a rank from where it was started. When the network between is cut, nobody
closes anything: sshd goes on until TCP gives up, which is hours where nothing is sent. But our ssh
sends something every 5 s, or acknowledges what is sent to it, and the kernel knows since when it has
not: `tcpi_last_data_recv` and `tcpi_last_ack_recv` of sock_diag(7), which any process may read.
Standard library only.
"""

import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from ipaddress import ip_address

from wirespeed.errors import WirespeedError, WorldError
from wirespeed.launchers.deepspeed.guard import CARRIED, PYTHON_PATH, take, unpack
from wirespeed.launchers.rank_wrapper import main as rank_main

SILENCE_S = 60.0
"""Twelve times what ssh leaves between two signs of life."""
LOOK_S = 5.0
_SOCK_DIAG_BY_FAMILY, _REQUEST = 20, 1
_INFO = 2
"""INET_DIAG_INFO of linux/inet_diag.h, with a `struct tcp_info`."""
_HEADER = struct.Struct("=IHHII")
"""struct nlmsghdr."""
_QUESTION = struct.Struct("=BBBxI")
_PORTS = struct.Struct("!HH16s16s")
_NO_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_MESSAGE = 72
"""Bytes of struct inet_diag_msg, before the attributes."""
_LAST_RECEIVED = 52
"""Where tcpi_last_data_recv and tcpi_last_ack_recv (ms) stand in struct tcp_info."""


def main(arguments: Sequence[str]) -> int:
    """Run the rank; its exit code."""
    words = list(arguments)
    try:
        if words[:1] == ["--carried"]:
            told = take(words[1], int(os.environ["CROSS_RANK"]), int(os.environ["RANK"]))
            words = words[2:]
            if connection := os.environ.get("SSH_CONNECTION", ""):
                watch = threading.Thread(target=_watch, args=(connection,), name="ssh", daemon=True)
                watch.start()
        else:
            told = unpack(os.environ.pop(CARRIED, "")) if CARRIED in os.environ else {}
    except (LookupError, ValueError, WirespeedError) as error:
        sys.stderr.write(f"wirespeed: {error}\n")
        return WorldError.exit_code
    # DeepSpeed has put its own folder, for us the root, before what there was.
    os.environ.pop(PYTHON_PATH, None)
    os.environ.update(told)
    return rank_main(words)


def silent_s(connection: str) -> float | None:
    """For how long nothing has come over that connection, as SSH_CONNECTION tells it, in seconds.

    None where it cannot be told: it is gone, or this system does not answer.
    """
    words = connection.split()
    try:
        theirs, their_port, ours, our_port = words
        addresses = ip_address(ours.partition("%")[0]), ip_address(theirs.partition("%")[0])
        ports = int(our_port), int(their_port)
        answer = _ask(addresses[0].version, ports, addresses[0].packed, addresses[1].packed)
    except (OSError, ValueError):
        return None
    return _read(answer)


def _watch(connection: str) -> None:
    while (silence := silent_s(connection)) is not None:
        if silence > SILENCE_S:
            os.kill(os.getpid(), signal.SIGTERM)  # the wrapper ends its command
            return
        time.sleep(LOOK_S)


def _ask(version: int, ports: tuple[int, int], ours: bytes, theirs: bytes) -> bytes:
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    every_state = 0xFFFFFFFF
    body = _QUESTION.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), every_state)
    body += _PORTS.pack(*ports, ours, theirs) + _NO_COOKIE
    head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as diag:  # NETLINK_SOCK_DIAG
        diag.settimeout(LOOK_S)
        diag.send(head + body)
        return diag.recv(1 << 16)


def _read(answer: bytes) -> float | None:
    """The shorter silence, of data and of acknowledgements; None for an error."""
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    at = _HEADER.size + _MESSAGE
    while at + 4 <= len(answer):
        size, kind = struct.unpack_from("=HH", answer, at)
        if kind == _INFO and size >= 4 + _LAST_RECEIVED + 8:
            data, acknowledged = struct.unpack_from("=II", answer, at + 4 + _LAST_RECEIVED)
            return float(min(data, acknowledged)) / 1000
        at += max(size + 3 & ~3, 4)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
