"""Traces made up: one rank's steps of compute and one collective, as torch.profiler writes them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

GROUP = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2, 3]}


def event(name: str, cat: str, begin_ms: float, ms: float, tid: int = 1, **args: object) -> dict:
    times = {"ts": 1e3 * begin_ms, "dur": 1e3 * ms}
    return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, **times, "args": args}


def job(
    rank: int,
    steps: int,
    *,
    ranks: int = 4,
    work_ms: Callable[[int, int], float] = lambda rank, step: 10.0,
    send_ms: float = 2.0,
    clock_ms: float = 0.0,
) -> Iterator[dict]:
    """Each step: 1 ms of loading, work, an all-reduce that all ranks leave together, 1 ms of optimizer.

    work_ms: of rank and step. clock_ms: how far this rank's clock is ahead.
    """
    at = 1000.0 + clock_ms
    for step in range(steps):
        own = work_ms(rank, step)
        longest = max(work_ms(one, step) for one in range(ranks))
        met = at + 1 + longest + send_ms
        yield event(f"ProfilerStep#{step}", "user_annotation", at, met + 1 - at)
        yield event("enumerate(DataLoader)#_Next", "user_annotation", at, 1)
        yield event("aten::addmm", "cpu_op", at + 1, own / 2)
        yield event("autograd::engine::evaluate_function: X", "cpu_op", at + 1 + own / 2, own / 2)
        yield event("aten::mm", "cpu_op", at + 1 + own / 2, own / 2)
        began = at + 1 + own
        yield event(
            "gloo:all_reduce",
            "user_annotation",
            began,
            met - began,
            tid=7,
            **{"Input type": ["float"], "Input Dims": [[1000]]},
        )
        yield event("Optimizer.step#AdamW.step", "user_annotation", met, 1)
        yield event("aten::add", "cpu_op", met, 1)
        at = met + 1


def write(path: Path, rank: int, events: Iterator[dict], *, world: int = 4) -> Path:
    told = {"rank": rank, "world_size": world, "pg_config": [{**GROUP, "ranks": [*range(world)]}]}
    head = {"distributedInfo": told, "host_name": f"host{rank}", "baseTimeNanoseconds": 10**18}
    with path.open("w") as stream:
        stream.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        stream.writelines(
            ("" if number == 0 else ",\n") + json.dumps(one) for number, one in enumerate(events)
        )
        stream.write("\n]}")
    return path
