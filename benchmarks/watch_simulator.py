"""A training job that exists only in arithmetic: the table and the messages of any number of ranks.

A step ends for all ranks when the last one's own work is done and its data are sent. Own work has
lognormal jitter, bursts that hit ranks at random, noise of the whole job, and what faults add.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wirespeed.watch.own_work import Floats, Matrix
from wirespeed.watch.steps import COLUMNS, LinkUse, StepTable
from wirespeed.watch.stream import UNIT_S

FaultKind = Literal[
    "computes",
    "no core",
    "sleeps",
    "bursts",
    "node",
    "network",
    "data",
    "gc",
    "checkpoint",
    "skew",
    "change",
    "drift",
]
IDS: dict[FaultKind, str] = {
    "computes": "WATCH-001",
    "no core": "WATCH-001",
    "sleeps": "WATCH-001",
    "bursts": "WATCH-001",
    "node": "WATCH-001",
    "network": "WATCH-002",
    "data": "WATCH-003",
    "gc": "WATCH-004",
    "checkpoint": "WATCH-005",
    "skew": "WATCH-007",
    "change": "WATCH-011",
    "drift": "WATCH-011",
}
Times = NDArray[np.floating[Any]]

_LINK_STEPS = 10
"""Connections are looked at each so many steps."""
_SPLIT = {"forward": 0.3, "backward": 0.6, "optimizer": 0.09}
_DATA = 0.01
_ELEMENTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    kind: FaultKind
    rank: int = -1
    """Who has it; of a node any of its ranks; -1: all ranks."""
    step: int = 0
    """First step that it strikes."""
    size: float = 0.3
    """Share of a step that it costs when it strikes; of a change or drift its whole rise."""
    every: int = 1
    """It strikes every so many steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    ranks: int
    steps: int = 300
    per_node: int = 8
    step_s: float = 0.1
    """Own work of a rank, as a rule."""
    jitter: float = 0.02
    """Sigma of the lognormal noise of a rank's step."""
    common: float = 0.03
    """The same of noise that all ranks share."""
    bursts: float = 0.05
    """Chance that some rank's work of a step is longer by chance, in the mean by a quarter."""
    spread: float = 0.005
    """Sigma of how ranks differ for good."""
    sent: float = 0.2
    """Communication that nothing hides, as a share of own work."""
    tensor: int = 1
    """Ranks of a group that wait for each other within a step too (tensor parallelism)."""
    faults: tuple[Fault, ...] = ()


def simulate(job: Job, seed: int) -> StepTable:
    """The table of all steps; the same seed gives the same."""
    rng = np.random.default_rng(seed)
    columns = {name: np.zeros((job.ranks, job.steps), np.float32) for name in COLUMNS}
    common = np.exp(_slow_noise(rng, job)).astype(np.float32)
    work = _work(rng, job, common)
    load = np.full((job.ranks, job.steps), _ELEMENTS, np.float32)
    _share_out(columns, work)
    sent = job.step_s * job.sent * common * np.exp(rng.normal(0, 0.05, job.steps))
    for fault in job.faults:
        sent = _strike(columns, load, sent, fault, job, rng)
    own = sum((columns[name] for name in (*_SPLIT, "data", "checkpoint", "gc")), columns["step"])
    columns["load"] = load
    columns["blocked"] = _blocked(columns, own, sent, job, rng)
    return StepTable(
        hosts=[f"node-{rank // job.per_node}" for rank in range(job.ranks)],
        first=np.arange(job.steps),
        each=np.ones(job.steps, np.int64),
        columns=columns,
        begin_s=1.7e9 + np.concatenate(([0.0], np.cumsum(columns["step"][0])[:-1])),
        links=list(_links(job, sent, columns["step"][0])),
        addresses={_address(node): f"node-{node}" for node in range(_nodes(job))},
        boundary="optimizer",
    )


def _slow_noise(rng: np.random.Generator, job: Job) -> Floats:
    """Of one step like that of the step before (autoregressive, 0.7)."""
    drawn = rng.normal(0, job.common * np.sqrt(1 - 0.7**2), job.steps)
    noise = np.zeros(job.steps)
    for step in range(job.steps):
        noise[step] = 0.7 * noise[step - 1] + drawn[step]
    return noise


def _work(rng: np.random.Generator, job: Job, common: Matrix) -> Matrix:
    shape = (job.ranks, job.steps)
    work: Matrix = np.exp(job.jitter * rng.standard_normal(shape, np.float32))
    work *= np.exp(rng.normal(0, job.spread, (job.ranks, 1))).astype(np.float32)
    work *= common
    hit = rng.random(shape, np.float32) < job.bursts / job.ranks
    work[hit] += rng.exponential(0.25, int(hit.sum())).astype(np.float32)
    work[:, :2] *= 5  # compilation, caches
    work *= np.float32(job.step_s)
    return work


def _share_out(columns: dict[str, Matrix], work: Matrix) -> None:
    for name, share in _SPLIT.items():
        columns[name] = work * np.float32(share)
    columns["data"] = work * np.float32(_DATA)
    columns["cpu"] = work * np.float32(0.95)
    columns["waited"] = work * np.float32(0.02)


def _strike(
    columns: dict[str, Matrix],
    load: Matrix,
    sent: Times,
    fault: Fault,
    job: Job,
    rng: np.random.Generator,
) -> Times:
    """Adds the fault in place; communication by step as it is then."""
    steps = np.arange(job.steps)
    hit = (steps >= fault.step) & ((steps - fault.step) % fault.every == 0)
    extra = np.where(hit, fault.size * job.step_s, 0).astype(np.float32)
    who = _whose(fault, job)
    if fault.kind == "network":
        return sent + extra
    if fault.kind in ("data", "checkpoint"):
        columns[fault.kind][who] += extra
    elif fault.kind == "gc":  # another rank each time, unless it is one rank's
        for step in np.nonzero(hit)[0]:
            rank = fault.rank if fault.rank >= 0 else int(rng.integers(job.ranks))
            columns["gc"][rank, step] += extra[step]
    elif fault.kind == "skew":
        _skew(columns, load, extra / np.float32(job.step_s), who, rng)
    elif fault.kind == "drift":
        span = max(1, job.steps - fault.step)
        columns["backward"] += extra * np.clip((steps - fault.step) / span, 0, 1).astype(np.float32)
    else:
        columns["backward"][who] += extra
        grown = {"computes": "cpu", "node": "cpu", "no core": "waited"}.get(fault.kind)
        if grown:
            columns[grown][who] += extra
    return sent


def _skew(
    columns: dict[str, Matrix],
    load: Matrix,
    most: Matrix,
    who: Sequence[int] | slice,
    rng: np.random.Generator,
) -> None:
    """Batches of up to `most` more elements, or fewer where all ranks have them; and their time."""
    part = load[who]
    low = -1 if isinstance(who, slice) else 0
    more = rng.uniform(low, 1, part.shape).astype(np.float32) * most
    load[who] = np.round(part * (1 + more))
    for name in ("forward", "backward", "cpu"):
        columns[name][who] *= 1 + more


def _whose(fault: Fault, job: Job) -> Sequence[int] | slice:
    if fault.rank < 0 or fault.kind in ("change", "drift"):
        return slice(None)
    if fault.kind == "node":
        node = fault.rank // job.per_node
        return range(node * job.per_node, min((node + 1) * job.per_node, job.ranks))
    return [fault.rank]


def _blocked(
    columns: dict[str, Matrix], own: Matrix, sent: Times, job: Job, rng: np.random.Generator
) -> Matrix:
    """Time of waiting; sets the step, which is the same for all."""
    busy = own
    if job.tensor > 1:  # they meet once in the middle of a step too
        half = own * rng.normal(0.5, 0.01, own.shape).astype(np.float32)
        groups = [
            part.reshape(-1, job.tensor, job.steps).max(axis=1) for part in (half, own - half)
        ]
        busy = groups[0] + groups[1]
    columns["step"][:] = busy.max(axis=0) + sent
    return columns["step"] - own


def _nodes(job: Job) -> int:
    return -(-job.ranks // job.per_node)


def _address(node: int) -> str:
    return f"10.{node >> 16}.{node >> 8 & 255}.{node & 255}"


def _links(job: Job, sent: Times, step: Matrix) -> Iterator[LinkUse]:
    """The first rank of each node sends to the next node, and to the one before."""
    nodes = _nodes(job)
    slow = {f.rank // job.per_node: f for f in job.faults if f.kind == "network"}
    quick_s = job.step_s * job.sent * 0.5
    for end in range(_LINK_STEPS, job.steps + 1, _LINK_STEPS):
        seconds = float(step[end - _LINK_STEPS : end].sum())
        for node in range(nodes if nodes > 1 else 0):
            fault = slow.get(node)
            late = fault is not None and end - 1 >= fault.step
            busy = float(sent[end - _LINK_STEPS : end].sum()) if late else quick_s * _LINK_STEPS
            for peer in {(node + 1) % nodes, (node - 1) % nodes} - {node}:
                yield LinkUse(
                    rank=node * job.per_node,
                    peer=_address(peer),
                    step=end - 1,
                    seconds=seconds,
                    busy_s=busy,
                    sent_bytes=_LINK_STEPS * 20_000_000,
                    rtt_s=0.004 if late else 0.0002,
                    retransmits=0,
                )


def subject(fault: Fault, job: Job) -> str:
    """Whose it is, as a finding should name it."""
    if fault.rank < 0 or fault.kind in ("change", "drift"):
        return "job"
    if fault.kind in ("node", "network"):
        return f"node-{fault.rank // job.per_node}"
    return f"rank {fault.rank}"


def messages(table: StepTable, rows: int = 5, start: int = 0) -> Iterator[bytes]:
    """What the agents of the job send: each rank some rows at a time, in turns.

    start: number of the first step, where it is not the job's begin.
    """
    if start == 0:
        yield from _hellos(table)
    scale = [1.0 if name == "load" else 1 / UNIT_S for name in COLUMNS]
    for at in range(0, len(table.first), rows):
        columns = [table.columns[name][:, at : at + rows] for name in COLUMNS]
        part = np.stack([one * factor for one, factor in zip(columns, scale, strict=True)], axis=-1)
        filled = np.where(np.isnan(part), -1, np.rint(part)).astype(np.int64)
        first, begin_s = start + int(table.first[at]), float(table.begin_s[at])
        for rank in range(len(table.hosts)):
            told = {"k": "s", "r": rank, "n": first, "e": 1, "t": begin_s}
            yield json.dumps({**told, "d": filled[rank].tolist()}).encode()


def _hellos(table: StepTable) -> Iterator[bytes]:
    addresses = {host: address for address, host in table.addresses.items()}
    for rank, host in enumerate(table.hosts):
        hello = {"k": "hi", "r": rank, "w": len(table.hosts), "h": host, "p": rank + 1}
        yield json.dumps({**hello, "a": [addresses[host]], "b": table.boundary}).encode()
