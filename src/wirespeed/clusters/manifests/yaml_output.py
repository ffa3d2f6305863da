"""Objects as YAML that every parser reads alike, and as a folder for `kubectl kustomize`."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wirespeed.errors import UsageError

if TYPE_CHECKING:
    from yaml import SafeDumper


_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9._/-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""YAML 1.1 has these for booleans and nothing, in any case: https://yaml.org/type/bool.html"""
_OURS = "# Written by wirespeed cluster render: what is changed here is lost at the next render.\n"
_INDEX = "kustomization.yaml"


def as_yaml(objects: Sequence[dict[str, Any]]) -> str:
    """One document each; quoted is all text that some parser could take for something else."""
    import yaml

    # A width without end: the text of a value is never folded into lines.
    return yaml.dump_all(
        objects, Dumper=_dumper(), sort_keys=False, allow_unicode=True, explicit_start=True,
        default_flow_style=False, width=1 << 30,
    )  # fmt: skip


def write_folder(objects: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """A kustomization and a file an object; gives the paths.

    Files of an earlier render that are not wanted any more are removed. Raises UsageError, with nothing
    written, where a file of somebody else is in the way, and where the folder cannot be written.
    """
    texts = {
        (f"{made['kind'].lower()}-{made['metadata']['name']}.yaml"): as_yaml([made])
        for made in objects
    }
    texts[_INDEX] = as_yaml([_kustomization(list(texts))])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = list(folder.glob("*.yaml"))
        foreign = [path for path in there if path.name in texts and not _is_ours(path)]
        if foreign:
            raise UsageError(f"{foreign[0]} is not of wirespeed cluster render", expected=_EMPTY)
        for path in there:
            if path.name not in texts and _is_ours(path):
                path.unlink()
        for name, text in texts.items():
            (folder / name).write_text(_OURS + text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror}", expected=_EMPTY
        ) from error
    return [folder / name for name in texts]


_EMPTY = "a new or empty folder, or one that an earlier render wrote"


def _kustomization(names: list[str]) -> dict[str, Any]:
    version = "kustomize.config.k8s.io/v1beta1"
    return {"apiVersion": version, "kind": "Kustomization", "resources": names}


def _is_ours(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline() == _OURS


@cache
def _dumper() -> "type[SafeDumper]":
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    Dumper.add_representer(str, _represent)
    return Dumper


def _represent(dumper: "SafeDumper", text: str) -> Any:
    """Plain only where no version of YAML sees anything but text; scripts as blocks of lines."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        style = None
    elif text.endswith("\n") and all(line.isprintable() for line in text[:-1].split("\n")):
        style = "|"
    else:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
