"""What `diagnose` says of a log that a test has made up."""

from collections.abc import Iterable
from pathlib import Path

from wirespeed.diagnose.diagnose import Reading, diagnose
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.sources import Source


def read(
    folder: Path, *lines: str, name: str = "job.log", rules: Iterable[Rule] | None = None
) -> Reading:
    """Of the lines, or of a whole text, as one file."""
    path = folder / name
    path.write_text("\n".join(lines).removesuffix("\n") + "\n")
    return diagnose([Source(name, path)], rules)
