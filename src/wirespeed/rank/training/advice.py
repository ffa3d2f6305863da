"""The bucket size that the model advises, timed beside the quickest that was measured."""

import time
from typing import Any

from wirespeed.plan import TrainCase
from wirespeed.rank.training.memory_end import CaseFull
from wirespeed.rank.training.rounds import Samples, timed_turn
from wirespeed.rank.training.stage import Stage
from wirespeed.statistics import paired_verdict

_LEAST, _MOST = 6, 12
"""Rounds: with fewer no interval of a median has 95 %."""
_SHARE = 0.25
"""Of the time that rounds may take."""


def checked_advice(stage: Stage, advised: TrainCase, quickest: TrainCase) -> dict[str, Any]:
    """TRAIN-011, as a `trouble` record, from rounds in which the two take turns; collective."""
    both = Samples(advised), Samples(quickest)
    begin, budget = time.monotonic(), _SHARE * stage.plan.max_time_s
    for number in range(_MOST):
        for one in both[:: -1 if number % 2 else 1]:
            try:
                one.turns.append(timed_turn(stage, one.case, stage.plan.steps))
            except CaseFull:
                return _told("not_checked", advised, quickest, because="it does not fit in memory")
        spent = float(stage.place.control.matrix([time.monotonic() - begin]).max())
        if (number + 1 >= _LEAST and spent > budget) or spent > 4 * budget:
            break
    return advice_told(*both)


def advice_told(advised: Samples, quickest: Samples) -> dict[str, Any]:
    """TRAIN-011 of what was timed, round by round. Pure."""
    value, interval, verdict = paired_verdict(advised.round_means(), quickest.round_means())
    saw = f"{value:.2f} × its step time ({interval.low:.2f} … {interval.high:.2f}), "
    saw += f"{len(advised.turns)} rounds in turns"
    status = {"slower": "warn", "not enough rounds": "not_checked"}.get(verdict, "pass")
    return _told(status, advised.case, quickest.case, saw)


def _told(
    status: str, advised: TrainCase, quickest: TrainCase, saw: str = "", because: str = ""
) -> dict[str, Any]:
    sizes = f"{advised.bucket_mb:g} MB", f"{quickest.bucket_mb:g} MB"
    titles = {
        "warn": "the bucket model was wrong here: {0}, its advice, is slower than {1}",
        "pass": "the bucket model was right here: {0}, its advice, is no slower than {1}",
        "not_checked": "whether {0}, the bucket model's advice, is slower than {1} is not known",
    }
    wrong = status == "warn"
    noise = "too few rounds for this noise" if status == "not_checked" else ""
    return {
        "id": "TRAIN-011",
        "status": status,
        "title": titles[status].format(*sizes),
        "saw": saw,
        "expected": "no more than 1.05 ×" if wrong else "",
        "because": because
        or (
            "the model counts sending alone: no cores that send and compute at once, no threads that "
            "wake for each bucket"
            if wrong
            else noise
        ),
        "fix": f"--bucket-mb {quickest.bucket_mb:g}" if wrong else "",
        "next": f"wirespeed train --bucket-mb {advised.bucket_mb:g},{quickest.bucket_mb:g}"
        if status != "pass"
        else "",
    }
