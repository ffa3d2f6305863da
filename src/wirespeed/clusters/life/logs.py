"""`cluster logs`: what the pods' containers said, line by line, and what they say from now on."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

from wirespeed.clusters.kube.kubectl import Answer, Kubectl
from wirespeed.clusters.kube.refusals import said
from wirespeed.clusters.life.pods import Pod

__all__ = ["LogOptions", "Show", "Unread", "log_words", "read_logs", "whole_lines", "why_unread"]

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
    words = ["logs", pod.name, "-c", pod.container, *more]
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
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        calls = [pool.submit(_fetched, kubectl, pod, options) for pod in pods]
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
            _close(calls)
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


def _fetched(kubectl: Kubectl, pod: Pod, options: LogOptions) -> tuple[IO[bytes], Answer]:
    """(a file with all of it, how kubectl ended); on disk, since logs may be long."""
    words = log_words(kubectl, pod, options)
    text = tempfile.TemporaryFile()  # noqa: SIM115 - its reader closes it
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


def _close(calls: Sequence[Future[tuple[IO[bytes], Answer]]]) -> None:
    for call in calls:
        if call.done() and not call.cancelled() and call.exception() is None:
            call.result()[0].close()
