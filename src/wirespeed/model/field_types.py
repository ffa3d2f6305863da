"""How a field of a record stands in JSON, said in its type; and what the docstring below it says.

A record is a frozen dataclass; its fields' types are the format (`codec.py` reads and writes
it, and the JSON Schema is made of it). A field stands under its own name. One with a unit stands after
those without, its name ends in the unit, and every float within it is scaled: `skew: Micros[float]`
in seconds is `skew_us` in JSON.
"""

import itertools
from dataclasses import dataclass
from typing import Annotated, TypeVar

from msgspec import Meta

from wirespeed.model.units import GIGA

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
RoundedMillis = Annotated[T, Unit("_ms", "ms", times=1e3, digits=4)]
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


def field_docs(kind: type) -> dict[str, str]:
    """By field, those of its base classes too; none of classes that have no source of ours."""
    import ast  # only where a schema is made
    import inspect
    import textwrap

    found: dict[str, str] = {}
    for one in reversed(getattr(kind, "__orig_bases__", ()) + kind.__mro__):
        if not isinstance(one, type) or one.__module__.partition(".")[0] != "wirespeed":
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
        except OSError:
            continue  # it was made by a call
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        found |= {
            field.target.id: inspect.cleandoc(text.value.value).replace("\n", " ")
            for field, text in itertools.pairwise(body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
    return found
