"""The messages of a job's agents become the table of its steps: bounded, whatever is sent."""

from typing import Any

import numpy as np

from wirespeed.watch.messages import BadLoss, Hello, Links, Places, StepRows, Use, read_message
from wirespeed.watch.step_grid import StepGrid
from wirespeed.watch.steps import COLUMNS, LinkUse, RankPlaces, RankUse, StepTable

UNIT_S = 1e-5
"""Times are told in units of 10 µs."""
_PAIRS = 32768
"""Connections (rank, peer) that are kept."""
_POINTS = 131_072
"""Points of connections, and of memory, over all ranks; each has some at least."""
_UNSEEN = 64
_TEXTS = 4096
_SCALE = np.array([1.0 if name == "load" else UNIT_S for name in COLUMNS], np.float32)


class StepStore:
    """What the ranks of one job told; `table` gives the current launch."""

    def __init__(self, ranks: int = 1) -> None:
        """ranks: as far as known; there may be more."""
        self.launches = 1
        self.malformed = 0
        """Messages that were ignored."""
        """What agents cannot see, each once."""
        self.world_size = ranks
        self._begin_launch()

    def _begin_launch(self) -> None:
        self._grid = StepGrid(self.world_size)
        self.who: dict[int, Hello] = {}
        """By rank, of this launch."""
        self._links: dict[tuple[int, str], list[LinkUse]] = {}
        self._use: dict[int, list[RankUse]] = {}
        self._bad_loss: dict[int, int] = {}
        self._places: dict[int, RankPlaces] = {}
        self._texts: dict[str, str] = {}

    def add(self, text: bytes | str) -> dict[str, Any] | None:
        """Takes one message; given back is one of a kind that is not for the table."""
        message = read_message(text)
        if isinstance(message, StepRows):
            self._steps(message)
        elif isinstance(message, Hello):
            self._hello(message)
        elif message is None:
            self.malformed += 1
        elif isinstance(message, dict):
            return message
        elif self._of_launch(message.rank):
            self._other(message)
        return None

    def _of_launch(self, rank: int) -> bool:
        """After a restart, what the old processes still tell does not count."""
        return self.launches == 1 or rank in self.who

    def _hello(self, hello: Hello) -> None:
        before = self.who.get(hello.rank)
        if before is not None and before.pid != hello.pid:
            self.launches += 1
            self._begin_launch()
        self.who[hello.rank] = hello
        self.world_size = max(self.world_size, hello.world_size)

    @property
    def unseen(self) -> tuple[str, ...]:
        """What ranks say now that their agents cannot see."""
        found = dict.fromkeys(text for one in self.who.values() for text in one.unseen)
        return tuple(found)[:_UNSEEN]

    def _steps(self, message: StepRows) -> None:
        if not self._of_launch(message.rank):
            return
        if message.rank >= self._grid.ranks:
            wanted = max(message.rank + 1, min(2 * self._grid.ranks, self.world_size))
            self._grid = self._grid.widened(wanted)
        values = _values(message.rows)
        if not self._grid.put(message.rank, message.first, message.each, values, message.begin_s):
            self.malformed += 1

    def _other(self, message: Links | Use | BadLoss | Places) -> None:
        if isinstance(message, Places):
            at = {place: count for place, _, count in message.places}
            self._places[message.rank] = RankPlaces(message.looks, at)
            for place, text, _ in message.places:
                if len(self._texts) < _TEXTS:
                    self._texts[place] = text
            return
        rank, step = message.rank, message.step
        if isinstance(message, BadLoss):
            self._bad_loss[rank] = min(step, self._bad_loss.get(rank, step))
        elif isinstance(message, Use):
            points = self._use.setdefault(rank, [])
            used = message.rss_bytes, message.seconds, message.lacked_s
            points.append(RankUse(rank, step, *used))
            if len(points) > _most_points(len(self._use)):
                del points[1::2]
        else:
            self._add_links(message)

    def _add_links(self, message: Links) -> None:
        for peer, busy, sent, rtt, again in message.links:
            key = message.rank, peer
            if key not in self._links and len(self._links) >= _PAIRS:
                continue
            uses = self._links.setdefault(key, [])
            uses.append(
                LinkUse(
                    rank=message.rank,
                    peer=peer,
                    step=message.step,
                    seconds=message.seconds,
                    busy_s=busy,
                    sent_bytes=sent,
                    rtt_s=rtt,
                    retransmits=again,
                )
            )
            if len(uses) > _most_points(len(self._links)):
                pairs = zip(uses[::2], uses[1::2], strict=False)
                uses[:] = [_joined(a, b) for a, b in pairs] + uses[len(uses) // 2 * 2 :]

    def table(self) -> StepTable:
        """A copy of what is known now."""
        first, each, begin, columns = self._grid.snapshot()
        hosts = ["" for _ in range(self._grid.ranks)]
        for rank, hello in self.who.items():
            if rank < len(hosts):
                hosts[rank] = hello.host
        return StepTable(
            hosts=hosts,
            first=first,
            each=each,
            columns=columns,
            begin_s=begin,
            links=[use for uses in self._links.values() for use in uses],
            addresses={
                address: hello.host for hello in self.who.values() for address in hello.addresses
            },
            use=[point for points in self._use.values() for point in points],
            bad_loss=dict(self._bad_loss),
            places=dict(self._places),
            texts=dict(self._texts),
            boundary=next((one.boundary for one in self.who.values() if one.boundary), ""),
            device=next((one.device for one in self.who.values() if one.device), ""),
            waits_known=not any(one.startswith("NCCL") for one in self.unseen)
            and bool((~np.isnan(columns["blocked"])).any()),
        )


def _values(rows: list[list[int]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """[rows, columns] in seconds."""
    wide = len(COLUMNS)
    if any(len(row) != wide for row in rows):
        rows = [row[:wide] + [-1] * (wide - len(row)) for row in rows]
    values = np.array(rows, np.float32)
    values[values < 0] = np.nan
    values *= _SCALE
    return values


def _most_points(series: int) -> int:
    return max(16, min(128, _POINTS // max(1, series)))


def _joined(a: LinkUse, b: LinkUse) -> LinkUse:
    return LinkUse(
        rank=b.rank,
        peer=b.peer,
        step=b.step,
        seconds=a.seconds + b.seconds,
        busy_s=a.busy_s + b.busy_s,
        sent_bytes=a.sent_bytes + b.sent_bytes,
        rtt_s=max(a.rtt_s, b.rtt_s),
        retransmits=a.retransmits + b.retransmits,
    )
