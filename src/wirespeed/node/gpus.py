"""GPUs through NVIDIA's management library (nvidia-ml-py, the `gpu` extra).

The library is asked in a process of its own (`wirespeed.node.gpu_reader`): a driver that hangs or
crashes costs a bounded time, and is a fact about the node that says which GPU did not answer.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from wirespeed.node.gpu_reader import read_gpus
from wirespeed.node.reading import Notes, numa_node
from wirespeed.process.frames import Lines

QUIET_S = 60.0
"""Without a line for so long the library hangs. Starting it without nvidia-persistenced takes some
seconds a GPU, all within its first call."""
READER = (sys.executable, "-P", "-m", "wirespeed.node.gpu_reader")
_ABSENT = frozenset({4, 9, 12, 13})
"""Codes of nvmlInit that tell of no GPU for us: no permission, no driver, no library, no function."""
_END_S = 5.0
"""For nvmlShutdown and Python's end, after the last line."""
TIMEOUT = 10
"""NVML_ERROR_TIMEOUT, for what did not answer us."""
_OURS = 0
"""No code of NVML: the reader itself ended with an error."""
_CUDA = "cuda"
"""What is asked after the last GPU."""
Line = dict[str, Any]


def gather_gpus(
    notes: Notes,
    nvml: Any = None,
    *,
    environ: Mapping[str, str] = os.environ,
    reader: Sequence[str] = READER,
    quiet_s: float = QUIET_S,
) -> tuple[dict[str, Any], ...]:
    """Every GPU of the node, whatever CUDA_VISIBLE_DEVICES says, by the library's index.

    Keys: `index`, those of `wirespeed.node.gpu_reader` that the GPU answers, `errors` (`call`,
    `code`, `text`) where it answers with a fault, `nvlink_growth` where errors grew while we looked,
    `visible` where it is known whether CUDA shows it here, and `numa_node`. Notes `gpu.count`,
    `gpu.driver`, `gpu.cuda`, `gpu.visible` (UUIDs that CUDA shows), and `gpu.nvml_failed` or
    `gpu.cuda_failed` (as an error) where one itself fails. `nvml` is asked in this process where it
    is given (tests).
    """
    if nvml is None and not _installed():
        notes.unknown["gpus"] = "nvidia-ml-py is not installed: pip install 'wirespeed[gpu]'"
        return ()
    lines = _lines_of(reader, quiet_s) if nvml is None else read_gpus(nvml, 0.0)
    found = _fold(notes, lines)
    for gpu in found.values():
        node = numa_node(notes.root / "sys/bus/pci/devices" / gpu.get("pci", ""))
        if node is not None:
            gpu["numa_node"] = node
    mark_visible(found.values(), notes.facts.gpu_visible, environ)
    return tuple(found.values())


def mark_visible(
    gpus: Iterable[dict[str, Any]], seen: Iterable[str] | None, environ: Mapping[str, str]
) -> None:
    """Set `visible` of each GPU whose UUID is known; left out where it cannot be told.

    seen: UUIDs that CUDA shows. Where nobody could ask it, CUDA_VISIBLE_DEVICES tells: UUIDs or their
    beginnings, or numbers, which are NVML's where all GPUs are of one model or the order is the bus's.
    """
    known = [gpu for gpu in gpus if "uuid" in gpu]
    told = set(seen) if seen is not None else _told(known, environ)
    if told is not None:
        for gpu in known:
            gpu["visible"] = gpu["uuid"] in told


def _told(gpus: list[dict[str, Any]], environ: Mapping[str, str]) -> set[str] | None:
    """UUIDs by the variable alone; like CUDA, up to the first word that means no GPU."""
    words = environ.get("CUDA_VISIBLE_DEVICES")
    alike = len({gpu.get("name") for gpu in gpus}) == 1
    by_bus = alike or environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if words is None:
        return None
    found: set[str] = set()
    for word in (part.strip() for part in words.split(",")):
        if word.startswith("MIG-") or (word.isdecimal() and not by_bus):
            return None
        which = [
            gpu["uuid"]
            for gpu in gpus
            if (word.isdecimal() and gpu["index"] == int(word))
            or (word.startswith("GPU-") and gpu["uuid"].lower().startswith(word.lower()))
        ]
        if len(which) != 1:
            break
        found.add(which[0])
    return found


def _installed() -> bool:
    with suppress(ValueError):
        return find_spec("pynvml") is not None
    return False


def _fold(notes: Notes, lines: Iterable[Line]) -> dict[int, dict[str, Any]]:
    """The GPUs by index, from the reader's lines."""
    found: dict[int, dict[str, Any]] = {}
    asking: Any = None
    for line in lines:
        for name, value in line.get("start", {}).get("facts", {}).items():
            notes.keep(name, value)
        notes.unknown |= line.get("start", {}).get("unknown", {}) | line.get("unknown", {})
        asking = line.get("asking", None if "gpu" in line else asking)
        if line.get("gpu"):
            found[line["gpu"]["index"]] = line["gpu"]
        elif "error" in line:
            found[line["grown"]].setdefault("errors", []).append(line["error"])
        elif "grown" in line:
            growth = {"seconds": line["seconds"], "links": line["links"]}
            found[line["grown"]]["nvlink_growth"] = growth
        elif "cuda" in line:
            asking = None
            _note_cuda(notes, line["cuda"])
        elif "failed" in line and asking == _CUDA:
            notes.keep("gpu.cuda_failed", {**line["failed"], "call": "cuInit"})
        elif "failed" in line:
            _note_failure(notes, found, line["failed"], asking)
    return found


def _note_cuda(notes: Notes, told: dict[str, Any]) -> None:
    if "uuids" in told:
        notes.keep("gpu.visible", told["uuids"])
    elif "code" in told:
        notes.keep("gpu.cuda_failed", {**told, "text": f"error {told['code']}"})
    else:
        notes.unknown["gpu.visible"] = told["why"]


def _note_failure(
    notes: Notes, found: dict[int, dict[str, Any]], error: dict[str, Any], asking: int | None
) -> None:
    """The library does not start, or hangs or crashes: then at the GPU that was being asked.

    An error of the reader itself (a module that does not fit) accuses nobody.
    """
    name = "gpus" if asking is None else f"gpu.{asking}"
    if error["code"] == _OURS or (asking is None and error["code"] in _ABSENT):
        notes.unknown[name] = f"NVML: {error['text']}"
        return
    if asking is None:
        notes.keep("gpu.nvml_failed", error)
        notes.unknown["gpus"] = f"NVML: {error['text']}"
        return
    found[asking] = {"index": asking, "errors": [error]}
    for index in range(asking + 1, notes.facts.gpu_count or 0):
        notes.unknown[f"gpu.{index}"] = f"not asked, since NVML failed at GPU{asking}"


def _lines_of(command: Sequence[str], quiet_s: float) -> Iterator[Line]:
    """The reader's lines, and `failed` where it falls silent or ends early; bounded by its lines."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    last, hung = "", False
    try:
        for text in _texts(process, quiet_s):
            hung = text is None
            line = _parsed(text or "")
            if line is not None:
                yield line
            last = last if line is not None else text or ""
    finally:
        code = _end(process, at_once=hung)
    if hung:
        text = f"no answer within {quiet_s:g} s"
        yield {"failed": {"call": "nvml", "code": TIMEOUT, "text": text}}
    elif code:
        how = f"by signal {-code}" if code < 0 else f"with {last}"
        text = f"the process that asked NVML ended {how}"
        yield {"failed": {"call": "nvml", "code": -1 if code < 0 else _OURS, "text": text}}


def _texts(process: subprocess.Popen[bytes], quiet_s: float) -> Iterator[str | None]:
    """Whole lines as they come; None, as the last, where none came for `quiet_s` seconds."""
    lines, waiting, chunk = Lines(), select.poll(), b" "
    if process.stdout is None:
        return
    pipe = process.stdout.fileno()
    waiting.register(pipe, select.POLLIN)
    while chunk:
        if not waiting.poll(quiet_s * 1000):
            yield None
            return
        chunk = os.read(pipe, 1 << 16)
        yield from (one.decode(errors="replace") for one in lines.feed(chunk))


def _parsed(text: str) -> Line | None:
    """A line of the reader; None for what a library or Python itself printed."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _end(process: subprocess.Popen[bytes], *, at_once: bool) -> int:
    """The exit status. A process that hangs in the driver cannot even be killed: it is left behind."""
    try:
        if at_once:
            process.kill()
        return process.wait(0.2 if at_once else _END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return 0
    finally:
        if process.stdout:
            process.stdout.close()
