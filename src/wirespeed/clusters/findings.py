"""Texts of clusters as data: findings (findings.yaml), and what kubectl's words mean
(kube/meanings.yaml); a build without the rest of us reads both."""

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path

from msgspec import Struct, convert

from wirespeed.compiled import Compiled
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


class ImageTrouble(Struct, frozen=True, forbid_unknown_fields=True):
    says: str
    because: str
    fix: str
    patience_s: float


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
    images: tuple[ImageTrouble, ...]
    scheduling: tuple[SchedulingTrouble, ...]


def _read(texts: Mapping[str, bytes]) -> Meanings:
    from wirespeed.yaml_tree import data_of

    return convert(data_of(texts["meanings.yaml"]), Meanings, strict=False)


TEXTS = Compiled(Path(__file__).parent / "kube", "meanings.yaml", "meanings.json", Meanings, _read)


@lru_cache(maxsize=1)
def meanings() -> Meanings:
    return TEXTS.load()


if __name__ == "__main__":
    make_finding.texts.write()
    TEXTS.write()
