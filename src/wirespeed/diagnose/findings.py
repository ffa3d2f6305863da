"""Findings of logs that no rule tells: their texts are findings.yaml."""

from collections.abc import Sequence
from pathlib import Path

from wirespeed.model.finding_texts import FindingTexts
from wirespeed.model.records import Subject
from wirespeed.model.units import spans

JOB = Subject("job", "job")
make_finding = FindingTexts(Path(__file__).parent)
"""`make_finding(ENTRY, name=…)`: the finding of that entry, with these values in its texts."""


def one_rank(ranks: Sequence[int]) -> Subject:
    """The only one; several are the job's."""
    return Subject("rank", f"rank {ranks[0]}") if len(ranks) == 1 else JOB


def one_node(names: Sequence[str]) -> Subject:
    """The only one; several are the job's."""
    return Subject("node", names[0]) if len(names) == 1 else JOB


def ranks_told(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-7, 10`."""
    return ("rank " if len(ranks) == 1 else "ranks ") + spans(ranks)


def cut(text: str, most: int = 300) -> str:
    """At most so many characters of it."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


if __name__ == "__main__":
    make_finding.texts.write()
