"""torch's flight recorder of a running job, through the pipe by which it takes the wish for a dump.

Where TORCH_NCCL_DEBUG_INFO_PIPE_FILE is set, each rank reads `VALUE<rank>.pipe`; upon a byte it writes
its dump to `TORCH_FR_DUMP_TEMP_FILE<rank>` and goes on (torch's ProcessGroupNCCL and FlightRecorder).
"""

import os
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from wirespeed.diagnose.flight_read import Dump, read_dump
from wirespeed.diagnose.sources import Source
from wirespeed.errors import InputError
from wirespeed.watch.attach.ranks import RankProcess

BOUND_S = 5.0
"""A rank looks at its pipe once a second."""
_POLL_S = 0.05
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_Asked = tuple[Path, tuple[int, int]]
"""Where a rank's dump comes, and what was there before: time and size."""


@dataclass(slots=True)
class Dumps:
    """What ranks wrote when they were asked once."""

    by_rank: dict[int, Dump] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)
    """Why a rank that has a pipe gave none."""


def ask_for_dumps(processes: Sequence[RankProcess], bound_s: float = BOUND_S) -> Dumps:
    """Of the ranks whose environment names a pipe; none of them, none asked."""
    found = Dumps()
    asked: dict[int, _Asked] = {}
    for one in processes:
        if _PIPE not in one.environment:
            continue
        file = dump_file(one)
        before = _written(file)
        try:
            _wish(_of(one, f"{one.environment[_PIPE]}{one.rank}.pipe"))
        except OSError as error:
            found.unread[one.rank] = f"its pipe: {error.strerror or error}"
        else:
            asked[one.rank] = (file, before)
    end = time.monotonic() + bound_s
    while asked and time.monotonic() < end:
        time.sleep(_POLL_S)
        _collect(found, asked)
    found.unread = dict.fromkeys(asked, f"no dump within {bound_s:g} s") | found.unread
    return found


def _wish(pipe: Path) -> None:
    """One byte, where somebody reads: ENXIO where nobody does. Only into a pipe."""
    number = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISFIFO(os.fstat(number).st_mode):
            raise OSError("it is no pipe")
        os.write(number, b"1")
    finally:
        os.close(number)


def _collect(found: Dumps, asked: dict[int, _Asked]) -> None:
    """The dumps that are new and do not grow any more; takes their ranks out of `asked`."""
    for rank, (file, old) in list(asked.items()):
        now = _written(file)
        if now == old or not now[1]:
            continue
        time.sleep(_POLL_S)
        if _written(file) != now:
            continue
        try:
            found.by_rank[rank] = read_dump(Source(f"dump of rank {rank}", file), rank)
        except InputError as error:  # or half of it is written
            found.unread[rank] = error.saw
        else:
            del asked[rank]
            found.unread.pop(rank, None)


def dump_file(one: RankProcess) -> Path:
    """Where its recorder writes: what a variable names, else below its cache folder."""
    named = next((one.environment[name] for name in _DUMPS if name in one.environment), "")
    home = one.environment.get("HOME", "/tmp")
    cache = one.environment.get("XDG_CACHE_HOME", f"{home}/.cache")
    return _of(one, f"{named or cache + '/torch/comm_lib_trace_rank_'}{one.rank}")


def _of(one: RankProcess, path: str) -> Path:
    """That path as the process itself sees it, which may be in a container."""
    place = "root" if path.startswith("/") else "cwd"
    return Path(f"/proc/{one.pid}/{place}") / path.lstrip("/")


def _written(file: Path) -> tuple[int, int]:
    """Time and size; zeros: there is no such regular file."""
    with suppress(OSError):
        about = file.lstat()
        if stat.S_ISREG(about.st_mode):
            return about.st_mtime_ns, about.st_size
    return 0, 0


def moved(before: Mapping[int, Dump], after: Mapping[int, Dump]) -> bool:
    """Whether a rank issued another collective in between."""
    both = before.keys() & after.keys()
    return any(after[one].newest > before[one].newest for one in both)
