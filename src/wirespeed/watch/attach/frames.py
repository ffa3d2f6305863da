"""What a Python stack tells of its rank: that it waits for others, or what it works on."""

import re
from collections.abc import Sequence
from pathlib import Path

from wirespeed.node.python_stacks import Frame, Thread
from wirespeed.node.reading import read_whole

_WRAPPERS = re.compile(r"torch/(_ops|utils/_contextlib|distributed/c10d_logger)\.py|contextlib\.py")
"""Between a collective and who calls it."""
_WAITS = (
    (r"torch/distributed/(?!elastic|checkpoint|run\.py|launch)", r"."),
    (r"torch/autograd/graph\.py", r"_engine_run_backward"),
    (r"torch/cuda/(__init__|streams)\.py", r"synchronize|wait"),
    (r"deepspeed/comm/", r"."),
    (r"mpi4py/", r"."),
)
"""Files and functions of the innermost frame where a rank waits for others, or for its device."""
_WAITING_LINE = re.compile(
    r"\.wait\(|\b(barrier|all_reduce|all_gather\w*|reduce_scatter\w*|broadcast\w*|all_to_all\w*"
    r"|reduce|gather\w*|scatter\w*|recv|send|synchronize)\(|\.(item|cpu|tolist)\("
)
"""The user's own line, where what it calls is no Python: `work.wait()`."""
_WORKS = (
    ("writes a checkpoint", r"torch/serialization|distributed/checkpoint|safetensors", r"^_?save"),
    ("writes a checkpoint", r"", r"checkpoint"),
    ("loads a checkpoint", r"torch/serialization", r"^_?load"),
    ("compiles", r"torch/(_dynamo|_inductor|_functorch)/|^triton/", r""),
    ("waits for its data loader", r"torch/utils/data/", r""),
    ("evaluates", r"", r"^_?(eval|evaluate|validate|validation|test)(_|$)"),
    ("imports modules", r"frozen importlib", r""),
)
_LARGEST = 1 << 20
_LONGEST = 160


def main_frames(threads: Sequence[Thread]) -> tuple[Frame, ...]:
    """Of the thread that trains: the main one, or another one where only that is in torch."""
    for one in threads:
        if any(frame.file.startswith(("torch/", "deepspeed/")) for frame in one.frames):
            return one.frames
    return threads[0].frames if threads else ()


def waits_in(frames: Sequence[Frame]) -> Frame | None:
    """The frame in which it waits for other ranks or its device; None: it does not."""
    python = [one for one in frames if one.file.endswith(".py") or one.line]
    inner = next((one for one in python if not _WRAPPERS.search(one.file)), None)
    if inner is None:
        return None
    if any(re.match(file, inner.file) and re.search(name, inner.function) for file, name in _WAITS):
        return inner
    return inner if _WAITING_LINE.search(source_line(inner)) else None


def works_on(frames: Sequence[Frame]) -> str:
    """`writes a checkpoint`, `compiles`, …; empty: its own code, of which nothing is known."""
    for words, file, name in _WORKS:
        if any(re.search(file, one.file) and re.search(name, one.function) for one in frames):
            return words
    return ""


def own_frame(frames: Sequence[Frame]) -> Frame | None:
    """The innermost one of the user's own code, which is in no library."""
    own = (one for one in frames if one.line and "/site-packages/" not in one.path)
    return next((one for one in own if "/lib/python" not in one.path and one.file[:1] != "<"), None)


def source_line(frame: Frame) -> str:
    """Its text, where the file is here and small; a file that changed since tells another one."""
    if not (frame.line and frame.path.endswith(".py")):
        return ""
    try:
        lines = read_whole(Path(frame.path), _LARGEST).decode(errors="replace").splitlines()
    except OSError:
        return ""
    return lines[frame.line - 1].strip()[:_LONGEST] if frame.line <= len(lines) else ""


def stack_told(frames: Sequence[Frame], most: int = 12) -> str:
    """`inner (job.py:3) < outer (job.py:9)`."""
    more = f" < {len(frames) - most} more" if len(frames) > most else ""
    return " < ".join(one.title for one in frames[:most]) + more
