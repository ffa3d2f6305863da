"""Soak: every operation again and again on new data, each result checked, each call timed.

In each turn one operation at one size gets data of its own (a new seed). The first result is compared
with the oracle; then the call is repeated on the same data, timed, and each result is compared with that
proven one. All ranks take the same turns in the same order, and stop by figures that all have gathered.
"""

import os
import random
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.oracle import bits
from wirespeed.collectives.patterns import why_not_exact
from wirespeed.model.records import WrongData
from wirespeed.plan import Case, Plan, SoakPlan, Step
from wirespeed.rank.node_watch import Counting
from wirespeed.rank.own_log import reopen_log
from wirespeed.rank.place import Place, Site, busy_for, site_of, sync_point, synchronize
from wirespeed.rank.soak_statistics import SoakStatistics, Turn, wrong_to_json
from wirespeed.rank.steps import Countdown, Reporter, process_faults, shortage
from wirespeed.rank.verify import judged, oracle_for, prepared, reason_not_to_run, slow_s, verify

_BEAT_S = 0.005
_GAP_S = 0.01
"""A beat that comes this much too late is kept."""
_KEPT = 256
_TASKS = Path("/proc/self/task")


class Standstill:
    """A thread that wakes up all the time; what it missed, the whole process missed.

    A call that waits in the library lets it run: only what stops the process (a signal, a hypervisor,
    a cgroup's limit, a core that somebody else has) stops it, too.
    """

    def __init__(self) -> None:
        self._gaps: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._last = time.perf_counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def __enter__(self) -> "Standstill":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(1.0)

    def missed(self, begin: float, end: float) -> float:
        """The longest stretch without a beat that began or ended within [begin, end], in seconds,
        as far as it lies within."""
        gaps = [*self._gaps, (self._last + _BEAT_S, end)]
        inside = [min(end, to) - max(begin, since) for since, to in gaps]
        return max(0.0, max(inside))

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_S):
            now = time.perf_counter()
            if now - self._last > _BEAT_S + _GAP_S:
                self._gaps.append((self._last + _BEAT_S, now))
            self._last = now


class CoreWaits:
    """How long threads of this process were ready to run and had no core (Linux: schedstat)."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self.known = bool(_delays())
        self.since()

    def since(self) -> float:
        """Seconds since the last call that the thread waited which waited most; 0 if not known."""
        now = _delays()
        most = max((value - self._seen.get(task, 0) for task, value in now.items()), default=0)
        self._seen = now
        return most / 1e9


def _delays() -> dict[str, int]:
    """Nanoseconds on a run queue, by thread."""
    found = {}
    with suppress(OSError):
        for task in _TASKS.iterdir():
            with suppress(OSError, ValueError, IndexError):
                found[task.name] = int((task / "schedstat").read_text().split()[1])
    return found


SEED_STEP = 1_000_003
"""Data of a turn are those that `bench --seed` sends for its first size, so that it can repeat them."""
_TURN_S = 0.1
"""About so long the timed calls of one turn take."""
_LEAST, _MOST = 4, 64
"""Calls in a turn."""
_SUSPICIOUS_S = 0.01
"""Shorter pauses are slices of the scheduler; a longer call is looked at."""


def run_soak(
    place: Place, plan: Plan, soak: SoakPlan, heartbeat: Reporter, counted: Counting | None = None
) -> None:
    """Turns until the time is up; rank 0 tells each window, and what is wrong at once."""
    faults = [Countdown(fault) for fault in process_faults(plan, place.rank)]
    tried = (_site(place, case, plan.seed, heartbeat) for case in soak.cases)
    sites = [site for site in tried if site is not None]
    if not sites:
        return
    windows = SoakStatistics(soak, place.hosts) if place.rank == 0 else None
    if windows is not None:
        heartbeat.record("soak_begin", {})
    # The same numbers on every rank; a world that goes on takes other ones than that before it.
    draw = random.Random(plan.seed * SEED_STEP + soak.turn)
    begin, turn, elapsed = time.monotonic(), soak.turn, 0.0
    with Standstill() as pulse:
        worker = _Worker(place, pulse)
        for site in _orders(sites, draw):
            seed = draw.getrandbits(32)
            step = Step(case=site.case)
            for fault in faults:
                fault.apply(step)
            heartbeat.enter(f"soak turn {turn - soak.turn + 1}: {step.label}")
            done, elapsed = worker.turn(site, seed, begin)
            turn += 1
            if windows is not None:
                for kind, data in windows.take(done, turn, elapsed):
                    heartbeat.record(kind, data)
            reopen_log()
            if counted is not None:
                counted.look(at_once=False)
            if elapsed >= soak.for_s:
                break
    if windows is not None:
        for kind, data in windows.rest(turn, elapsed):
            heartbeat.record(kind, data)


def _orders(sites: list[Site], draw: random.Random) -> Iterator[Site]:
    """Every site once in each pass, in an order drawn anew."""
    while True:
        order = list(sites)
        draw.shuffle(order)
        yield from order


def _site(place: Place, case: Case, seed: int, heartbeat: Reporter) -> Site | None:
    """None where this world cannot run it, or cannot check it exactly; alike on every rank.

    It is tried once: a backend tells only then that it has no such operation.
    """
    site = site_of(place, case, CATALOGUE[case.op], case.size_bytes)
    reason = reason_not_to_run(place, site) or why_not_exact(site.dtype, case.redop, site.ranks)
    if not reason and shortage(place, site, Step(case=case)):
        reason = "it does not fit in memory"
    label = Step(case=case).label
    if not reason:
        heartbeat.enter(f"trying {label}")
        tried = verify(place, site, seed * SEED_STEP, None)
        reason = tried.reason if tried.wrong is None else ""
        if place.rank == 0:
            for one in tried.errors:
                heartbeat.record("soak_wrong", wrong_to_json(case, seed, 0, asdict(one)))
    if reason and place.rank == 0:
        heartbeat.record("soak_skipped", {"label": label, "reason": reason})
    return None if reason else site


@dataclass(slots=True)
class _Own:
    """What this rank saw in one turn."""

    times: list[float]
    missed: list[float]
    """Seconds of each slow call in which this whole process stood still."""
    waited: list[float]
    """Seconds of each slow call that a thread of it had no core."""
    wrong: list[tuple[int, WrongData]]


class _Worker:
    def __init__(self, place: Place, pulse: Standstill) -> None:
        self._place, self._pulse = place, pulse
        self._waits = CoreWaits()
        self._cost: dict[str, float] = {}
        """Seconds of one call with its check, of the slowest rank, by step; the same everywhere."""

    def turn(self, site: Site, seed: int, begin: float) -> tuple[Turn, float]:
        """What all ranks saw, and the seconds since `begin` of the slowest clock."""
        label = Step(case=site.case).label
        count = max(_LEAST, min(_MOST, int(_TURN_S / self._cost.get(label, _TURN_S))))
        since = time.monotonic()
        own, spent, waited = self._calls(site, seed, count)
        now = time.monotonic()
        row = [*own.times, *own.missed, *own.waited, float(len(own.wrong)), spent / count]
        row += [waited / max(now - since, 1e-6) if self._waits.known else -1.0]
        row += [float(_rss()), float(_free()), now - begin]
        rows = self._place.control.matrix(row)
        self._cost[label] = float(rows[:, 3 * count + 1].max())
        wrong: list[tuple[int, WrongData]] = []
        if float(rows[:, 3 * count].sum()) > 0:
            told = self._place.control.objects(own.wrong, [(int, WrongData)])
            wrong = [one for theirs in told for one in theirs]
        done = Turn(
            case=site.case,
            seed=seed,
            times=rows[:, :count].tolist(),
            missed=rows[:, count : 2 * count].tolist(),
            waited=rows[:, 2 * count : 3 * count].tolist(),
            waiting=rows[:, -4].tolist(),
            rss=rows[:, -3].tolist(),
            free=rows[:, -2].tolist(),
            checked_bytes=(count + 1) * _result_bytes(site),
            wrong=[(number, asdict(one)) for number, one in wrong],
        )
        return done, float(rows[:, -1].max())

    def _calls(self, site: Site, seed: int, count: int) -> tuple[_Own, float, float]:
        """(what was seen, seconds of all timed calls with their checks, seconds without a core)."""
        own = _Own([], [], [], [])
        meet = sync_point(self._place, site)
        if site.group is None:  # a rank of no group has nothing to do, and does it as often
            zeros = [0.0] * count
            for _ in range(count):
                meet()
            return _Own(zeros, zeros, zeros, []), 0.0, 0.0
        case = _OneCase(self._place, site, seed)
        waited = self._waits.since()
        own.wrong += case.proven()
        begin = time.monotonic()
        for number in range(1, count + 1):
            case.restore()
            self._place.tick()
            meet()
            start = time.perf_counter()
            case.issue()
            synchronize(self._place.device)
            end = time.perf_counter()
            slow = end - start > _SUSPICIOUS_S
            late = self._waits.since() if slow else 0.0
            waited += late
            own.times.append(end - start)
            own.missed.append(self._pulse.missed(start, end) if slow else 0.0)
            own.waited.append(late)
            own.wrong += case.checked(number)
        return own, time.monotonic() - begin, waited + self._waits.since()


class _OneCase:
    """An operation bound to buffers with the data of one seed."""

    def __init__(self, place: Place, site: Site, seed: int) -> None:
        group = site.group
        if group is None:
            raise ValueError("a rank outside of every group has no case")
        self._place = place
        self._members = group.ranks
        self._oracle = oracle_for(place, site, (seed * SEED_STEP) % 2**63)
        self._bound_s = slow_s(site)
        with busy_for(place, self._bound_s):
            self._buffers = prepared(place, site, self._oracle)
            self._given = self._buffers.input.clone()
            self._before = self._buffers.output.clone()
        self.issue = place.engine.bind(site.call(self._buffers.input, self._buffers.output))
        self._good: torch.Tensor | None = None

    def restore(self) -> None:
        """The buffers as they were before the first call: no result may outlive its call."""
        self._buffers.input.copy_(self._given)
        self._buffers.output.copy_(self._before)

    def proven(self) -> list[tuple[int, WrongData]]:
        """Call once and compare with the oracle; the result is then what the next are compared with."""
        self._place.tick()
        self.issue()
        synchronize(self._place.device)
        wrong = self._judged(0)
        self._good = None if wrong else self._buffers.output.clone()
        return wrong

    def checked(self, number: int) -> list[tuple[int, WrongData]]:
        """What is wrong in the last result."""
        if self._good is not None and torch.equal(bits(self._buffers.output), bits(self._good)):
            return []
        return self._judged(number)

    def _judged(self, number: int) -> list[tuple[int, WrongData]]:
        with busy_for(self._place, self._bound_s):
            _, wrong = judged(self._place, self._oracle, self._buffers, self._members, None)
        return [] if wrong is None else [(number, wrong)]


def _result_bytes(site: Site) -> int:
    """Of one call, over all ranks, as nearly as one rank can tell."""
    elements = site.collective.output_count(site.geometry)
    return elements * site.dtype.itemsize * sum(map(len, site.members))


def _rss() -> int:
    """Bytes of memory that this process holds; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _free() -> int:
    """Bytes free in the temporary folder; 0 where that cannot be told."""
    try:
        return shutil.disk_usage(tempfile.gettempdir()).free
    except OSError:
        return 0
