"""What a deploy would change: the objects that are there beside those that the server would keep.

The server's own dry run is one side, so that its defaults and what webhooks add are on both, and no
`diff` program is needed as `kubectl diff` does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from wirespeed.clusters.life.quantities import quantity
from wirespeed.world.redact import is_secret, redact_value

__all__ = ["Change", "Difference", "changes", "differences", "frozen_part"]

_SERVERS = frozenset(
    {"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink"}
)
"""Metadata that only the server writes."""
_LONGEST = 60
_ABSENT = object()
Action = Literal["create", "change", "remove", "keep"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One value; `None` where there is none."""

    path: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        return f"{self.path}: {self.old or 'nothing'} -> {self.new or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one object."""

    action: Action
    kind: str
    name: str
    differences: tuple[Difference, ...] = ()

    def __str__(self) -> str:
        """`change StatefulSet demo: spec.replicas: 2 -> 3, and 2 more`."""
        head = f"{self.action} {self.kind} {self.name}"
        if not self.differences:
            return head
        more = f", and {len(self.differences) - 1} more" if self.differences[1:] else ""
        return f"{head}: {self.differences[0]}{more}"


def changes(
    live: Sequence[Mapping[str, Any]], tried: Sequence[Mapping[str, Any]]
) -> tuple[Change, ...]:
    """By object of the dry run, in its order."""
    there = {_key(one): one for one in live}
    return tuple(_change(there.get(_key(one)), one) for one in tried)


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], *, only_of_new: bool = False
) -> tuple[Difference, ...]:
    """All values that differ. only_of_new: where `new` says nothing, nothing differs."""
    return tuple(_walk(old, new, "", only_of_new))


def frozen_part(told: Mapping[str, Any]) -> dict[str, Any]:
    """What Kubernetes does not let change: of a StatefulSet most of its spec, of others all of it."""
    spec = told.get("spec") or {}
    if told["kind"] != "StatefulSet":
        return {"spec": spec}
    free = ("replicas", "template", "updateStrategy")
    return {"spec": {key: part for key, part in spec.items() if key not in free}}


def _key(told: Mapping[str, Any]) -> tuple[str, str]:
    return told["kind"], told["metadata"]["name"]


def _change(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Change:
    kind, name = _key(new)
    if old is None:
        return Change("create", kind, name)
    found = differences(_own(old), _own(new))
    return Change("change" if found else "keep", kind, name, found)


def _own(told: Mapping[str, Any]) -> dict[str, Any]:
    meta = {key: part for key, part in told["metadata"].items() if key not in _SERVERS}
    return {**{k: part for k, part in told.items() if k != "status"}, "metadata": meta}


def _walk(old: Any, new: Any, path: str, only: bool) -> Iterator[Difference]:
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        yield from _walk_mapping(old, new, path, only)
    elif isinstance(new, list) and isinstance(old, list):
        left, right = _by_name(old), _by_name(new)
        yield from _walk_mapping(left, right, path, only, listed=True)
    elif isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        yield from _walk_lines(old, new, path)
    elif not _same(old, new, path):
        yield Difference(path, _shown(old, path), _shown(new, path))


def _walk_lines(old: str, new: str, path: str) -> Iterator[Difference]:
    """The first line of a text that differs; of a script the rest says little more."""
    pairs = zip_longest(old.splitlines(), new.splitlines())
    for number, (left, right) in enumerate(pairs, 1):
        if left != right:
            at = f"{path} line {number}"
            gone = _ABSENT if left is None else left
            made = _ABSENT if right is None else right
            yield Difference(at, _shown(gone, path), _shown(made, path))
            return


def _walk_mapping(
    old: Mapping[str, Any], new: Mapping[str, Any], path: str, only: bool, listed: bool = False
) -> Iterator[Difference]:
    keys = list(new) if only else list(dict.fromkeys([*old, *new]))
    for key in keys:
        below = f"{path}[{key}]" if listed else f"{path}.{key}" if path else key
        yield from _walk(old.get(key, _ABSENT), new.get(key, _ABSENT), below, only)


def _by_name(items: Sequence[Any]) -> dict[str, Any]:
    """A list's elements by their name, as Kubernetes merges them; else by their place."""
    found: dict[str, Any] = {}
    for index, one in enumerate(items):
        name = None
        if isinstance(one, Mapping):
            name = one.get("name") or (one.get("metadata") or {}).get("name")
        found[str(name) if name and str(name) not in found else str(index)] = one
    return found


def _same(old: Any, new: Any, path: str) -> bool:
    if old == new:
        return True
    amounts = ".requests." in path or ".limits." in path or ".resources." in path
    return amounts and isinstance(new, str) and quantity(old) == quantity(new) != 0


def _shown(value: Any, path: str) -> str | None:
    """Short, on one line; what a variable with a telling name holds is not shown."""
    if value is _ABSENT:
        return None
    variable = path.rpartition(".env[")[2].partition("]")[0] if ".env[" in path else ""
    if variable and is_secret(variable):
        return "***"
    text = " ".join(redact_value(value if isinstance(value, str) else _brief(value)).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _brief(value: Any) -> str:
    if isinstance(value, Mapping):
        keys = ", ".join(str(key) for key in list(value)[:4])
        return f"{{{keys}{', …' if len(value) > 4 else ''}}}"
    if isinstance(value, list):
        return f"{len(value)} items"
    return str(value)
