"""How a field of a record stands in JSON, said in its type.

A record is a frozen dataclass; its fields' types are the format (`records_json.py` reads and writes
it, and the JSON Schema is made of it). A field stands under its own name. One with a unit stands after
those without, its name ends in the unit, and every float within it is scaled: `skew: Micros[float]`
in seconds is `skew_us` in JSON.
"""

from dataclasses import dataclass
from typing import Annotated, TypeVar

from msgspec import Meta

from wirespeed.model.units import GIGA

__all__ = [
    "ALWAYS",
    "CHECKED",
    "SPARSE",
    "SPLIT",
    "Bytes",
    "Count",
    "ExitCode",
    "GBps",
    "Index",
    "Keys",
    "Known",
    "Micros",
    "Millis",
    "NotNegative",
    "Positive",
    "RoundedMicros",
    "Seconds",
    "Share",
    "Text",
    "Unit",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unit:
    """The ending of a name in JSON; there a float is `times` as large, over `over`."""

    ending: str
    said: str = ""
    """For descriptions, such as `µs`."""
    times: float = 1.0
    over: float = 1.0
    digits: int | None = None
    """To how many digits it is rounded."""


Micros = Annotated[T, Unit("_us", "µs", times=1e6)]
Millis = Annotated[T, Unit("_ms", "ms", times=1e3)]
RoundedMicros = Annotated[T, Unit("_us", "µs", times=1e6, digits=2)]
Seconds = Annotated[T, Unit("_s", "seconds")]
Bytes = Annotated[T, Unit("_bytes", "bytes")]
GBps = Annotated[T, Unit("_GBps", "10^9 bytes a second", over=GIGA)]

Count = Annotated[int, Meta(ge=0)]
ExitCode = Annotated[int, Meta(ge=0, le=255)]
Positive = Annotated[int, Meta(ge=1)]
Index = Annotated[int, Meta(ge=-1)]
"""-1 where there is none."""
Text = Annotated[str, Meta(min_length=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]

ALWAYS = "always"
"""Who reads may rely on the key, though the field has a default."""
SPARSE = "sparse"
"""The key is absent where the field is empty."""
SPLIT = "split"
"""A ratio: its value stands under the name, its ends under that name with `_interval`."""
CHECKED = "checked"
"""Of a key: absent rather than null, and of another type it is damage."""
Known = Annotated[T | None, CHECKED]


@dataclass(frozen=True)
class Keys:
    """Of a mapping of anything: the types of keys that are known, as a TypedDict."""

    known: type
