"""Real worlds for tests: N processes over gloo that run one function of a test module.

    with Nursery() as nursery:
        results = nursery.run(__file__, "my_case", ranks=2, folder=tmp_path, arguments={"steps": 5})

calls `my_case(rank, ranks, steps=5)` in each process, within a gloo group of all of them (not so with
`group=False`, where the function makes its own), and gives
what each returned (anything JSON can carry), by rank. A rank writes its result before anything is
torn down and leaves by os._exit, so that an abort of gloo's threads at the end harms nothing. A rank
that raised makes `run` raise `RankFailed` with its traceback; so does one that is not done in time.

Ranks are forks of one process that has imported torch already: an import, and that of the compiler
which every optimizer asks for, costs each rank some seconds of processor time. Ranks of one nursery
therefore share the seed of Python's hashes; those of tests/e2e do not.

Tests get it as the fixture `world` (tests/conftest.py).
"""

import gc
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Self

__all__ = ["Nursery", "RankFailed"]

BOUND_S = 120.0
"""For the whole world, start of the processes included."""

_DROPPED = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "MASTER_",
    "TORCHELASTIC",
    "GLOO_",
    "OMPI_",
    "PMI",
    "PYTHONSAFEPATH",
)


class RankFailed(AssertionError):
    """A rank raised or was not done in time; the message holds what it said."""


class Nursery:
    """A process that forks worlds, one after another; started with the first, ended on exit."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            # What it runs now is given up: it ends those ranks first.
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.communicate(timeout=10)
            self._process.kill()
            self._process.wait()
            self._process = None

    def run(
        self,
        file: str | Path,
        function: str,
        *,
        folder: Path,
        ranks: int = 2,
        arguments: Mapping[str, Any] | None = None,
        group: bool = True,
        timeout: float = BOUND_S,
    ) -> list[Any]:
        """What `function(rank, ranks, **arguments)` of that file returned, by rank."""
        place = folder / f"{function}-{time.monotonic_ns()}"
        place.mkdir(parents=True)
        task = {"file": str(file), "function": function, "ranks": ranks, "timeout": timeout}
        task |= {"arguments": dict(arguments or {}), "environ": _environ(), "group": group}
        (place / "task.json").write_text(json.dumps(task), "utf-8")
        try:
            answer = self._ask(place)
        except BaseException:  # such as pytest's own time-out: the next world starts afresh
            self.__exit__()
            raise
        if not answer:
            self.__exit__()
            raise RankFailed("the process that forks ranks has ended")
        return [_result(place, rank) for rank in range(ranks)]

    def _ask(self, place: Path) -> str:
        """Have it run, and wait: the nursery itself ends a world that takes too long."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=_environ(),
                text=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{place}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


def _environ() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_DROPPED)}
    return {**kept, "OMP_NUM_THREADS": "1"}


# In the nursery.


def _serve() -> None:
    """Fork the world of each folder that is named on stdin, until that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for pytest, which then ends this
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    importlib.import_module("torch._dynamo")
    importlib.import_module("no_pickles.sitecustomize").forbid()  # in every world of these tests
    gc.freeze()
    for line in sys.stdin:
        place = Path(line.rstrip("\n"))
        task = json.loads((place / "task.json").read_text("utf-8"))
        _fork_all(place, task)
        sys.stdout.write(line)
        sys.stdout.flush()


def _fork_all(place: Path, task: Mapping[str, Any]) -> None:
    running: dict[int, int] = {}
    try:
        for rank in range(task["ranks"]):
            running[_fork(place, rank, task)] = rank
        _wait(running, place, task["timeout"])
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _fork(place: Path, rank: int, task: Mapping[str, Any]) -> int:
    pid = os.fork()
    if not pid:
        _begin(place, rank, task)
    return pid


def _begin(place: Path, rank: int, task: Mapping[str, Any]) -> NoReturn:
    """In the new process: with signals, output and environment as if started by itself."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with (place / f"log-{rank}.txt").open("wb") as log, Path(os.devnull).open("rb") as nothing:
        for descriptor, stream in enumerate((nothing, log, log)):
            os.dup2(stream.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(task["environ"])
    _rank(place, rank, task)


def _wait(running: dict[int, int], place: Path, timeout: float) -> None:
    """Until all have ended; a rank that failed gives the others two seconds to say why they failed.

    Who has ended is taken from `running`, {process: rank}.
    """
    end = time.monotonic() + timeout
    while running and time.monotonic() < end:
        time.sleep(0.02)
        for pid, rank in list(running.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del running[pid]
                if "result" not in (_said(place, rank) or {}):
                    end = min(end, time.monotonic() + 2)


def _said(place: Path, rank: int) -> dict[str, Any] | None:
    path = place / f"result-{rank}.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def _result(place: Path, rank: int) -> Any:
    said = _said(place, rank)
    if said is not None and "result" in said:
        return said["result"]
    log = (place / f"log-{rank}.txt").read_text("utf-8", errors="replace")
    errors = [
        f"rank {other.stem.split('-')[1]}:\n{json.loads(other.read_text('utf-8')).get('error', '')}"
        for other in sorted(place.glob("result-*.json"))
    ]
    what = "said nothing" if said is None else "raised"
    raise RankFailed("\n".join([f"rank {rank} {what}", *errors, log]))


def _rank(place: Path, rank: int, task: Mapping[str, Any]) -> NoReturn:
    """The whole life of one process."""
    try:
        said = {"result": _run(place, rank, task)}
    except BaseException:
        said = {"error": traceback.format_exc()}
    part = place / f"result-{rank}.part"
    part.write_text(json.dumps(said), "utf-8")
    part.rename(place / f"result-{rank}.json")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if "result" in said else 1)


def _run(place: Path, rank: int, task: Mapping[str, Any]) -> Any:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if task["group"]:
        _join(place, rank, task)
    spec = importlib.util.spec_from_file_location("world_under_test", task["file"])
    if spec is None or spec.loader is None:
        raise ImportError(task["file"])
    module = importlib.util.module_from_spec(spec)
    sys.modules["world_under_test"] = module
    spec.loader.exec_module(module)
    result = getattr(module, task["function"])(rank, task["ranks"], **task["arguments"])
    if task["group"]:
        dist.barrier()
    return result


def _join(place: Path, rank: int, task: Mapping[str, Any]) -> None:
    from datetime import timedelta

    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        init_method=f"file://{place / 'store'}",
        rank=rank,
        world_size=task["ranks"],
        timeout=timedelta(seconds=task["timeout"]),
    )


if __name__ == "__main__":
    _serve()
