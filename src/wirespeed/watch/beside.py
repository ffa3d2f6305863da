"""The process beside a rank that another launcher has started: it takes what the rank tells.

Beside rank 0 it is the session; beside the others it hands on by UDP, with the mark of the job's
secret, to where rank 0 says in the job's own store (`_wirespeed_tell`). It ends with its rank, and
the rank does not notice whether it is there.
"""

import hmac
import os
import secrets
import select
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256

from wirespeed.errors import WorldError
from wirespeed.launchers.watch_relay import INSIDE, VARIABLE, recorder
from wirespeed.node.identity import detect

AT = "WIRESPEED_WATCH_AT"
"""Of rank 0: `PORT:SECRET` of its session, which its agent tells the others."""
BESIDE = "WIRESPEED_WATCH_BESIDE"
"""Set where a process like this takes what the rank tells."""
_MARK = 16
_STARTS_S = 30.0
"""Longer the rank does not wait for it."""
LONGEST = 60_000


def beside(pid: int, environ: Mapping[str, str]) -> dict[str, str]:
    """Start it for the rank with that pid; the variables by which the rank reaches it.

    Raises WorldError where it does not start.
    """
    identity = detect(environ)
    rank, size = (identity.rank, identity.world_size) if identity else (0, 1)
    secret = secrets.token_hex(16)
    words = [sys.executable, "-P", "-m", "wirespeed.session.beside", str(pid), str(rank), str(size)]
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=dict(environ),
    )
    if process.stdin is None or process.stdout is None:
        raise WorldError("no pipes to the process beside the rank", expected="pipes")
    process.stdin.write(f"{secret}\n".encode())
    process.stdin.close()
    with process.stdout as out:
        ready = select.select([out], [], [], _STARTS_S)[0]
        told = out.readline().decode().split() if ready else []
    if len(told) != 2:
        raise WorldError(
            f"the watch beside rank {rank} did not start",
            expected="a process that says where it listens",
            next=" ".join(words),
        )
    path, port = told
    own = {VARIABLE: path, BESIDE: "yes", **recorder(environ)}
    return own | ({AT: f"{port}:{secret}"} if rank == 0 else {})


def marked(text: str, secret: str) -> bytes:
    """The datagram of a message."""
    data = text.encode()
    return _mark(data, secret) + data


def opened(datagram: bytes, secret: str) -> str | None:
    """The message; None where it does not bear the mark."""
    mark, data = datagram[:_MARK], datagram[_MARK:]
    if not hmac.compare_digest(mark, _mark(data, secret)):
        return None
    return data.decode("utf-8", "replace")


def _mark(data: bytes, secret: str) -> bytes:
    return hmac.new(secret.encode(), data, sha256).hexdigest()[:_MARK].encode()


def watched_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For a program that this process becomes, watched."""
    before = environ.get("PYTHONPATH", "")
    path = os.pathsep.join([str(INSIDE), *([before] if before else [])])
    return {**environ, **beside(os.getpid(), environ), "PYTHONPATH": path}
