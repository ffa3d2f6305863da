"""Other runs that measure on the same nodes: speed is not judged then, data and settings are."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from wirespeed.model.records import Finding, Subject, World

__all__ = ["SHARED", "beside_others"]

SHARED = "WORLD-003"
_SKEW = "SKEW-001"
_SHOWN = 4


def beside_others(
    world: World, speed: Sequence[Finding], *, asked: bool
) -> tuple[list[Finding], list[Finding]]:
    """The findings about speed as they stand with other runs beside this one, and who those were.

    asked: tell of them also where nothing was judged by its speed: figures are shown.
    """
    crowded = {node.host: told for node in world.nodes if (told := node.facts.neighbours)}
    judged = any(map(_was_timed, speed))
    if not crowded or not (judged or asked):
        return list(speed), []
    host = max(crowded, key=lambda one: len(crowded[one]))
    others, more = crowded[host], len(crowded) - 1
    since = _clock(min(one["since"] for one in others))
    runs = f"{len(others)} other wirespeed run" + ("s" if len(others) > 1 else "")
    nodes = f" and on {more} more node" + ("s" if more > 1 else "") if more else ""
    reason = f"{runs} measured on {host}{nodes} meanwhile, since {since}"
    shared = Finding(
        id=SHARED,
        status="not_checked" if judged else "warn",
        title=reason,
        subject=Subject("node", host),
        saw="; ".join(map(_told, others[:_SHOWN])),
        expected="nodes that no other run measures on",
        because="runs at the same time share cores, memory and links, and slow each other down",
        costs="its figures are those of shared nodes: how fast these are is not known",
        fix="one run at a time",
        next="the same command again, once the others have ended",
    )
    held_back = [_held_back(one, reason) if _was_timed(one) else one for one in speed]
    return held_back, [shared]


def _was_timed(one: Finding) -> bool:
    """What is too noisy to be judged is so because of the others, too."""
    return one.id != _SKEW or one.status != "not_checked"


def _held_back(one: Finding, reason: str) -> Finding:
    """What was seen stays; nobody is accused by it."""
    return replace(
        one,
        status="not_checked",
        title="stragglers not checked" if one.id == _SKEW else one.title,
        subject=Subject("job", "job"),
        because=reason,
        costs="",
        fix="",
        next="",
    )


def _told(one: dict[str, Any]) -> str:
    return f"{one['command']} of pid {one['pid']}, since {_clock(one['since'])}"


def _clock(since: int) -> str:
    return datetime.fromtimestamp(since, UTC).strftime("%H:%M:%S UTC")
