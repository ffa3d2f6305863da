"""`python -m wirespeed.rank.storage.worker PARENT`: touches the storage on behalf of a rank.

Whatever reads or writes the folder does so here, so that storage that hangs holds this process and not
the rank, which waits no longer than it will. Orders come as JSON, one a line, on stdin; each is answered
by a line, `{"answer": …}`; `{}` before it tells of progress. When the rank is gone, or at SIGTERM, this
process removes its files and ends.
"""

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from errno import errorcode
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from wirespeed.process.guard import die_with_parent
from wirespeed.rank.storage import files, fio, folder
from wirespeed.rank.storage.answer import Answer

_CLEANED_S = 10.0
"""Storage that hangs does not let files be removed: then this process ends without."""
_TICK_S = 0.5
_MOST_TEXT = 300


class _Ended(BaseException):
    """The rank is gone, or wants this process to end."""


class Worker:
    """Carries out the orders of one rank; a method each."""

    def __init__(self, rank: int, directory: str, token: str, begun: bool = False) -> None:
        """begun: another worker was given up that may have written files."""
        self._rank, self._folder = rank, Path(directory)
        self._own = self._folder / f"{folder.PREFIX}{token}"
        self._token = token
        self._told = 0.0
        self._direct = False
        self._begun = begun
        self._pattern = files.Pattern.of(token, self._tick)
        self._checkpoints: Any = None

    def _tick(self) -> None:
        if (now := time.monotonic()) - self._told > _TICK_S:
            self._told = now
            _say({})

    def _path(self, name: str, rank: int | None = None) -> Path:
        return self._own / f"rank-{self._rank if rank is None else rank}.{name}"

    # Looking.

    def look(self) -> Answer:
        return Answer(said=json.dumps({**folder.look(self._folder), "fio": fio.version()}))

    def begin(self, first: bool) -> Answer:
        self._begun = True
        removed, self._direct = folder.begin(
            self._folder, self._own, self._rank, self._tick, first=first
        )
        return Answer(said=json.dumps({"removed": removed, "direct": self._direct}))

    def put(self, name: str, text: str) -> Answer:
        files.put(self._path(name), text)
        return Answer()

    def see(self, name: str, texts: Mapping[str, str], within_s: float) -> Answer:
        """texts: by rank what its file must show; seconds until all do, -1: one does not."""
        waits = [
            files.seen_after(self._path(name, int(one)), text, within_s, self._tick)
            for one, text in texts.items()
        ]
        return Answer(seconds=-1.0 if -1.0 in waits else max(waits, default=0.0))

    # Large files.

    def use_page_cache(self) -> Answer:
        """Without O_DIRECT from now on: another node cannot have it."""
        self._direct = False
        return Answer()

    def write(self, size: int, seconds: float, engine: str) -> Answer:
        path, direct = self._path("bin"), self._direct
        if engine == "fio":
            return fio.run("write", path, size, seconds, direct=direct)
        return files.write(path, self._pattern, self._rank, size, seconds, direct=direct)

    def read(self, of: int, seconds: float, engine: str, compare: bool = False) -> Answer:
        path, direct = self._path("bin", of), self._direct
        if engine == "fio":
            cached = files.cached_share(path)
            found = fio.run("read", path, path.stat().st_size, seconds, direct=direct)
            return replace(found, cached=cached)
        return files.read(path, self._pattern, of, seconds, direct=direct, compare=compare)

    def read_pieces(self, of: int, size: int, calls: int, seconds: float, engine: str) -> Answer:
        path, direct = self._path("bin", of), self._direct
        if engine == "fio":
            whole, cached = path.stat().st_size, files.cached_share(path)
            pieces = calls, size
            found = fio.run("random read", path, whole, seconds, direct=direct, pieces=pieces)
            return replace(found, cached=cached)
        return files.read_pieces(path, size, calls, time.time_ns(), direct=direct)

    # Small files.

    def create(self, count: int, size: int, seconds: float = math.inf) -> Answer:
        return files.create(self._path("small"), count, size, seconds, self._tick)

    def stat(self, of: int, count: int) -> Answer:
        return files.each(self._small(of, count), files.stat_small, self._tick)

    def open(self, of: int, count: int) -> Answer:
        return files.each(self._small(of, count), files.read_small, self._tick)

    def remove(self, count: int) -> Answer:
        return files.each(self._small(self._rank, count), files.remove_small, self._tick)

    def _small(self, of: int, count: int) -> list[Path]:
        return [self._path("small", of) / str(number) for number in range(count)]

    # Checkpoints.

    def prepare(self, size: int) -> Answer:
        """Import torch, and make what is saved."""
        from wirespeed.rank.storage.checkpoint import Checkpoints

        self._path("bin").unlink(missing_ok=True)
        self._checkpoints = Checkpoints(size)
        return Answer()

    def save(self) -> Answer:
        """Into a new folder; the one before has been loaded by whom it was for."""
        path = self._path("dcp")
        folder.discard(path)
        answer: Answer = self._checkpoints.save(path)
        return answer

    def load(self, of: int) -> Answer:
        answer: Answer = self._checkpoints.load(self._path("dcp", of))
        return answer

    # The end.

    def clean(self, last: bool) -> Answer:
        left = folder.clean(self._own, self._rank, last=last) if self._begun else []
        return Answer(said=json.dumps(left))

    def carry_out(self, do: str, told: Mapping[str, Any]) -> Answer:
        """The answer, also where the system or torch refuses it."""
        try:
            answer: Answer = _ORDERS[do](self, **told)
            return answer
        except OSError as error:
            name = errorcode.get(error.errno or 0, "")
            return Answer(kind="error", error=name, text=error.strerror or str(error))
        except Exception as error:
            return Answer(kind="error", text=f"{type(error).__name__}: {error}"[:_MOST_TEXT])


_ORDERS: Mapping[str, Callable[..., Answer]] = {
    name: one for name, one in vars(Worker).items() if name[0] != "_" and name != "carry_out"
}


def _say(line: Mapping[str, Any]) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Ended


def main(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    die_with_parent(signal.SIGTERM, parent)
    worker: Worker | None = None
    try:
        while line := sys.stdin.readline():
            order = json.loads(line)
            do = order.pop("do")
            if do == "work":
                worker = Worker(**order)
                answer = Answer()
            elif worker is not None:
                answer = worker.carry_out(do, order)
            _say({"answer": asdict(answer)})
    except _Ended:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        late = threading.Timer(_CLEANED_S, os._exit, (1,))
        late.daemon = True
        late.start()
        if worker is not None:
            worker.carry_out("clean", {"last": False})


if __name__ == "__main__":
    main(int(sys.argv[1]))
