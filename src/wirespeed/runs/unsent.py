"""A run waits from its beginning to be sent to the common store that WIRESPEED_STORE names.

    $WIRESPEED_HOME/outbox/20261103-101112-91ae33fe.json    {"store": "postgresql://…"}

Whoever sends takes it out when the store has the run (`fleet/common_store/outbox.py`); one that goes on
is let alone.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl

from wirespeed.errors import UsageError, WirespeedError
from wirespeed.node.redact import redact_value

VARIABLE = "WIRESPEED_STORE"
OUTBOX = "outbox"
SUFFIX = ".json"
_FORM = "postgresql://USER@HOST:PORT/DATABASE?sslmode=verify-full, or postgresql:///DATABASE?host=/run/…"


def put(folder: Path) -> None:
    """The run of that folder waits, where a store is named; again where it has changed. Never raises:
    the run itself is stored."""
    store = os.environ.get(VARIABLE)
    if not store:
        return
    path = folder.parent.parent / OUTBOX / f"{folder.name}{SUFFIX}"
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError, WirespeedError):  # a full disk: `wirespeed runs send REF` sends it later
        told = json.dumps({"store": checked_address(store)}) + "\n"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
            stream.write(told)
        new.replace(path)


def waits(folder: Path) -> bool:
    """Whether the run of that folder still is to be sent."""
    return (folder.parent.parent / OUTBOX / f"{folder.name}{SUFFIX}").exists()


def checked_address(url: str) -> str:
    """`url` as it is; UsageError where it is no such URL, or holds a password.

    A password in it would be in the shell's history, in the list of processes and in the outbox.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in ("postgresql", "postgres") or not rest or "\n" in url:
        raise UsageError(
            f"--store {redact_value(url)[:200]!r} is no address of a store", expected=_FORM
        )
    asked = [name.lower() for name, _ in parse_qsl(url.partition("?")[2])]
    if ":" in _parts(rest)[0] or any("password" in name for name in asked):
        raise UsageError(
            f"the address of the store holds a password: {label(url)}",
            expected="the password in ~/.pgpass (mode 0600), or in the variable PGPASSWORD",
            next="echo 'HOST:PORT:DATABASE:USER:PASSWORD' >> ~/.pgpass && chmod 600 ~/.pgpass",
        )
    return url


def label(url: str) -> str:
    """Where it is, for people: without who asks, and how."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{_parts(rest)[1].partition('?')[0]}"


def _parts(rest: str) -> tuple[str, str]:
    """User, with what stands for a password, and the rest; a password may hold anything, unescaped."""
    before, query, parameters = rest.partition("?")
    if "@" not in before:
        before, query, parameters = rest, "", ""
    user, _, there = before.rpartition("@")
    return user, there + query + parameters
