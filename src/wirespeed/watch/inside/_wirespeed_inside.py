"""What a rank of a watched job notes about itself: the time of its steps, and what it waits for.

Runs in the user's own process, whose Python may have no wirespeed: nothing but the standard library
and the process's own torch. What is put around torch's functions only takes times; all else is done
once a second by a thread (`_wirespeed_tell`). Nothing here raises into the program, changes a tensor
or touches a random state.

A step ends with the first optimizer's `step` after a backward; in a program without optimizers, with
a backward. The time that a rank waits in communication is known without comparing clocks: within
`Work.wait`, and from the end of autograd's own work to the return of `backward`, where DDP and FSDP
wait for their last buckets.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.util
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Callable, NamedTuple

STEP, BLOCKED, DATA, FORWARD, BACKWARD, OPTIMIZER, CHECKPOINT, GC, CPU, WAITED, LOAD = range(11)
"""Columns of a row, as `wirespeed.watch.steps.COLUMNS` has them."""
_ALONE = 20
"""Backwards without any optimizer's step after which a step is taken to be a backward."""
_STALE = 10
"""Steps of other optimizers after which the one that ended steps is forgotten."""
_MOST_ROWS = 20_000
"""Rows that wait for the thread; what comes beyond is not kept."""
_MOST_SPANS = 400
_FIRST_SAMPLED = 8
_LACKS = 0.02
"""Share of a step without a core from which on it is also looked at within waits, by 2 µs each."""

now = time.perf_counter


class Stretch(NamedTuple):
    """Something that the training thread is in."""

    phase: str
    """`wait`, `sync` (the end of a backward), `data`, `backward`, `optimizer`, `checkpoint`; empty:
    the program's own code."""
    begin: float
    apart: float
    """Seconds by then of what is counted apart: waiting, loading, writing checkpoints."""
    ready: float = -1.0
    """Seconds by then that the thread had no core; negative: not read."""


class Rank:
    """One process of the job. `told` is taken away by the thread; the rest is the training thread's."""

    def __init__(self) -> None:
        self.active = False
        self.hurt = ""
        """Why nothing more is noted: a fault of ours."""
        self.boundary = "optimizer"
        self.communicates = False
        """Whether there are other ranks that a backward may wait for."""
        self.steps = 0
        self.moves = 0
        """Counts what the training thread does: who stands still does nothing."""
        self.told: list[tuple[int, float, list[float]]] = []
        """(step, unix time of its begin, row) of steps that ended."""
        self.at = Stretch("", now(), 0.0)
        self.gradients: list[int] = []
        """Bytes of each parameter of the optimizer that ends steps, in its order."""
        self.bad_loss = -1
        """Step of the first loss that is no number."""
        self.spans: list[tuple[str, str, float, float]] | None = None
        """(lane, name, begin, end) of the step that is sampled; None: none is."""
        self.sampled: tuple[int, float, float, list[tuple[str, str, float, float]]] | None = None
        """(step, its begin, its unix time, its spans) of the last step that was sampled."""
        self.sample_every = 1 << 30
        """Steps with a number that it divides are sampled, the same on all ranks: a power of two, which
        the thread sets; and 8, 32, 128 and so on, so that short jobs have some, too."""
        self._lacks_cores = False
        self._anchor = self._others = self._backwards = self._since_boundary = 0
        self._collecting = 0.0
        self.on_active: Callable[[], None] = lambda: None
        self._start()

    def _start(self) -> None:
        self.pid = os.getpid()
        self.thread, self.tid = threading.get_ident(), threading.get_native_id()
        self._ready = _Ready(self.tid)
        self._fresh(now(), time.thread_time())

    def _fresh(self, begin: float, cpu: float) -> None:
        self._row = [0.0] * 11
        self._begin, self._cpu, self._load, self._apart = begin, cpu, -1.0, 0.0
        self._mark = Stretch("", begin, 0.0)
        self._since_boundary = 0

    def activate(self) -> None:
        """From here on steps count: what the program did before its first is no step."""
        if not self.active and not self.hurt:
            self._start()
            self.active = True
            self.on_active()

    def mine(self) -> bool:
        return self.active and threading.get_ident() == self.thread

    def enter(self, phase: str) -> tuple[Stretch, Stretch]:
        """A stretch begins; what the thread was in, and that stretch."""
        before = self.at
        counts = self._lacks_cores and phase in ("wait", "sync")
        ready = self._ready.total() if counts else -1.0
        self.at = Stretch(phase, now(), self._apart, ready)
        self.moves += 1
        return before, self.at

    def leave(self, stretches: tuple[Stretch, Stretch], column: int, lane: str) -> None:
        """It ends: its seconds go into `column`, without those within it that are counted apart."""
        self.at, one = stretches
        end = now()
        self._count(one, end, column)
        self._span(lane, one.phase, one.begin, end)
        self.moves += 1

    def _count(self, one: Stretch, end: float, column: int) -> None:
        seconds = max(end - one.begin - (self._apart - one.apart), 0.0)
        if one.ready >= 0:  # what it waited for was there, and it had no core to go on
            seconds = max(seconds - max(self._ready.total() - one.ready, 0.0), 0.0)
        self._row[column] += seconds
        if column in (BLOCKED, DATA, CHECKPOINT):
            self._apart += seconds

    def _span(self, lane: str, name: str, begin: float, end: float) -> None:
        if self.spans is not None and len(self.spans) < _MOST_SPANS:
            self.spans.append((lane, name, begin, end))

    def loaded(self, batch: object) -> None:
        self._load = max(self._load, 0.0) + _elements(batch)
        self.mark()

    def mark(self) -> None:
        """What follows, up to the next backward, is a forward."""
        self._mark = Stretch("forward", now(), self._apart)

    def forward_over(self) -> None:
        end = now()
        self._count(self._mark, end, FORWARD)
        self._span("step", "forward", self._mark.begin, end)

    def sync_over(self, since: Stretch) -> None:
        """The end of a backward in which it waited for communication."""
        end = now()
        self._count(since, end, BLOCKED)
        self._span("communication", "sync", since.begin, end)

    def backward_over(self, loss: Any) -> None:
        self.mark()
        self._backwards += 1
        self._since_boundary += 1
        if self.bad_loss < 0 and _is_bad(loss):
            self.bad_loss = self.steps
        if self.boundary == "step()":
            return
        if self.boundary == "backward":
            self.end_step()
        elif not self._anchor and self._backwards > _ALONE:
            self.boundary, self.steps = "backward", self._backwards
            self._fresh(now(), time.thread_time())

    def optimizer_over(self, optimizer: object) -> None:
        if self.boundary == "step()":
            self.mark()
            return
        if not self._anchor or self._others > _STALE:
            self._anchor, self._others = id(optimizer), 0
            self.gradients = _gradients(optimizer)
            self.boundary = "optimizer"
        if id(optimizer) != self._anchor:
            self._others += 1
        elif self._since_boundary or not self._backwards:
            self._others = 0
            self.end_step()
        self.mark()

    def step_by_hand(self) -> None:
        """The program says where its steps end; what the hooks think of it no longer counts."""
        if threading.get_ident() == self.thread or not self.active:
            self.activate()
            self.boundary = "step()"
            self.end_step()

    def end_step(self) -> None:
        """The row of the step that ends here is kept; the next one begins."""
        end, cpu, row = now(), time.thread_time(), self._row
        row[STEP], row[CPU], row[LOAD] = end - self._begin, cpu - self._cpu, self._load
        row[WAITED] = self._ready.grown()
        self._lacks_cores = row[WAITED] > _LACKS * row[STEP]
        began = time.time() - row[STEP]
        if len(self.told) < _MOST_ROWS:
            self.told.append((self.steps, began, row))
        if self.spans is not None:
            self.sampled, self.spans = (self.steps, self._begin, began, self.spans), None
        self.steps += 1
        power = self.steps.bit_length() if not self.steps & (self.steps - 1) else 0
        alone = self.steps >= _FIRST_SAMPLED and power % 2 == 0 < power
        if alone or self.steps % self.sample_every == 0:
            self.spans = []
        self.moves += 1
        self._fresh(end, cpu)

    def collected(self, phase: str, _: object) -> None:
        """Of `gc.callbacks`."""
        if self.mine():
            if phase == "start":
                self._collecting = now()
            elif self._collecting:
                self._row[GC] += now() - self._collecting


class _Ready:
    """Seconds that a thread was ready to run and had no core (schedstat of the kernel)."""

    def __init__(self, tid: int) -> None:
        self._file = -1
        with suppress(OSError):
            self._file = os.open(f"/proc/self/task/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self._before = self.total()

    def total(self) -> float:
        """By now; negative where the kernel does not tell."""
        try:
            return int(os.pread(self._file, 80, 0).split()[1]) / 1e9 if self._file >= 0 else -1.0
        except (OSError, ValueError, IndexError):
            return -1.0

    def grown(self) -> float:
        """Since the last call; negative where the kernel does not tell."""
        before, self._before = self._before, self.total()
        return self._before - before if before >= 0 and self._before >= 0 else -1.0


def _gradients(optimizer: Any) -> list[int]:
    groups = getattr(optimizer, "param_groups", ())
    every = [one for group in groups for one in group["params"]]
    return [one.numel() * one.element_size() for one in every if one.requires_grad]


def _elements(data: object, depth: int = 3) -> float:
    """Elements of the tensors of a batch, of the first sixteen of each list."""
    count = getattr(data, "numel", None)
    if callable(count):
        return float(count())
    if depth and isinstance(data, dict):
        data = list(data.values())
    if depth and isinstance(data, (list, tuple)):
        return sum(_elements(one, depth - 1) for one in data[:16])
    return 0.0


def _is_bad(loss: Any) -> bool:
    """Whether it is one number of the CPU that is none: looking at a GPU's would make it wait."""
    if getattr(getattr(loss, "device", None), "type", "") != "cpu" or loss.numel() != 1:
        return False
    value = float(loss.detach())
    return value != value or value in (float("inf"), float("-inf"))


RANK = Rank()
"""This process's."""


def _safely(work: Callable[[], Any]) -> Any:
    """Its result; a fault of ours is nobody else's, and ends the watching."""
    try:
        return work()
    except Exception as error:
        RANK.hurt, RANK.active = repr(error)[:200], False
        return None


# What is put around functions of torch.


def _like(ours: Any, original: Any) -> Any:
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        with suppress(AttributeError, TypeError):
            setattr(ours, name, getattr(original, name))
    ours._torchdynamo_disable = True  # torch.compile runs it, and does not look into it
    ours.__wrapped__ = original
    return ours


def _timed(original: Any, phase: str, column: int, lane: str, inner: tuple[str, ...] = ()) -> Any:
    """Counts the time within `original`, but where the thread is in one of `inner` already."""
    within = (*inner, phase)

    def timed(*args: Any, **kwargs: Any) -> Any:
        one = RANK
        if not one.mine() or one.at.phase in within:
            return original(*args, **kwargs)
        stretches = one.enter(phase)
        try:
            return original(*args, **kwargs)
        finally:
            one.leave(stretches, column, lane)

    return _like(timed, original)


def _loading(original: Any) -> Any:
    """Of the data loader's `__next__`."""
    timed = _timed(original, "data", DATA, "step")

    def next_batch(self: Any) -> Any:
        batch = timed(self)
        if RANK.mine():
            _safely(lambda: RANK.loaded(batch))
        return batch

    return _like(next_batch, original)


def _backward(original: Any, engine: Any) -> Any:
    """Of `torch.autograd.backward`: when it begins, when autograd's own work is done, when it ends.

    Callbacks that are queued during a backward run when autograd's work is done, in the order in
    which they were queued. Ours is queued first, by a hook of the loss; those of DDP and FSDP, which
    wait for their last buckets, come after it.
    """

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        one = RANK
        if not one.active:
            _safely(lambda: one.activate())
        if not one.mine() or one.at.phase in ("backward", "sync"):
            return original(tensors, *args, **kwargs)
        one.forward_over()
        stretches, synced = one.enter("backward"), []

        def computed() -> None:
            if one.mine() and one.communicates:
                synced.append(one.enter("sync")[1])

        loss = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        hook = _safely(lambda: _when_it_begins(loss, lambda: engine.queue_callback(computed)))
        try:
            return original(tensors, *args, **kwargs)
        finally:
            if hook is not None:
                _safely(hook.remove)
            if synced:
                one.sync_over(synced[0])
            one.leave(stretches, BACKWARD, "step")
            _safely(lambda: one.backward_over(loss))

    return _like(backward, original)


def _when_it_begins(loss: Any, action: Callable[[], None]) -> Any:
    """Have `action` done when the backward of `loss` begins; what takes it away again."""

    def begin(_: Any) -> None:
        _safely(action)

    return loss.register_hook(begin) if loss.requires_grad else None


def _joining(original: Any) -> Any:
    """Of `init_process_group`: a world is there; the thread finds out which."""

    def init(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        _safely(RANK.activate)
        _safely(
            lambda: setattr(
                RANK, "communicates", sys.modules["torch"].distributed.get_world_size() > 1
            )
        )
        return result

    return _like(init, original)


def _hook(torch: Any) -> None:
    """Around what of torch is known to be there; what is not, is not seen."""
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    open_ones: list[tuple[Stretch, Stretch]] = []

    def before(*_: Any) -> None:
        if not RANK.active:
            _safely(RANK.activate)
        if RANK.mine() and RANK.at.phase != "optimizer":
            open_ones.append(RANK.enter("optimizer"))

    def after(optimizer: object, *_: Any) -> None:
        if RANK.mine() and open_ones:
            RANK.leave(open_ones.pop(), OPTIMIZER, "step")
            open_ones.clear()
            _safely(lambda: RANK.optimizer_over(optimizer))

    register_optimizer_step_pre_hook(_like(before, before))
    register_optimizer_step_post_hook(_like(after, after))
    autograd = torch.autograd
    autograd.backward = _backward(autograd.backward, autograd.Variable._execution_engine)
    loader = torch.utils.data.dataloader._BaseDataLoaderIter
    loader.__next__ = _loading(loader.__next__)
    torch.save = torch.serialization.save = _timed(torch.save, "checkpoint", CHECKPOINT, "step")
    if torch.distributed.is_available():
        c10d = torch.distributed.distributed_c10d
        work = torch._C._distributed_c10d.Work
        work.wait = _timed(work.wait, "wait", BLOCKED, "communication", ("sync",))
        init = _joining(c10d.init_process_group)
        c10d.init_process_group = torch.distributed.init_process_group = init
    gc.callbacks.append(RANK.collected)


LATER = {
    "torch.distributed.checkpoint": ("save", "checkpoint", CHECKPOINT, "step"),
    "torch.distributed._functional_collectives": ("wait_tensor", "wait", BLOCKED, "communication"),
}
"""By module: the function that is timed once the program has imported it."""


def hook_later() -> None:
    """Called now and then: what the program has imported meanwhile."""
    for name in list(LATER):
        module = sys.modules.get(name)
        loading = getattr(getattr(module, "__spec__", None), "_initializing", False)
        if module is not None and not loading:
            function, phase, column, lane = LATER.pop(name)
            if hasattr(module, function):
                setattr(module, function, _timed(getattr(module, function), phase, column, lane))


def _torch_is_there(torch: Any) -> None:
    import _wirespeed_tell

    _hook(torch)
    os.register_at_fork(after_in_child=_forked)
    RANK.on_active = lambda: _wirespeed_tell.begin(RANK, hook_later)


def _forked() -> None:
    """In a child of the rank, such as a worker of its data loader: it is no rank.

    A child of a process that was none may be one: some launchers fork their ranks.
    """
    if RANK.active:
        RANK.active, RANK.hurt = False, "a child of a rank"


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
                _safely(lambda: _torch_is_there(module))

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def wait_for_torch() -> None:
    """Watch this process from when it has imported torch; at once where it has."""
    if "torch" in sys.modules:
        _safely(lambda: _torch_is_there(sys.modules["torch"]))
    else:
        sys.meta_path.insert(0, _Finder())
