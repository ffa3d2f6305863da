"""Again after each change, when the folder has come to rest."""

import time
from collections.abc import Callable
from pathlib import Path

from wirespeed.clusters.life.syncing.tree import Tree, ignore_for, scan

__all__ = ["watch"]

_LOOK_S = 0.5
_REST_S = 0.3
"""No change for so long: an editor or a checkout is done."""
_LONGEST_REST_S = 5.0
"""A folder that never comes to rest is synced all the same."""
_AGAIN_S = 5.0
"""After a call that did not bring all."""
_SHARE = 10.0
"""Looking takes a tenth of the time at most."""


def watch(folder: Path, excludes: tuple[str, ...], sync: Callable[[], bool]) -> None:
    """Sync, and again after each change, until KeyboardInterrupt.

    sync: whether all was brought; where not, it is called again after some seconds.
    """
    while True:
        before = _looked(folder, excludes)
        good = sync()
        _wait(folder, excludes, before, float("inf") if good else _AGAIN_S)


def _looked(folder: Path, excludes: tuple[str, ...]) -> Tree:
    """The patterns are read anew, since they may be what changed."""
    return scan(folder, ignore_for(folder, excludes))


def _wait(folder: Path, excludes: tuple[str, ...], before: Tree, seconds: float) -> None:
    """Until the folder differs from `before` and rests, or for `seconds`."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        now = _looked(folder, excludes)
        if now != before:
            return _rest(folder, excludes, now)
        time.sleep(max(_LOOK_S, _SHARE * (time.monotonic() - began)))
    return None


def _rest(folder: Path, excludes: tuple[str, ...], seen: Tree) -> None:
    until = time.monotonic() + _LONGEST_REST_S
    while time.monotonic() < until:
        time.sleep(_REST_S)
        now = _looked(folder, excludes)
        if now == seen:
            return
        seen = now
