"""The thread of a watched rank that tells, once a second, what the rank has noted.

Each message is one datagram, JSON, to a socket of this node (`WIRESPEED_WATCH`: its path). Who reads
there may stop, go away or be slow: then messages are lost, and the rank does not notice.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import socket
import sys
import threading
import time
from typing import Any, Callable

from _wirespeed_gpu import hook_gpu
from _wirespeed_seen import (
    Connections,
    Starving,
    calls_between,
    device,
    distributed,
    moved_bytes,
    newest_calls,
    own_line,
    raised_at,
    resident,
    stack,
    stack_file,
    tcp_acked,
    tcp_busy_us,
    tcp_retransmits,
    tcp_rtt_us,
    told_place,
)
from _wirespeed_steps import BLOCKED, PHASES, STEP, Steps

PERIOD_S = 1.0
_LOOKS = 5
"""Times a second that the thread looks where in the program the rank is."""
_PLACES, _TOLD_PLACES, _FIRST_STEPS = 256, 4, 3
_ROWS_A_SECOND = 16
"""Of more steps than that the means of some are told: the line has a kilobyte a second."""
_STUCK_S = 3.0
"""After which a rank that does nothing also tells where it stands, and again in twice the time."""
_SAMPLE_S, _SAMPLE_SHARE = 20.0, 3e-4
"""A step is sampled so often, or as seldom as its telling takes that share of a core: the recorder's 512
calls take 10 ms. Threads are looked at as seldom, too: each takes some 35 µs."""
_SAMPLED_CALLS = _SAMPLED_WAITS = 150
_SELDOM_S, _FIRST_S = 5 * PERIOD_S, 30 * PERIOD_S
"""Connections, memory and threads without a core are told so often; the last two each second first."""
_LINKS = 8
"""Connections that are told, the busiest."""
_LONGEST = 60_000
_NOT_SEEN = -1
_KEY = "wirespeed/watch"
"""In the job's own store: the port and the secret of rank 0's session."""


def begin(rank: Any, look_again: Callable[[], None]) -> None:
    """Start the thread; once a process."""
    teller = _Teller(rank, look_again)
    atexit.register(teller.end)
    threading.Thread(target=teller.run, name="wirespeed-watch", daemon=True).start()


class _Teller:
    def __init__(self, rank: Any, look_again: Callable[[], None]) -> None:
        self._rank, self._look_again = rank, look_again
        self._steps = Steps(rank.began)
        self._path = os.environ.get("WIRESPEED_WATCH", "")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._number = _number("RANK", 0)
        self._hello: dict[str, Any] = {}
        self._greet_at = self._stood_s = 0.0
        self._greets = 0
        self._met = not {"WIRESPEED_WATCH_AT", "WIRESPEED_WATCH_BESIDE"} & {*os.environ}
        self._connections = Connections()
        self._links: dict[tuple[str, int], tuple[int, int, int]] = {}
        self._looks = self._told_looks = 0
        self._places: dict[tuple[str, int, str], int] = {}
        self._moves, self._moved_at = -1, time.monotonic()
        self._linked_at = self._used_at = self._use_at = self._began_at = time.monotonic()
        self._starving = Starving()
        self._starving.since_last()
        self._bad = self._on_gpu = False
        self._sample_took = 0.0
        self._stacks = stack_file(self._path)
        self._over, self._lock = threading.Event(), threading.Lock()

    def run(self) -> None:
        looks = 0
        while not self._rank.hurt and not self._over.is_set():
            time.sleep(PERIOD_S / _LOOKS)
            looks += 1
            with self._lock:
                self._try(self._look)
                if looks % _LOOKS == 0:
                    self._try(self._tell)
        if self._rank.hurt:
            self._send(k="hurt", why=self._rank.hurt)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._rank.give_up(error)

    def _take(self) -> None:
        """What the training thread has noted becomes steps."""
        rank, steps = self._rank, self._steps
        steps.take([rank.events.popleft() for _ in range(len(rank.events))])
        rank.look_every_s, rank.ends_backward = steps.look_every_s, steps.boundary == "backward"

    def end(self) -> None:
        """The process ends: what is left is told."""
        self._over.set()
        if not self._rank.hurt and os.getpid() == self._rank.pid and self._lock.acquire(timeout=1):
            self._try(self._tell)
            self._try(self._tell_places)
            self._try(self._tell_failure)
            self._send(k="bye", s=self._steps.number, pid=os.getpid())

    def _tell_failure(self) -> None:
        """The newest calls of a program that an exception ends: others' may have been other ones."""
        error = getattr(sys, "last_value", None)
        if error is not None and distributed():
            self._send(k="st", s=self._steps.number, stack=raised_at(error), d=newest_calls())

    def _look(self) -> None:
        """Note the line of the program that the rank is at, where it is in nothing that is timed."""
        events = self._rank.events
        if self._steps.number < _FIRST_STEPS:
            return
        self._looks += 1
        timed = events[-1][0] in PHASES if events else self._steps.at.phase
        place = None if timed else own_line(self._rank.thread)
        if place is not None and (place in self._places or len(self._places) < _PLACES):
            self._places[place] = self._places.get(place, 0) + 1

    def _tell(self) -> None:
        self._look_again()
        if not self._on_gpu and _on_devices() and device():
            self._on_gpu, self._greet_at = True, 0.0
            with contextlib.suppress(Exception):  # another torch: then waits are not known
                hook_gpu(sys.modules["torch"], self._rank)
        self._take()
        steps, now = self._steps, time.monotonic()
        if now >= self._greet_at or steps.boundary != self._hello.get("b"):
            self._greets += 1
            self._greet_at = now + min(2**self._greets, 16) * PERIOD_S
            self._greet()
        if not self._met:
            self._meet()
        told = self._ended()
        for message in _rows(told, _unix()):
            self._send(**message)
        if steps.bad_loss >= 0 and not self._bad:
            self._bad = True
            self._send(k="l", s=steps.bad_loss)
        self._tell_where(now)
        if now - self._linked_at >= _SELDOM_S:
            self._tell_links(now)
        if now >= self._use_at:
            self._tell_use(now)
        if len(told) > 1:
            step_s = sum(row[0] for *_, row in told) / len(told)
            seldom_s = max(_SAMPLE_S, self._sample_took / _SAMPLE_SHARE)
            steps.sample_every = 1 << max(0, math.ceil(math.log2(seldom_s / max(step_s, 1e-6))))
        if steps.sampled is not None:
            gpu = steps.sampled[3]
            if gpu is None or gpu.over or self._rank.marks is None:
                begin = time.thread_time()
                self._tell_sample()
                self._sample_took = time.thread_time() - begin

    def _ended(self) -> list[tuple[int, float, list[float]]]:
        """Steps that ended since then; on a GPU those that it has ended, by its time."""
        steps, marks = self._steps, self._rank.marks
        over = marks.settle(one[3] for one in steps.told) if marks is not None else len(steps.told)
        told, steps.told = steps.told[:over], steps.told[over:]
        for _, _, row, gpu in told:
            if gpu is not None and gpu.seconds >= 0:
                row[STEP], row[BLOCKED] = gpu.seconds, gpu.waited
            elif self._on_gpu:  # the host waits for nobody
                row[BLOCKED] = -1.0
        return [one[:3] for one in told]

    def _tell_where(self, now: float) -> None:
        """What the training thread is in; where it does not move what it uses, and its stack."""
        steps = self._steps
        if steps.moves != self._moves:
            self._moves, self._moved_at, self._stood_s = steps.moves, now, 0.0
        still_s = now - self._moved_at
        used = {"c": round(time.process_time(), 3), "io": moved_bytes()} if still_s else {}
        self._send(k="t", s=steps.number, m=steps.moves, p=steps.at.phase, **used)
        if still_s >= max(_STUCK_S, 2 * self._stood_s):
            self._stood_s = still_s
            self._send(k="st", s=steps.number, stack=stack(self._rank.thread), d=newest_calls())

    def _send(self, **message: Any) -> None:
        data = _json({"r": self._number, **message}).encode()
        if len(data) <= _LONGEST:
            with contextlib.suppress(OSError):  # nobody reads, or not as fast
                self._socket.sendto(data, self._path)

    def _meet(self) -> None:
        """Rank 0 tells the others where its session is; these tell it the process beside them."""
        at, dist = os.environ.get("WIRESPEED_WATCH_AT", ""), distributed()
        if dist is None:
            return
        store = dist.distributed_c10d._get_default_store()
        if at:
            store.set(_KEY, at)
            self._met = True
        elif store.check([_KEY]):
            self._send(k="to", host=os.environ.get("MASTER_ADDR", ""), at=store.get(_KEY).decode())
            self._met = True

    def _greet(self) -> None:
        """Who this rank is; again where that has changed, and every half minute."""
        dist = distributed()
        self._number = dist.get_rank() if dist else _number("RANK", 0)
        world = dist.get_world_size() if dist else _number("WORLD_SIZE", 1)
        self._rank.communicates = bool(dist) and world > 1
        hello = {
            "w": world,
            "p": os.getpid(),
            "h": os.uname().nodename,
            "b": self._steps.boundary,
            "bk": str(dist.get_backend()) if dist else "",
            "v": {"torch": str(getattr(sys.modules.get("torch"), "__version__", ""))},
            "a": self._connections.own_addresses(),
            "u": _unseen(dist, self._rank.marks is not None),
            "d": device(),
            "sf": self._stacks,
            "n": int(time.monotonic() / 30),
        }
        if hello != self._hello:
            self._hello = hello
            self._send(k="hi", r=self._number, **hello)
            gradients = self._rank.gradients.get(self._steps.anchor)
            if gradients and not self._number:
                self._send(k="g", l=gradients)

    def _tell_links(self, now: float) -> None:
        seconds, self._linked_at = now - self._linked_at, now
        before, self._links = self._links, {}
        told: list[tuple[str, float, int, float, int]] = []
        for key, peer, info in self._connections.infos():
            busy_us, acked, again = tcp_busy_us(info), tcp_acked(info), tcp_retransmits(info)
            self._links[key] = busy_us, acked, again
            old = before.get(key)
            if old is not None and acked > old[1]:
                busy_s = (busy_us - old[0]) / 1e6
                rtt_s = tcp_rtt_us(info) / 1e6
                told.append((peer, round(busy_s, 4), acked - old[1], rtt_s, again - old[2]))
        told.sort(key=lambda one: -one[2])
        if told:
            self._send(k="n", s=self._steps.number, o=round(seconds, 3), l=told[:_LINKS])
        if self._looks >= 2 * self._told_looks:
            self._tell_places()

    def _tell_use(self, now: float) -> None:
        seconds, self._used_at = now - self._used_at, now
        begin = time.thread_time()
        lacked = self._starving.since_last()
        every_s = 0.0 if now - self._began_at < _FIRST_S else _SELDOM_S - PERIOD_S / 2
        self._use_at = now + max(every_s, (time.thread_time() - begin) / _SAMPLE_SHARE)
        told = {"o": round(seconds, 3), "q": round(lacked, 3)} if lacked >= 0 else {}
        self._send(k="m", s=self._steps.number, rss=resident(), **told)

    def _tell_places(self) -> None:
        self._told_looks = self._looks
        often = sorted(self._places.items(), key=lambda one: -one[1])[:_TOLD_PLACES]
        if often:
            self._send(k="pl", of=self._looks, l=[[*told_place(p), n] for p, n in often])

    def _tell_sample(self) -> None:
        step, begin, spans, gpu = self._steps.sampled
        self._steps.sampled, unix = None, begin + _unix()
        waits = gpu.waits[:_SAMPLED_WAITS] if gpu is not None else []
        if waits:  # the host's own tell nothing
            spans = [one for one in spans if PHASES[one[0]] != BLOCKED]
            spans += [("wait", a, b) for a, b, _ in waits]
        told = [
            [phase, round((a - begin) * 1e6), round((b - begin) * 1e6)] for phase, a, b in spans
        ]
        end = max([b for *_, b in told], default=0) / 1e6 + unix
        kinds, calls = calls_between(unix, end)
        parts = {"x": told, "g": kinds[:_SAMPLED_CALLS], "f": calls[:_SAMPLED_CALLS]}
        if waits:
            parts["w"] = [round(one[2] * 1e6) for one in waits]
        self._send(k="sp", s=step, t=round(unix, 6), of=len(calls), **parts)


_json = json.JSONEncoder(separators=(",", ":")).encode


def _unix() -> float:
    """What makes a time of the monotonic clock one since 1970."""
    return time.time() - time.perf_counter()


def _number(name: str, other: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else other


def _on_devices() -> bool:
    """Whether the host does not wait in collectives, which is NCCL's way."""
    dist = distributed()
    if dist is None:
        return False
    told = [str(dist.get_backend())]
    with contextlib.suppress(Exception):  # a job that named none has one by kind of device
        told.append(str(dist.get_backend_config()) if device() else "")
    return any("nccl" in one for one in told)


def _unseen(dist: Any, marked: bool) -> list[str]:
    if dist is None:
        return ["no torch.distributed: nothing is known of communication"]
    if _on_devices() and not marked:
        return ["NCCL: how long ranks wait in collectives (only a GPU knows)"]
    return []


def _rows(told: list[tuple[int, float, list[float]]], unix: float) -> list[dict[str, Any]]:
    """As messages of at most sixteen rows; steps that follow each other are put together beyond that."""
    each = max(1, -(-len(told) // _ROWS_A_SECOND))
    whole = len(told) - len(told) % each if each > 1 else len(told)
    parts = [told[i : i + each] for i in range(0, whole, each)] + [[one] for one in told[whole:]]
    found: list[dict[str, Any]] = []
    for part in parts:
        last = found[-1] if found else None
        if last is None or last["e"] != len(part) or len(last["d"]) >= _ROWS_A_SECOND:
            last = {
                "k": "s",
                "n": part[0][0],
                "e": len(part),
                "t": round(part[0][1] + unix, 4),
                "d": [],
            }
            found.append(last)
        last["d"].append(_mean([row for _, _, row in part]))
    return found


def _mean(rows: list[list[float]]) -> list[int]:
    """In units of 10 µs, the last column as it is; -1 where it is not known."""
    means = [sum(values) / len(rows) if min(values) >= 0 else -1.0 for values in zip(*rows)]
    last = len(means) - 1
    return [
        round(m * (1 if i == last else 1e5)) if m >= 0 else _NOT_SEEN for i, m in enumerate(means)
    ]
