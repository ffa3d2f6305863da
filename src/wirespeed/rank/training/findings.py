"""Findings of training, as rank 0 tells them in `trouble` records; their texts are findings.yaml."""

from pathlib import Path
from typing import Any

from wirespeed.model.finding_texts import FindingTexts

_TOLD = ("id", "status", "title", "saw", "expected", "because", "fix", "next")

make_finding = FindingTexts(Path(__file__).parent)


def trouble(entry: str, /, *, rank: int = -1, **values: Any) -> dict[str, Any]:
    """The record: of that rank, or (-1) of the job; values: as `make_finding` takes them."""
    found = make_finding(entry, **values)
    return {"rank": rank, **{name: getattr(found, name) for name in _TOLD}}


if __name__ == "__main__":
    make_finding.texts.write()
