"""Every storage that torch operations allocate, from birth to death, on one device.

The ledger is a dispatch mode: it sees the results of each operation, of backward's too, and holds
nothing but weak references. What a kernel takes and gives back within one operation it cannot see;
on the CPU that is scratch space of single threads, and its peak was equal to that of the
allocator's own events (torch.profiler with profile_memory) on what tests compare.
"""

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

KINDS = ("parameters", "gradients", "optimizer", "activations", "communication")
"""What a storage can be told to be; the rest is `other`."""

_NO_WRAPPERS = (torch.Tensor.__torch_dispatch__, FakeTensor.__torch_dispatch__)


@dataclass(slots=True)
class Story:
    """What became of storages: (number of the storage, bytes gained or lost), in order."""

    changes: list[tuple[int, int]] = field(default_factory=list)
    kinds: dict[int, str] = field(default_factory=dict)
    """Kind by number of the storage; the others have none."""

    def alive(self) -> int:
        """Bytes by now."""
        return sum(change for _, change in self.changes)

    def highest(
        self, since: int, without: Sequence[str] = ()
    ) -> tuple[int, Mapping[str, int], Mapping[str, int]]:
        """(peak, highest by kind, by kind at the peak) in bytes, from that change on.

        What was alive before counts as the state in which that change finds it. without: kinds that
        do not count for the peak.
        """
        now: dict[str, int] = defaultdict(int)
        for number, change in self.changes[:since]:
            now[self.kinds.get(number, "")] += change
        highest, at_peak = dict(now), dict(now)
        alive = peak = sum(size for kind, size in now.items() if kind not in without)
        for number, change in self.changes[since:]:
            kind = self.kinds.get(number, "")
            now[kind] += change
            alive += 0 if kind in without else change
            highest[kind] = max(highest.get(kind, 0), now[kind])
            if alive > peak:
                peak, at_peak = alive, dict(now)
        return peak, highest, at_peak


@dataclass(slots=True)
class _Known:
    number: int
    size: int
    watch: "weakref.ref[torch.UntypedStorage]"


class Ledger(TorchDispatchMode):
    """Counts while it is entered; one at a time in a process."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.story = Story()
        self._device_type = device.type
        self._known: dict[int, _Known] = {}
        self._resize: Callable[..., Any] = torch.UntypedStorage.resize_

    def mark(self, tensors: Iterable[torch.Tensor], kind: str, over: Sequence[str] = ()) -> None:
        """Say what these are; a kind told earlier stays, unless it is one of `over`."""
        for storage in self._storages(tensors):
            number = self._entry(storage).number
            if self.story.kinds.get(number, "") in ("", *over):
                self.story.kinds[number] = kind

    def saved(self, shown: Callable[[torch.Tensor], torch.Tensor] = lambda one: one) -> Any:
        """A context in which what autograd saves is marked as activations; shown: what of it counts."""

        def mark(tensor: torch.Tensor) -> torch.Tensor:
            self.mark([shown(tensor)], "activations")
            return tensor

        return torch.autograd.graph.saved_tensors_hooks(mark, lambda tensor: tensor)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        if any(kind.__torch_dispatch__ not in _NO_WRAPPERS for kind in types):
            # A wrapper such as DTensor: its own operations come here with what it wraps.
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        for storage in self._storages(tree_iter(result)):
            self._entry(storage)
        if func.namespace == "c10d":
            self.mark(tree_iter((args, kwargs)), "communication")
        return result

    def __enter__(self) -> "Ledger":
        resize, entry = self._resize, self._seen

        def noted(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
            resize(storage, size)
            entry(storage)
            return storage

        # FSDP gives memory back by resizing storages, which is no operation that is dispatched.
        torch.UntypedStorage.resize_ = noted  # type: ignore[method-assign, assignment]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def _storages(self, values: Iterable[Any]) -> Iterator[torch.UntypedStorage]:
        for value in values:
            if isinstance(value, torch.Tensor) and value.layout == torch.strided:
                storage = value.untyped_storage()
                if storage.device.type == self._device_type:
                    yield storage

    def _seen(self, storage: torch.UntypedStorage) -> None:
        if storage.device.type == self._device_type:
            self._entry(storage)

    def _entry(self, storage: torch.UntypedStorage) -> _Known:
        """The storage's entry, made on first sight, with its present size."""
        key, size = storage._cdata, storage.nbytes()
        entry = self._known.get(key)
        if entry is None:
            entry = _Known(len(self.story.changes), 0, weakref.ref(storage, self._gone(key)))
            self._known[key] = entry
            self._change(entry, 0)
        if entry.size != size:
            self._change(entry, size)
        return entry

    def _gone(self, key: int) -> Callable[[object], None]:
        known, change = self._known, self._change
        return lambda _: change(known.pop(key), 0)

    def _change(self, entry: _Known, size: int) -> None:
        self.story.changes.append((entry.number, size - entry.size))
        entry.size = size
