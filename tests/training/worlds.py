"""Real worlds for tests: N processes over gloo that run one function of a test module.

    results = run_world(__file__, "my_case", ranks=2, folder=tmp_path, arguments={"steps": 5})

calls `my_case(rank, ranks, steps=5)` in each process, within a gloo group of all of them, and gives
what each returned (anything JSON can carry), by rank. A rank writes its result before anything is
torn down and leaves by os._exit, so that an abort of gloo's threads at the end harms nothing. A rank
that raised makes `run_world` raise `RankFailed` with its traceback; so does one that is not done in
time. Every process is ended by its own id.

Tests get it as the fixture `world` (tests/training/conftest.py).
"""

import importlib.util
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["RankFailed", "run_world"]

BOUND_S = 60.0
"""For the whole world, start of the processes included."""

_DROPPED = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC", "GLOO_", "OMPI_", "PMI")


class RankFailed(AssertionError):
    """A rank raised or was not done in time; the message holds what it said."""


def run_world(
    file: str | Path,
    function: str,
    *,
    folder: Path,
    ranks: int = 2,
    arguments: Mapping[str, Any] | None = None,
    timeout: float = BOUND_S,
) -> list[Any]:
    """What `function(rank, ranks, **arguments)` of that file returned, by rank."""
    place = folder / f"{function}-{time.monotonic_ns()}"
    place.mkdir(parents=True)
    task = {"file": str(file), "function": function, "ranks": ranks, "timeout": timeout}
    task["arguments"] = dict(arguments or {})
    (place / "task.json").write_text(json.dumps(task), "utf-8")
    started: list[subprocess.Popen[bytes]] = []
    try:
        started += [_start(place, rank) for rank in range(ranks)]
        _wait(started, place, timeout)
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.wait()
    return [_result(place, rank) for rank in range(ranks)]


def _start(place: Path, rank: int) -> subprocess.Popen[bytes]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(_DROPPED)}
    env["OMP_NUM_THREADS"] = "1"
    with (place / f"log-{rank}.txt").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, __file__, str(place), str(rank)],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=env,
        )


def _wait(started: list[subprocess.Popen[bytes]], place: Path, timeout: float) -> None:
    """Until all have ended; a rank that failed gives the others two seconds to say why they failed."""
    end = time.monotonic() + timeout
    while any(process.poll() is None for process in started) and time.monotonic() < end:
        time.sleep(0.02)
        if any(process.poll() and not _said(place, rank) for rank, process in enumerate(started)):
            end = min(end, time.monotonic() + 2)
        if any("error" in (_said(place, rank) or {}) for rank in range(len(started))):
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


def _rank(place: Path, rank: int) -> None:
    """The whole life of one process."""
    task = json.loads((place / "task.json").read_text("utf-8"))
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
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    ranks = task["ranks"]
    dist.init_process_group(
        "gloo",
        init_method=f"file://{place / 'store'}",
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=task["timeout"]),
    )
    spec = importlib.util.spec_from_file_location("world_under_test", task["file"])
    if spec is None or spec.loader is None:
        raise ImportError(task["file"])
    module = importlib.util.module_from_spec(spec)
    sys.modules["world_under_test"] = module
    spec.loader.exec_module(module)
    result = getattr(module, task["function"])(rank, ranks, **task["arguments"])
    dist.barrier()
    return result


if __name__ == "__main__":
    _rank(Path(sys.argv[1]), int(sys.argv[2]))
