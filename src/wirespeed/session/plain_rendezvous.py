"""How ranks meet that need no torch: rank 0 answers at MASTER_PORT itself, or leaves a file.

For plans that only ask for the nodes' facts. Who connects and greets is given the one line that all
ranks must know (`rendezvous.to_text`), as torch's store would give it; nothing else is taken or told.
With a secret a greeting is a fresh number with the job's mark, and so is the answer to that number: a
stranger, or a recorded answer, is of no use. Under torchrun the port belongs to its agents' store, and
torch is there: then that store serves.
"""

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from wirespeed.errors import WorldError, refused_as
from wirespeed.node.callers import serve_callers
from wirespeed.node.identity import Identity
from wirespeed.node.secret import Seal
from wirespeed.plan import Plan
from wirespeed.session.rendezvous import (
    MOST_BYTES,
    PATIENCE_S,
    RETRY_S,
    TRY_S,
    Rendezvous,
    from_text,
    no_place,
    on_one_machine,
    rendezvous_file,
)

GREETING = b"wirespeed rendezvous\n"
GREETING_S = 1.0
"""How long a caller may take to greet and to be answered."""
_BACKLOG = 1024
_AT_ONCE, _OF_ONE_PEER = 64, 16
"""Callers that are answered side by side."""
_MOST_GREETING = 256
_QUESTION, _FILE = "question", "file"
"""What a seal is about."""
_SEGMENT_BYTES = 500
"""With headers below 576 bytes: packets that pass where larger ones are dropped."""


def meets_plainly(plan: Plan) -> bool:
    """Whether these ranks meet here and not in a store of torch; all of them decide alike."""
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return plan.facts_only and not agents


def tell_rendezvous(identity: Identity, text: bytes, seal: Seal) -> None:
    """Rank 0: be found from now on, in a thread of its own or by a file. WorldError if impossible."""
    if identity.world_size == 1:
        return
    if identity.master_addr is not None and identity.master_port is not None:
        listener = _listen(identity.master_port)
        thread = threading.Thread(
            target=_serve, args=(listener, text, seal), name="rendezvous", daemon=True
        )
        thread.start()
    elif on_one_machine(identity):
        _leave_file(rendezvous_file(identity), seal.close(text, _FILE))
    else:
        raise no_place(identity)


def find_rendezvous(identity: Identity, timeout_s: float, seal: Seal) -> Rendezvous:
    """Any other rank: what rank 0 tells; WorldError when it does not within `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    if identity.master_addr is not None and identity.master_port is not None:
        address, port = identity.master_addr, identity.master_port
        ask = partial(_ask, address, port, seal)
        return _until(identity, f"{address}:{port}", deadline, PATIENCE_S, ask)
    if on_one_machine(identity):
        file = rendezvous_file(identity)
        return _until(identity, str(file), deadline, timeout_s, partial(_read, file, seal))
    raise no_place(identity)


# By the network.


def _listen(port: int) -> socket.socket:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    what = f"rank 0 on {socket.gethostname()} cannot listen at MASTER_PORT {port}"
    told = {"expected": "a port that nobody else listens at", "next": f"ss -ltnp 'sport = :{port}'"}
    with refused_as(WorldError, what, **told):
        listener = socket.create_server(
            ("", port), family=family, backlog=_BACKLOG, dualstack_ipv6=both
        )
    with contextlib.suppress(OSError):  # a wish only
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT_BYTES)
    return listener


def _serve(listener: socket.socket, text: bytes, seal: Seal) -> None:
    """Until the process ends."""

    def answer(caller: socket.socket) -> None:
        greeting = _line(caller, _MOST_GREETING, GREETING_S)
        if greeting.startswith(GREETING):
            caller.sendall(GREETING + _answer(greeting.removeprefix(GREETING), text, seal) + b"\n")

    serve_callers(
        listener,
        answer,
        seconds=GREETING_S,
        at_once=_AT_ONCE,
        of_one_peer=_OF_ONE_PEER,
        closing=lambda: False,
    )


def _answer(question: bytes, text: bytes, seal: Seal) -> bytes:
    """The rendezvous, for this question; an empty one for who does not know the secret: it says why."""
    try:
        seal.open(question, _QUESTION)
    except ValueError:
        text = b"" if seal.marks else text
    return seal.close(text, f"answer to {question.decode(errors='replace')}")


def _line(connection: socket.socket, most: int, seconds: float) -> bytes:
    """Up to a second newline (the first ends the greeting), without it; ConnectionError for more."""
    got, until = b"", time.monotonic() + seconds
    while got.count(b"\n") < 2:
        part = connection.recv(most)
        got += part
        if not part or len(got) > most or time.monotonic() > until:
            raise ConnectionError("what listens there is not rank 0 of this command")
    return got[:-1]


def _until(
    identity: Identity, place: str, deadline: float, patience_s: float, ask: Callable[[], bytes]
) -> Rendezvous:
    """What `ask` gives, again and again; patience_s: after the first word that is not rank 0's."""
    while True:
        try:
            return from_text(ask())
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError):  # somebody's word, whoever he is: it will not change
                deadline = min(deadline, time.monotonic() + patience_s)
            if time.monotonic() > deadline:
                raise _not_found(identity, place, error) from error
        time.sleep(RETRY_S)


def _ask(address: str, port: int, seal: Seal) -> bytes:
    """What rank 0 tells; OSError or ValueError when nobody answers, or not as rank 0 would."""
    question = seal.close(secrets.token_hex(16).encode(), _QUESTION)
    with socket.create_connection((address, port), timeout=TRY_S) as connection:
        connection.sendall(GREETING + question + b"\n")
        answer = _line(connection, MOST_BYTES, TRY_S)
    if not answer.startswith(GREETING):
        raise ConnectionError("what listens there is not rank 0 of this command")
    return seal.open(answer.removeprefix(GREETING), f"answer to {question.decode()}")


# By a file.


def _leave_file(file: Path, text: bytes) -> None:
    """Whole or not at all: written beside, then renamed."""
    beside = file.with_name(f"{file.name}.{os.getpid()}")
    beside.write_bytes(text)
    beside.replace(file)


def _read(file: Path, seal: Seal) -> bytes:
    return seal.open(file.read_bytes(), _FILE)


def _not_found(identity: Identity, place: str, error: Exception) -> WorldError:
    cause = error.strerror if isinstance(error, OSError) and error.strerror else error
    return WorldError(
        f"rank {identity.rank} on {socket.gethostname()} does not find rank 0 at {place}: {cause}",
        expected="rank 0 to run the same command with the same secret, if any; MASTER_ADDR to name its "
        "node for every rank, and MASTER_PORT to be free",
        next=f"getent hosts {identity.master_addr}" if identity.master_addr else "",
    )
