"""A cluster file with comments; whatever the cluster told stays data, in values and in comments."""

from collections.abc import Sequence
from typing import Any

from wirespeed.clusters.discover.entry import Entry

__all__ = ["fits", "inert", "written"]

_LONGEST = 300
_WIDTH = 98


def inert(text: str) -> str:
    """One line without anything that steers a terminal or ends a comment."""
    clean = "".join(one if one.isprintable() else " " for one in text[: _LONGEST + 1])
    return clean if len(clean) <= _LONGEST else clean[:_LONGEST] + "…"


def fits(entry: Entry) -> bool:
    """Whether the key may have this value; what a hostile cluster told does not get further."""
    from pydantic import ValidationError

    from wirespeed.clusters.file.model import ClusterFile

    told: dict[str, Any] = {"cluster": {"name": "a"}}
    place = told
    for key in entry.path[:-1]:
        place = place.setdefault(key, {})
    place[entry.path[-1]] = entry.value
    try:
        ClusterFile.model_validate(told)
    except ValidationError:
        return False
    return True


def written(head: Sequence[str], entries: Sequence[Entry]) -> str:
    """The file's text; entries that do not fit become remarks."""
    fit = [fits(one) for one in entries]
    kept = [one for one, good in zip(entries, fit, strict=True) if good]
    lost = [one for one, good in zip(entries, fit, strict=True) if not good]
    lines = [_comment(one, 0) for one in head]
    lines += [_comment(f"not taken, since the key cannot have it: {_key(one)}", 0) for one in lost]
    for section in dict.fromkeys(one.path[0] for one in kept):
        lines += ["", f"{section}:"]
        lines += _keys([one for one in kept if one.path[0] == section], 1)
    return "\n".join(lines) + "\n"


def _keys(entries: Sequence[Entry], depth: int) -> list[str]:
    """Keys of one mapping in the order of the entries; deeper ones after the plain ones."""
    indent = "  " * depth
    lines = []
    for one in entries:
        if len(one.path) == depth + 1:
            lines.append(_comment(f"{'guess' if one.guessed else 'found'}: {one.why}", depth))
            lines.append(f"{indent}{one.path[depth]}: {_value(one.value)}")
    deeper = dict.fromkeys(one.path[depth] for one in entries if len(one.path) > depth + 1)
    for name in deeper:
        lines.append(f"{indent}{name}:")
        below = [one for one in entries if len(one.path) > depth + 1 and one.path[depth] == name]
        lines += _keys(below, depth + 1)
    return lines


def _comment(text: str, depth: int) -> str:
    from textwrap import fill

    indent = "  " * depth + "# "
    clean = inert(text)
    return fill(
        clean, _WIDTH, initial_indent=indent, subsequent_indent=indent + "  ",
        break_long_words=False, break_on_hyphens=False,
    ) or "#"  # fmt: skip


def _value(value: Any) -> str:
    """On one line; text in double quotes, so that nothing in it means anything to YAML."""
    import yaml

    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(one) for one in value) + "]"
    if isinstance(value, str):
        quoted: str = yaml.safe_dump(value, default_style='"', width=10**9)
        return quoted.rstrip("\n")
    return str(value).lower()


def _key(entry: Entry) -> str:
    return f"{'.'.join(entry.path)}: {entry.value!r}"
