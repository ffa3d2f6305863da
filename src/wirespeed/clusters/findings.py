"""Texts of clusters as data: findings (findings.yaml), what kubectl's words mean (kube/meanings.yaml),
and forms of values (file/forms.yaml); a build without the rest of us reads them."""

import re
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path

from msgspec import Struct, convert

from wirespeed.compiled import Compiled, T
from wirespeed.model.finding_texts import FindingTexts

make_finding = FindingTexts(Path(__file__).parent)
"""`make_finding(ENTRY, name=…)`: the finding of that entry, with these values in its texts."""


class Meaning(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, dict=True):
    """One row: `title`, `because`, `fix` and `next` are filled from the pattern's groups."""

    id: str
    says: str
    title: str
    expected: str = ""
    because: str = ""
    fix: str = ""
    next: str = ""
    passing: bool = False
    """Worth another try: servers restart, leaders change."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.says)


class Trouble(Struct, frozen=True, forbid_unknown_fields=True):
    """What holds a container, or a claim, up: by the words that the cluster has for it."""

    says: str
    because: str
    fix: str
    patience_s: float
    """How long it may last before it is taken for final."""


class SchedulingTrouble(Struct, frozen=True, forbid_unknown_fields=True):
    says: str
    id: str
    because: str


class Meanings(Struct, frozen=True, forbid_unknown_fields=True):
    rows: tuple[Meaning, ...]
    """The first that fits counts."""
    unknown: Meaning
    """Where no row fits; it fits everything."""
    silent: Meaning
    """Where the API server gave no answer in time."""
    images: tuple[Trouble, ...]
    claims: tuple[Trouble, ...]
    ends: tuple[Trouble, ...]
    scheduling: tuple[SchedulingTrouble, ...]


class Form(Struct, frozen=True, forbid_unknown_fields=True):
    """Of a text in a cluster file: `<NAME>` in the pattern stands for that of another form."""

    pattern: str
    words: str
    longest: int = 253


def _compiled(folder: str, name: str, kind: type[T]) -> Compiled[T]:
    def read(texts: Mapping[str, bytes]) -> T:
        from wirespeed.yaml_tree import data_of

        return convert(data_of(texts[f"{name}.yaml"]), kind, strict=False)

    return Compiled(Path(__file__).parent / folder, f"{name}.yaml", f"{name}.json", kind, read)


_MEANINGS = _compiled("kube", "meanings", Meanings)
_FORMS = _compiled("file", "forms", dict[str, Form])


@cache
def meanings() -> Meanings:
    return _MEANINGS.load()


@cache
def forms() -> dict[str, Form]:
    """By name."""
    return _FORMS.load()


if __name__ == "__main__":
    make_finding.texts.write()
    _MEANINGS.write()
    _FORMS.write()
