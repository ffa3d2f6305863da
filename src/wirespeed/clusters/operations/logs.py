"""Output of the pods' containers: all there is, or followed across restarts and lost connections."""

import math
import queue
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import IO

from wirespeed.clusters.deployment import CONTAINER
from wirespeed.clusters.kube import Answer, Kubectl, Refused, may_pass, said
from wirespeed.clusters.operations.pod_lookup import Pod

Show = Callable[[str, str], None]
"""Takes a pod's name and one line of it."""
_AT_ONCE = 8
_BOUND_S = 120.0
_PIECE = 1 << 16
_LONGEST = 1 << 20
"""Bytes; a longer line is shown in pieces."""
_WORDS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    since: str = ""
    """As kubectl takes it: 90s, 5m, 2h30m."""
    tail: int | None = None
    """Only so many of the last lines of each pod."""
    previous: bool = False
    """Of the container before its last restart."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A pod without logs."""

    pod: str
    why: str
    harmless: bool = False
    """There is nothing to read, and that is no fault."""


def log_words(kubectl: Kubectl, pod: Pod, options: LogOptions, *more: str) -> tuple[str, ...]:
    words = ["logs", pod.name, "-c", CONTAINER, *more]
    if options.since:
        words.append(f"--since={options.since}")
    if options.tail is not None:
        words.append(f"--tail={options.tail}")
    if options.previous:
        words.append("--previous")
    return kubectl.words(*words)


def read_logs(
    kubectl: Kubectl, pods: Sequence[Pod], options: LogOptions, show: Show
) -> list[Unread]:
    """Show all there is, one pod after the other; they are asked at the same time."""
    unread = []
    with ExitStack() as texts, ThreadPoolExecutor(_AT_ONCE) as pool:
        calls = [pool.submit(_fetched, kubectl, pod, options, texts) for pod in pods]
        try:
            for pod, call in zip(pods, calls, strict=True):
                text, answer = call.result()
                with text:
                    for line in whole_lines(text.read):
                        show(pod.name, line)
                if answer.code != 0:
                    unread.append(why_unread(pod, answer))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return unread


def whole_lines(read: Callable[[int], bytes]) -> Iterator[str]:
    """Lines without their ends; what is no UTF-8 is replaced."""
    rest = b""
    while chunk := read(_PIECE):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST:
            lines.append(rest)
            rest = b""
        yield from (line.decode("utf-8", "replace") for line in lines)
    if rest:
        yield rest.decode("utf-8", "replace")


def why_unread(pod: Pod, answer: Answer) -> Unread:
    """What kubectl said, in a line."""
    if answer.code is None:
        return Unread(pod.name, f"no answer within {_BOUND_S:.0f} s")
    lines = said(answer) or (f"kubectl logs ended with {answer.code}",)
    if "previous terminated container" in lines[0]:
        return Unread(pod.name, "it has not restarted", harmless=True)
    return Unread(pod.name, lines[0])


def _fetched(
    kubectl: Kubectl, pod: Pod, options: LogOptions, texts: ExitStack
) -> tuple[IO[bytes], Answer]:
    """(a file with all of it, how kubectl ended); on disk, since logs may be long."""
    words = log_words(kubectl, pod, options)
    text = texts.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    with tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=text, stderr=err, start_new_session=True
        )
        try:
            code: int | None = process.wait(_BOUND_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
        err.seek(0)
        told = err.read(_WORDS).decode("utf-8", "replace")
    text.seek(0)
    return text, Answer(words, code, "", told)


_LOOK_S = 1.0
"""Between two looks at the pods, while a stream has ended."""
_CALM_LOOK_S = 5.0
"""While all is well: new pods are found so."""
_LOST_S = 3.0
"""A stream that ended though its container runs on is opened again after this: before, it may be that
the cluster has not yet noticed a restart."""
_OVERLAP_S = 5
_WAITING = 1000
"""Lines that wait to be shown; then the streams wait."""
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d)) ")
_LONG = 16_000
_END_S = 5.0
_OVER = ("Succeeded", "Failed")


class Shown:
    """How far one container's output was shown, by the time stamps that the node gives each line."""

    def __init__(self) -> None:
        self._opened = time.monotonic()
        self._last = ""

    def new(self, line: str) -> str | None:
        """The line without its stamp; None for one that was shown before."""
        match = _STAMP.match(line)
        if match is None:
            return line
        if self._last >= match[1]:
            return None
        self._last = match[1]
        text = line[match.end() :]
        # Some nodes stamp each 16 KiB of a long line: https://github.com/kubernetes/kubernetes/issues/77603
        return _STAMP.sub("", text) if len(text) > _LONG else text

    def reopened(self) -> str:
        """What to ask for: all that was not shown, and perhaps some lines that were."""
        if self._last:
            return f"--since-time={self._last}"
        return f"--since={math.ceil(time.monotonic() - self._opened) + _OVERLAP_S}s"


@dataclass(slots=True)
class _Stream:
    """One kubectl, and the thread that reads it."""

    pod: Pod
    process: subprocess.Popen[bytes]
    shown: Shown
    ended: float | None = None
    err: str = ""


@dataclass(slots=True)
class Follower:
    """Streams of the pods that `pods` gives, until all are over or KeyboardInterrupt."""

    kubectl: Kubectl
    pods: Callable[[], Sequence[Pod]]
    options: LogOptions
    show: Show
    tell: Callable[[str], None]
    """Takes what is said about the streams, not by them."""
    _streams: dict[str, _Stream] = field(default_factory=dict)
    _lines: "queue.Queue[tuple[str, str] | _Stream]" = field(
        default_factory=lambda: queue.Queue(_WAITING)
    )
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _away: bool = False

    def run(self) -> None:
        first = True
        try:
            while self._look(first) or any(one.ended is None for one in self._streams.values()):
                first = False
                self._take()
        finally:
            self._stop.set()
            for stream in self._streams.values():
                stream.process.kill()
            for thread in self._threads:
                thread.join(_END_S)

    def _look(self, first: bool) -> bool:
        """Open what has to be opened; whether anything may still come."""
        try:
            pods = self.pods()
        except Refused as refused:
            if first or not may_pass(refused.answer):
                raise
            if not self._away:
                self.tell(f"the API server does not answer; asking again: {refused.saw}")
            self._away = True
            return True
        self._away = False
        for name in set(self._streams) - {pod.name for pod in pods}:
            if self._streams[name].ended is not None:
                self.tell(f"{name} is gone")
                del self._streams[name]
        for pod in pods:
            self._open_if_due(pod, first)
        return any(pod.phase not in _OVER for pod in pods)

    def _open_if_due(self, pod: Pod, first: bool) -> None:
        stream = self._streams.get(pod.name)
        if stream is None:
            if pod.phase in ("Running", *_OVER):
                self._open(pod, self.options if first else LogOptions(), Shown())
        elif stream.ended is None:
            return
        elif (pod.uid, pod.restarts) != (stream.pod.uid, stream.pod.restarts):
            self.tell(f"{pod.name} was started again (restarts: {pod.restarts})")
            self._open(pod, LogOptions(), Shown())
        elif pod.status == "Running" and time.monotonic() - stream.ended > _LOST_S:
            if stream.err:
                self.tell(f"{pod.name}: {stream.err}")
            self._open(pod, LogOptions(), stream.shown, stream.shown.reopened())

    def _open(self, pod: Pod, options: LogOptions, shown: Shown, *more: str) -> None:
        words = log_words(self.kubectl, pod, options, "--follow", "--timestamps", *more)
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(
            words, stdin=nothing, stdout=pipe, stderr=pipe, start_new_session=True
        )
        stream = self._streams[pod.name] = _Stream(pod, process, shown)
        thread = threading.Thread(target=self._read, args=(stream,), name=f"logs-{pod.name}")
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        thread.start()

    def _read(self, stream: _Stream) -> None:
        """In a thread of its own: to the end of the stream."""
        process = stream.process
        if process.stdout is None or process.stderr is None:
            return
        with process.stdout as out, process.stderr as err:
            for line in whole_lines(out.read1):  # type: ignore[attr-defined]
                self._put((stream.pod.name, line))
            said = err.read().decode("utf-8", "replace")
        code = process.wait()
        if code:
            stream.err = why_unread(stream.pod, Answer((), code, "", said)).why
        self._put(stream)

    def _put(self, item: "tuple[str, str] | _Stream") -> None:
        while not self._stop.is_set():
            with suppress(queue.Full):
                self._lines.put(item, timeout=0.2)
                return

    def _take(self) -> None:
        """Show what comes, until it is time for the next look."""
        broken = any(one.ended is not None for one in self._streams.values())
        until = time.monotonic() + (_LOOK_S if broken else _CALM_LOOK_S)
        while (left := until - time.monotonic()) > 0:
            try:
                item = self._lines.get(timeout=left)
            except queue.Empty:
                return
            if isinstance(item, _Stream):
                item.ended = time.monotonic()
                until = min(until, time.monotonic() + _LOOK_S)
            elif (text := self._streams[item[0]].shown.new(item[1])) is not None:
                self.show(item[0], text)
