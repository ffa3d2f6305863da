"""How much of `--max-time` is left, alike on all ranks, and what was left out when it was over."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from wirespeed.plan import Measure
from wirespeed.rank.place import Place

_WARM_AND_TIMED = 1.5
"""A size is warmed up for half of the time that it is timed for, at most."""


class TimeLimit:
    """The seconds that all measuring of this world may take, from now on.

    What asks it is collective: the latest rank's clock counts, so that all ranks decide alike. Without
    a bound nothing is gathered.
    """

    def __init__(self, place: Place, seconds: float | None) -> None:
        self._place, self._seconds = place, seconds
        self.left_out: list[str] = []
        """What was not measured, by its label."""
        self.restart()

    def restart(self) -> None:
        """Count from now on: what was done before (first steps, proofs) is not measuring."""
        self._begin = time.monotonic()

    @property
    def seconds(self) -> float | None:
        """The bound; None: there is none."""
        return self._seconds

    def left(self) -> float:
        """Return the seconds that are left, negative where it is over; infinite without a bound."""
        if self._seconds is None:
            return math.inf
        spent = float(self._place.control.matrix([time.monotonic() - self._begin]).max())
        return self._seconds - spent

    def is_over(self) -> bool:
        return self.left() <= 0

    def skip(self, label: str) -> bool:
        """Return whether it is over, so that what `label` names is left out, and note that."""
        if not self.is_over():
            return False
        self.left_out.append(label)
        return True

    def share(self, how: Measure, parts: int) -> Measure | None:
        """Return how to time one of so many parts that are left; None: the time is over."""
        left = self.left()
        if left <= 0:
            return None
        if math.isinf(left):
            return how
        return replace(how, max_time_s=min(how.max_time_s, left / max(parts, 1) / _WARM_AND_TIMED))

    def record(self) -> dict[str, Sequence[str] | float] | None:
        """Return the record `not_measured`; None where nothing was left out."""
        if self._seconds is None or not self.left_out:
            return None
        return {"labels": self.left_out, "seconds": self._seconds}
