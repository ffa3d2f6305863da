"""The ranks' environment, brought to nodes over ssh's stdin before DeepSpeed starts there.

Each rank finds a file of its own in a folder that only this user may enter, reads and removes it;
the last one removes the folder. The path is on command lines, the values never are.
"""

import hashlib
import os
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wirespeed.errors import CannotMeasure, WorldError
from wirespeed.launchers.deepspeed.environment import unpack

__all__ = ["Node", "bring", "folder_of", "forget", "take"]

BRING_S = 30.0
FORGET_S = 5.0
_BRING = (
    'umask 077; folder=$1; shift; rm -rf -- "$folder"; mkdir -- "$folder" && read -r told || exit 1; '
    'for rank in "$@"; do printf %s "$told" > "$folder/$rank" || exit 1; done'
)
_FORGET = 'rm -rf -- "$1"'


@dataclass(frozen=True, slots=True)
class Node:
    """A node that the environment is brought to."""

    words: tuple[str, ...]
    """ssh to it, before the word for the far shell."""
    number: int
    """Among the nodes, as DeepSpeed tells it in CROSS_RANK: nodes may share a file system."""
    ranks: tuple[int, ...]
    """Their global ranks: DeepSpeed's local ones are in no order where slots differ."""


def folder_of(token: str) -> str:
    """What the folders' names begin with; the token itself, which asks for trust, is not in it."""
    return f"/tmp/wirespeed-{hashlib.sha256(token.encode()).hexdigest()[:16]}"


def bring(nodes: Sequence[Node], folder: str, told: str) -> None:
    """To all at once; CannotMeasure names what ssh said where it could not be."""
    troubles = _run(nodes, _BRING, folder, f"{told}\n", BRING_S)
    if troubles:
        raise CannotMeasure(
            f"the environment could not be brought to all nodes: {'; '.join(troubles)}",
            expected="ssh, and a folder in /tmp of each node",
        )


def forget(nodes: Sequence[Node], folder: str) -> None:
    """What ranks that never started have left; a node that cannot be asked keeps its folder."""
    _run(nodes, _FORGET, folder, "", FORGET_S)


def take(folder: str, node: int, rank: int) -> dict[str, str]:
    """This rank's variables, which nobody finds again; WorldError where there are none."""
    path = Path(_own(folder, node)) / str(rank)
    try:
        if path.stat().st_uid != os.geteuid():
            raise PermissionError(None, "it belongs to another user")
        told = unpack(path.read_text("ascii"))
        path.unlink()
    except (OSError, ValueError) as error:
        raise WorldError(
            f"{path}: {error}", expected="this rank's environment, as it was brought here"
        ) from error
    with suppress(OSError):
        path.parent.rmdir()  # the last one can
    return told


def _own(folder: str, node: int) -> str:
    return f"{folder}-{node}"


def _run(
    nodes: Sequence[Node], program: str, folder: str, stdin: str, within_s: float
) -> list[str]:
    """What went wrong, a text for each node that it did on."""
    started = [_start(node, program, folder) for node in nodes]
    troubles = []
    for process in started:
        try:
            _, said = process.communicate(stdin.encode(), timeout=within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            said = f"no answer within {within_s:g} s".encode()
        if process.returncode:
            troubles.append(said.decode("utf-8", "replace").strip() or str(process.returncode))
    return troubles


def _start(node: Node, program: str, folder: str) -> subprocess.Popen[bytes]:
    words = ["sh", "-c", program, "sh", _own(folder, node.number), *map(str, node.ranks)]
    far = shlex.join(words)
    try:
        return subprocess.Popen(
            [*node.words, f"exec {far}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise CannotMeasure(f"{node.words[0]} cannot be run: {error.strerror}") from error
