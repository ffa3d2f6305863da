"""Kinds of values in a cluster file: what each may be, in words that a message can repeat.

Forms of text are forms.yaml.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from wirespeed.clusters.findings import forms


class Rule(NamedTuple):
    """A rule between keys that a file breaks."""

    path: tuple[str | int, ...]
    saw: str
    expected: str


def refuse(rules: Iterable[Rule]) -> None:
    """All broken rules as one error of pydantic; `problems.py` takes it apart again."""
    if broken := tuple(rules):
        text = "; ".join(f"saw {rule.saw}, expected {rule.expected}" for rule in broken)
        raise PydanticCustomError("rules", "{text}", {"text": text, "broken": broken})


_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]+)([eE][+-]?[0-9]{1,3}|[numkMGTPE]|[KMGTPE]i)?\.?")
_SCALES = {
    **{"": Decimal(1), "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}
_MOST = 2.0**63
"""Of any quantity in Kubernetes."""


def quantity(text: object) -> float:
    """`500m` is 0.5, `64Gi` is 2³⁶ · 1; 0 for what is none (a server never sends such)."""
    found = _QUANTITY.fullmatch(str(text).strip())
    if found is None:
        return 0.0
    number, suffix = found[1], found[2] or ""
    known = (
        float(Decimal(number) * _SCALES[suffix]) if suffix in _SCALES else float(number + suffix)
    )
    return max(-_MOST, min(_MOST, known))


@cache
def _pattern(name: str) -> str:
    return re.sub(r"<(\w+)>", lambda found: _pattern(found[1]), forms()[name].pattern)


@dataclass(frozen=True, slots=True)
class Like:
    """Text of a form, and that form in words: for messages, the JSON Schema and editors."""

    name: str
    """Of its entry in forms.yaml."""
    empty: bool = False
    """Also the empty text, which means: not said."""

    def check(self, text: str) -> str:
        form = forms()[self.name]
        fits = len(text) <= form.longest and re.fullmatch(_pattern(self.name), text)
        if not fits and not (self.empty and not text):
            raise PydanticCustomError("form", "{words}", {"words": form.words})
        return text

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        form, pattern = forms()[self.name], _pattern(self.name)
        return {
            **handler(schema),
            "pattern": f"^({pattern})?$" if self.empty else f"^{pattern}$",
            "maxLength": form.longest,
            "patternErrorMessage": f"expected {form.words}",
        }


@dataclass(frozen=True, slots=True)
class Within:
    """A whole number, as people write it: no octal, no exponent, no underscore."""

    least: int
    most: int

    def check(self, value: object) -> int:
        written = str(value) if not isinstance(value, bool) else ""
        if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", written) and isinstance(value, int | str):
            number = int(written)
            if self.least <= number <= self.most:
                return number
        words = f"a whole number from {self.least} to {self.most}"
        raise PydanticCustomError("form", "{words}", {"words": words})

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "minimum": self.least, "maximum": self.most}


def _dashes(value: object) -> object:
    """NVIDIA's GPU feature discovery writes a product's name with dashes for its spaces."""
    return "-".join(value.split()) if isinstance(value, str) else value


Name = Annotated[str, Like("name")]
Label = Annotated[str, Like("label")]
Subdomain = Annotated[str, Like("subdomain")]
MaybeSubdomain = Annotated[str, Like("subdomain", empty=True)]
LabelKey = Annotated[str, Like("key")]
MaybeLabelKey = Annotated[str, Like("key", empty=True)]
LabelValue = Annotated[str, Like("word", empty=True)]
Product = Annotated[str, Like("product", empty=True), BeforeValidator(_dashes)]
"""Value of a label; spaces become the dashes that they are in it."""
Bytes = Annotated[str, Like("bytes")]
MaybeBytes = Annotated[str, Like("bytes", empty=True)]
MaybeCpus = Annotated[str, Like("cpus", empty=True)]
VariableName = Annotated[str, Like("variable")]
Line = Annotated[str, Like("line")]
Notes = Annotated[str, Like("notes")]
MountPath = Annotated[str, Like("path")]
MaybePath = Annotated[str, Like("path", empty=True)]
Program = Annotated[str, Like("program")]
Image = Annotated[str, Like("image")]
Address = Annotated[str, Like("address", empty=True)]
PresetName = Annotated[str, Like("preset", empty=True)]
Interfaces = Annotated[str, Like("interfaces", empty=True)]
Network = Annotated[str, Like("network")]
CountText = Annotated[str, Like("count", empty=True)]
PathLevel = Annotated[str, Like("level", empty=True)]
