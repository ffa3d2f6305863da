"""A process of a watched job: what its training thread and the thread that tells know together.

Runs in the user's own process, whose Python may have no wirespeed: nothing but the standard library
and the process's own torch. What is put around torch's functions (`_wirespeed_around`) notes times and
no more: caches are cold there, and each line of Python takes its microsecond. All else is done by a
thread (`_wirespeed_tell`, `_wirespeed_steps`). Nothing here raises into the program, changes a tensor
or touches a random state.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import math
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any, Callable

_SOON_S, _WELL_S = 3e-2, 1e-1
"""A look at the kernel's account takes 20 to 35 µs of a training, whose caches are cold for it: none is
taken so soon after another where the rank lacks cores, and where it has enough."""
_MOST_EVENTS = 200_000
"""That wait for the thread that tells: the oldest are lost where it does not come."""

now = time.perf_counter
_ident = threading.get_ident


class Rank:
    """One process of the job, and what is read by its training thread and the one that tells."""

    def __init__(self) -> None:
        self.thread = 0
        """The one that trains; 0: nothing is noted."""
        self.hurt = ""
        """Why nothing more is noted: a fault of ours."""
        self.marks: Any = None
        """Of its GPU (`_wirespeed_gpu.Marks`), where ranks communicate by NCCL."""
        self.in_backward = False
        """The training thread is in a backward; …"""
        self.autograd = 0
        """… this thread works for it: of its own on GPUs."""
        self.communicates = False
        """Whether there are other ranks that a backward may wait for."""
        self.look_every_s = math.inf
        """Seconds between looks within waits, whether there was no core to go on; inf: none."""
        self.look_at = math.inf
        """When the next of these is due."""
        self.ends_backward = False
        """A step is a backward."""
        self.events: deque[tuple[Any, ...]] = deque(maxlen=_MOST_EVENTS)
        """As `_wirespeed_steps.Event`; the thread that tells takes them."""
        self.gradients: dict[int, list[int]] = {}
        """By the identity of an optimizer: bytes of each of its parameters, in its order."""
        self.on_active: Callable[[], None] = lambda: None

    def activate(self) -> None:
        """From here on steps count: what the program did before its first is no step."""
        if not self.thread and not self.hurt:
            self.pid, self.began = os.getpid(), now()
            self._ready = _Ready(threading.get_native_id())
            self.events.clear()
            self.thread = _ident()
            self.on_active()

    def give_up(self, error: Exception) -> None:
        """A fault of ours is nobody else's, and ends the watching."""
        self.hurt, self.thread = repr(error)[:200], 0

    def look(self, at: float) -> float:
        """Seconds that the thread had no core by then; negative: the kernel does not tell."""
        self.look_at = at + max(self.look_every_s, _SOON_S)
        return self._ready.total(at, 0.0)

    def computed(self) -> None:
        """Autograd's own work of a backward is done. On GPUs a thread of autograd's calls this, with the
        stream of who called the backward."""
        if self.thread == _ident():
            self.events.append(("sync", now(), -1.0))
        if self.in_backward and self.marks is not None:
            self.marks.sync()

    def end(self, what: str, at: float, by: int = 0) -> None:
        """Of what may end a step."""
        if self.marks is not None:
            self.marks.edge()
        every_s, ready = self.look_every_s, self._ready
        lacked = ready.total(at, _SOON_S if every_s < math.inf else _WELL_S)
        self.look_at = ready.read_at + max(every_s, _SOON_S)
        self.events.append((what, at, lacked, by, time.thread_time()))

    def step_by_hand(self) -> None:
        """The program says where its steps end; what the hooks think of it no longer counts."""
        self.activate()
        if self.thread == _ident():
            self.end("step", now())


class _Ready:
    """Seconds that a thread was ready to run and had no core (schedstat of the kernel)."""

    def __init__(self, tid: int) -> None:
        self._file = -1
        with suppress(OSError):
            self._file = os.open(f"/proc/self/task/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self.read_at = 0.0

    def total(self, at: float, soon: float) -> float:
        """By now, which is `at`; negative: `soon` after the last look, or the kernel does not tell."""
        if at - self.read_at < soon or self._file < 0:
            return -1.0
        self.read_at = at
        try:
            return int(os.pread(self._file, 80, 0).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return -1.0


RANK = Rank()
"""This process's."""


def safely(work: Callable[..., Any], *args: Any) -> Any:
    """Its result; None where it fails."""
    try:
        return work(*args)
    except Exception as error:
        RANK.give_up(error)
        return None


def like(ours: Any, original: Any) -> Any:
    """`ours` with the name of what it is put around."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        with suppress(AttributeError, TypeError):
            setattr(ours, name, getattr(original, name))
    ours._torchdynamo_disable = True  # torch.compile runs it, and does not look into it
    ours.__wrapped__ = original
    return ours


def _torch_is_there(torch: Any) -> None:
    import _wirespeed_around
    import _wirespeed_tell

    _wirespeed_around.hook(torch)
    os.register_at_fork(after_in_child=_forked)
    RANK.on_active = lambda: _wirespeed_tell.begin(RANK, _wirespeed_around.hook_later)


def _forked() -> None:
    """In a child of the rank, such as a worker of its data loader: it is no rank.

    A child of a process that was none may be one: some launchers fork their ranks.
    """
    if RANK.thread:
        RANK.thread, RANK.hurt = 0, "a child of a rank"


class _Finder(importlib.abc.MetaPathFinder):
    """Hears when torch has been imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)  # by whichever finder has it
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                safely(_torch_is_there, module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def wait_for_torch() -> None:
    """Watch this process from when it has imported torch; at once where it has."""
    if "torch" in sys.modules:
        safely(_torch_is_there, sys.modules["torch"])
    else:
        sys.meta_path.insert(0, _Finder())
