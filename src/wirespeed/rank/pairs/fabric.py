"""The real fabric: nodes are hosts (or ranks), and a round is what all ranks measure together.

Every rank calls the same methods and gets the same figures (they are gathered), so the localiser
runs on each of them and all take the same decisions.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from wirespeed.locate.localise import work_order
from wirespeed.locate.pair_figures import Pair, Reading, Worked
from wirespeed.node.limits import throttled_s
from wirespeed.rank.pairs.tcp import PINGS, Door, Seat, own_address
from wirespeed.rank.place import Place, synchronize

TRANSFER_S = 0.15
"""Seconds that a transfer is meant to take."""
PING_BYTES = 32
FIRST_BYTES = 1 << 20
"""Sent first over a backend, to see how much fills the time."""
MOST_BYTES = 256 << 20
MOST_IN_TURNS = 8
"""Nodes that do their work one after the other: on one machine (a lab) they would disturb each other."""
_NONE = -1.0

Announce = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Cut:
    """The world as nodes: who measures, and who belongs to each."""

    over: str
    names: tuple[str, ...]
    seats: tuple[tuple[int, ...], ...]
    """Global ranks of a node that measure, one a rail; the same number for every node."""
    ranks: tuple[tuple[int, ...], ...]
    """All global ranks of each node."""


def cut(hosts: Sequence[str], local_ranks: Sequence[int], over: str) -> Cut:
    """`nodes`: one rank of each host; `rails`: as many as every host has; `ranks`: each by itself.

    `auto`: `nodes`, or `ranks` where there is only one host.
    """
    by_host: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        by_host.setdefault(host, []).append(rank)
    if over == "auto":
        over = "nodes" if len(by_host) > 1 else "ranks"
    if over == "ranks":
        alone = tuple((rank,) for rank in range(len(hosts)))
        return Cut(over, tuple(f"rank {rank}" for rank in range(len(hosts))), alone, alone)
    ordered = [sorted(ranks, key=lambda rank: local_ranks[rank]) for ranks in by_host.values()]
    rails = min(map(len, ordered)) if over == "rails" else 1
    seats = tuple(tuple(ranks[:rails]) for ranks in ordered)
    return Cut(over, tuple(by_host), seats, tuple(map(tuple, ordered)))


def racks(cut: Cut, by_rank: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Nodes of each rack; none where a node's is not known, or each node has its own."""
    groups: dict[str, list[int]] = {}
    for node, ranks in enumerate(cut.ranks):
        told = [by_rank[rank] for rank in ranks if by_rank[rank]]
        if not told:
            return ()
        groups.setdefault(told[0], []).append(node)
    return tuple(map(tuple, groups.values())) if len(groups) < len(cut.names) else ()


class RankFabric:
    """Implements `locate.pair_figures.Fabric` on this world. Use as a context manager."""

    def __init__(
        self, place: Place, over: str, announce: Announce, *, own_sockets: bool | None = None
    ) -> None:
        """own_sockets: plain TCP, else the backend's send and receive; None: TCP on CPUs."""
        self.cut = cut(place.hosts, place.local_ranks, over)
        self.nodes, self.rails = len(self.cut.names), len(self.cut.seats[0])
        self.groups = racks(self.cut, place.racks)
        """Nodes by rack, where placement or Slurm's topology tells every node's."""
        self._place, self._announce = place, announce
        self._rounds = 0
        self._work = Work(place)
        self._seat = {
            rank: (node, rail)
            for node, ranks in enumerate(self.cut.seats)
            for rail, rank in enumerate(ranks)
        }.get(place.rank)
        tcp = place.device.type == "cpu" if own_sockets is None else own_sockets
        self._talk: _Tcp | _Backend = _Tcp(place) if tcp else _Backend(place)

    def close(self) -> None:
        self._talk.close()

    def round(self, pairs: Sequence[Pair]) -> list[Reading]:
        """Latency, one way, the other way, and both, each by all pairs at once.

        Every other pair begins with its way back, so that no part of the fabric only sends.
        """
        self._rounds += 1
        self._announce(f"pairs, round {self._rounds}")
        mine, first, turned = self._partner(pairs)
        peers = self._peers(pairs)
        latency = self._talk.ping(mine, first)
        one_way, other_way = (
            self._talk.transfer(mine, first, peers, forth=forth, back=not forth)
            for forth in (not turned, turned)
        )
        both = self._talk.transfer(mine, first, peers, forth=True, back=True)
        forth, back = (other_way, one_way) if turned else (one_way, other_way)
        rows = self._place.control.matrix([latency, forth, back, both])
        return [self._reading(pair, rows) for pair in pairs]

    def compute(self) -> Worked:
        """The slowest rank of each node."""
        self._announce("work without traffic")
        together = [range(self._place.world_size)]
        turns = self.cut.ranks if self.nodes <= MOST_IN_TURNS else together
        by_rank = self._work.seconds(turns)
        seconds, own = (
            [max(times[rank] for rank in ranks) for ranks in self.cut.ranks] for times in by_rank
        )
        return Worked(seconds, own)

    def _partner(self, pairs: Sequence[Pair]) -> tuple[int | None, bool, bool]:
        """(global rank of this rank's partner or None, whether this rank is of the first node,
        whether the pair begins with its way back)."""
        if self._seat is None:
            return None, False, False
        node, rail = self._seat
        for first, second in pairs:
            if node in (first, second):
                other = second if node == first else first
                turned = (first + second) % 2 == 1
                return self.cut.seats[other][rail], node == first, turned
        return None, False, False

    def _peers(self, pairs: Sequence[Pair]) -> list[tuple[int, int]]:
        """Global ranks that talk to each other in this round, the same list on every rank."""
        seats = self.cut.seats
        return [(seats[a][rail], seats[b][rail]) for a, b in pairs for rail in range(self.rails)]

    def _reading(self, pair: Pair, rows: torch.Tensor) -> Reading:
        ones, others = (list(self.cut.seats[node]) for node in pair)
        return Reading(
            pair=pair,
            latency=tuple(rows[ones, 0].tolist()),
            forth=tuple(rows[others, 1].tolist()),
            back=tuple(rows[ones, 2].tolist()),
            both=tuple((rows[ones, 3] + rows[others, 3]).tolist()),
        )


class _Tcp:
    """Pairs over sockets of their own."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._door = Door(own_address(len(set(place.hosts)) == 1), place.tick)
        self._seats = place.control.objects(self._door.seat, Seat)

    def close(self) -> None:
        self._door.close()

    def ping(self, peer: int | None, first: bool) -> float:
        self._place.control.barrier()
        return _NONE if peer is None else self._door.ping(self._seats[peer] if first else None)

    def transfer(
        self, peer: int | None, first: bool, _: list[tuple[int, int]], *, forth: bool, back: bool
    ) -> float:
        """Bytes a second that came to this rank."""
        self._place.control.barrier()
        if peer is None:
            return _NONE
        return self._door.transfer(
            self._seats[peer] if first else None,
            sends=forth if first else back,
            receives=back if first else forth,
            seconds=TRANSFER_S,
        )


class _Backend:
    """Pairs over the backend's send and receive (NCCL between GPUs); both ranks of a pair call alike."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._out = torch.zeros(MOST_BYTES, dtype=torch.uint8, device=place.device)
        self._in = torch.zeros(MOST_BYTES, dtype=torch.uint8, device=place.device)

    def close(self) -> None:
        return None

    def ping(self, peer: int | None, first: bool) -> float:
        """Half of the median round trip in seconds; both sides give it."""
        self._place.control.barrier()
        if peer is None:
            return _NONE
        times = []
        for _ in range(PINGS):
            there = self._exchange(peer, PING_BYTES, sends=first, receives=not first)
            times.append(there + self._exchange(peer, PING_BYTES, sends=not first, receives=first))
        return median(times) / 2

    def transfer(
        self,
        peer: int | None,
        first: bool,
        peers: list[tuple[int, int]],
        *,
        forth: bool,
        back: bool,
    ) -> float:
        """Bytes a second that came to this rank."""
        sends, receives = (forth, back) if first else (back, forth)
        spent = 0.0
        for _ in range(2):  # the first connects
            self._place.control.barrier()
            if peer is not None:
                spent = self._exchange(peer, FIRST_BYTES, sends=sends, receives=receives)
        size = self._agreed(peers, spent)
        self._place.control.barrier()
        if peer is None:
            return _NONE
        spent = self._exchange(peer, size, sends=sends, receives=receives)
        return size / spent if receives else 0.0

    def _agreed(self, peers: list[tuple[int, int]], spent: float) -> int:
        """Bytes that take about the time, by the slower of both ends' first transfers."""
        seconds = self._place.control.matrix([spent])[:, 0].tolist()
        mine = next((pair for pair in peers if self._place.rank in pair), None)
        if mine is None:
            return 0
        slower = max(seconds[rank] for rank in mine)
        return min(MOST_BYTES, max(FIRST_BYTES, int(FIRST_BYTES * TRANSFER_S / slower)))

    def _exchange(self, peer: int, size: int, *, sends: bool, receives: bool) -> float:
        """Seconds until `size` bytes went one way, or both ways."""
        begin = time.perf_counter()
        operations = []
        if sends:
            operations.append(dist.P2POp(dist.isend, self._out[:size], peer))
        if receives:
            operations.append(dist.P2POp(dist.irecv, self._in[:size], peer))
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        synchronize(self._place.device)
        self._place.tick()
        return time.perf_counter() - begin


# The same work on every rank, with no traffic: who is slow at it is slow by itself.

_TARGET_S = 0.2
"""Of the quickest rank, each time: two periods of a CPU quota, so that at least one of them stops it
also where other work leaves it little to stop. It is done several times over."""
_PAUSE_S, _LONG_PAUSE_S = 0.1, 0.7
"""Seconds at most before the work."""
_SHORT_PAUSES = 5
"""So many at first; more timings are asked for only where somebody looks slow."""
_WINDOW_S, _NAP_S, _GAP_S = 0.5, 0.002, 0.05
"""How long to watch for gaps; a gap is longer than any scheduler leaves an idle machine's process."""
_FIRST_WINDOWS = 4
"""Later pauses that are long enough are watched, too."""
_ROOT = Path("/")
_PROBE = 8
_MOST = 100_000
_QUEUED = 16
"""Products that wait on a GPU at most, so that the watchdog sees progress."""


class Work:
    """Matrix products on the rank's device, one thread on CPUs; how many is agreed once."""

    def __init__(self, place: Place) -> None:
        side = 256 if place.device.type == "cpu" else 4096
        self._place = place
        self._in = torch.ones(side, side, device=place.device)
        self._out = torch.empty_like(self._in)
        self._count = self._calls = 0
        self._absent: list[float] = []
        """Share of each window in which this rank was not there."""

    def seconds(self, turns: Sequence[Sequence[int]]) -> tuple[list[float], list[float]]:
        """(by the clock, on a core or stopped by a quota), by global rank; collective.

        turns: ranks that work at once, one turn after the other.

        A rank that is absent for a share of the time takes as much longer in the long run, whether
        a turn was hit or not: after a common start everybody has just come back. It is the middle
        window that counts: on a busy machine anybody is absent from one or two.
        """
        control = self._place.control
        if not self._absent:
            control.barrier()
            self._absent = [_absent_share(self._place.tick) for _ in range(_FIRST_WINDOWS)]
        if not self._count:
            self._multiply(_PROBE)
            control.barrier()
            quickest = float(control.matrix([self._multiply(_PROBE)[0]]).min())
            wanted = int(_PROBE * _TARGET_S / max(quickest, 1e-6))
            self._count = min(_MOST, max(_PROBE, wanted))
        # Pauses of different lengths: what comes and goes with a period must not be missed each time.
        self._calls += 1
        longest = _PAUSE_S if self._calls <= _SHORT_PAUSES else _LONG_PAUSE_S
        self._pause(longest * (self._calls * 0.618 % 1))
        mine = (0.0, 0.0)
        for turn in work_order(len(turns), self._calls):
            control.barrier()
            if self._place.rank in turns[turn]:
                mine = self._multiply(self._count)
        rows = control.matrix([*mine, 1 - median(self._absent)])
        return (rows[:, 0] / rows[:, 2]).tolist(), rows[:, 1].tolist()

    def _pause(self, seconds: float) -> None:
        if seconds >= _WINDOW_S:
            self._absent.append(_absent_share(self._place.tick))
            seconds -= _WINDOW_S
        time.sleep(seconds)

    def _multiply(self, count: int) -> tuple[float, float]:
        """(seconds, those of them on a core or stopped by a quota; on a GPU all of them)."""
        cuda = self._place.device.type == "cuda"
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        stopped = throttled_s(_ROOT)
        begin, busy = time.perf_counter(), time.thread_time()
        for number in range(count):
            torch.mm(self._in, self._in, out=self._out)
            if cuda and number % _QUEUED == _QUEUED - 1:
                synchronize(self._place.device)
            self._place.tick()
        synchronize(self._place.device)
        spent, busy = time.perf_counter() - begin, time.thread_time() - busy
        torch.set_num_threads(threads)
        return spent, spent if cuda else min(spent, busy + throttled_s(_ROOT) - stopped)


def _absent_share(tick: Callable[[], None]) -> float:
    """Share of a window in which this process did not run although it wanted to, by long gaps."""
    begin = last = time.perf_counter()
    absent = 0.0
    while last - begin < _WINDOW_S:
        time.sleep(_NAP_S)
        now = time.perf_counter()
        if now - last > _GAP_S:
            absent += now - last - _NAP_S
        last = now
        tick()
    return min(0.99, absent / (last - begin))
