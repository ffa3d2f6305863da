"""The processes that live in a namespace: which they are, and how they are ended.

A namespace of a lab is the lab's own, so whatever lives in it belongs to it, also what was started
by a `run` that has crashed since. Each is ended through a pidfd, after one more look at where it
lives: a process id that was given to somebody else meanwhile is never touched.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from wirespeed.errors import CannotMeasure
from wirespeed.lab.state import Layout, space_path

_BOUND_S = 20.0
_PACKAGES = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables", "tee": "coreutils"}
_PLACES = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where these commands live; an ordinary user's PATH often lacks it."""


def need_root() -> None:
    """Raises CannotMeasure, with the way to get there, unless we may make namespaces."""
    if os.geteuid() == 0:
        return
    raise CannotMeasure("network namespaces need root", expected="user id 0", next=_way_to_root())


def need(*names: str) -> None:
    """Raises CannotMeasure that names the package of the first command that is not here."""
    for name in names:
        if where(name) is None:
            raise CannotMeasure(
                f"the command {name} is not here",
                expected=f"{name}, of the package {_PACKAGES[name]}",
                next=f"apt-get install {_PACKAGES[name]}",
            )


def tool(*words: str, give: str | None = None) -> str:
    """Run a command to its end; its output. Raises CannotMeasure with what it said."""
    done = _run(words, give)
    if done.returncode:
        raise CannotMeasure(
            f"`{' '.join(words)}` failed: {done.stderr.strip() or done.returncode}",
            expected="a Linux kernel with namespaces, veth, bridge and the qdiscs tbf and htb",
            next="if the lab was to be made, nothing of it is left; see docs/lab.md",
        )
    return done.stdout


def attempt(*words: str, give: str | None = None) -> bool:
    """Run a command that may fail, such as removing what is gone already; whether it did well."""
    return _run(words, give).returncode == 0


def _run(words: tuple[str, ...], give: str | None) -> subprocess.CompletedProcess[str]:
    need(words[0])
    command = [where(words[0]) or words[0], *words[1:]]
    try:
        return subprocess.run(
            command, input=give or "", capture_output=True, text=True, timeout=_BOUND_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CannotMeasure(f"`{' '.join(words)}` took more than {_BOUND_S:g} s") from None


def where(name: str) -> str | None:
    """The path of that command; None: it is not here."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_PLACES])
    return shutil.which(name, path=path)


def _way_to_root() -> str:
    if shutil.which("unshare") and _user_namespaces():
        inside = "mount -t tmpfs lab /run && exec sh"
        return f"sudo -E COMMAND; without sudo, a shell of its own: unshare -rnm sh -c '{inside}'"
    return "sudo -E COMMAND"


def _user_namespaces() -> bool:
    """Whether an ordinary user may make namespaces here (tried, since many settings forbid it)."""
    try:
        words = ["unshare", "--map-root-user", "--net", "--mount", "true"]
        tried = subprocess.run(words, capture_output=True, timeout=_BOUND_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0 and Path("/proc/self/ns/user").exists()


_LOOK_S = 0.02
Living = Callable[[int], bool]


def living_in(spaces: Iterable[str]) -> list[int]:
    """Process ids in these network namespaces; zombies do not count."""
    inside = _lives(spaces)
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    return [pid for pid in pids if pid != os.getpid() and inside(pid)]


def with_mark(spaces: Iterable[str], mark: str) -> list[int]:
    """Of these, those with `mark` (NAME=value), if one is given, in their first environment."""
    return [pid for pid in living_in(spaces) if not mark or _carries(pid, mark)]


def end_all(
    spaces: Iterable[str], within_s: float, mark: str = "", groups: Collection[int] = ()
) -> list[int]:
    """Kill what lives there (with that mark, in those process groups, if given) until nothing does.

    The ids of those that were still there after `within_s` seconds.
    """
    spaces = list(spaces)
    inside = _lives(spaces)
    deadline = time.monotonic() + within_s
    while left := [pid for pid in with_mark(spaces, mark) if not groups or _group(pid) in groups]:
        if time.monotonic() > deadline:
            return left
        for pid in left:
            with suppress(OSError):
                handle = os.pidfd_open(pid)
                try:
                    if inside(pid):
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                finally:
                    os.close(handle)
        time.sleep(_LOOK_S)
    return []


def _lives(spaces: Iterable[str]) -> Living:
    homes = set()
    for space in spaces:
        with suppress(OSError):
            facts = space_path(space).stat()
            homes.add((facts.st_dev, facts.st_ino))

    def inside(pid: int) -> bool:
        with suppress(OSError):
            facts = os.stat(f"/proc/{pid}/ns/net")  # noqa: PTH116 - a thousand of them, often
            return (facts.st_dev, facts.st_ino) in homes
        return False

    return inside


def _carries(pid: int, mark: str) -> bool:
    with suppress(OSError):
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _group(pid: int) -> int:
    with suppress(OSError):
        return os.getpgid(pid)
    return 0


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
        env={**os.environ, _ROLE: f"{layout.name}/{role}"},
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
    end_all([layout.switch], _END_S, f"{_ROLE}={layout.name}/{role}")


def _first_words(started: subprocess.Popen[bytes]) -> str:
    pipe = started.stdout
    if pipe is None or not select.select([pipe], [], [], _START_S)[0]:
        return ""
    with suppress(OSError):
        return os.read(pipe.fileno(), _SAID).decode("utf-8", "replace")
    return ""
