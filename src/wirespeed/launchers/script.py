"""What a job runs, as text: a shell script that does the same by hand, or YAML for other programs."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wirespeed.launchers.base import Piece

__all__ = ["SCRATCH", "as_sh", "as_yaml"]

SCRATCH = Path("wirespeed-launch")
"""Folder for the files of a job that is only written down, below the working directory."""


def as_sh(
    pieces: Sequence[Piece],
    title: str,
    hidden: Sequence[str] = (),
    before: Sequence[Piece] = (),
    after: Sequence[Piece] = (),
) -> str:
    """A POSIX shell script; `hidden`: names of variables that it expects to be set.

    `before` and `after`: pieces that are run one by one, these however the script ends.
    """
    lines = ["#!/bin/sh", f"# {_comment(title)}", "set -eu"]
    lines += [
        f': "${{{name}:?to be set by you: its value is not written here}}"' for name in hidden
    ]
    lines += _files([*before, *pieces, *after])
    if after:
        lines += ["over() {", *(line for one in after for line in _alone(one)), "}"]
        lines += ["trap over EXIT", "trap 'exit 130' INT", "trap 'exit 143' TERM"]
    lines += [line for one in before for line in _alone(one)]
    if len(pieces) == 1 and not pieces[0].stdin and not after:
        return "\n".join([*lines, f"exec {_words(pieces[0])}"]) + "\n"
    lines += ["pids="]
    for piece in pieces:
        lines += [f"# {_comment(piece.name)}", f"{_with_stdin(piece)} &", 'pids="$pids $!"']
    lines += ["code=0", 'for pid in $pids; do wait "$pid" || code=$?; done', 'exit "$code"']
    return "\n".join(lines) + "\n"


def as_yaml(
    pieces: Sequence[Piece],
    title: str,
    hidden: Sequence[str] = (),
    before: Sequence[Piece] = (),
    after: Sequence[Piece] = (),
) -> str:
    """The same as data: commands as lists of words, environment, files and stdin."""
    import yaml

    data: dict[str, Any] = {
        "title": title,
        "expects": list(hidden),
        "before": [_as_data(piece) for piece in before],
        "processes": [_as_data(piece) for piece in pieces],
        "after": [_as_data(piece) for piece in after],
    }
    data = {key: part for key, part in data.items() if part or key not in ("before", "after")}
    text: str = yaml.safe_dump(data, sort_keys=False, width=100, allow_unicode=True)
    return text


def _as_data(piece: Piece) -> dict[str, Any]:
    data: dict[str, Any] = {"name": piece.name, "command": list(piece.command)}
    if piece.environment:
        data["environment"] = dict(sorted(piece.environment.items()))
    if piece.files:
        data["files"] = dict(piece.files)
    if piece.stdin:
        data["stdin"] = piece.stdin
    return data


def _alone(piece: Piece) -> list[str]:
    return [f"# {_comment(piece.name)}", f"{_words(piece)} < /dev/null"]


def _files(pieces: Sequence[Piece]) -> list[str]:
    files: dict[str, str] = {}
    for piece in pieces:
        files.update(piece.files)
    lines = ["umask 077", f"mkdir -p {SCRATCH}"] if files else []
    return lines + [f"printf '%s' {shlex.quote(text)} > {_path(p)}" for p, text in files.items()]


def _path(path: str) -> str:
    return shlex.quote(path)


def _words(piece: Piece) -> str:
    settings = [f"{name}={value}" for name, value in sorted(piece.environment.items())]
    return _broken(["env", *settings, *piece.command] if settings else piece.command)


def _broken(words: Sequence[str]) -> str:
    """Quoted, some words a line, so that a reader can follow."""
    lines, line = [], ""
    for word in map(shlex.quote, words):
        if line and len(line) + len(word) > 92:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
    return " \\\n  ".join([*lines, line])


def _with_stdin(piece: Piece) -> str:
    """Its stdin stays open as long as the script and it run: its end would tell it to stop.

    Empty lines follow, so that the shell notices when nobody reads any more.
    """
    if not piece.stdin:
        return f"{_words(piece)} < /dev/null"
    hold = 'while kill -0 "$$" && echo; do sleep 1; done 2> /dev/null'
    return f"{{ printf '%s' {shlex.quote(piece.stdin)}; {hold}; }} |\n  {_words(piece)}"


def _comment(text: str) -> str:
    return " ".join(text.split())
