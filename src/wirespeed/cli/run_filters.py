"""Which of the stored runs a command is about, and moments as people write them."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from wirespeed.cli.options import option, parse_duration
from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from wirespeed.runs.index import RunFilter

MOST_DAYS = 36_500
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?Z?)?")


def run_filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options; `chosen` takes their values."""
    for one in (
        option("--gpu NAME", "Of GPUs whose name holds this, such as H100."),
        option("--command VERB", "Of this verb: check, bench, ..."),
        option("--since WHEN", "Started within this time (7d, 12h) or since a date, in UTC."),
        option(
            "--verdict",
            "By what the verdict says: docs/verdicts.md.",
            ["pass", "measured", "fail", "unknown"],
        ),
        option("--node HOST", "In which this node took part."),
    ):
        function = one(function)
    return function


def chosen(told: dict[str, Any], **more: Any) -> "RunFilter":
    """more: fields of the filter that have no option. UsageError for a moment that is none."""
    from wirespeed.runs.index import RunFilter

    names = ("node", "verdict", "command", "gpu")
    texts = {name: told[name] for name in names if told.get(name)}
    since = told.get("since")
    return RunFilter(since=moment(since, "--since") if since else "", **texts, **more)


def moment(text: str, option: str) -> str:
    """ISO 8601 in UTC of `7d` (that long ago) or a date with or without a time."""
    if _DATE.fullmatch(text):
        try:
            datetime.fromisoformat(text.rstrip("Z"))
        except ValueError as error:
            raise UsageError(f"{option} {text!r}: {error}", expected="a date") from error
        return text.replace(" ", "T").rstrip("Z")
    try:
        ago = timedelta(seconds=parse_duration(text, option, MOST_DAYS))
    except UsageError as error:
        raise UsageError(
            f"{option} {text!r} is no time", expected="7d, 12h, or a date such as 2026-11-03 in UTC"
        ) from error
    return (datetime.now(UTC) - ago).strftime("%Y-%m-%dT%H:%M:%S")
