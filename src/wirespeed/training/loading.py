"""Batches from a file by torch's DataLoader, so that their time is a part of the step as in a real job.

Each rank writes a few samples of the model into a file that has no name any more (so nothing is left of
it, however the rank ends), and reads them again in an order drawn by chance. Workers are spawned, not
forked: they hold none of the rank's sockets open, so that a rank that is killed is missed at once; and
the kernel ends them with it.
"""

import os
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch.utils.data import DataLoader, Dataset

from wirespeed.process.guard import die_with_parent
from wirespeed.training.contract import Batch, ModelSpec

_MOST_SAMPLES, _MOST_BYTES = 1024, 64 << 20
_WAIT_S = 120.0
"""For a batch of a worker: it imports torch before its first."""
_LONGEST_FOLDER = 60


class Loader:
    """Gives batch after batch; every rank has its own."""

    def __init__(self, model: ModelSpec, samples: int, workers: int, seed: int) -> None:
        """samples: of a batch; workers: processes that read, 0: this one. Waits for the first batch."""
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  (until `close`)
        os.environ["PYTHONSAFEPATH"] = "1"  # workers look into the working directory last, as we do
        data = _written(model, seed, self._file.fileno())
        loader: DataLoader[Batch] = DataLoader(
            data,
            batch_size=samples,
            sampler=_forever(len(data), seed),
            num_workers=workers,
            multiprocessing_context="spawn" if workers else None,
            timeout=_WAIT_S if workers else 0,
            worker_init_fn=_in_worker,
        )
        self._batches: Iterator[Batch] | None = iter(loader)
        self._first: Batch | None = next(self._batches)

    def __call__(self, _step: int, _micro: int) -> Batch:
        """The next batch, whichever step it is for."""
        if self._batches is None:
            raise ValueError("this loader has been closed")
        found, self._first = self._first, None
        inputs, targets = found or next(self._batches)
        return inputs, targets

    def close(self) -> None:
        """Ends the workers."""
        self._batches = self._first = None
        self._file.close()


@dataclass(frozen=True, slots=True)
class _Part:
    """A tensor within a sample's bytes."""

    begin: int
    end: int
    shape: tuple[int, ...]
    dtype: torch.dtype


class _Samples(Dataset[Batch]):
    """Samples of equal length in a file, which each process opens for itself."""

    def __init__(self, path: str, count: int, parts: tuple[_Part, _Part]) -> None:
        self._path, self._count, self._parts = path, count, parts
        self._opened: tuple[int, int] | None = None
        """(this process, its file descriptor)."""

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Batch:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        size = self._parts[-1].end
        data = os.pread(self._opened[1], size, index * size)
        if len(data) < size:
            raise OSError(f"the file of samples ends within sample {index}")
        inputs, targets = (
            torch.frombuffer(bytearray(data[one.begin : one.end]), dtype=one.dtype).view(one.shape)
            for one in self._parts
        )
        return inputs, targets


def _forever(count: int, seed: int) -> Iterator[int]:
    """Numbers of samples, drawn by chance, without end."""
    draw = random.Random(seed)
    while True:
        yield draw.randrange(count)


def _written(model: ModelSpec, seed: int, descriptor: int) -> _Samples:
    one = model.batch(seed, 1)
    size = sum(tensor.numel() * tensor.element_size() for tensor in one)
    count = max(1, min(_MOST_SAMPLES, _MOST_BYTES // max(size, 1)))
    batch = model.batch(seed, count)
    rows = [tensor.reshape(count, -1).contiguous().view(torch.uint8) for tensor in batch]
    whole = torch.cat(rows, 1).contiguous()
    left = memoryview(whole.numpy().tobytes())
    while left:
        left = left[os.write(descriptor, left) :]
    parts, at = [], 0
    for tensor in batch:
        shape = tuple(tensor.shape[1:])
        end = at + prod(shape) * tensor.element_size()
        parts.append(_Part(at, end, shape, tensor.dtype))
        at = end
    return _Samples(f"/proc/{os.getpid()}/fd/{descriptor}", count, (parts[0], parts[1]))


def _in_worker(_: int) -> None:
    """The kernel ends it when its rank ends; where it cannot, torch's watchdog does."""
    die_with_parent()
    folder = tempfile.gettempdir()
    if len(folder) > _LONGEST_FOLDER:
        # Batches are handed over by a socket in this folder, and a longer name than 107 bytes hangs.
        opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        tempfile.tempdir = f"/proc/{os.getpid()}/fd/{opened}"
