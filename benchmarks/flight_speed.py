"""How long `diagnose` takes for the flight recorder's dumps of a large job.

    python benchmarks/flight_speed.py --ranks 4096 --format pickle

Fabricated dumps of a job with tensor (8), pipeline (8) and data parallel groups, in which one rank is
stuck. Prints the seconds of the command and its peak memory; exit code 1 where it names anybody else.
"""

import argparse
import json
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TP, PP = 8, 8


def groups_of(ranks: int) -> list[tuple[str, list[int]]]:
    """Description and ranks of each group, in the order in which torch numbers them."""
    data = ranks // (TP * PP)
    found = [("default_pg", list(range(ranks)))]
    for first in range(0, ranks, TP):
        found.append(("TENSOR_MODEL_PARALLEL_GROUP", list(range(first, first + TP))))
    for stage in range(PP):
        for place in range(TP):
            found.append(
                ("DATA_PARALLEL_GROUP", [(stage * data + n) * TP + place for n in range(data)])
            )
    for first in range(ranks // PP):
        found.append(("PIPELINE_MODEL_PARALLEL_GROUP", list(range(first, ranks, ranks // PP))))
    return found


def dump(config: dict[str, Any], entries: int, stuck: bool) -> dict[str, Any]:
    """A ring whose last entry is open, but for the rank that is stuck."""
    tensor = next(name for name, one in config.items() if one["desc"].startswith("TENSOR"))
    rows = [
        {
            "record_id": number,
            "pg_id": 1,
            "process_group": (tensor, config[tensor]["desc"]),
            "collective_seq_id": number + 1,
            "p2p_seq_id": 0,
            "op_id": number + 1,
            "profiling_name": "nccl:all_reduce" if number % 2 else "nccl:_all_gather_base",
            "time_created_ns": 1_758_581_237_000_000_000 + number * 1_000_000,
            "duration_ms": None,
            "input_sizes": [[2048, 1, 5120]],
            "input_dtypes": ["BFloat16"],
            "output_sizes": [[8192, 1, 5120]],
            "output_dtypes": ["BFloat16"],
            "state": "completed" if number < entries - 1 else "scheduled",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None,
            "retired": number < entries - 1,
            "timeout_ms": 600000,
            "is_p2p": False,
        }
        for number in range(entries - 1 if stuck else entries)
    ]
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": rows}


def write(folder: Path, ranks: int, entries: int, form: str, culprit: int) -> int:
    """The dumps; their size in bytes."""
    every = [
        (str(number), desc, set(some), json.dumps(some))
        for number, (desc, some) in enumerate(groups_of(ranks))
    ]
    size = 0
    for rank in range(ranks):
        config = {
            name: {"name": name, "desc": desc, "ranks": text}
            for name, desc, some, text in every
            if rank in some
        }
        mates = rank // TP == culprit // TP
        data = dump(config, entries, stuck=rank == culprit)
        if not mates:
            data["entries"][-1] |= {"state": "completed", "retired": True}
        raw = pickle.dumps(data, protocol=2) if form == "pickle" else json.dumps(data).encode()
        (folder / f"nccl_trace_rank_{rank}").write_bytes(raw)
        size += len(raw)
    return size


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=4096, help="a multiple of 64")
    parser.add_argument("--entries", type=int, default=100, help="of each rank's ring")
    parser.add_argument("--format", choices=("pickle", "json"), default="pickle")
    given = parser.parse_args()
    culprit = given.ranks * 3 // 4 + 1
    with tempfile.TemporaryDirectory(prefix="wirespeed-flight-") as name:
        size = write(Path(name), given.ranks, given.entries, given.format, culprit)
        command = [sys.executable, "-m", "wirespeed", "diagnose", "-q", "-o", "json", name]
        begin = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        seconds = time.monotonic() - begin
    told = json.loads(done.stdout)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    named = [one["subject"] for one in told["findings"] if one["status"] == "fail"]
    print(
        f"{given.ranks} dumps of {given.entries} entries, {given.format}, {size / 1e6:.0f} MB: "
        f"{seconds:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of a core, "
        f"{used.ru_maxrss / 1024:.0f} MB of memory"
    )
    print(f"named: {named}")
    return 0 if len(named) == 1 and str(culprit) in json.dumps(named) else 1


if __name__ == "__main__":
    sys.exit(main())
