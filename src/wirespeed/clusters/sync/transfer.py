"""One pod's folder brought up to date, by frames through one kubectl process.

Everything is bounded, and can be given up at any time.
"""

import json
import os
import selectors
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Self, TypeVar

from msgspec import ValidationError, convert

from wirespeed.clusters.sync.local_tree import Tree, read_whole
from wirespeed.clusters.sync.remote.storage import CHUNK, HEAD, MOST

_STRANGE = "an answer that is none of ours"
_T = TypeVar("_T")
STALL_S = 60.0
"""No byte in either direction for so long: the pod, its node or the way there is gone."""
_LOOK_S = 0.2
_END_S = 10.0
_PIECE = 1 << 16
_WORDS = 4000
"""Characters of stderr that are kept."""


class Lost(Exception):
    """The process ended, or fell silent, before all was said."""

    def __init__(self, code: int | None, said: str) -> None:
        super().__init__(said)
        self.code = code
        """None: it was silent, and was ended."""
        self.said = said


class Refusal(Exception):
    """The pod's side told of trouble: an X frame."""

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(str(told.get("text", "")))
        self.kind = str(told.get("kind", "other"))
        self.told = told


class Stopped(Exception):
    """Somebody else wants this to end."""


class Wire:
    """One process; a context that ends it."""

    def __init__(self, words: Sequence[str], stop: threading.Event) -> None:
        self._stop = stop
        self._err = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the wire
        self._process = subprocess.Popen(
            list(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._err,
            start_new_session=True,
        )
        self._in, self._out = _pipes(self._process)
        self._moved = time.monotonic()
        self._raw = bytearray()
        self._frames: deque[tuple[bytes, bytes]] = deque()
        self._unsent = bytearray()
        self._both, self._reading = selectors.DefaultSelector(), selectors.DefaultSelector()
        self._both.register(self._in, selectors.EVENT_WRITE)
        for selector in (self._both, self._reading):
            selector.register(self._out, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        process = self._process
        if kind is not None:
            process.kill()
        self._both.close()
        self._reading.close()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._err.close()

    def send(self, kind: bytes, told: Any) -> None:
        """One frame; told: bytes as they are, anything else as JSON. Trouble that came is raised."""
        data = told if isinstance(told, bytes) else json.dumps(told).encode()
        self._unsent += HEAD.pack(kind, len(data)) + data
        if len(self._unsent) >= CHUNK:
            self._flush()

    def begin(self, text: bytes) -> None:
        """Bytes before the first frame."""
        self._unsent += text

    def receive(self) -> tuple[bytes, Any]:
        """The next frame that is no sign of life: its kind and what it tells."""
        self._flush()
        while True:
            while self._frames:
                kind, data = self._frames.popleft()
                if kind != b"T":
                    return kind, _json(data)
            for _ in self._ready(self._reading):
                self._take()

    def _flush(self) -> None:
        """Write all; what comes in meanwhile is kept."""
        view = memoryview(bytes(self._unsent))
        self._unsent.clear()
        while view:
            for key, _ in self._ready(self._both):
                if key.fd == self._out:
                    self._take()
                else:
                    view = view[self._put(view[:_PIECE]) :]

    def _ready(self, selector: selectors.BaseSelector) -> list[tuple[selectors.SelectorKey, int]]:
        if self._stop.is_set():
            raise Stopped
        ready = selector.select(_LOOK_S)
        if ready:
            self._moved = time.monotonic()
        elif time.monotonic() - self._moved > STALL_S:
            self._process.kill()
            raise Lost(None, f"no answer for {STALL_S:.0f} s")
        return ready

    def _put(self, piece: memoryview) -> int:
        try:
            return os.write(self._in, piece)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise self._ended() from None

    def _take(self) -> None:
        try:
            data = os.read(self._out, _PIECE)
        except BlockingIOError:
            time.sleep(0.01)
            return
        if not data:
            raise self._ended()
        self._raw += data
        while len(self._raw) >= HEAD.size:
            kind, size = HEAD.unpack_from(self._raw)
            if size > MOST or kind not in b"TPQZX":
                raise Lost(0, _STRANGE)
            if len(self._raw) < HEAD.size + size:
                return
            data = bytes(self._raw[HEAD.size : HEAD.size + size])
            del self._raw[: HEAD.size + size]
            if kind == b"X":
                raise Refusal(_read(_json(data), dict[str, Any]))
            self._frames.append((kind, data))

    def _ended(self) -> Lost:
        """The other end closed: with its code and its last words."""
        try:
            code: int | None = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = None
        self._err.seek(0, os.SEEK_END)
        self._err.seek(max(0, self._err.tell() - _WORDS))
        return Lost(code, self._err.read().decode("utf-8", "replace").strip())


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (RecursionError, ValueError) as error:
        raise Lost(0, _STRANGE) from error


def _pipes(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """(its stdin, its stdout), neither of which ever blocks."""
    fds = [pipe.fileno() for pipe in (process.stdin, process.stdout) if pipe is not None]
    for fd in fds:
        os.set_blocking(fd, False)
    return fds[0], fds[1]


_MODULES = ("storage", "changes", "agent")
_PACKAGE = "wirespeed.clusters.sync.remote"
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


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What the pod's side tells at the end; of each list the first 200, and how many there are."""

    deleted: tuple[str, ...] = ()
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


@dataclass(frozen=True, kw_only=True)
class Brought(Summary):
    """What a call did to one pod's folder; of a dry run, what it would do."""

    pod: str
    new: tuple[str, ...] = ()
    """Files and links that were not there."""
    changed: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    """The content was the same, the permissions were not."""
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
        places = set(range(len(self.entries)))
        while True:
            kind, told = self.wire.receive()
            if kind == b"Q":
                return todo, told
            todo.update(_read(told, list[tuple[int, str]]))
            # The pod's answer is only believed where it makes sense.
            if not (todo.keys() <= places and set(todo.values()) <= _SHOWN):
                raise Lost(0, _STRANGE)

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
    summary = _read(told, Summary)
    left = {*summary.way, *talk.unsteady}
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
        unsteady=tuple(talk.unsteady),
        sent_bytes=talk.sent_bytes,
        seconds=time.monotonic() - began,
        **vars(summary),
    )


def _read(told: Any, kind: type[_T]) -> _T:
    """What the pod's side told, as what it must be; Lost where it is not."""
    try:
        return convert(told, kind)
    except ValidationError as error:
        raise Lost(0, _STRANGE) from error


@cache
def _program() -> bytes:
    """The texts of the pod's side, in the order in which they need each other."""
    folder = files(_PACKAGE)
    texts = [
        (f"{_PACKAGE}.{name}", (folder / f"{name}.py").read_text("utf-8")) for name in _MODULES
    ]
    return json.dumps(texts).encode()
