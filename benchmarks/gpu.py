"""All that a GPU can show of wirespeed, in at most nine minutes and one file: `make gpu`.

It calls the public commands, reads their JSON and notes figures, each with its command; what cannot run
says why. The file is written after each part, so that a run that is cut off leaves what it had. Without
a GPU it says within a second what is missing, and ends with 3. Exit codes: 0 all that ran was good; 1
something was not; 3 no GPU that torch can use, or nothing to measure; 130 interrupted.

    python benchmarks/gpu.py [--only PART,…] [--out FILE]
    python benchmarks/gpu.py --page FILE     the table of such a file, as docs/gpu.md shows it
"""

import argparse
import ctypes
import json
import math
import os
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpu_day import LEAST_S, Broke, CannotRun, Day
from gpu_parts import PARTS

HERE = Path(__file__).resolve().parent
NEEDED = (
    *("torch", "msgspec", "pydantic", "click", "rich", "yaml", "numpy", "psutil", "jinja2"),
    *("plotly", "zstandard", "ahocorasick_rs", "pynvml"),
)
NOTHING = "Nothing was measured yet: no machine with a GPU has run `make gpu`.\n"


# What is missing, with the standard library alone.


def missing_gpu() -> list[str]:
    """What a GPU needs and this machine lacks."""
    if "WIRESPEED_TEST_PRETENDED_GPUS" in os.environ:  # tests/programs/pretended_gpu
        return []
    lacks = []
    devices = [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("dxg")]
    if not devices:
        lacks.append("a GPU: there is no device /dev/nvidia0 of NVIDIA's driver")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        lacks.append(f"the driver's library: {error}")
    return lacks


def missing_packages() -> list[str]:
    """What this Python lacks."""
    lacks = [f"the package {name} in {sys.executable}" for name in NEEDED if not find_spec(name)]
    with suppress(PackageNotFoundError):
        torch = version("torch")
        if "+cpu" in torch and "WIRESPEED_TEST_PRETENDED_GPUS" not in os.environ:
            lacks.append(f"a torch that is built for CUDA: torch here is {torch}")
    return lacks


TRIED = "import torch; torch.zeros(1, device='cuda').item(); torch.cuda.nccl.version()"


def missing_for_torch(day: Day) -> list[str]:
    """What torch itself lacks: it may be of a newer CUDA than the driver, or built without one."""
    try:
        code, out, err = day.program([sys.executable, "-c", TRIED], bound_s=90.0)
    except Broke as error:
        return [f"a GPU that answers: to use it from torch, {error}"]
    said = [one for one in (err or out).splitlines() if one.strip()] or ["no word"]
    return [f"a GPU that torch can use: {said[-1].strip()[:300]}"] if code else []


def refuse(lacks: list[str]) -> int:
    sys.stderr.write("gpu: nothing measured; what is missing on this machine:\n")
    for one in lacks:
        sys.stderr.write(f"  - {one}\n")
    sys.stderr.write("next: make gpu on a machine with an NVIDIA GPU (docs/gpu.md)\n")
    return 3


NAMED = {part.__name__: part for part in PARTS}


def measure(out: Path, only: list[str]) -> int:
    day = Day()
    source, path = str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")
    day.environ["PYTHONPATH"] = f"{source}{os.pathsep}{path}" if path else source
    if lacks := missing_for_torch(day):
        return refuse(lacks)
    told: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "gpu": "", "parts": {}}
    code = 0
    for name in only or NAMED:
        try:
            carry_out(day, name, told)
        except KeyboardInterrupt:
            day.cannot("interrupted")
            code = 130
        told["seconds"] = round(time.monotonic() - day.began)
        told["gpu"] = day.notes.get("gpu", "")
        write(out, told)
        if code:
            break
    sys.stdout.write(page(told))
    sys.stderr.write(f"written: {out}, after {told['seconds']} s\n")
    figures = [one["good"] for part in told["parts"].values() for one in part["figures"]]
    return code or (int(not all(figures)) if figures else 3)


def carry_out(day: Day, name: str, told: dict[str, Any]) -> None:
    """One part, within its own time and the day's."""
    part = NAMED[name]
    shows = (part.__doc__ or "").splitlines()[0].rstrip(".")
    day.part = {"shows": shows, "seconds": 0.0, "commands": [], "figures": [], "cannot": []}
    told["parts"][name] = day.part
    begin, day.until = time.monotonic(), math.inf
    sys.stderr.write(f"{name}: {shows} ({day.left_s():.0f} s left)\n")
    with day.trying(name):
        if day.left_s() < LEAST_S:
            raise CannotRun("the nine minutes were over")
        day.until = begin + PARTS[part]
        try:
            part(day)
        finally:
            day.part["seconds"] = round(time.monotonic() - begin, 1)


def write(out: Path, told: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    beside = out.with_name(f"{out.name}.new")
    beside.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    beside.replace(out)


def page(told: dict[str, Any] | None) -> str:
    """What docs/gpu.md shows of a file of figures; None: there is none yet."""
    if told is None:
        return NOTHING
    lines = [f"{told['date']}, {told['gpu'] or 'no GPU named'}, {told['seconds']} s.", ""]
    for name, part in told["parts"].items():
        lines += [f"### {name}", "", f"{part['shows']} ({part['seconds']} s).", ""]
        if part["figures"]:
            lines += ["| what | figure |", "|---|---|", *map(row, part["figures"]), ""]
        lines += [f"- Not run: {cell(why)}" for why in part["cannot"]]
        lines += [""] * bool(part["cannot"])
    return "\n".join(lines)


def row(figure: dict[str, Any]) -> str:
    return f"| {cell(figure['what'])} | {'' if figure['good'] else '✗ '}{cell(figure['value'])} |"


def cell(text: str) -> str:
    return " ".join(text.replace("|", "/").replace("<", "‹").replace(">", "›").split())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--look", action="store_true", help="only whether there is a GPU")
    parser.add_argument(
        "--able", action="store_true", help="only whether this Python has all packages"
    )
    parser.add_argument("--only", default="", help=f"of {', '.join(NAMED)}")
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "gpu.json")
    parser.add_argument("--page", type=Path, help="print the table of such a file")
    asked = parser.parse_args()
    if asked.page:
        sys.stdout.write(page(json.loads(asked.page.read_text())))
        return 0
    only = [name for name in asked.only.split(",") if name]
    if unknown := [name for name in only if name not in NAMED]:
        parser.error(f"no part is called {unknown[0]}: {', '.join(NAMED)}")
    lacks = missing_gpu()
    if not asked.look:
        lacks += missing_packages()
    if lacks:
        return refuse(lacks)
    if asked.look or asked.able:
        return 0
    try:
        return measure(asked.out, only)
    except KeyboardInterrupt:  # before the first part
        return 130


if __name__ == "__main__":
    sys.exit(main())
