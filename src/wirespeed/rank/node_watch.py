"""What the first rank of each node looks at while the world measures: error counters, other runs."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict

from wirespeed.node.counters import BOUND_S, Snapshot, growth, take
from wirespeed.node.neighbours import Presence
from wirespeed.plan import Plan
from wirespeed.rank.place import Place, is_first_of_node
from wirespeed.rank.steps import Reporter

_VERBS = ("check", "locate")
"""Those that judge nodes; figures of `bench` and `train` are not held up by it."""
_EVERY_S = 60.0
"""Of a soak, whose ranks may be ended before they tell what they saw."""


class Counting:
    """`look` tells what has grown since the look before; outside of what is timed."""

    def __init__(self, place: Place, heartbeat: Reporter, op_timeout_s: float) -> None:
        self._place, self._heartbeat = place, heartbeat
        self._patience_s = op_timeout_s / 4
        self._before: Snapshot | None = None
        self._told_at = time.monotonic()

    def look(self, *, at_once: bool = True) -> None:
        """Told by the first rank of each node; not `at_once`: at most once a minute."""
        place, now = self._place, time.monotonic()
        if not is_first_of_node(place) or not (at_once or now > self._told_at + _EVERY_S):
            return
        self._told_at, before = now, self._before
        # Ranks that wait between two turns of a soak do not know of this, and have their own time-out.
        self._before = take(bound_s=BOUND_S if at_once else min(BOUND_S, self._patience_s))
        if before is not None:
            told = {"rank": place.rank, **growth(before, self._before)}
            self._heartbeat.record("counters", told)

    def look_together(self, label: str) -> None:
        """Collective: nobody goes on before every node has read."""
        self._heartbeat.enter(label)
        self._place.busy(2 * BOUND_S)
        self.look()
        self._place.control.barrier()
        self._place.busy(None)


@contextmanager
def counting(place: Place, plan: Plan, heartbeat: Reporter) -> Iterator[Counting | None]:
    """Read before and after what is done within; collective. None where the plan asks for none."""
    if plan.command not in _VERBS:
        yield None
        return
    counted = Counting(place, heartbeat, plan.op_timeout_s)
    counted.look_together("reading counters before")
    try:
        yield counted
    except Exception:
        # What the counters say may be why; the others may be gone, so that nobody is waited for.
        with suppress(Exception):
            counted.look()
        raise
    counted.look_together("reading counters after")


@contextmanager
def present(place: Place, plan: Plan, heartbeat: Reporter) -> Iterator[None]:
    """A run shows itself to the others of each node that it measures on, and tells whom it met there.

    What is done within is measured; collective. Told by the first rank of a node, if by any.
    """
    mark = place.control.objects(secrets.token_hex(8), str)[0]
    if not is_first_of_node(place):
        yield
        return
    presence = Presence(plan.command, mark)
    try:
        yield
        if others := [asdict(one) for one in presence.others()]:
            heartbeat.record("neighbours", {"rank": place.rank, "others": others})
    finally:
        presence.leave()
