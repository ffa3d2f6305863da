"""Processes of ours that work for a lab while it is up: the relays and the pulses.

They live in the namespace of the switch and carry their role in the environment, so that they are
found again by whoever comes later, also after a crash.
"""

import json
import os
import select
import subprocess
from contextlib import suppress

from wirespeed.errors import CannotMeasure
from wirespeed.lab.layout import Layout, space_path
from wirespeed.lab.processes import end_all

__all__ = ["start_daemon", "stop_daemon"]

_ROLE = "WIRESPEED_LAB_ROLE"
_START_S, _END_S = 10.0, 5.0
_SAID = 2000


def start_daemon(layout: Layout, role: str, script: str, *arguments: str) -> None:
    """Start one of our scripts and wait until it says that it is ready."""
    stop_daemon(layout, role)
    facts = json.dumps({"net": str(space_path(layout.switch)), "detach": True})
    words = [*layout.script("enter"), facts, *layout.script(script), *arguments]
    started = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, _ROLE: _value(layout, role)},
        cwd="/",
        start_new_session=True,
    )
    with started:  # ends at once: it has left a child to init
        said = _first_words(started)
    if said.strip() != "ready":
        raise CannotMeasure(
            f"the {role} of lab {layout.name} did not start within {_START_S:g} s: {said.strip()}",
            expected="packet sockets and namespaces",
        )


def stop_daemon(layout: Layout, role: str) -> None:
    end_all([layout.switch], _END_S, f"{_ROLE}={_value(layout, role)}")


def _value(layout: Layout, role: str) -> str:
    return f"{layout.name}/{role}"


def _first_words(started: subprocess.Popen[bytes]) -> str:
    pipe = started.stdout
    if pipe is None or not select.select([pipe], [], [], _START_S)[0]:
        return ""
    with suppress(OSError):
        return os.read(pipe.fileno(), _SAID).decode("utf-8", "replace")
    return ""
