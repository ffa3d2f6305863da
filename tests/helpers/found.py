"""Findings that a test asks for."""

from collections.abc import Iterable

from wirespeed.model.records import Finding


def only(findings: Iterable[Finding], id: str) -> Finding:
    """The one with that id."""
    found = [finding for finding in findings if finding.id == id]
    assert len(found) == 1, found
    return found[0]
