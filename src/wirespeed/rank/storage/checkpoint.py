"""A rank's part of a checkpoint through torch.distributed.checkpoint, as sharded jobs write it.

Each rank saves by itself, into a folder of its own: that is what reaches the storage of a sharded save,
whose ranks exchange only what they will write. What torch pickles beside the tensors (`.metadata`) is
written and never read: on loading it is what saving has returned.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

from wirespeed.rank.storage.answer import Answer
from wirespeed.rank.storage.files import synchronise

_KEY = "weights"
_TENSORS = 4


class Reader(dcp.FileSystemReader):
    """Knows what is there without asking the folder."""

    def __init__(self, folder: Path, metadata: dcp.Metadata) -> None:
        super().__init__(folder)
        self._known = metadata

    def read_metadata(self, *args: Any, **kwargs: Any) -> dcp.Metadata:
        return self._known


@contextmanager
def _as_met() -> Iterator[None]:
    """Raise what the system refused, or what ends this process: torch hides both, in no Exception."""
    try:
        yield
    except dcp.CheckpointException as error:
        found = [one for one, _ in error.failures.values()]
        while (before := found[-1].__context__) is not None:
            found.append(before)
        own = (one for one in found if isinstance(one, OSError) or not isinstance(one, Exception))
        raise next(own, found[0]) from None


class Checkpoints:
    """Saves and loads tensors of `size` bytes together."""

    def __init__(self, size: int) -> None:
        each, noise = max(1, size // _TENSORS), torch.Generator()
        noise.seed()  # as it is made, it is that of every other rank
        self._state = {
            f"{_KEY}.{number}": torch.randint(256, (each,), dtype=torch.uint8, generator=noise)
            for number in range(_TENSORS)
        }
        self._metadata: dcp.Metadata | None = None
        self._bytes = each * _TENSORS

    def save(self, folder: Path) -> Answer:
        """A new checkpoint, durable (sync_files)."""
        begin = time.perf_counter()
        writer = dcp.FileSystemWriter(folder, sync_files=True)
        with _as_met():
            self._metadata = dcp.save(self._state, storage_writer=writer, no_dist=True)
        seconds = time.perf_counter() - begin
        for name in os.listdir(folder):  # noqa: PTH208
            synchronise(folder / name)
        return self._answer(seconds)

    def load(self, folder: Path) -> Answer:
        """What another rank saved: it is of the same form as this one's."""
        if self._metadata is None:
            raise ValueError("nothing was saved before")
        into = {name: torch.empty_like(one) for name, one in self._state.items()}
        begin = time.perf_counter()
        with _as_met():
            dcp.load(into, storage_reader=Reader(folder, self._metadata), no_dist=True)
        return self._answer(time.perf_counter() - begin)

    def _answer(self, seconds: float) -> Answer:
        return Answer(
            seconds=seconds,
            size_bytes=self._bytes,
            calls=1,
            median=seconds,
            p95=seconds,
            p99=seconds,
            max=seconds,
        )
