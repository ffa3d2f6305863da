"""What crosses between a session and a far rank 0: the order there, the records back.

The plan goes in the variable WIRESPEED_JOB, as compressed JSON: it needs no file on the node and no
shell reads it. What the ranks measured comes line by line through rank 0's stdout, which every engine
brings home, so that it is there even if that node goes away a moment later. Nothing is judged, stored
or shown there.
"""

import base64
import json
import os
import threading
import zlib
from collections.abc import Mapping, MutableMapping
from typing import Any

from wirespeed.errors import UsageError
from wirespeed.model.codec import from_json, to_json
from wirespeed.model.records import Finding
from wirespeed.node.redact import allowed_environment
from wirespeed.plan import Plan
from wirespeed.watchdog import Outcome

MARK = "\x1dwirespeed "
"""Begins a line that is a record; no library prints such a thing."""


class RecordStream:
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
        findings = [to_json(one) for one in outcome.findings]
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
    findings = from_json(tuple[Finding, ...], data["findings"])
    return Outcome(kind=data["kind"], findings=findings)


VARIABLE = "WIRESPEED_JOB"


def order(plan: Plan, backend: str, settings: Mapping[str, str | None] | None = None) -> str:
    """What a rank must know, as one word of letters, digits, `-`, `_` and `=`.

    settings: variables to set, or (None) to take away, before any library reads them.
    """
    told = {"plan": plan.to_json(), "backend": backend, "settings": dict(settings or {})}
    text = json.dumps(told)
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode()


def read_order(text: str) -> tuple[Plan, str]:
    """Plan and backend; UsageError for anything else than `order` gave."""
    try:
        data = _parts(text)
        return Plan.from_json(data["plan"]), str(data["backend"])
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise UsageError(
            f"{VARIABLE} holds no plan: {error}",
            expected="to be started by `wirespeed check --on …` of the same version",
        ) from error


def _parts(text: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(zlib.decompress(base64.urlsafe_b64decode(text)))
    return data


def apply_settings(text: str, environ: MutableMapping[str, str]) -> None:
    """Put the order's settings into `environ`, whatever the engine and the node have made of it."""
    for name, value in _parts(text).get("settings", {}).items():
        if value is None:
            environ.pop(name, None)
        else:
            environ[name] = value
