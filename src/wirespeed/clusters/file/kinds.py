"""Kinds of values in a cluster file: what each may be, in words that a message can repeat.

Names follow Kubernetes (https://kubernetes.io/docs/concepts/overview/working-with-objects/names/),
amounts its quantities (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema


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


@dataclass(frozen=True, slots=True)
class Like:
    """Text of a form, and that form in words: for messages, the JSON Schema and editors."""

    pattern: str
    """Of the whole text; both Python's and JavaScript's."""
    words: str
    longest: int = 253
    empty: bool = False
    """Also the empty text, which means: not said."""

    @property
    def whole(self) -> str:
        return f"^({self.pattern})?$" if self.empty else f"^{self.pattern}$"

    def check(self, text: str) -> str:
        fits = len(text) <= self.longest and re.fullmatch(self.pattern, text)
        if not fits and not (self.empty and not text):
            raise PydanticCustomError("form", "{words}", {"words": self.words})
        return text

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        words = {"patternErrorMessage": f"expected {self.words}"}
        return {**handler(schema), "pattern": self.whole, "maxLength": self.longest, **words}


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


_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_SUBDOMAIN_WORDS = (
    "a name of small letters, digits, - and . that begins and ends with a letter or digit"
)
_WORD = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = f"({_SUBDOMAIN}/)?{_WORD}"
_KEY_WORDS = (
    "a name or PREFIX/NAME such as nvidia.com/gpu; NAME has at most 63 letters, digits, - _ ."
)
_NUMBER = r"[0-9]{1,9}(\.[0-9]{1,3})?"
_BYTES = r"([1-9][0-9]{6,17}|(?=.*[1-9])[0-9]{1,9}(\.[0-9]{1,3})?(M|G|T|P|Mi|Gi|Ti|Pi))"
"""Small numbers without a unit are refused: `memory: 128` would be 128 bytes, `128m` an eighth."""
_BYTES_WORDS = "an amount with its unit, such as 512Mi, 100Gi or 1.5Ti"
_CPUS = rf"(?=.*[1-9])({_NUMBER}|[0-9]{{1,9}}m)"
_CPUS_WORDS = "a number of CPUs, such as 32, 0.5 or 500m"
# No control characters, C1 among them, nor what turns or breaks lines in a terminal.
_PLAIN = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
_PATH = r"/([^\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069:])*"
_PATH_WORDS = "an absolute path without colons"
_REPOSITORY = r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"

Name = Annotated[
    str,
    Like(
        "[a-z]([-a-z0-9]{0,38}[a-z0-9])?",
        "at most 40 small letters, digits and -, beginning with a letter, not ending with -",
        longest=40,
    ),
]
"""An RFC 1035 label with room for what is added to it (Service names begin with a letter)."""
Label = Annotated[
    str,
    Like(
        _LABEL,
        "at most 63 small letters, digits and -, beginning and ending with a letter or digit",
        longest=63,
    ),
]
"""An RFC 1123 label: namespaces, volumes."""
Subdomain = Annotated[str, Like(_SUBDOMAIN, _SUBDOMAIN_WORDS)]
"""An RFC 1123 subdomain: most other objects, nodes among them."""
MaybeSubdomain = Annotated[str, Like(_SUBDOMAIN, _SUBDOMAIN_WORDS, empty=True)]
LabelKey = Annotated[str, Like(_KEY, _KEY_WORDS, longest=317)]
MaybeLabelKey = Annotated[str, Like(_KEY, _KEY_WORDS, longest=317, empty=True)]
LabelValue = Annotated[
    str,
    Like(
        _WORD,
        "at most 63 letters, digits, - _ . that begin and end with a letter or digit",
        longest=63,
        empty=True,
    ),
]
Product = Annotated[
    str,
    Like(
        "[A-Za-z0-9]([-A-Za-z0-9_. ]{0,61}[A-Za-z0-9])?",
        "a GPU product such as NVIDIA-H100-80GB-HBM3",
        longest=63,
        empty=True,
    ),
    BeforeValidator(_dashes),
]
"""Value of a label; spaces become the dashes that they are in it."""
ResourceName = LabelKey
"""An extended resource, such as nvidia.com/gpu or rdma/ib."""
Bytes = Annotated[str, Like(_BYTES, _BYTES_WORDS, longest=20)]
MaybeBytes = Annotated[str, Like(_BYTES, _BYTES_WORDS, longest=20, empty=True)]
Cpus = Annotated[str, Like(_CPUS, _CPUS_WORDS, longest=20)]
MaybeCpus = Annotated[str, Like(_CPUS, _CPUS_WORDS, longest=20, empty=True)]
VariableName = Annotated[
    str, Like("[A-Za-z_][A-Za-z0-9_]{0,127}", "a variable's name: letters, digits and _")
]
Line = Annotated[
    str, Like(f"{_PLAIN}*", "one line of text without control characters", longest=4096)
]
Notes = Annotated[
    str,
    Like(
        f"({_PLAIN}|[\\n\\r\\t])*",
        "at most 20000 characters of text without control characters",
        longest=20_000,
    ),
]
Path = Annotated[str, Like(_PATH, _PATH_WORDS, longest=1024)]
"""An absolute path in the pod."""
MaybePath = Annotated[str, Like(_PATH, _PATH_WORDS, longest=1024, empty=True)]
Program = Annotated[
    str, Like("/[A-Za-z0-9._+/-]+", "an absolute path of letters, digits and . _ + - /")
]
"""Stands in command lines that a shell reads."""
Image = Annotated[
    str,
    Like(
        rf"{_REPOSITORY}(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?",
        "an image such as registry.example.org/team/wirespeed:1.0 or NAME@sha256:…",
        longest=512,
    ),
]
Address = Annotated[
    str,
    Like(
        r"(https?://)?([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?",
        "an address such as https://api.example.org:6443, or only its host",
        longest=512,
        empty=True,
    ),
]
PresetName = Annotated[
    str, Like("[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", "a preset's name", longest=63, empty=True)
]
Interfaces = Annotated[
    str,
    Like(
        r"\^?=?[A-Za-z0-9_.:@-]+(,[A-Za-z0-9_.:@-]+)*",
        "names with commas and no spaces between them, such as mlx5_2,mlx5_3 or ^lo,docker0",
        longest=2048,
        empty=True,
    ),
]
"""As NCCL reads them: ^ before the list excludes, = matches exactly."""
Network = Annotated[
    str,
    Like(
        rf"({_LABEL}/)?{_SUBDOMAIN}(@[A-Za-z0-9._-]{{1,15}})?",
        "a network attachment: NAME, NAMESPACE/NAME or NAMESPACE/NAME@INTERFACE",
        longest=333,
    ),
]
CountText = Annotated[
    str, Like("(0|[1-9][0-9]{0,4})", "a whole number below 100000", longest=5, empty=True)
]
PathLevel = Annotated[
    str,
    Like(
        "([A-Z][A-Z0-9]{2}|[0-9])",
        "a level of NCCL: LOC, NVL, PIX, PXB, PHB, SYS, or its number",
        longest=3,
        empty=True,
    ),
]
