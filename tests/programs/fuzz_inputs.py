"""Files that others wrote, damaged: logs, flight dumps, results, tables, hostfiles, cluster files, YAML.

Each seed takes a file that is right, loses, repeats, mixes and breaks parts of it,
and calls the command
that reads it in this process; what must hold is what `fuzz_runs` asks of stored runs.

python tests/programs/fuzz_inputs.py [COUNT [FIRST]]
"""

import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ahocorasick_rs
from fuzz_runs import NASTY, STEERS, called, change, told

from wirespeed.errors import WirespeedError
from wirespeed.launchers.request import read_hostfile

HOSTFILE = "the hostfile"
_new_search = ahocorasick_rs.BytesAhoCorasick
TESTS = Path(__file__).parents[1]
JUNK = (
    b"\0", b"\xff\xfe", b"\x1b[2J", b"\n", b"\r\n", b"\t", b"[" * 3000, b"{" * 50, b"9" * 5000, b": ",
    b"- ", b"&a ", b"*a", b"!!python/object:os.system ", b"\n---\n", b"'", b'"', b"#", b"x" * 70000,
    b"\xc2\x9b", b"\xe2\x80\xae", b"nan", b"-1", b"1e999",
    *(one.encode("utf-8", "replace") for one in NASTY),
)  # fmt: skip
ENTRY: Any = {
    "record_id": 1, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 1,
    "p2p_seq_id": 0,
    "op_id": 1, "profiling_name": "nccl:all_reduce", "input_sizes": [[64]], "output_sizes": [[64]],
    "state": "started", "is_p2p": False, "timeout_ms": 600000, "time_created_ns": 1730000000000000000,
}  # fmt: skip
DUMP: Any = {
    "version": "2.5",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 2, "last_completed_collective": 1}},
    "entries": [ENTRY, {**ENTRY, "collective_seq_id": 2, "state": "completed"}],
}
YAML = b"check:\n  level: quick\n  ranks: 2\nbench:\n  ops: [all_reduce, barrier]\n  begin: 1K\n"
HOSTS = b"node-1 slots=8\nnode-2 slots=8 # rack 2\nuser@node-3:4\n10.0.0.4\nfe80::1\n"
CLUSTER = b"""cluster:
  name: mine
  namespace: ml
  context: prod
gpus: {per_node: 8, default_nodes: 2}
network:
  mode: rdma
  rdma: {devices: "mlx5_0,mlx5_1"}
workload: {engine: statefulset, image: "docker.io/x:1", env: {NCCL_DEBUG: INFO}}
storage:
  mode: rwx
  workspace_size: 100Gi
"""
TABLE = b"""gpu,gpus_per_node,nodes,interconnect,collective,size,busbw_GBps,source
H100,8,2,ib,all_reduce,1G,370,me
"""


def _logs() -> list[bytes]:
    found = [
        path.read_bytes()[:4000] for path in sorted((TESTS / "diagnose" / "cases").glob("*.log"))
    ]
    return found[::5]


class Kind:
    """Files of one kind, by which command they are read, under which name."""

    def __init__(self, name: str, words: Callable[[str], list[str]], samples: list[bytes]) -> None:
        self.name, self.words, self.samples = name, words, samples


@cache
def _made(words: tuple[bytes, ...]) -> Any:
    return _new_search(list(words), implementation=ahocorasick_rs.Implementation.DFA)


def _search(words: list[bytes], **_: Any) -> Any:
    return _made(tuple(words))


def kinds() -> list[Kind]:
    samples = TESTS / "runs" / "samples"
    results = [(samples / "results.json").read_bytes()]
    texts = [path.read_bytes() for path in sorted(samples.glob("*.txt"))]
    return [
        Kind("job.log", lambda file: ["diagnose", file, "-q"], _logs()),
        Kind(
            "nccl_trace_rank_0", lambda file: ["diagnose", file, "-q"], [json.dumps(DUMP).encode()]
        ),
        Kind("results.json", lambda file: ["runs", "import", file], results),
        Kind("results.txt", lambda file: ["runs", "import", file], texts),
        Kind("mine.csv", lambda file: ["reference", "add", file], [TABLE]),
        Kind("hosts", lambda file: [HOSTFILE, file], [HOSTS]),
        Kind("mine.yaml", lambda file: ["cluster", "validate", file], [CLUSTER]),
        Kind("wirespeed.yaml", lambda _: ["check", "--print-config"], [YAML]),
    ]


def damaged(sample: bytes, rng: random.Random) -> bytes:
    """Lines and bytes lost, repeated, swapped, cut, turned, or put in; of JSON also its structure."""
    if sample[:1] == b"{" and rng.random() < 0.6:
        data = json.loads(sample)
        for _ in range(rng.choice((1, 1, 2, 4))):
            change(data, rng)
        sample = json.dumps(data).encode()
    made = bytearray(sample)
    for _ in range(
        rng.choice((0, 1, 1, 2, 6)) if sample[:1] == b"{" else rng.choice((1, 1, 2, 3, 8))
    ):
        at, to = sorted(rng.randrange(len(made) + 1) for _ in range(2))
        to = min(to, at + rng.choice((1, 4, 40, 400)))
        match rng.randrange(5):
            case 0:
                del made[at:to]
            case 1:
                made[at:at] = made[at:to] * rng.choice((1, 2, 20))
            case 2:
                made[at:at] = rng.choice(JUNK)
            case 3 if made:
                made[at % len(made)] ^= 1 << rng.randrange(8)
            case _:
                lines = made.split(b"\n")
                rng.shuffle(lines)
                made = bytearray(b"\n".join(lines))
    return bytes(made)


def looked_at(words: list[str]) -> tuple[int, str]:
    """As `called`; a hostfile is only read, since a command would look for its hosts."""
    if words[0] != HOSTFILE:
        return called(words)
    try:
        read_hostfile(Path(words[1]))
    except WirespeedError as error:
        return error.exit_code, "steers" if STEERS.search(str(error)) else ""
    except Exception as error:
        return 4, repr(error)
    return 0, ""


def fuzz(folder: Path, count: int, first: int = 0) -> tuple[Counter[int], dict[int, str]]:
    """How many commands ended with which code; what was wrong, by seed. Works in `folder`."""
    known, codes, wrong = kinds(), Counter[int](), dict[int, str]()
    os.environ["WIRESPEED_HOME"] = str(folder / "home")
    os.chdir(folder)
    # Half of the time of a short log is the search for all rules' words being made anew.
    ahocorasick_rs.BytesAhoCorasick = _search
    for seed in range(first, first + count):
        rng = random.Random(seed)
        kind = known[seed % len(known)]
        path = folder / kind.name
        path.write_bytes(damaged(rng.choice(kind.samples), rng))
        code, said = looked_at(kind.words(str(path)))
        path.unlink()
        codes[code] += 1
        if said:
            wrong[seed] = said
        if seed % 50 == 49:
            shutil.rmtree(folder / "home", ignore_errors=True)
    return codes, wrong


def main(count: int = 1000, first: int = 0) -> int:
    begin, back = time.monotonic(), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        codes, wrong = fuzz(Path(folder), count, first)
        os.chdir(back)
    return told("damaged files", codes, wrong, time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
