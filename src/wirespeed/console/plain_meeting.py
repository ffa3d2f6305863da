"""How ranks meet that need no torch: rank 0 answers at MASTER_PORT itself, or leaves a file.

For plans that only ask for the nodes' facts. Whoever connects and greets is given the one line that
all ranks must know (`meeting.to_text`), as torch's store would give it; nothing else is taken or told.
Under torchrun the port belongs to its agents' store, and torch is there: then that store serves.
"""

import contextlib
import os
import socket
import threading
import time
import zlib
from pathlib import Path

from wirespeed.console.meeting import (
    RETRY_S,
    TRY_S,
    Meeting,
    from_text,
    meeting_file,
    no_place,
    on_one_machine,
)
from wirespeed.errors import WorldError
from wirespeed.plan import Plan
from wirespeed.world.identity import Identity

__all__ = ["find_meeting", "meets_plainly", "tell_meeting"]

GREETING = b"wirespeed meeting\n"
GREETING_S = 1.0
"""How long a caller may take to greet; the others wait behind it."""
_BACKLOG = 1024
_MOST_BYTES = 64 * 1024
_SEGMENT_BYTES = 500
"""With headers below 576 bytes: packets that pass where larger ones are dropped."""


def meets_plainly(plan: Plan) -> bool:
    """Whether these ranks meet here and not in a store of torch; all of them decide alike."""
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return plan.facts_only and not agents


def tell_meeting(identity: Identity, text: str) -> None:
    """Rank 0: be found from now on, in a thread of its own or by a file. WorldError if impossible."""
    if identity.world_size == 1:
        return
    if identity.master_addr is not None and identity.master_port is not None:
        listener = _listen(identity.master_port)
        thread = threading.Thread(
            target=_serve, args=(listener, text.encode()), name="meeting", daemon=True
        )
        thread.start()
    elif on_one_machine(identity):
        _leave_file(meeting_file(identity), text)
    else:
        raise no_place(identity)


def find_meeting(identity: Identity, timeout_s: float) -> Meeting:
    """Any other rank: what rank 0 tells; WorldError when it does not within `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    if identity.master_addr is not None and identity.master_port is not None:
        return _ask_until(identity, identity.master_addr, identity.master_port, deadline)
    if on_one_machine(identity):
        return _read_until(identity, meeting_file(identity), deadline)
    raise no_place(identity)


# By the network.


def _listen(port: int) -> socket.socket:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        listener = socket.create_server(
            ("", port), family=family, backlog=_BACKLOG, dualstack_ipv6=both
        )
    except OSError as error:
        raise WorldError(
            f"rank 0 on {socket.gethostname()} cannot listen at MASTER_PORT {port}: "
            f"{error.strerror or error}",
            expected="a port that nobody else listens at",
            next=f"ss -ltnp 'sport = :{port}'",
        ) from error
    with contextlib.suppress(OSError):  # a wish only
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES)
    return listener


def _serve(listener: socket.socket, text: bytes) -> None:
    """Until the process ends; one caller after the other, each for a bounded time."""
    while True:
        with contextlib.suppress(OSError):  # who leaves or is silent comes back, or is nobody
            caller, _ = listener.accept()
            with caller:
                caller.settimeout(GREETING_S)
                if caller.recv(len(GREETING), socket.MSG_WAITALL) == GREETING:
                    caller.sendall(GREETING + text + b"\n")


def _ask_until(identity: Identity, address: str, port: int, deadline: float) -> Meeting:
    while True:
        try:
            return from_text(_ask(address, port))
        except (OSError, ValueError, zlib.error) as error:
            if time.monotonic() > deadline:
                raise _not_found(identity, f"{address}:{port}", error) from error
        time.sleep(RETRY_S)


def _ask(address: str, port: int) -> bytes:
    """The line of rank 0; OSError when nobody answers, or not as rank 0 would."""
    until = time.monotonic() + TRY_S
    with socket.create_connection((address, port), timeout=TRY_S) as connection:
        connection.sendall(GREETING)
        answer = b""
        while time.monotonic() < until and len(answer) < _MOST_BYTES:
            part = connection.recv(_MOST_BYTES)
            if not part:
                break
            answer += part
    if not answer.startswith(GREETING) or not answer.endswith(b"\n"):
        raise ConnectionError("what listens there is not rank 0 of this command")
    return answer.removeprefix(GREETING)


# By a file.


def _leave_file(file: Path, text: str) -> None:
    """Whole or not at all: written beside, then renamed."""
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    beside.write_text(text)
    beside.replace(file)


def _read_until(identity: Identity, file: Path, deadline: float) -> Meeting:
    while True:
        try:
            return from_text(file.read_bytes())
        except (OSError, ValueError, zlib.error) as error:
            if time.monotonic() > deadline:
                raise _not_found(identity, str(file), error) from error
        time.sleep(RETRY_S)


def _not_found(identity: Identity, place: str, error: Exception) -> WorldError:
    cause = error.strerror if isinstance(error, OSError) and error.strerror else error
    return WorldError(
        f"rank {identity.rank} on {socket.gethostname()} does not find rank 0 at {place}: {cause}",
        expected="rank 0 to run the same command, MASTER_ADDR to name its node for every rank, "
        "and MASTER_PORT to be free",
        next=f"getent hosts {identity.master_addr}" if identity.master_addr else "",
    )
