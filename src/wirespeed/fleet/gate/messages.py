"""What a gate's call and its worker tell each other, as JSON."""

from typing import Any

from msgspec import Struct

from wirespeed.fleet.gate.decision import Rules


class Line(Struct, frozen=True, kw_only=True):
    """Of a finding what is printed; the rest is in the stored run."""

    id: str
    status: str
    title: str


class Asked(Struct, frozen=True, kw_only=True):
    """What one call shall do."""

    node: str
    """As the scheduler calls it."""
    rules: Rules
    quiet_s: float
    """For NVML's next answer."""
    seen: dict[str, Any] | None = None
    """The facts, where an earlier worker has read them and then hung."""
    missing: tuple[str, ...] = ()
    """What hung, and is left alone now."""
    recalled: bool = False
    """Its home answered, and may be asked again."""
    blind: bool = False
    """It hung before the facts were known."""


class Answer(Struct, frozen=True, kw_only=True):
    """What came of a call."""

    node: str
    act: str
    health: str
    refuses: bool
    why: str = ""
    problems: tuple[str, ...] = ()
    """What could not be done."""
    findings: tuple[Line, ...] = ()
    run: str = ""
    """Where it is stored; empty where there was nothing new to store, or no place."""
