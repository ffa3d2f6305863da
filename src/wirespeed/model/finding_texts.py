"""Texts of findings as data: a room's `findings.yaml`, beside the code that finds.

Each entry has the finding's id, its status (`fail` unless it says otherwise) and its texts, with
`{name}` and `{object.attribute}` where a value belongs (str.format). The template is ours; a value
is never one. `{typed}` is the command that was typed (typed_command.py).
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import Struct, convert

from wirespeed.compiled import Compiled
from wirespeed.model.records import Finding, Status, Subject


class FindingText(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One entry."""

    id: str = ""
    status: Status = "fail"
    title: str = ""
    saw: str = ""
    expected: str = ""
    because: str = ""
    costs: str = ""
    fix: str = ""
    next: str = ""
    category: str = ""
    confidence: str = ""

    def finding(
        self, *, subject: Subject | None = None, evidence: Iterable[str] = (), **values: object
    ) -> Finding:
        """values: those that the templates name; under a field's name (`saw`) that whole text."""
        templates = [getattr(self, name) for name in self.__struct_fields__[1:]]
        known = {**values, **_typed(templates)}
        texts: dict[str, Any] = {
            name: values[name] if name in values else template.format(**known)
            for name, template in zip(self.__struct_fields__[1:], templates, strict=True)
        }
        who = subject or Subject("job", "job")
        return Finding(id=self.id, subject=who, evidence=tuple(evidence), **texts)


def _typed(templates: Iterable[str]) -> dict[str, object]:
    """Return the command that was typed, where a template shows it."""
    if not any("{typed" in template for template in templates):
        return {}
    from wirespeed.typed_command import TYPED

    return {"typed": TYPED}


class FindingTexts:
    """The entries of a folder's `findings.yaml` by name; called, the finding of one."""

    def __init__(self, folder: Path) -> None:
        kind = dict[str, FindingText]
        self.texts = Compiled(folder, "findings.yaml", "findings.json", kind, _read)

    @cached_property
    def _entries(self) -> dict[str, FindingText]:
        return self.texts.load()

    def __call__(
        self,
        entry: str,
        /,
        *,
        subject: Subject | None = None,
        evidence: Iterable[str] = (),
        **values: object,
    ) -> Finding:
        """As `FindingText.finding`, of that entry."""
        return self._entries[entry].finding(subject=subject, evidence=evidence, **values)


def _read(texts: Mapping[str, bytes]) -> dict[str, FindingText]:
    from wirespeed.yaml_tree import data_of

    return convert(data_of(texts["findings.yaml"]), dict[str, FindingText], strict=False)
