"""What stored runs say of a node that a gate cannot see for itself: wrong data, slow links.

It is the node's state, as `wirespeed nodes` shows it. Of the runs of the common store, where
WIRESPEED_STORE names one, else of this user's on this machine.
"""

import os
from collections.abc import Collection
from contextlib import ExitStack

from wirespeed.fleet.common_store import reading_common_store
from wirespeed.fleet.gate.look import blamed
from wirespeed.fleet.node_state import OpenFinding, rule_of
from wirespeed.fleet.nodes import open_findings
from wirespeed.model.records import Finding
from wirespeed.runs.rows import FindingRow
from wirespeed.runs.source import StoredRuns, opened
from wirespeed.runs.unsent import VARIABLE

_READ_S = 1.0
"""For runs that are new to the index, the newest first."""
_KINDS = ("node", "rank")
"""A link has two ends, and only one of them is bad."""


def last_blame(names: Collection[str], host: str) -> list[Finding]:
    """The newest failed finding that is open at the node, as GATE-008; none else.

    How the node is by itself a gate looks at anew. StorageError where the runs cannot be read.
    """
    with ExitStack() as stack:
        if url := os.environ.get(VARIABLE):
            stack.enter_context(reading_common_store(url))
        index = stack.enter_context(opened(seconds=_READ_S))
        failed = [
            (one.runs[-1], name, one)
            for name in names
            for one in open_findings(index, name)
            if one.status == "fail" and rule_of(one.id).about != "node" and not one.by_gate
        ]
        for _, name, one in sorted(failed, key=lambda told: told[:2], reverse=True):
            for row in reversed(_told_of(index, name, one)):
                at = row.started[:16].replace("T", " ")
                return [blamed(host, row.run.rpartition("-")[2], row.title, at)]
    return []


def _told_of(index: StoredRuns, name: str, one: OpenFinding) -> list[FindingRow]:
    """The findings about the node as a whole, or a rank of it, that opened it or told it again."""
    found = index.findings(node=name, ids=[one.id], status=("fail",))
    return [
        row
        for row in found
        if row.run in one.runs and row.host == name and row.subject_kind in _KINDS
    ]
