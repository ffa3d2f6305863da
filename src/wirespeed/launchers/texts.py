"""What launchers say, as data: findings.yaml, errors.yaml, and engines.yaml with what `--with` takes."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from msgspec import Struct, convert
from msgspec.structs import replace

from wirespeed import errors
from wirespeed.compiled import Compiled
from wirespeed.errors import UsageError, WirespeedError
from wirespeed.model.finding_texts import FindingTexts
from wirespeed.typed_command import TYPED


class EngineOption(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One key of `--with`."""

    name: str = ""
    says: str = ""
    flag: bool = False
    """Takes no value."""
    values: tuple[str, ...] = ()
    """Those that it takes; empty: any, or as the next two say."""
    number: tuple[int, int] | None = None
    """The least and the largest."""
    pattern: str = ""
    """Of the whole value."""
    sample: str = ""
    expected: str = ""
    """In place of what follows from `values`, `number` or `sample`, for messages."""
    of: tuple[str, ...] = ()
    """Who is given it, where an engine has several ways."""

    @property
    def help(self) -> str:
        return f"{self.says}, such as {self.sample}" if self.sample else self.says

    def check(self, value: str) -> None:
        """UsageError for a value that it does not take."""
        told = f"--with {self.name}={value}"
        if self.pattern and not re.fullmatch(self.pattern, value):
            raise UsageError(
                f"--with {self.name}={value!r}: no value for {self.name} ({self.says})",
                expected=f"such as --with {self.name}={self.sample}",
            )
        if self.values and value not in self.values:
            raise UsageError(told, expected=self.expected or ", ".join(self.values))
        if self.number is not None:
            least, most = self.number
            number = int(value) if re.fullmatch(r"[0-9]{1,9}", value) else -1
            if not least <= number <= most:
                raise UsageError(told, expected=self.expected or f"a number, {least} to {most}")


class EngineTexts(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One engine."""

    summary: str = ""
    options: tuple[EngineOption, ...] = ()


class ErrorText(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One error; templates as those of findings (model/finding_texts.py)."""

    kind: Literal["UsageError", "InputError", "CannotMeasure"] = "UsageError"
    saw: str = ""
    expected: str = ""
    next: str = ""


def _read_engines(texts: Mapping[str, bytes]) -> dict[str, EngineTexts]:
    from wirespeed.yaml_tree import data_of

    found: dict[str, EngineTexts] = {}
    for name, told in data_of(texts["engines.yaml"]).items():
        shared = found[told["as"]].options if "as" in told else ()
        given = convert(told.get("with", {}), dict[str, EngineOption], strict=False)
        own = tuple(replace(option, name=key) for key, option in given.items())
        found[name] = EngineTexts(told.get("summary", ""), own + shared)
    return found


def _read_errors(texts: Mapping[str, bytes]) -> dict[str, ErrorText]:
    from wirespeed.yaml_tree import data_of

    return convert(data_of(texts["errors.yaml"]), dict[str, ErrorText], strict=False)


_HERE = Path(__file__).parent
make_finding = FindingTexts(_HERE)
"""`make_finding(ENTRY, name=…)`: the finding of that entry, with these values in its texts."""
_ENGINES = Compiled(_HERE, "engines.yaml", "engines.json", dict[str, EngineTexts], _read_engines)
_ERRORS = Compiled(_HERE, "errors.yaml", "errors.json", dict[str, ErrorText], _read_errors)
_engines, _errors = cache(_ENGINES.load), cache(_ERRORS.load)


def engine_texts(name: str) -> EngineTexts:
    return _engines()[name]


def make_error(entry: str, /, **values: object) -> WirespeedError:
    """The error of that entry, with these values in its texts; `saw` and such: that whole text."""
    told = _errors()[entry]
    saw, expected, following = (
        str(values[name]) if name in values else getattr(told, name).format(typed=TYPED, **values)
        for name in ("saw", "expected", "next")
    )
    kind: type[WirespeedError] = getattr(errors, told.kind)
    return kind(saw, expected=expected, next=following)


if __name__ == "__main__":
    for texts in (make_finding.texts, _ENGINES, _ERRORS):
        texts.write()
