"""One pod's folder brought up to date."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from wirespeed.clusters.life.syncing.tree import Tree, read_whole
from wirespeed.clusters.life.syncing.wire import Lost, Wire

__all__ = ["Brought", "Order", "bring", "python_words"]

_MODULES = ("pipe", "places", "state", "plan", "commit", "program")
_PACKAGE = "wirespeed.clusters.life.syncing.far"
_BOOT = """\
import json, sys, types
for name, text in json.loads(sys.stdin.buffer.read(int(sys.argv[1]))):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
module.main()
"""
_AT_ONCE = 1000
_SHOWN = {"new", "changed", "mode"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What shall be in the pods."""

    folder: Path
    tree: Tree
    hashes: dict[str, str]
    """By path; a file without one went while it was read."""
    target: str
    delete: bool
    dry: bool

    def manifest(self) -> list[list[Any]]:
        """As the pod's side takes it: [path, kind, mode, size, hash or link's target]."""
        return [
            [one.path, one.kind, one.mode, one.size, self.hashes.get(one.path, one.target)]
            for one in self.tree.entries
            if one.kind != "file" or one.path in self.hashes
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What a call did to one pod's folder; of a dry run, what it would do."""

    pod: str
    new: tuple[str, ...] = ()
    """Files and links that were not there."""
    changed: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    """The content was the same, the permissions were not."""
    deleted: tuple[str, ...] = ()
    """The first 200, as all lists below that have a count."""
    deleted_count: int = 0
    replaced: tuple[str, ...] = ()
    """Changed ones whose content no sync had brought."""
    replaced_count: int = 0
    way: tuple[str, ...] = ()
    """Where something else lies that no sync brought; left as it was."""
    way_count: int = 0
    kept: tuple[str, ...] = ()
    """What would be deleted, but was changed in the pod."""
    kept_count: int = 0
    unsteady: tuple[str, ...] = ()
    """Files that changed each time they were read; left as they were."""
    sent_bytes: int = 0
    """Content, without what is said around it."""
    seconds: float = 0.0

    @property
    def nothing(self) -> bool:
        return not (self.new or self.changed or self.modes or self.deleted_count)


@dataclass(slots=True)
class _Talk:
    wire: Wire
    order: Order
    entries: list[list[Any]]
    moved: Callable[[int], None]
    sent_bytes: int = 0
    unsteady: list[str] = field(default_factory=list)

    def plan(self) -> tuple[dict[int, str], dict[str, Any]]:
        """What the pod's side wants, by number of the entry, and what else it tells."""
        order = self.order
        header = {"target": order.target, "delete": order.delete, "dry": order.dry}
        self.wire.send(b"H", header)
        for start in range(0, len(self.entries), _AT_ONCE):
            self.wire.send(b"M", self.entries[start : start + _AT_ONCE])
        self.wire.send(b"E", None)
        todo: dict[int, str] = {}
        while True:
            kind, told = self.wire.receive()
            if kind == b"Q":
                return self._checked(todo), told
            todo.update(_pairs(told))

    def _checked(self, todo: dict[int, str]) -> dict[int, str]:
        """The pod's answer is only believed where it makes sense."""
        good = all(0 <= at < len(self.entries) and what in _SHOWN for at, what in todo.items())
        if not good:
            raise Lost(0, "an answer that is none of ours")
        return todo

    def contents(self, todo: dict[int, str]) -> None:
        for index, what in todo.items():
            path, kind, *_ = self.entries[index]
            if kind == "file" and what != "mode":
                self._content(index, path)
        self.wire.send(b"C", None)

    def _content(self, index: int, path: str) -> None:
        wire = self.wire
        wire.send(b"F", index)
        told = read_whole(self.order.folder / path, self._data, lambda: wire.send(b"R", None))
        if told is None:
            self.unsteady.append(path)
            wire.send(b"S", None)
        else:
            wire.send(b"O", told)

    def _data(self, chunk: bytes) -> None:
        self.wire.send(b"D", chunk)
        self.sent_bytes += len(chunk)
        self.moved(len(chunk))


def python_words(python: str) -> tuple[str, ...]:
    """The pod's command: isolated, so that no file of the workspace can stand in for a module."""
    return (python, "-IS", "-X", "utf8", "-c", _BOOT, str(len(_program())))


def bring(
    words: Sequence[str],
    pod: str,
    order: Order,
    stop: threading.Event,
    moved: Callable[[int], None],
) -> Brought:
    """Bring `order` to the pod that `words` (ending in `python_words`) reach.

    moved: told of each piece of content that was handed over. Raises Lost, Refusal and Stopped; an
    OSError where kubectl cannot be started.
    """
    began = time.monotonic()
    with Wire(words, stop) as wire:
        wire.begin(_program())
        talk = _Talk(wire, order, order.manifest(), moved)
        todo, told = talk.plan()
        if not order.dry:
            talk.contents(todo)
            told = wire.receive()[1]
    brought = _brought(pod, talk, todo, told)
    return replace(brought, seconds=time.monotonic() - began)


def _brought(pod: str, talk: _Talk, todo: dict[int, str], told: Any) -> Brought:
    way = _paths(told, "way")
    left = {*way, *talk.unsteady}
    by_kind: dict[str, list[str]] = {what: [] for what in _SHOWN}
    for index, what in todo.items():
        path, kind, *_ = talk.entries[index]
        if kind != "dir" and path not in left:
            by_kind[what].append(path)
    return Brought(
        pod=pod,
        new=tuple(by_kind["new"]),
        changed=tuple(by_kind["changed"]),
        modes=tuple(by_kind["mode"]),
        deleted=_paths(told, "deleted"),
        deleted_count=_count(told, "deleted"),
        replaced=_paths(told, "replaced"),
        replaced_count=_count(told, "replaced"),
        way=way,
        way_count=_count(told, "way"),
        kept=_paths(told, "kept"),
        kept_count=_count(told, "kept"),
        unsteady=tuple(talk.unsteady),
        sent_bytes=talk.sent_bytes,
    )


def _pairs(told: Any) -> list[tuple[int, str]]:
    try:
        return [(int(index), str(what)) for index, what in told]
    except (TypeError, ValueError) as error:
        raise Lost(0, "an answer that is none of ours") from error


def _paths(told: Any, name: str) -> tuple[str, ...]:
    found = told.get(name, ()) if isinstance(told, dict) else ()
    return tuple(str(path) for path in found) if isinstance(found, list) else ()


def _count(told: Any, name: str) -> int:
    count = told.get(f"{name}_count", 0) if isinstance(told, dict) else 0
    return count if isinstance(count, int) else 0


@cache
def _program() -> bytes:
    """The texts of the pod's side, in the order in which they need each other."""
    folder = files(_PACKAGE)
    texts = [
        (f"{_PACKAGE}.{name}", (folder / f"{name}.py").read_text("utf-8")) for name in _MODULES
    ]
    return json.dumps(texts).encode()
