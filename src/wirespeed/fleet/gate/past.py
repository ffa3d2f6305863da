"""What the newest stored run that judged a node says of it."""

from collections.abc import Collection

from wirespeed.model.records import Finding

REMEMBERED_S = 7 * 86_400.0


def last_blame(names: Collection[str], host: str, now: float) -> list[Finding]:
    return []
