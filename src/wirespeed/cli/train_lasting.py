"""`wirespeed train --for`: what of it can be, and the plan that comes of it."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from wirespeed.cli.durations import parse_duration
from wirespeed.cli.train_plan import Asked, cases_of
from wirespeed.errors import UsageError
from wirespeed.plan import LastingPlan, TrainCase
from wirespeed.training.strategies.registry import STRATEGIES

__all__ = ["lasting_case", "lasting_of"]

_EVERY = "60s"
_OTHERS = ("scaling", "memory", "fit", "trace", "load", "rounds")
_ONLY_WITH = ("checkpoint_every", "checkpoint_dir", "resume")
_RESTARTED = "TORCHELASTIC_RESTART_COUNT"


def lasting_of(values: Mapping[str, Any], *, launched: bool, elsewhere: bool) -> LastingPlan | None:
    """None without --for; UsageError for what does not go with it.

    launched: somebody else's launcher started us. elsewhere: ranks run on other nodes.
    """
    if values["for_"] is None:
        for name in _ONLY_WITH:
            if values[name]:
                raise UsageError(
                    f"{_option(name)} without --for",
                    expected="--for TIME: only training for a time has checkpoints",
                    next=f"wirespeed train --for 30m {_option(name)} …",
                )
        return None
    wrong = [name for name in _OTHERS if values[name]]
    if wrong:
        raise UsageError(
            f"--for and {_option(wrong[0])}",
            expected="one of them: --for trains by one strategy for a time, and compares nothing",
            next="wirespeed train --for 30m --strategy ddp",
        )
    folder, resume = values["checkpoint_dir"], values["resume"]
    if folder is None and (launched or elsewhere or resume):
        why = "--resume" if resume else "ranks that another launcher starts" if launched else "--on"
        raise UsageError(
            f"--for with {why} needs --checkpoint-dir",
            expected="the folder of the checkpoints, where the ranks run: one that all nodes see, or "
            "one of that name on each node",
            next="wirespeed train --for 30m --checkpoint-dir /data/checkpoints …",
        )
    seconds, steps = _every(values["checkpoint_every"] or _EVERY)
    again = os.environ.get(_RESTARTED, "0")
    return LastingPlan(
        for_s=parse_duration(values["for_"], "--for"),
        until=0.0,
        folder=str(Path(folder).expanduser().absolute()) if folder else "",
        checkpoint_s=seconds,
        checkpoint_steps=steps,
        # A launcher that starts its ranks again wants them to go on.
        resume=resume or (launched and again.isdecimal() and int(again) > 0),
    )


def lasting_case(asked: Asked) -> TrainCase:
    """The only case; UsageError where several strategies are named, or one without checkpoints."""
    name = asked.strategies[0]
    if len(asked.strategies) > 1 or len(asked.buckets) > 1:
        several = "strategies" if len(asked.strategies) > 1 else "bucket sizes"
        raise UsageError(
            f"--for with several {several}",
            expected="one: the time is spent on one training",
            next=f"wirespeed train --for 30m --strategy {name}",
        )
    if not STRATEGIES[name].checkpoint:
        raise UsageError(
            f"--for with {name}: its checkpoints are DeepSpeed's own, which are not read here",
            expected="one of " + ", ".join(n for n, info in STRATEGIES.items() if info.checkpoint),
            next="wirespeed train --for 30m --strategy fsdp2",
        )
    both = cases_of(replace(asked, worlds=()))
    return next(case for case in both if case.strategy == name)


def _every(text: str) -> tuple[float | None, int | None]:
    """Seconds, or steps, between checkpoints."""
    words = text.strip().lower().removesuffix("steps").removesuffix("step")
    if words != text.strip().lower():
        if not words.strip().isdecimal() or int(words) < 1:
            raise UsageError(
                f"--checkpoint-every {text!r} is no number of steps", expected="such as 100steps"
            )
        return None, int(words)
    try:
        return parse_duration(text, "--checkpoint-every"), None
    except UsageError as error:
        raise UsageError(error.saw, expected="such as 60s, 5m or 100steps") from error


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
