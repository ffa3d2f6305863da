"""How quickly `wirespeed watch` reads traces, against `json.load` of the same file.

    python benchmarks/trace_speed.py --mib 200 --rounds 5
    python benchmarks/trace_speed.py --mib 1024 --ranks 20    a job's traces, packed: who is late, memory

A made-up trace in kineto's layout, plain and packed, in interleaved rounds, each in a process of its
own. Prints CPU seconds a GiB, the ratio, and peak memory; exit code 1 where the reader's memory grows
with the file.
"""

import argparse
import gzip
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

OURS = (
    "import sys; from wirespeed.watch.traces.analysis import analysed; "
    "assert analysed([sys.argv[1]]).table.each.sum()"
)
THEIRS = (
    "import sys, gzip, json; open_ = gzip.open if sys.argv[1].endswith('gz') else open; "
    "assert sum(e['name'] == 'x' for e in json.load(open_(sys.argv[1]))['traceEvents']) == 0"
)
USED = (
    "; from resource import *; u = getrusage(RUSAGE_SELF); "
    "print(u.ru_utime + u.ru_stime, u.ru_maxrss)"
)


def event(name: str, cat: str, ts: float, dur: float, tid: int = 1) -> str:
    args = {"External id": 1, "Input Dims": [[256, 256], [256]], "Input type": ["float", "float"]}
    whole = {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur}
    return json.dumps({**whole, "args": args}, indent=2)


def make(path: Path, mib: int) -> None:
    """Steps of 1,000 operators and one collective."""
    head = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}}
    with path.open("w") as stream:
        stream.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        step = 0
        while stream.tell() < mib << 20:
            at = 20_000.0 * step
            ops = [event("aten::addmm", "cpu_op", at + 15 * i, 10) for i in range(1000)]
            ops.append(event("gloo:all_reduce", "user_annotation", at + 15_000, 4000, 7))
            ops.append(event(f"ProfilerStep#{step}", "user_annotation", at, 19_500))
            stream.write((",\n" if step else "") + ",\n".join(ops))
            step += 1
        stream.write("\n]}")


_EVENT = (
    '{"ph": "X", "cat": "%s", "name": "%s", "pid": 9, "tid": %d, "ts": %d, "dur": %d, "args": '
    '{"External id": 1, "Input Dims": [[256, 256], [256]], "Input type": ["float", "float"]}}'
)


def make_job(folder: Path, mib: int, ranks: int, late: int) -> int:
    """A packed trace for each rank; `late` works 18 ms a step where the others work 15. Bytes of one."""
    size = 0
    for name, work in (("usual", 15), ("late", 18)):
        with gzip.open(folder / name, "wt", 1) as stream:
            size, step = 0, 0
            while size < mib << 20:
                at = 20_000 * step
                ops = [
                    _EVENT % ("cpu_op", "aten::addmm", 1, at + work * i, work - 5)
                    for i in range(1000)
                ]
                wait = at + work * 1000, 19_000 - work * 1000
                ops.append(_EVENT % ("user_annotation", "gloo:all_reduce", 7, *wait))
                ops.append(_EVENT % ("user_annotation", f"ProfilerStep#{step}", 1, at, 19_500))
                size += stream.write((",\n" if step else "") + ",\n".join(ops))
                step += 1
            stream.write("\n]}")
    for rank in range(ranks):
        head = json.dumps({"distributedInfo": {"rank": rank, "world_size": ranks}})[:-1]
        with (folder / f"rank{rank}.json.gz").open("wb") as target:
            target.write(gzip.compress((head + ', "traceEvents": [\n').encode()))
            with (folder / ("late" if rank == late else "usual")).open("rb") as source:
                shutil.copyfileobj(source, target)
    (folder / "usual").unlink()
    (folder / "late").unlink()
    return size


def read_job(mib: int, ranks: int) -> int:
    """By the command; exit code 1 where it does not name who is late, and nobody else."""
    late = ranks // 3
    with tempfile.TemporaryDirectory() as folder:
        size = make_job(Path(folder), mib, ranks, late)
        words = [sys.executable, "-m", "wirespeed", "watch", folder, "-q", "-o", "json"]
        run = json.loads(subprocess.run(words, capture_output=True, text=True, check=False).stdout)
    named = [one["subject"]["name"] for one in run["findings"] if one["status"] == "fail"]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{ranks} traces of {size / 1e9:.2f} GB: {', '.join(named)} named, rank {late} is late; "
        f"{used.ru_utime + used.ru_stime:.0f} s of CPU, {used.ru_maxrss / 1024:.0f} MiB at most"
    )
    return int(named != [f"rank {late}"])


def measure(program: str, path: Path) -> tuple[float, float]:
    """(CPU seconds, MiB at most)."""
    words = [sys.executable, "-c", program + USED, str(path)]
    seconds, kib = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), int(kib) / 1024


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=0)
    asked = parser.parse_args()
    if asked.ranks:
        return read_job(asked.mib, asked.ranks)
    with tempfile.TemporaryDirectory() as folder:
        plain, packed, small = (Path(folder) / name for name in ("t.json", "t.json.gz", "s.json"))
        make(plain, asked.mib)
        make(small, max(1, asked.mib // 8))
        with plain.open("rb") as source, gzip.open(packed, "wb", 1) as target:
            shutil.copyfileobj(source, target)
        runs = [measure(one, path) for _ in range(asked.rounds)
                for path in (plain, packed) for one in (OURS, THEIRS)]  # fmt: skip
        gib = plain.stat().st_size / 2**30
        for index, name in enumerate(("plain", "gzip")):
            ours, theirs = runs[2 * index :: 4], runs[2 * index + 1 :: 4]
            ratios = [a[0] / b[0] for a, b in zip(ours, theirs, strict=True)]
            print(
                f"{name:5}  ours {statistics.median(a for a, _ in ours) / gib:.1f} s/GiB "
                f"({max(m for _, m in ours):.0f} MiB)  json.load "
                f"{statistics.median(a for a, _ in theirs) / gib:.1f} s/GiB "
                f"({max(m for _, m in theirs):.0f} MiB)  ratio {statistics.median(ratios):.2f} "
                f"({min(ratios):.2f} … {max(ratios):.2f})"
            )
        grown = max(m for _, m in runs[::4]) - measure(OURS, small)[1]
        print(f"memory of a file 8 times as large: {grown:+.0f} MiB")
    return int(grown > 100)


if __name__ == "__main__":
    sys.exit(main())
