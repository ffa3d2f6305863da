"""fio as the engine of large files, where it is installed: its own loop, read from its JSON."""

import json
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from wirespeed.process.guard import death_signal
from wirespeed.rank.storage.answer import Answer
from wirespeed.rank.storage.files import BLOCK, PAGE, synchronise

_KINDS = {"write": "write", "read": "read", "random read": "randread"}
_MOST_WORDS = 300


def version() -> str:
    """Such as `fio-3.33`; empty where there is none."""
    if shutil.which("fio") is None:
        return ""
    done = subprocess.run(
        ["fio", "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=20, check=False
    )
    return done.stdout.decode(errors="replace").strip()[:40]


def run(
    access: str,
    path: Path,
    size: int,
    seconds: float,
    *,
    direct: bool,
    pieces: tuple[int, int] | None = None,
) -> Answer:
    """One job over a file of that size. pieces: how many, and of what size; else all of it by MiB.

    OSError where fio met one; ValueError with its words where it has no figures.
    """
    calls, block = pieces or (size // BLOCK, BLOCK)
    block = -(-block // PAGE) * PAGE
    moved = min(block * calls, size - size % block)
    words = [
        *("fio", "--name=wirespeed", f"--filename={path.name}", f"--rw={_KINDS[access]}"),
        *(f"--bs={block}", f"--size={size}", f"--io_size={moved}"),
        *(f"--runtime={max(1, int(seconds))}", "--ioengine=psync", f"--direct={int(direct)}"),
        *("--invalidate=1", "--fallocate=none", "--randrepeat=0", "--thread"),
        *(f"--allow_file_create={int(access == 'write')}", "--percentile_list=50:95:99"),
        *("--output-format=json", "--eta=never"),
    ]
    if access == "write":
        path.unlink(missing_ok=True)
    # A name without folders: in paths a colon is fio's own.
    process = subprocess.Popen(
        words,
        cwd=path.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=death_signal(signal.SIGKILL),
    )
    try:
        text = process.communicate()[0].decode(errors="replace")
    finally:
        process.kill()
    if access != "write":
        return answer_of(text, "read")
    found, synced = answer_of(text, "write"), synchronise(path)
    return replace(found, seconds=found.seconds + synced)


def answer_of(text: str, way: str) -> Answer:
    """From fio's JSON, before which it may print words."""
    begin = text.find("{")
    try:
        job: dict[str, Any] = json.loads(text[begin:])["jobs"][0] if begin >= 0 else {}
        code, told = int(job["error"]), job[way]
        if code:
            raise OSError(code, os.strerror(code))
        if not told["total_ios"]:
            raise ValueError("it moved nothing")
        latency = told["clat_ns"]
        shares = latency.get("percentile", {})
        return Answer(
            # Its `runtime` counts milliseconds, and what it does between calls.
            seconds=latency["mean"] * latency["N"] / 1e9,
            size_bytes=int(told["io_bytes"]),
            calls=int(told["total_ios"]),
            median=shares.get("50.000000", latency["mean"]) / 1e9,
            p95=shares.get("95.000000", latency["max"]) / 1e9,
            p99=shares.get("99.000000", latency["max"]) / 1e9,
            max=latency["max"] / 1e9,
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        shown = " ".join(text.split())[:_MOST_WORDS]
        raise ValueError(
            f"fio's answer cannot be read ({type(error).__name__}): {shown}"
        ) from error
