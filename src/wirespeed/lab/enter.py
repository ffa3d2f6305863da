"""Become a process of a node, then run a command there: `enter.py FACTS COMMAND…`.

Run as a file with `python -I -S`: it starts in 15 ms and needs nothing but the standard library.
FACTS is JSON: `net` (path of the network namespace), and for a node `host` (its name), `hosts`
(the file that becomes /etc/hosts), `cgroups` (files to write our pid to) and `environment` (what
the command finds in it on this node). The process keeps its id, its process group and the rest of
its environment; with `detach` it becomes a child of init instead.

Linux: namespaces(7), setns(2), unshare(2), mount(2).
"""

import ctypes
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

_NEW_NET, _NEW_UTS, _NEW_MOUNT = 0x40000000, 0x04000000, 0x00020000
_BIND, _RECURSIVE, _SLAVE = 0x1000, 0x4000, 0x80000
_NOT_FOUND, _NOT_RUNNABLE = 127, 126
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    encoded = kind.encode() if kind else None
    _call("mount", source.encode(), target.encode(), encoded, ctypes.c_ulong(flags), None)


def _join_network(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    _call("setns", handle, _NEW_NET)
    os.close(handle)


def _be_host(name: str, hosts: str) -> None:
    _call("unshare", _NEW_UTS | _NEW_MOUNT)
    # Slave: what the machine unmounts later (another lab) goes here too; nothing goes back.
    _mount("none", "/", None, _RECURSIVE | _SLAVE)
    socket.sethostname(name)
    _mount(hosts, "/etc/hosts", None, _BIND)
    with suppress(OSError):
        _own_sys()


def _own_sys() -> None:
    """/sys shows the interfaces of the namespace it was mounted in; the cgroups stay as they are."""
    handle = os.open("/sys/fs/cgroup", os.O_PATH)
    _mount("sysfs", "/sys", "sysfs", 0)
    _mount(f"/proc/self/fd/{handle}", "/sys/fs/cgroup", None, _BIND | _RECURSIVE)
    os.close(handle)


def main(facts: str, *command: str) -> int:
    """Does not return when the command starts."""
    told = json.loads(facts)
    if told.get("detach") and os.fork():
        return 0
    try:
        for path in told.get("cgroups", []):
            Path(path).write_text(str(os.getpid()))
        _join_network(told["net"])
        if "host" in told:
            _be_host(told["host"], told["hosts"])
    except OSError as error:
        sys.stderr.write(f"wirespeed.lab: cannot enter {told['net']}: {error}\n")
        return _NOT_RUNNABLE
    os.environ.update(told.get("environment", {}))
    try:
        os.execvp(command[0], command)
    except FileNotFoundError:
        sys.stderr.write(f"wirespeed.lab: {command[0]}: command not found\n")
        return _NOT_FOUND
    except OSError as error:
        sys.stderr.write(f"wirespeed.lab: {command[0]}: {error.strerror}\n")
        return _NOT_RUNNABLE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
