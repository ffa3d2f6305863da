"""The vocabulary of work that lasts for minutes to days: what went wrong meanwhile, and when.

Seconds inside; `records_lasting_json.py` is the one place where they become JSON and back.
"""

from dataclasses import dataclass

__all__ = ["Incident"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that went wrong while the work lasted, and did not end it."""

    at: str
    """ISO 8601 in UTC: when it was seen."""
    since_s: float
    """Seconds from the start of the work."""
    id: str
    """Of the finding that tells it, such as `HANG-001`."""
    title: str
    """One sentence: what happened."""
    subject_kind: str = "job"
    """As of `records.Subject`."""
    subject: str = "job"
    """`rank 3`, a host name, or `job`."""
    saw: str = ""
    because: str = ""
    lost_s: float = 0.0
    """Time that it cost: until the work went on, with what had to be done again."""
    world: int = 0
    """Which world of ranks it was in, from 1."""
