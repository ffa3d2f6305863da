"""What the ranks' own logs say of a run that failed."""

from dataclasses import replace
from pathlib import Path

from wirespeed.errors import InputError
from wirespeed.records import Finding

__all__ = ["log_findings"]


def log_findings(folder: Path) -> list[Finding]:
    """Causes that the logs in `folder` show, as warnings: the watchdog has named who failed.

    Nothing where there is no log, as under somebody else's launcher, which has them.
    """
    from wirespeed.diagnose.diagnose import diagnose
    from wirespeed.diagnose.sources import find_sources

    if not folder.is_dir():
        return []
    try:
        reading = diagnose(find_sources([str(folder)]))
    except InputError:  # no log was written, or it is gone
        return []
    return [
        replace(one, status="warn", title=f"the ranks' logs say: {one.title}")
        for one in reading.findings
        if one.status == "fail"
    ]
