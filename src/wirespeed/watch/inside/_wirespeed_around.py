"""What is put around functions of torch: it notes when they begin and end in the thread that trains."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import time
from types import CodeType, FunctionType
from typing import Any, Callable

import _wirespeed_gpu
import _wirespeed_inside
from _wirespeed_inside import RANK, like, safely

_MOST_OPTIMIZERS = 64
_KEEP = ("retain_graph", "create_graph")
_LET_GO = ((), (None,), (False,), (None, False), (False, False))
"""Arguments 1 and 2 after the tensors, where what computed the loss is not gone through again."""
_COMPILED = "torch._dynamo.compiled_autograd"
"""Has a backward compiled, and a hook of ours with it, which it cannot be."""
_LONG_S = 5e-5
"""Of a garbage collection; shorter ones, as those of young objects are by default, are not noted."""

now = time.perf_counter
_ident = threading.get_ident


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
    """Whether it is one number of the CPU that is none: looking at a GPU's would make it wait.

    Its bits are read where they lie: an operation of torch would take 30 µs of a step.
    """
    known = _EXPONENTS.get(loss.dtype) if getattr(loss, "is_cpu", False) else None
    if known is None:
        return False
    try:
        place = loss.data_ptr()
    except RuntimeError:  # it has no memory of its own
        return False
    if not place:  # a DTensor's lies in its part
        return _is_bad(getattr(loss, "_local_tensor", None))
    read, exponent = known
    return bool(read(place).value & exponent == exponent) and loss.numel() == 1


_EXPONENTS: dict[Any, tuple[Any, int]] = {}
"""By torch's type: what reads its bits, and the exponent of what is no finite number."""


def _know_types(torch: Any) -> None:
    _EXPONENTS.update(
        {
            torch.float64: (ctypes.c_uint64.from_address, 0x7FF << 52),
            torch.float32: (ctypes.c_uint32.from_address, 0xFF << 23),
            torch.bfloat16: (ctypes.c_uint16.from_address, 0xFF << 7),
            torch.float16: (ctypes.c_uint16.from_address, 0x1F << 10),
        }
    )


def _timed(original: Any, phase: str) -> Any:
    """Notes when `original` begins and ends."""
    rank, over, note, waits = RANK, f"-{phase}", RANK.events.append, phase == "wait"

    def timed(*args: Any, **kwargs: Any) -> Any:
        own, marks = _ident(), rank.marks if waits else None
        here = rank.thread == own
        if not here and (marks is None or rank.autograd != own):
            return original(*args, **kwargs)
        if here:
            note((phase, now(), -1.0))
        if marks is not None:
            marks.begin()
        try:
            return original(*args, **kwargs)
        finally:
            if marks is not None:
                marks.end()
            if here:
                end = now()
                note((over, end, rank.look(end) if waits and end >= rank.look_at else -1.0))

    return like(timed, original)


def _loading(original: Any) -> Any:
    """Of the data loader's `__next__`."""
    rank, note = RANK, RANK.events.append

    def next_batch(self: Any) -> Any:
        if rank.thread != _ident():
            return original(self)
        note(("data", now(), -1.0))
        end, elements = 0.0, None
        try:
            batch = original(self)
            end = now()
            elements = safely(_elements, batch)
            return batch
        finally:
            note(("-data", end or now(), -1.0, elements))

    return like(next_batch, original)


def _backward(original: Any, engine: Any, carrier: Any) -> Any:
    """Of `torch.autograd.backward`: when it begins, when autograd's own work is done, when it ends.

    Callbacks that are queued during a backward run when autograd's work is done, in the order in
    which they were queued. Ours is queued first, by a hook of the loss; those of DDP and FSDP, which
    wait for their last buckets, come after it. `carrier` is a tensor of ours that holds this hook.
    """
    rank, note, armed, again = RANK, RANK.events.append, False, False

    def begins(_: Any) -> None:
        nonlocal armed, again
        if not armed:  # one of ours was still there: this program goes through a loss's graph twice
            again = True
            return
        armed = False
        rank.autograd = _ident()
        safely(engine.queue_callback, rank.computed)

    def over(end: float, unhook: Callable[[], None] | None) -> None:
        if rank.marks is not None:
            rank.marks.synced()
        if rank.ends_backward:
            rank.end("-backward", end)
        else:
            note(("-backward", end, rank.look(end) if end >= rank.look_at else -1.0, 0, -1.0))
        if unhook is not None:
            unhook()

    carrier._backward_hooks = {0: begins}

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal armed
        if not rank.thread:
            safely(rank.activate)
        if rank.thread != _ident() or rank.in_backward:
            return original(tensors, *args, **kwargs)
        compiling = sys.modules.get(_COMPILED)
        compiles = compiling is not None and getattr(compiling, "compiled_autograd_enabled", False)
        rank.in_backward, armed = True, rank.communicates and not compiles
        note(("backward", now(), -1.0))
        unhook = safely(_begun, tensors, carrier if armed else None, again, args, kwargs)
        try:
            return original(tensors, *args, **kwargs)
        finally:
            rank.in_backward = armed = False
            safely(over, now(), unhook)

    return like(backward, original)


def _begun(
    tensors: Any, carrier: Any, again: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A backward. What computed the loss gets the carrier's hook, where there is one, and is gone after
    it; where it may be gone through again, the loss gets it: what takes it away then."""
    loss = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    if _is_bad(loss):
        RANK.events.append(("bad", 0.0))
    if carrier is None or not getattr(loss, "requires_grad", False):
        return None
    node = loss.grad_fn
    if node is None or again or args[1:3] not in _LET_GO or any(map(kwargs.get, _KEEP)):
        return loss.register_hook(carrier._backward_hooks[0]).remove
    node._register_hook_dict(carrier)  # a fifth of what a hook and a handle of its own take
    return None


def _joining(original: Any) -> Any:
    """Of `init_process_group`: a world is there; the thread finds out which."""

    def init(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        safely(RANK.activate)
        RANK.communicates = safely(sys.modules["torch"].distributed.get_world_size) != 1
        return result

    return like(init, original)


def hook(torch: Any) -> None:
    """Around what of torch is known to be there; what is not, is not seen."""
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    _know_types(torch)
    _keep_uncompiled(torch)
    before, after = _stepping()
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    autograd = torch.autograd
    engine = autograd.Variable._execution_engine
    autograd.backward = _backward(autograd.backward, engine, torch.empty(0))
    loader = torch.utils.data.dataloader._BaseDataLoaderIter
    loader.__next__ = _loading(loader.__next__)
    torch.save = torch.serialization.save = _timed(torch.save, "checkpoint")
    if torch.distributed.is_available():
        c10d = torch.distributed.distributed_c10d
        work = torch._C._distributed_c10d.Work
        work.wait = _timed(work.wait, "wait")
        init = _joining(c10d.init_process_group)
        c10d.init_process_group = torch.distributed.init_process_group = init
    gc.callbacks.append(_collecting())


def _keep_uncompiled(torch: Any) -> None:
    """torch.compile would compile what its own code calls where it has broken off: a training step that
    calls `backward` would run ours as a graph, with conditions on what it has noted."""
    frames = torch._C._dynamo.eval_frame
    skip = getattr(frames, "skip_code", None)  # up to torch 2.6
    if skip is None:
        plain = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)

        def skip(code: Any) -> None:
            frames.set_code_exec_strategy(code, plain)

    codes: list[Any] = []
    for module in (_wirespeed_inside, _wirespeed_gpu, sys.modules[__name__]):
        ours = [o for o in vars(module).values() if getattr(o, "__module__", "") == module.__name__]
        members = [member for one in ours if isinstance(one, type) for member in vars(one).values()]
        codes += [one.__code__ for one in (*ours, *members) if isinstance(one, FunctionType)]
    while codes:
        code = codes.pop()
        skip(code)
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]


def _stepping() -> tuple[Any, Any]:
    """Hooks before and after an optimizer's step; of one within another's the inner's end counts."""
    rank, within = RANK, False

    def before(*_: Any) -> None:
        nonlocal within
        if not rank.thread:
            safely(rank.activate)
        if rank.thread == _ident() and not within:
            within = True
            rank.events.append(("optimizer", now(), -1.0))

    def after(optimizer: object, *_: Any) -> None:
        nonlocal within
        if within and rank.thread == _ident():
            within = False
            safely(over, optimizer)

    def over(optimizer: object) -> None:
        rank.end("-optimizer", now(), id(optimizer))
        if id(optimizer) not in rank.gradients and len(rank.gradients) < _MOST_OPTIMIZERS:
            rank.gradients[id(optimizer)] = _gradients(optimizer)

    return like(before, before), like(after, after)


def _collecting() -> Callable[[str, Any], None]:
    """Of `gc.callbacks`."""
    begin = 0.0

    def collected(phase: str, _: object) -> None:
        nonlocal begin
        if RANK.thread == _ident():
            at = now()
            if phase == "start":
                begin = at
            elif begin and at - begin >= _LONG_S:
                RANK.events.append(("gc", at, at - begin))

    return collected


LATER = {
    "torch.distributed.checkpoint": ("save", "checkpoint"),
    "torch.distributed._functional_collectives": ("wait_tensor", "wait"),
}
"""By module: the function that is timed once the program has imported it."""


def hook_later() -> None:
    """Called now and then: what the program has imported meanwhile."""
    for name in list(LATER):
        module = sys.modules.get(name)
        loading = getattr(getattr(module, "__spec__", None), "_initializing", False)
        if module is not None and not loading:
            function, phase = LATER.pop(name)
            if hasattr(module, function):
                setattr(module, function, _timed(getattr(module, function), phase))
