"""What runs in a Ray actor: one a rank. It is sent to the nodes by value.

So it needs the standard library only, and can tell of a node that has no wirespeed. The rank itself
is a child process; its frames are handed to the driver in batches, not through Ray's own log
forwarding, which drops repeated lines and puts words before each.
"""

import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

_READ = 1 << 18
_ADDRESS_OF = 0x8915
"""SIOCGIFADDR of netdevice(7)."""
_START_S = 60.0
_END_S = 5.0
# Ray's own about the actor's process, and what other launchers said of the raylet (srun ray start).
_NOT_FOR_RANKS = ("RAY_JOB_ID", "RAY_RAYLET_PID", "RAY_CLIENT_MODE", "RAY_LD_PRELOAD_ON_WORKERS")
_OF_OTHERS = ("SLURM_", "OMPI_", "PMI_", "PMIX_", "MPI_LOCAL", "TORCHELASTIC_", "GROUP_", "CROSS_")
_PLACES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_SIZE", "NODE_RANK")


class RankActor:
    """One rank's place on its node. Calls are answered one after the other."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def look(self, python: str, interface: str) -> dict[str, Any]:
        """What the driver wants to know of this place before anything is started."""
        context = import_module("ray").get_runtime_context()
        python = python or sys.executable
        version, problem = _wirespeed_of(python)
        return {
            "node": str(context.get_node_id()),
            "host": os.uname().nodename,
            "address": _address_of(interface) if interface else "",
            "port": _free_port(),
            "python": python,
            "version": version,
            "problem": problem,
            "gpus": [str(gpu) for gpu in context.get_accelerator_ids().get("GPU", ())],
            "nice": 0 if os.geteuid() == 0 else os.nice(0),
        }

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], without: Sequence[str]
    ) -> None:
        """Start the rank, `without` these variables of ours; OSError where that is not possible."""
        drop = {*_NOT_FOR_RANKS, *_PLACES, *without}
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in drop and not name.startswith(_OF_OTHERS)
        }
        self._process = subprocess.Popen(
            list(words),
            env={**inherited, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def read(self, wait_s: float) -> tuple[bytes, int | None]:
        """Whole lines that have come, after `wait_s` at most; with the last ones the exit code."""
        process = self._process
        if process is None or process.stdout is None:
            return b"", 1
        handle = process.stdout.fileno()
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(wait_s * 1000):
            return b"", None
        data = os.read(handle, _READ)
        if not data:
            return self._rest + b"\n" if self._rest else b"", process.wait(_END_S)
        whole, end, self._rest = (self._rest + data).rpartition(b"\n")
        return whole + end, None

    def stop(self) -> None:
        """Ask the rank to end; `read` tells when it has."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)


def _wirespeed_of(python: str) -> tuple[str, str]:
    """The version of wirespeed in that interpreter, and why there is none: `python`, `wirespeed`."""
    words = [python, "-P", "-c", "import wirespeed; print(wirespeed.__version__)"]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_START_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return "", "python"
    return (done.stdout.strip(), "") if done.returncode == 0 else ("", "wirespeed")


def _address_of(interface: str) -> str:
    """Its IPv4 address; empty where there is none."""
    name = struct.pack("256s", os.fsencode(interface)[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _ADDRESS_OF, name)
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port
