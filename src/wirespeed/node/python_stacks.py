"""Stacks of Python processes that know nothing of us, by py-spy (https://github.com/benfred/py-spy).

Python frames are read out of the process's memory, which is never paused for it, so that one that
SIGSTOP stopped can be read, too; they may be torn where it runs meanwhile. Native frames need that it
is paused for some tenths of a second, which py-spy cannot do with a stopped one.
"""

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirespeed.errors import CannotMeasure
from wirespeed.node.reading import read_fields, read_number
from wirespeed.typed_command import TYPED

BOUND_S = 10.0
"""For one process; native frames of a large one take seconds, since its symbols are read."""
_MOST_FRAMES = 200
_MOST_THREADS = 256
_BESIDE = "py-spy"
_INSTALL = "pip install 'wirespeed[watch]', which brings py-spy"
_SYS_PTRACE = 1 << 19
"""CAP_SYS_PTRACE's bit of CapEff (linux/capability.h)."""


@dataclass(frozen=True, slots=True)
class Frame:
    function: str
    file: str
    """As py-spy shortens it: below the folder that modules are searched in."""
    line: int
    """0: not known, as of native frames without symbols."""
    path: str = ""
    """The whole path of the file, as the process knows it."""

    @property
    def title(self) -> str:
        return f"{self.function} ({self.file}:{self.line})" if self.line else self.function


@dataclass(frozen=True, slots=True)
class Thread:
    name: str
    id: int
    """The kernel's; the main thread's is the pid."""
    holds_gil: bool
    frames: tuple[Frame, ...]
    """The innermost first."""


def python_stacks(
    pid: int, *, native: bool = False, bound_s: float = BOUND_S
) -> tuple[Thread, ...]:
    """Its threads with Python frames, the main one first; native: with C frames between them.

    CannotMeasure says why there are none, and what to do: no py-spy, no such process, no Python, a
    permission that is missing.
    """
    words = [_program(), "dump", "--json", "--native" if native else "--nonblocking"]
    try:
        done = subprocess.run(
            [*words, "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=bound_s,
            check=False,
            env={**os.environ, "RUST_BACKTRACE": "0"},
        )
        if done.returncode == 0:
            return _threads(json.loads(done.stdout), pid)
    except subprocess.TimeoutExpired as error:
        raise CannotMeasure(f"py-spy had no answer of process {pid} in {bound_s:g} s") from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CannotMeasure(f"py-spy told nothing of process {pid}: {error}") from error
    raise _why_not(pid, done.stderr.decode(errors="replace"))


def _program() -> str:
    """py-spy beside this Python, else of PATH."""
    beside = Path(sys.executable).with_name(_BESIDE)
    found = str(beside) if beside.is_file() else shutil.which("py-spy")
    if found is None:
        raise CannotMeasure("py-spy is not installed, so no stacks can be read", next=_INSTALL)
    return found


def _threads(told: list[dict[str, Any]], pid: int) -> tuple[Thread, ...]:
    threads = [
        Thread(
            str(one["thread_name"] or ""),
            int(one["os_thread_id"] or 0),
            bool(one["owns_gil"]),
            tuple(_frame(f) for f in one["frames"][:_MOST_FRAMES]),
        )
        for one in told[:_MOST_THREADS]
    ]
    return tuple(sorted(threads, key=lambda one: one.id != pid))


def _frame(told: dict[str, Any]) -> Frame:
    """A C function without a symbol has its address as a name: its library tells more."""
    file = str(told["short_filename"] or told["filename"])
    name = file if str(told["name"]).startswith("0x") else str(told["name"])
    return Frame(name, file, int(told["line"]), str(told["filename"]))


def _why_not(pid: int, said: str) -> CannotMeasure:
    if not Path(f"/proc/{pid}").exists():
        return CannotMeasure(f"process {pid} is gone")
    if "ermission" in said or "not permitted" in said:
        return missing_permission(pid)
    if "python version" in said or "interpreter" in said:
        return CannotMeasure(
            f"process {pid} is no Python that py-spy knows",
            expected="a running Python process, 3.6 or newer",
        )
    told = [line.strip() for line in said.splitlines() if line.strip()]
    last = told[-1].partition(": ")[2] or told[-1] if told else "no word"
    return CannotMeasure(f"py-spy cannot read process {pid}: {last[:200]}")


def missing_permission(pid: int) -> CannotMeasure:
    """Which one reading another process's memory lacks, and how it is given (ptrace(2))."""
    me, owner = os.getuid(), _owner(pid)
    scope = read_number(Path("/proc/sys/kernel/yama/ptrace_scope")) or 0
    if me not in (0, owner):
        return CannotMeasure(
            f"process {pid} belongs to {_user(owner)}, and this is {_user(me)}",
            expected="the same user, or root",
            next=f"sudo {TYPED}",
        )
    if _may_trace():
        return CannotMeasure(
            f"process {pid} must not be read: another user namespace, or a security module, forbids it",
            next="look from where the job was started, such as inside its container",
        )
    if scope:
        return CannotMeasure(
            f"process {pid} must not be read: kernel.yama.ptrace_scope is {scope}",
            expected="CAP_SYS_PTRACE, or `sudo sysctl kernel.yama.ptrace_scope=0`",
            next=f"sudo {TYPED}",
        )
    return CannotMeasure(
        f"process {pid} must not be read: this process lacks CAP_SYS_PTRACE",
        next="docker run --cap-add SYS_PTRACE; Kubernetes: SYS_PTRACE in the container's "
        "securityContext.capabilities.add",
    )


def _owner(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return os.getuid()


def _may_trace() -> bool:
    told = read_fields(Path("/proc/self/status")).get("CapEff", "0")
    return bool(int(told, 16) & _SYS_PTRACE)


def _user(uid: int) -> str:
    import pwd

    with suppress(KeyError):
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    return f"user {uid}"
