"""Records that are made up: usual ones, of which a test says what is other than usual."""

from typing import Any

from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Measurement, NodeFacts, Run, TimeStats, Verification, World


def times(median: float, half: float = 0.0, **changes: float) -> TimeStats:
    """half: half width of the interval, relative to the median; all else is the median."""
    names = ("median", "mean", "low", "high", "min", "p95", "p99", "max")
    told = dict.fromkeys(names, median) | {"low": median * (1 - half), "high": median * (1 + half)}
    return TimeStats(**told | changes)


def _call(size: int, **changes: Any) -> dict[str, Any]:
    told = {
        "op": "all_reduce", "engine": "torch", "dtype": "float32", "redop": "sum", "root": -1,
        "in_place": False, "size_bytes": size, "count": size // 4, "ranks": 2,
    }  # fmt: skip
    return told | changes


def measurement(
    seconds: float = 100e-6, size: int = 1024, half: float = 0.0, **changes: Any
) -> Measurement:
    """An all_reduce of two ranks; half: as of `times`."""
    told = {"iterations": 20, "time": times(seconds, half), "algbw": 1e9, "busbw": 1e9}
    return Measurement(**_call(size, **told | changes))


def verification(size: int = 1024, **changes: Any) -> Verification:
    """The data of such a call, all right."""
    return Verification(**_call(size, **{"wrong": 0, "elements": 512} | changes))


def world(*nodes: NodeFacts, **changes: Any) -> World:
    """Two ranks on this machine, of which nothing is known."""
    told = {"size": 2, "nodes": nodes, "backend": "gloo", "launcher": "local"}
    return World(**told | changes)


def node(host: str = "node-a", *ranks: int, **changes: Any) -> NodeFacts:
    """A node of which nothing else is known; ranks: 0, where none is told."""
    return NodeFacts(**{"host": host, "ranks": ranks or (0,), "facts": Facts()} | changes)


def run(**changes: Any) -> Run:
    """A check that found nothing wrong."""
    told = {
        "id": "91ae33fe", "command": "check", "verdict": "READY", "exit_code": 0,
        "started": "2026-11-03T10:11:12.000Z", "seconds": 1.0, "world": world(),
    }  # fmt: skip
    return Run(**told | changes)
