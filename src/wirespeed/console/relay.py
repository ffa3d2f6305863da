"""Rank 0's book when `wirespeed … --on ENGINE` started the job: hand everything to that process.

What the ranks measured goes line by line through rank 0's stdout, which every engine brings home, so
that it is there even if this node goes away a moment later. Nothing is judged, stored or shown here.
"""

import json
import os
import threading
from collections.abc import Mapping
from typing import Any

from wirespeed.records_json import finding_from_json, finding_to_json
from wirespeed.world.redact import allowed_environment
from wirespeed.world.watch import Outcome

__all__ = ["MARK", "Relay", "outcome_from_json", "read_line"]

MARK = "\x1dwirespeed "
"""Begins a line that is a record; no library prints such a thing."""


class Relay:
    """Writes each record as a line. `on_record` is called in the monitor's thread."""

    def __init__(self, reason: str) -> None:
        self._lock = threading.Lock()
        self._write("environment", allowed_environment(os.environ))
        self._write("identity", {"reason": reason})

    def on_record(self, rank: int, kind: str, data: Mapping[str, Any]) -> None:
        self._write(kind, data)

    def phase(self, text: str) -> None:
        self._write("phase", {"text": text})

    def finish(self, outcome: Outcome) -> int:
        """Tell how it ended. Zero: it is the reader who knows the run's exit code."""
        findings = [finding_to_json(one) for one in outcome.findings]
        self._write("outcome", {"kind": outcome.kind, "findings": findings})
        return 0

    def _write(self, kind: str, data: Mapping[str, Any]) -> None:
        line = f"{MARK}{json.dumps({'kind': kind, 'data': data})}\n".encode()
        with self._lock:
            while line:
                line = line[os.write(1, line) :]


def read_line(text: str) -> tuple[str, dict[str, Any]] | None:
    """(kind, data) of a line that a relay wrote; None for any other."""
    if not text.startswith(MARK):
        return None
    try:
        record = json.loads(text[len(MARK) :])
        kind, data = record["kind"], record["data"]
    except (ValueError, KeyError, TypeError):
        return None
    return (kind, data) if isinstance(kind, str) and isinstance(data, dict) else None


def outcome_from_json(data: Mapping[str, Any]) -> Outcome:
    return Outcome(kind=data["kind"], findings=tuple(map(finding_from_json, data["findings"])))
