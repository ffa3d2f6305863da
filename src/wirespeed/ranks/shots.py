"""What is timed as one: a blocking call, an asynchronous one waited for, or several in flight."""

from collections.abc import Callable, Sequence
from typing import cast

from wirespeed.collectives.engines.base import Handle, Issue

__all__ = ["Shot", "shot"]

Shot = Callable[[], object]


def shot(issues: Sequence[Issue], *, blocking: bool) -> Shot:
    """One timed unit: the single call itself where it blocks (nothing of ours is in between)."""
    if blocking and len(issues) == 1:
        return issues[0]
    if blocking:
        return _in_turn(issues)
    return _in_flight(cast("Sequence[Callable[[], Handle]]", issues))


def _in_turn(issues: Sequence[Issue]) -> Shot:
    def fire() -> None:
        for issue in issues:
            issue()

    return fire


def _in_flight(issues: Sequence[Callable[[], Handle]]) -> Shot:
    def fire() -> None:
        handles = [issue() for issue in issues]
        for handle in handles:
            handle.wait()

    return fire
