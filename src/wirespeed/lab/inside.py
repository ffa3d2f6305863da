"""Programs that run inside a lab's namespaces: `inside.py NAME ARGUMENT…`.

Run as a file with `python -I -S`: it starts in 15 ms and needs nothing but the standard library.

`enter FACTS COMMAND…`: become a process of a node, then the command. FACTS is JSON: `net` (path of the
network namespace), and for a node `host` (its name), `hosts` (the file that becomes /etc/hosts),
`cgroups` (files to write our pid to) and `environment` (what the command finds in it on this node).
The process keeps its id, its process group and the rest of its environment; with `detach` it becomes
a child of init instead. Linux: namespaces(7), setns(2), unshare(2), mount(2).

`relay A B SECONDS`: carry Ethernet frames between two interfaces, each so much later. Packet sockets
with PACKET_VNET_HDR carry what the host left undone (checksums, packets of up to 64 KiB) along, so
that a frame leaves as it came and one read moves up to 44 of them. Linux: packet(7).

`stalls NET STOP_S EVERY_S`: let what lives in a network namespace stand still now and then. Whoever ends
it sends SIGCONT afterwards (see faults.py).

`port`: a TCP port on which nobody listens at this moment.
"""

import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
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


def enter(facts: str, *command: str) -> int:
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


_ALL = 0x0003
_SOL_PACKET, _VNET_HEADER, _IGNORE_OUTGOING = 263, 15, 23
_LARGEST = 66_000
_QUEUE_BYTES = 64 << 20
_SOCKET_BYTES = 16 << 20
_READS = 64
"""At most so many reads before what is due is sent."""


class Direction:
    """From one socket to another, in order, each frame `delay_s` after it came."""

    def __init__(self, source: socket.socket, target: socket.socket, delay_s: float) -> None:
        self.source = source
        self._target = target
        self._delay_s = delay_s
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._bytes = 0

    def take(self) -> None:
        """Read what is there. A frame beyond the queue's length is lost, as in a full switch."""
        due = time.monotonic() + self._delay_s
        for _ in range(_READS):
            try:
                frame = self.source.recv(_LARGEST)
            except OSError:
                return  # nothing more, or the cable was pulled: it may come back
            if self._bytes + len(frame) <= _QUEUE_BYTES:
                self._waiting.append((due, frame))
                self._bytes += len(frame)

    def give(self, now: float) -> None:
        """Send what is due. What the interface does not take is lost."""
        while self._waiting and self._waiting[0][0] <= now:
            frame = self._waiting.popleft()[1]
            self._bytes -= len(frame)
            with suppress(OSError):
                self._target.send(frame)

    def due(self) -> float:
        """When the next frame must go; infinite when none waits."""
        return self._waiting[0][0] if self._waiting else float("inf")


def _packets(interface: str) -> socket.socket:
    """All frames that come in on an interface, and a way to send more."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setblocking(False)
    opened.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
    opened.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        opened.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)
    opened.bind((interface, _ALL))
    return opened


def relay(first: str, second: str, seconds: str) -> None:
    """Runs until a signal ends it."""
    one, other = _packets(first), _packets(second)
    ways = [Direction(one, other, float(seconds)), Direction(other, one, float(seconds))]
    _ready()
    while True:
        wait = min(way.due() for way in ways) - time.monotonic()
        timeout = None if wait == float("inf") else max(0.0, wait)
        # select, not poll: its timeout is in microseconds.
        ready = select.select([way.source for way in ways], [], [], timeout)[0]
        for way in ways:
            if way.source in ready:
                way.take()
            way.give(time.monotonic())


_LOOK_S = 0.02


def _living(home: tuple[int, int] | None) -> list[int]:
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    return [pid for pid in pids if _home(f"/proc/{pid}/ns/net") == home]


def _home(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        facts = os.stat(path)  # noqa: PTH116 - a thousand of them, often
        return facts.st_dev, facts.st_ino
    return None


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def stalls(net: str, stop_s: str, every_s: str) -> None:
    """Runs until a signal ends it, or until the namespace is gone."""
    home = _home(net)
    _ready()
    run_s = float(every_s) - float(stop_s)
    while home is not None and home == _home(net):
        until = time.monotonic() + float(stop_s)
        while (left := until - time.monotonic()) > 0:
            # Again and again: some are started meanwhile.
            _send(_living(home), signal.SIGSTOP)
            time.sleep(min(left, _LOOK_S))
        _send(_living(home), signal.SIGCONT)
        time.sleep(run_s)


def port() -> None:
    with socket.socket() as probe:
        probe.bind(("", 0))
        sys.stdout.write(f"{probe.getsockname()[1]}\n")


def _ready() -> None:
    """For `processes.start_daemon`."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


_PROGRAMS: dict[str, Callable[..., int | None]] = {
    "enter": enter,
    "relay": relay,
    "stalls": stalls,
    "port": port,
}

if __name__ == "__main__":
    sys.exit(_PROGRAMS[sys.argv[1]](*sys.argv[2:]))
