"""Large and small files of one rank: written, read back by another rank, compared, timed call by call.

The page cache is left out: files are opened with O_DIRECT where the file system takes it; elsewhere they
are synchronised and the cache is told to forget them (posix_fadvise, DONTNEED). What of a file is in
the cache all the same is asked of the kernel (preadv2 with RWF_NOWAIT) before it is read. Each page of
4 KiB has a stamp of its own, so that no storage can keep two of them as one, and one in another's
place is seen.
"""

import errno
import mmap
import os
import random
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from wirespeed.rank.storage.answer import Answer, timed

BLOCK = 1 << 20
PAGE = 4096
_STAMP = struct.Struct("<QQ")
_LOOKED_AT = 16
"""Places of a file that are looked up in the page cache."""
LATE_S = 5.0
"""For what another node has written to be seen."""
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a block holds: noise that no storage can compress, and stamps."""

    seed: int
    block: mmap.mmap
    """Aligned to a page, as O_DIRECT asks."""
    ticks: Callable[[], None]
    """Tells that there is progress."""

    @classmethod
    def of(cls, name: str, ticks: Callable[[], None]) -> "Pattern":
        block = mmap.mmap(-1, BLOCK)
        block[:] = random.Random(name).randbytes(BLOCK)
        return cls(random.Random(name).getrandbits(63), block, ticks)

    def fill(self, rank: int, number: int) -> None:
        """Make `block` that of a rank's file."""
        for page in range(BLOCK // PAGE):
            stamp = self.seed ^ (rank << 40), number * (BLOCK // PAGE) + page
            _STAMP.pack_into(self.block, page * PAGE, *stamp)


@contextmanager
def _opened(path: Path, flags: int, direct: bool) -> Iterator[int]:
    handle = os.open(path, flags | os.O_CLOEXEC | (os.O_DIRECT if direct else 0), 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def write(
    path: Path, pattern: Pattern, rank: int, size: int, seconds: float, *, direct: bool
) -> Answer:
    """A new file of whole blocks, durable in the end; shorter where the seconds are over before."""
    path.unlink(missing_ok=True)
    times: list[float] = []
    over = time.monotonic() + seconds
    with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, direct) as handle:
        while len(times) * BLOCK < size and (not times or time.monotonic() < over):
            pattern.fill(rank, len(times))
            begin = time.perf_counter()
            done = os.write(handle, pattern.block)
            if done < BLOCK:  # what does not fit is refused by the next call, or the disk is full
                done += os.write(handle, memoryview(pattern.block)[done:])
                if done < BLOCK:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            times.append(time.perf_counter() - begin)
            pattern.ticks()
    return timed(times, len(times) * BLOCK, synchronise(path))


def read(
    path: Path, pattern: Pattern, rank: int, seconds: float, *, direct: bool, compare: bool
) -> Answer:
    """All of the file that this rank wrote, or as much as the seconds allow."""
    times: list[float] = []
    buffer, wrong, over = mmap.mmap(-1, BLOCK), 0, time.monotonic() + seconds
    with _opened(path, os.O_RDONLY, direct) as handle:
        size = os.fstat(handle).st_size
        cached = cached_share(path)
        forget(handle)
        while len(times) * BLOCK < size and (not times or time.monotonic() < over):
            begin = time.perf_counter()
            done = os.preadv(handle, [buffer], len(times) * BLOCK)
            times.append(time.perf_counter() - begin)
            if compare:
                pattern.fill(rank, len(times) - 1)
                wrong += BLOCK * (done != BLOCK or buffer[:] != pattern.block[:])
            pattern.ticks()
    return replace(timed(times, len(times) * BLOCK), cached=cached, wrong=wrong)


def read_pieces(path: Path, size: int, calls: int, seed: int, *, direct: bool) -> Answer:
    """Pieces of that size from random places, as a loader takes samples out of a packed file."""
    length = -(-size // PAGE) * PAGE
    buffer, times = mmap.mmap(-1, length), []
    with _opened(path, os.O_RDONLY, direct) as handle:
        pages = max(0, os.fstat(handle).st_size - length) // PAGE
        cached = cached_share(path)
        forget(handle)
        places = random.Random(seed)
        for _ in range(calls):
            at = places.randint(0, pages) * PAGE
            begin = time.perf_counter()
            os.preadv(handle, [buffer], at)
            times.append(time.perf_counter() - begin)
    return replace(timed(times, calls * length), cached=cached)


def synchronise(path: Path) -> float:
    """Have the file on the disk and out of the page cache; the seconds of the former."""
    with _opened(path, os.O_RDONLY, direct=False) as handle:
        begin = time.perf_counter()
        os.fsync(handle)
        seconds = time.perf_counter() - begin
        forget(handle)
    return seconds


def forget(handle: int) -> None:
    """Have the page cache drop what it has of that file, once it is on the disk."""
    with suppress(OSError):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


def cached_share(path: Path) -> float:
    """Of some places of the file, how many the page cache has; 0 where the kernel does not tell."""
    with _opened(path, os.O_RDONLY, direct=False) as handle:
        step = max(PAGE, os.fstat(handle).st_size // _LOOKED_AT)
        found = 0
        places = range(0, max(1, os.fstat(handle).st_size), step)
        for at in places:
            with suppress(OSError):  # EAGAIN: it is not there; EOPNOTSUPP: not told
                found += os.preadv(handle, [bytearray(1)], at, os.RWF_NOWAIT) > 0
    return found / len(places)


# Small files, as samples of a data loader.


def create(
    folder: Path, count: int, size: int, seconds: float, ticks: Callable[[], None]
) -> Answer:
    """New files, written and closed; then, not timed, on the disk and out of the page cache.

    Fewer, but one at least, where the seconds are over before.
    No bytes are told: where closing does not wait for the disk, their rate would be that of memory.
    """
    folder.mkdir(exist_ok=True)
    times: list[float] = []
    over = time.monotonic() + seconds
    while len(times) < count and (not times or time.monotonic() < over):
        data = random.randbytes(size)  # of each file: a storage may keep equal ones once
        begin = time.perf_counter()
        path = folder / str(len(times))
        with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, False) as handle:
            if os.write(handle, data) < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        times.append(time.perf_counter() - begin)
        ticks()
    for number in range(len(times)):
        synchronise(folder / str(number))
        ticks()
    return timed(times)


def each(names: Sequence[Path], call: Callable[[Path], int], ticks: Callable[[], None]) -> Answer:
    """One call for each of the files; it gives the bytes that it moved."""
    times, moved = [], 0
    for name in names:
        begin = time.perf_counter()
        moved += call(name)
        times.append(time.perf_counter() - begin)
        ticks()
    return timed(times, moved)


def stat_small(path: Path) -> int:
    path.stat()
    return 0


def remove_small(path: Path) -> int:
    path.unlink()
    return 0


def read_small(path: Path) -> int:
    with _opened(path, os.O_RDONLY, direct=False) as handle:
        moved = 0
        while data := os.read(handle, BLOCK):
            moved += len(data)
    return moved


# What nodes see of each other.


def put(path: Path, text: str) -> None:
    """Write it anew in its place, and close: who opens it after that must see it."""
    with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, direct=False) as handle:
        os.write(handle, text.encode())


def seen_after(path: Path, text: str, within_s: float, ticks: Callable[[], None]) -> float:
    """Seconds until the file shows that text; -1: not within so many."""
    begin = time.monotonic()
    while True:
        with suppress(FileNotFoundError), _opened(path, os.O_RDONLY, direct=False) as handle:
            if os.read(handle, PAGE) == text.encode():
                return time.monotonic() - begin
        if time.monotonic() - begin > within_s:
            return -1.0
        ticks()
        time.sleep(_POLL_S)
