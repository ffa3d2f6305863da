"""What stored runs say of a node that a gate cannot see for itself: wrong data, slow links.

Those of the common store, where WIRESPEED_STORE names one, else this user's on this machine.
"""

import os
from collections.abc import Collection
from contextlib import ExitStack
from datetime import UTC, datetime

from wirespeed.fleet.common_store import reading_common_store
from wirespeed.fleet.gate.look import blamed
from wirespeed.model.records import Finding
from wirespeed.runs.index import RunFilter
from wirespeed.runs.rows import FindingRow
from wirespeed.runs.source import opened
from wirespeed.runs.unsent import VARIABLE

_REMEMBERED_S = 7 * 86_400.0
_READ_S = 1.0
"""For runs that are new to the index, the newest first."""
_COMMANDS = ("check", "locate")
_FAMILIES = ("BW", "COL", "COMP", "COUNT", "LAT", "LOC")
"""Of findings that name a node; its settings are its user's, and its health is looked at anew."""
_KINDS = ("node", "rank")
"""A link has two ends, and only one of them is bad."""


def last_blame(names: Collection[str], host: str, now: float) -> list[Finding]:
    """The newest finding against the node that no later run has cleared, as GATE-008; none else.

    It is cleared by a later run that the node took part in and in which a finding of its family passed.
    StorageError where the runs cannot be read.
    """
    since = datetime.fromtimestamp(now - _REMEMBERED_S, UTC).isoformat(timespec="seconds")
    with ExitStack() as stack:
        if url := os.environ.get(VARIABLE):
            stack.enter_context(reading_common_store(url))
        index = stack.enter_context(opened(seconds=_READ_S))
        real, newest = set[str](), dict[tuple[str, str], FindingRow]()
        for name in sorted(names):
            real |= {
                run.run
                for run in index.runs(RunFilter(node=name, since=since))
                if run.command in _COMMANDS and not run.injected
            }
            found = index.findings(node=name, status=("fail",), which=RunFilter(since=since))
            for one in sorted(found, key=lambda one: one.started):
                about_it = one.subject_kind in _KINDS and one.host == name
                if about_it and one.run in real and _family(one) in _FAMILIES:
                    newest[name, _family(one)] = one  # what clears it clears the older ones as well
        for blame in sorted(newest.values(), key=lambda one: one.started, reverse=True):
            later = RunFilter(node=blame.host, since=blame.started)
            if not _cleared(blame, index.findings(which=later), real):
                at = blame.started[:16].replace("T", " ")
                return [blamed(host, blame.run.rpartition("-")[2], blame.title, at)]
    return []


def _cleared(blame: FindingRow, findings: list[FindingRow], real: Collection[str]) -> bool:
    later = [one for one in findings if one.run != blame.run and one.run in real]
    return any(_family(one) == _family(blame) and one.status == "pass" for one in later)


def _family(one: FindingRow) -> str:
    return one.id.partition("-")[0]
