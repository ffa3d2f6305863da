"""The session's side of the watchdog: knows where every rank is and ends the run within a bound."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from wirespeed.errors import WirespeedError
from wirespeed.model.records import Finding
from wirespeed.watchdog import protocol
from wirespeed.watchdog.attribution import blame, is_consequence
from wirespeed.watchdog.facts import Facts, RankStatus
from wirespeed.watchdog.rank_table import RankTable, lingering, trigger
from wirespeed.watchdog.server import Server
from wirespeed.watchdog.stacks import LocalProcess, process_state, stack_of_stopped

OutcomeKind = Literal[
    "finished", "died", "raised", "hung", "never_joined", "claimed_twice", "interrupted"
]

_KINDS: dict[str, OutcomeKind] = {
    "DIED-001": "died",
    "RAISED-001": "raised",
    "HANG-001": "hung",
    "HANG-002": "hung",
    "HANG-003": "hung",
    "HANG-004": "hung",
    "JOIN-001": "never_joined",
    "JOIN-002": "claimed_twice",
    "INT-001": "interrupted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Decided once by the monitor; after any kind but `finished` all ranks were told to end."""

    kind: OutcomeKind
    findings: tuple[Finding, ...] = ()
    """The first cause first; `finished` has only warnings, if any."""
    statuses: tuple[RankStatus, ...] = ()
    """Where each rank was when it was decided."""
    stacks: Mapping[int, str] = field(default_factory=dict)
    """Python stacks by rank, where they were asked for and could be had."""

    @property
    def ok(self) -> bool:
        """Whether every rank delivered all its results."""
        return self.kind == "finished"


def kind_of(findings: tuple[Finding, ...]) -> OutcomeKind:
    """The kind that the first finding stands for; `finished` without any but warnings."""
    return _KINDS.get(findings[0].id, "finished") if findings else "finished"


_STEP_S = 0.1
_JUDGE_S = 0.05
_PAUSE_S = 1.0
"""A step that took this much longer than it should was our own pause, nobody's silence."""
_STACK_BOUND_S = 2.0
_SILENT_S = 4 * protocol.HEARTBEAT_S
_STOPPED_STACK_S = 1.0
_STOPPED_STACKS_S = 3.0
"""Bound of all stacks of stopped local ranks together."""

OnRecord = Callable[[int, str, dict[str, Any]], None]


class Monitor:
    """Watches one run. `start`, then `wait` for the outcome, then `close` (or use `with`).

    Everything happens in one thread, which also calls `on_record(rank, kind, data)` (each rank's
    records in order). When it raises, the ranks are ended and `outcome` and `wait` raise that error.

    A hang is decided at most `op_timeout_s` + 0.5 s + 2 s (stacks) + 3 s (stacks of stopped local
    ranks) after the last progress; a death after 0.5 s, an exception after 1 s.
    """

    def __init__(
        self,
        world_size: int,
        token: str,
        *,
        on_record: OnRecord,
        op_timeout_s: float = 30.0,
        startup_timeout_s: float = 120.0,
        host: str = "127.0.0.1",
        port: int = 0,
        local: Mapping[int, LocalProcess] | None = None,
    ) -> None:
        """`local`: processes by rank that the owner started here and whose end it will report with
        `process_ended`; read live, so it may be filled after `start`."""
        self._table = RankTable(
            world_size,
            time.monotonic(),
            op_timeout=op_timeout_s,
            startup_timeout=startup_timeout_s,
        )
        self._on_record = on_record
        self._address = (host, port)
        self._local: Mapping[int, LocalProcess] = local if local is not None else {}
        self._server = Server(token, world_size, self)
        self._orders: queue.SimpleQueue[Callable[[float], None]] = queue.SimpleQueue()
        self._interrupted: str | None = None
        self._hurried = False
        self._asked_at: float | None = None
        self._judged_at = 0.0
        self._stopping = False
        self._outcome: Outcome | None = None
        self._crash: BaseException | None = None
        self._decided = threading.Event()
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)

    # For the owner; any thread.

    def start(self) -> int:
        """Listen and start the thread; returns the port. The start-up bound runs from here."""
        try:
            port = self._server.listen(*self._address)
        except WirespeedError:
            self._server.close()
            raise
        self._table.restart(time.monotonic())
        self._thread.start()
        return port

    def process_ended(self, rank: int, returncode: int) -> None:
        """The owner saw a rank's process end (minus the number of the signal, or the exit code)."""
        self._orders.put(lambda now: self._table.ended(rank, returncode, now))
        self._server.wake()

    def rank_failed(self, rank: int, host: str, error: str) -> None:
        """The owner learned otherwise that a rank, which never connected, ended with an error."""
        self._orders.put(lambda now: self._table.gave_up(rank, host, error, now))
        self._server.wake()

    def interrupt(self, by: str = "Ctrl-C") -> None:
        """End the run because somebody wants it."""
        self._interrupted = by
        self._server.wake()

    def hurry(self) -> None:
        """Somebody is about to end this process: decide on a death at once, wait for no more."""
        self._hurried, self._judged_at = True, 0.0
        self._server.wake()

    def outcome(self) -> Outcome | None:
        """What was decided, or None while the run goes on."""
        return self.wait(0.0)

    def wait(self, timeout: float) -> Outcome | None:
        """Wait up to `timeout` seconds for the outcome; None when the run still goes on."""
        if self._decided.wait(timeout) and self._crash is not None:
            raise self._crash
        return self._outcome

    def statuses(self) -> tuple[RankStatus, ...]:
        """Where every rank is now."""
        return self._table.statuses(time.monotonic())

    def close(self, timeout: float = 5.0) -> None:
        """Tell ranks that still run to end, close all connections, and join the thread."""
        self._stopping = True
        if self._thread.ident is None:
            self._server.close()
            return
        self._server.wake()
        self._thread.join(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # For the server (a Listener); the monitor's thread.

    def joined(self, hello: protocol.Hello, address: str, now: float) -> str:
        """A rank introduces itself; returns why it is refused, or ``."""
        if self._outcome is not None:
            return "the run is over"
        return self._table.hello(hello, address, now)

    def turned_away(self, address: str, why: str) -> None:
        """Somebody spoke without the run's key; it is told at the end, once."""
        self._table.stranger(address, why)

    def heard(self, rank: int, message: protocol.Message, now: float) -> None:
        """Take a message of a rank. Raises ProtocolError for one that ranks do not send."""
        match message:
            case protocol.Beat():
                self._table.beat(rank, message, now)
            case protocol.Record():
                self._table.record(rank, now)
                # A stopped rank that goes on measures its own pause: not after the verdict.
                if self._outcome is None:
                    self._on_record(rank, message.kind, message.data)
            case protocol.Failed():
                self._table.failed(rank, message.error, message.trace, now)
            case protocol.StackText():
                self._table.stack(rank, message, now)
            case protocol.Bye():
                self._table.bye(rank, message.exit_code, now)
                self._server.send(rank, protocol.Bye())
            case _:
                raise protocol.ProtocolError(f"ranks send no {type(message).__name__}")

    def lost(self, rank: int, now: float, why: str) -> None:
        """The rank's connection ended."""
        self._table.lost(rank, now, why)

    # The thread.

    def _run(self) -> None:
        try:
            last = time.monotonic()
            while not self._stopping:
                last = self._step(last)
        except BaseException as error:
            # Not swallowed: `wait` raises it in the owner's thread.
            self._crash = error
        finally:
            if self._outcome is None:
                self._server.broadcast(protocol.Abort("the session ended before the run did"))
            self._server.close()
            self._decided.set()

    def _step(self, last: float) -> float:
        ready = self._server.wait(_STEP_S)
        now = time.monotonic()
        if now - last > _STEP_S + _PAUSE_S:
            self._table.shift(now - last - _STEP_S)
        self._server.serve(ready, now)
        while not self._orders.empty():
            self._orders.get_nowait()(now)
        # Not at each message: with a thousand ranks in the process of one of them, it counts.
        if self._outcome is None and now - self._judged_at >= _JUDGE_S:
            self._judged_at = now
            self._judge(now)
        return now

    def _judge(self, now: float) -> None:
        """Decide, or ask for stacks first, when something is wrong or all is done."""
        if self._interrupted is not None or (self._hurried and self._table.deaths()):
            self._conclude(now)
        elif self._asked_at is not None:
            if now - self._asked_at > _STACK_BOUND_S or not self._unanswered():
                self._conclude_hang(now)
        else:
            why = trigger(self._table, now, self._is_local)
            if why == "overdue" or (why == "ended" and self._looks_like_hang()):
                self._ask_for_stacks(now)
            elif why is not None:
                self._conclude(now)

    def _is_local(self, rank: int) -> bool:
        return rank in self._local

    def _looks_like_hang(self) -> bool:
        """All exceptions only say that a peer went away or timed out, and nobody died."""
        return not self._table.deaths() and all(
            is_consequence(one.error) for one in self._table.raised()
        )

    def _ask_for_stacks(self, now: float) -> None:
        self._asked_at = now
        for entry in self._table.entries:
            entry.stack = None
        self._server.broadcast(protocol.StackRequest())

    def _unanswered(self) -> list[int]:
        return [e.rank for e in self._table.entries if e.open and not e.over and e.stack is None]

    def _conclude_hang(self, now: float) -> None:
        """All that can answer has answered: decide, unless the late ranks moved on meanwhile."""
        if not (self._table.overdue(now) or self._table.deaths() or self._table.raised()):
            self._asked_at = None
            return
        self._conclude(now)

    def _conclude(self, now: float) -> None:
        facts = self._facts(now)
        findings = blame(facts)
        outcome = Outcome(
            kind=kind_of(findings),
            findings=findings,
            statuses=facts.statuses,
            stacks=facts.stacks,
        )
        if not outcome.ok:
            self._server.broadcast(protocol.Abort(findings[0].title))
        self._outcome = outcome
        self._decided.set()

    def _facts(self, now: float) -> Facts:
        table = self._table
        # Before any stopped rank is let go on, which changes all this.
        statuses, overdue = table.statuses(now), table.overdue(now)
        states = {rank: process_state(process.pid) for rank, process in self._local.items()}
        silent = self._silent(statuses, states) if self._asked_at is not None else frozenset()
        stacks = {e.rank: e.stack for e in table.entries if e.stack is not None}
        starting = {rank for rank in overdue if not statuses[rank].connected}
        return Facts(
            statuses=statuses,
            op_timeout=table.op_timeout,
            startup_timeout=table.startup_timeout,
            deaths=table.deaths(),
            raised=table.raised(),
            overdue=overdue,
            silent=silent,
            lingering=lingering(table, self._is_local),
            states=states,
            stacks={**stacks, **self._stacks_of(silent | starting)},
            interrupted=self._interrupted,
            refusals=tuple(table.refusals),
            claims=table.claims,
            strangers=table.turned_away_count,
            strangers_seen=tuple(table.turned_away),
        )

    def _silent(
        self, statuses: tuple[RankStatus, ...], states: Mapping[int, str]
    ) -> frozenset[int]:
        return frozenset(
            rank
            for rank in self._unanswered()
            if statuses[rank].silent > _SILENT_S or states.get(rank) in ("T", "t")
        )

    def _stacks_of(self, ranks: frozenset[int]) -> dict[int, str]:
        """Of local ranks that cannot answer; those that have yet to be forked share a process."""
        deadline = time.monotonic() + _STOPPED_STACKS_S
        stacks: dict[int, str] = {}
        for rank, process in sorted(self._local.items()):
            left = min(_STOPPED_STACK_S, deadline - time.monotonic())
            if rank not in ranks or process.stack_file is None or left <= 0:
                continue
            known = [r for r in stacks if self._local[r] == process]
            if known:
                stacks[rank] = stacks[known[0]]
            elif stack := stack_of_stopped(process.pid, process.stack_file, left):
                stacks[rank] = stack
        return stacks
