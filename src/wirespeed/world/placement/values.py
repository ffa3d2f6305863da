"""Values out of answers: only what looks like the thing asked for is believed."""

import re

from wirespeed.world.placement.model import NoAnswer

__all__ = ["LABEL", "NAME", "ZONE", "valued"]

ZONE = re.compile(r"(?=.{1,63}\Z)[a-z][a-z0-9]*(?:-[a-z0-9]+)+")
"""`us-east-1a`, `us-west-2-lax-1a`, `use1-az4`, `us-central1-a`, and regions such as `eu-west-1`."""
NAME = re.compile(r"[A-Za-z0-9][\w ./:@+()=-]{0,254}", re.ASCII)
"""Names that people give, such as a placement group's, and ids of machines."""
LABEL = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
"""A value of a Kubernetes label."""


def valued(text: str, pattern: re.Pattern[str], what: str) -> str:
    """The stripped text, where all of it fits; NoAnswer says what is wrong with it otherwise."""
    value = text.strip()
    if not value:
        raise NoAnswer(f"{what}: the answer is empty")
    if value.startswith("<"):
        raise NoAnswer(f"{what}: the answer is HTML, as from a proxy or a login page")
    if not pattern.fullmatch(value):
        raise NoAnswer(f"{what}: the answer cannot be one ({len(value)} characters)")
    return value
