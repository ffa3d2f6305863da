"""Stored runs, tampered with by structure: every command of the store goes on, in words of ours.

A run that holds every part of the schema, or one part of it, or a golden one, loses and swaps keys,
types, numbers, texts and bytes; then one command that reads it, or the whole store, is called in this
process. It must end with 0, 1, 2 or 3, without a traceback, within seconds, and print nothing that
steers a terminal. A seed always makes the same run and command.

python tests/programs/fuzz_runs.py [COUNT [FIRST]]
"""

import io
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from copy import deepcopy
from pathlib import Path
from typing import Any

from wirespeed.cli import run as wirespeed
from wirespeed.runs.schema import load_schema

GOLDEN = Path(__file__).parents[1] / "golden"
STORED = "20261103-101112-91ae33fe"
GOOD = ("20261101-101112-0badcafe", "20261102-101112-0badf00d")
REF = "91ae33fe"
WITHIN_S = 20
"""Of processor time: no command may take longer; they take milliseconds."""

FACTS = {
    "kernel": "6.8.0", "os": "Ubuntu 24.04", "cpu.model": "EPYC", "cpu.logical": 384,
    "cpu.physical": 192, "cpu.allowed": 8, "cpu.shared": 8, "cpu.quota": 1.5, "numa.nodes": 2,
    "memory.total_bytes": 1 << 40, "memory.copy_GBps": 12.5, "memlock.soft": 65536,
    "gpu.driver": "570.86.15", "gpu.on_bus": ["0000:1b:00.0"], "placement.zone": "us-1a",
    "net.nccl.interfaces": ["eth0"], "net.gloo.interface": "eth0", "acs.redirects": {"a": "b"},
    "topo.numa": {"0": "0-95", "1": "96-191"}, "topo.addresses": {"eth0": ["10.0.0.1"]},
    "topo.distances": {"GPU0": {"mlx5_0": "PIX"}}, "topo.nvlinks": {"GPU0": {"NVSwitch": 4}},
    "net.interfaces": [{"name": "eth0", "kind": "physical", "networks": ["10.0.0.0/8"]}],
}  # fmt: skip
PCI: dict[str, Any] = {"pci": "0000:1b:00.0", "numa_node": 0, "pcie_GTps": 16.0, "pcie_width": 8}
DEVICES: dict[str, Any] = {
    "gpus": [{"index": 0, "name": "NVIDIA H100", "memory_bytes": 1 << 36, "pcie_gen_max": 5}
             | {"pcie_width_max": 16, "nvlinks": [True, False], "slowed_by": ["heat"]} | PCI,
             {"index": 1, "errors": [{"call": "x", "code": 15, "text": "GPU is lost"}]}],
    "nics": [{"name": "eth0", "loopback": False, "virtual": False, "mtu": 9000} | PCI
             | {"speed_Gbitps": 25.0}],
    "rdma": [{"device": "mlx5_0", "port": 1, "state": "ACTIVE", "rate": "400 Gb/sec", **PCI}
             | {"rate_Gbitps": 400.0, "link_layer": "InfiniBand"}],
    "peers": [{"host": "b", "address": "10.0.0.2", "mtu": 1500, "passes": 1500, "tcp": ""}],
}  # fmt: skip
TEXTS = {
    "op": "all_reduce", "engine": "torch", "dtype": "float32", "redop": "sum", "groups": "all",
    "host": "a", "first": "a", "second": "b", "strategy": "bucketed", "model": "mlp",
    "backend": "gloo", "launcher": "local", "at": "2026-11-03T10:11:12Z", "id": "COL-001",
    "started": "2026-11-03T10:11:12.345Z", "setting": "", "case": "all_reduce 1 MiB",
}  # fmt: skip
SPAN = {"ph": "X", "pid": 0, "tid": 0, "ts": 10.0, "dur": 500.0}
TRACE: Any = {
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "rank 0 on a"}},
        *(
            {**SPAN, "name": name, "cat": name, "tid": n}
            for n, name in enumerate(("step", "backward"))
        ),
    ],
    "displayTimeUnit": "ms",
}
COMMANDS = ("check", "bench", "topo", "locate", "train", "diagnose", "import", "launch")
OPTIONAL = ("verifications", "located", "simulation", "training", "under_load", "settings", "soak")
OPTIONAL += ("goodput", "grid")
DEEP: Any = json.loads("[" * 300 + "]" * 300)
NASTY = (
    "", " ", "\0", "\x1b[2J\x1b]0;x\x07", "\x9b31m", "\u202egnp", "\u2028", "\ud800", "a\rb\nc",
    "=cmd|' /C calc'!A0",
    "<script>alert(1)</script>", "{{ x }}", "%s%n", "../../etc/passwd", "x" * 9000, "1e999",
    "NaN", "-", "é" * 50,
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-13-40T99:99:99Z", "nodes",
    "-0", "\ufeff", "😀",
)  # fmt: skip
ODD = (
    None, True, False, 0, -1, 1, 3.0, 1.5, -0.0, 1e-320, 1e29, 1e30, 1e300, 2**31, 2**53, 2**63, 2**64,
    10**400, float("inf"), float("nan"), [], {}, [[]], {"": {}}, [None], {"a": None}, DEEP,
    [0] * 3000, "x", *NASTY,
)  # fmt: skip
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def example(schema: Mapping[str, Any], name: str = "") -> Any:
    """Data with every key that the schema knows."""
    if ref := schema.get("$ref"):
        return example(load_schema()["$defs"][ref.rpartition("/")[2]], name)
    if "anyOf" in schema:
        return example(schema["anyOf"][0], name)
    if "const" in schema or "enum" in schema:
        return schema.get("const") or schema["enum"][0]
    if name == "facts":
        return FACTS
    if name in DEVICES and schema["type"] == "array":
        return DEVICES[name]
    match kind := schema["type"] if isinstance(schema["type"], str) else schema["type"][0]:
        case "object":
            known = {key: example(one, key) for key, one in schema.get("properties", {}).items()}
            rest = schema.get("additionalProperties")
            return known | ({"some": example(rest, "some")} if isinstance(rest, Mapping) else {})
        case "array":
            return [example(schema["items"], name), example(schema["items"], name)]
        case "string":
            return TEXTS.get(name, "a")
        case "boolean":
            return True
    return max(schema.get("minimum", 1), 1) if kind == "integer" else 0.5


def bases() -> list[str]:
    """Runs as JSON: of each verb and each part, and golden ones cut to a few entries."""
    whole = example(load_schema()) | {"id": REF, "unfinished": False, "command": "check"}
    whole["world"] |= {"size": 2}
    whole["located"]["nodes"] = ["a", "b"]
    plain = {name: part for name, part in whole.items() if name not in OPTIONAL}
    found = [{**plain, "command": command} for command in COMMANDS]
    found += [{**plain, name: whole[name]} for name in OPTIONAL]
    found += [{**plain, "located": whole["located"], "command": "locate"}]
    for name in ("check", "bench", "train"):
        golden = json.loads((GOLDEN / f"{name}.run.json").read_text())
        found.append({k: v[:3] if isinstance(v, list) else v for k, v in golden.items()})
    return [json.dumps(one) for one in (*found, whole)]


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Each (container, key) below `data`."""
    waiting = [data]
    while waiting:
        one = waiting.pop()
        for key, item in list(one.items() if isinstance(one, dict) else enumerate(one)):
            yield one, key
            if isinstance(item, (dict, list)) and len(item) < 1000 and item is not DEEP:
                waiting.append(item)


def change(data: Any, rng: random.Random) -> None:
    """Once, somewhere: lose, repeat or rename a key, or give it another value of its own kind or not."""
    found = list(places(data))
    inside, key = rng.choice(found)
    value = inside[key]
    match rng.randrange(8):
        case 0:
            del inside[key]
        case 1 if isinstance(inside, list):
            inside += [value] * rng.choice((1, 5, 60))
        case 1:
            inside[rng.choice(NASTY)] = inside.pop(key)
        case 2:
            other, at = rng.choice(found)
            inside[key] = (
                json.loads(json.dumps(other[at]))
                if at in other or (isinstance(at, int) and at < len(other))
                else None
            )
        case 3 | 4 if isinstance(value, str):
            inside[key] = rng.choice(NASTY)
        case 3 | 4 | 5 if isinstance(value, (int, float)) and not isinstance(value, bool):
            numbers = (
                0,
                1,
                2,
                1e-9,
                1e9,
                1e15,
                1e29,
                2**31,
                2**63,
                value * 1000,
                -value,
                value + 1,
            )
            inside[key] = rng.choice(numbers)
        case _:
            inside[key] = deepcopy(rng.choice(ODD))


def as_bytes(data: Any, rng: random.Random) -> bytes:
    """Text of it, now and then cut, with bits turned or bytes put in."""
    made = bytearray(json.dumps(data).encode())
    match rng.randrange(12):
        case 0:
            del made[rng.randrange(len(made)) :]
        case 1:
            for _ in range(rng.choice((1, 1, 1, 8))):
                made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
        case 2:
            at = rng.randrange(len(made))
            made[at:at] = rng.choice((b"\xff", b"\0", b"[" * 5000, b"9" * 5000, b'{"a":' * 3000))
    return bytes(made)


def records(data: Any, rng: random.Random) -> bytes:
    """The lines of records.jsonl that tell the same, some of them changed."""
    lines = [{"kind": "run", "at": 0.1, "data": data}, {"kind": "world", "data": data.get("world")}]
    for kind in ("measurement", "verification", "finding", "training", "under_load", "goodput"):
        told = data.get(
            {"goodput": kind, "training": kind, "under_load": kind}.get(kind, f"{kind}s")
        )
        lines += [
            {"kind": kind, "at": 1, "data": one}
            for one in (told if isinstance(told, list) else [told])
        ]
    soak = data.get("soak") if isinstance(data.get("soak"), dict) else {}
    for kind, name in (("window", "windows"), ("stall", "stalls"), ("wrong", "wrong")):
        told = soak.get(name)
        lines += [
            {"kind": f"soak_{kind}", "at": 2, "data": one}
            for one in (told if isinstance(told, list) else ())
        ]
    for _ in range(rng.randrange(3)):
        change(lines, rng)
    return b"\n".join(as_bytes(one, rng) for one in lines) + b"\n"


FORMS = ("table", "wide", "json", "jsonl", "md", "nccl-tests", "csv")


def words(rng: random.Random) -> list[str]:
    """A command that reads the tampered run, or the store that it lies in."""
    good = GOOD[0][-8:]
    pick = rng.randrange(100)
    if pick < 45:
        return [
            "runs",
            "show",
            REF,
            "-o",
            rng.choice(FORMS),
            *(["-v"] if rng.random() < 0.3 else []),
        ]
    if pick < 60:
        form = "html" if pick < 47 else rng.choice(("md", "junit", "prometheus", "csv"))
        return ["report", REF, *([good] if rng.random() < 0.2 else []), "-o", form]
    if pick < 72:
        sides = rng.choice(([REF, good], [good, REF], [f"{REF},{good}", good]))
        return ["compare", *sides, "-o", rng.choice(("table", "md", "json", "junit"))]
    return list(rng.choice((
        ("runs", "list"), ("runs", "list", "-o", "json"), ("trend", "-o", "json"), ("trend",),
        ("trend", "--runs", f"{REF},{good},{GOOD[1][-8:]}"), ("reference", "ask", "--run", REF),
        ("reference", "ask", "all_reduce", "1K", "--run", REF, "-o", "json"),
        ("reference", "add", REF), ("reference", "training", "--run", REF),
        ("predict", REF, good, "--nodes", "4", "-q"), ("predict", REF, "--ranks", "8", "-q"),
        ("baseline", "set", REF), ("diagnose", REF, "-q"), ("compare", good, "--baseline"),
    )))  # fmt: skip


@contextmanager
def bounded(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise SystemExit(f"no end within {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def called(asked: list[str]) -> tuple[int, str]:
    """The exit code of a command, called in this process, and what is wrong with how it went."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    try:
        with bounded(WITHIN_S), redirect_stdout(out), redirect_stderr(err):
            code = wirespeed(asked)
    except BaseException as error:
        return 4, f"{' '.join(asked)}: {type(error).__name__}: {error}"
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
    if code not in (0, 1, 2, 3) or "Traceback" in said[1]:
        return code, f"{' '.join(asked)}: {said[1][-1500:]}"
    steering = STEERS.search(said[1] + ("" if "html" in asked else said[0]))
    return code, f"{' '.join(asked)} prints {steering[0]!r}" if steering else ""


def told(what: str, codes: Counter[int], wrong: dict[int, str], seconds: float) -> int:
    """Say it; 1 where anything was wrong."""
    count = codes.total()
    for seed, said in list(wrong.items())[:20]:
        sys.stderr.write(f"seed {seed}: {said}\n")
    ends = ", ".join(f"{number} with {code}" for code, number in sorted(codes.items()))
    rate = f"{count / seconds:.0f} a second"
    sys.stdout.write(f"{count} {what}, {rate}: {ends}; {len(wrong)} wrong\n")
    return 1 if wrong else 0


class Store:
    """A store with two good runs and one that is tampered with."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.bases = bases()
        for name in (*GOOD, STORED):
            (home / "runs" / name / "logs").mkdir(parents=True)
        for name in GOOD:
            golden = json.loads((GOLDEN / "bench.run.json").read_text()) | {"id": name[-8:]}
            (home / "runs" / name / "run.json").write_text(json.dumps(golden))
        os.environ["WIRESPEED_HOME"] = str(home)

    def tamper(self, rng: random.Random) -> None:
        data = json.loads(rng.choice(self.bases))
        before = json.loads(json.dumps(data))
        for _ in range(rng.choice((1, 1, 2, 3, 5))):
            change(data, rng)
        folder = self.home / "runs" / STORED
        text = as_bytes(data, rng)
        if rng.random() < 0.15:
            (folder / "records.jsonl").write_bytes(records(before, rng))
            text = rng.choice((b"", text[:-9], as_bytes(before | {"unfinished": True}, rng)))
        else:
            (folder / "records.jsonl").unlink(missing_ok=True)
        (folder / "run.json").write_bytes(text)
        if rng.random() < 0.05:
            trace = json.loads(json.dumps(TRACE))
            change(trace, rng)
            (folder / "trace.json").write_bytes(as_bytes(trace, rng))
        baseline = self.home / "baselines" / "default.json"
        if rng.random() < 0.05:
            baseline.parent.mkdir(exist_ok=True)
            kept = {"schema": "wirespeed.baseline/1", "name": "default", "set": "", "runs": [data]}
            baseline.write_bytes(as_bytes(kept, rng))

    def look(self, seed: int) -> tuple[int, str]:
        """The exit code of the seed's command on the seed's run, and what is wrong with that."""
        rng = random.Random(seed)
        self.tamper(rng)
        return called(words(rng))

    def reset(self) -> None:
        """Without what the commands have kept."""
        for name in ("reference", "baselines"):
            shutil.rmtree(self.home / name, ignore_errors=True)
        for folder in (self.home / "runs").iterdir():
            if folder.name not in (*GOOD, STORED):
                shutil.rmtree(folder)


def fuzz(home: Path, count: int, first: int = 0) -> tuple[Counter[int], dict[int, str]]:
    """How many commands ended with which code; what was wrong, by seed."""
    store, codes, wrong = Store(home), Counter[int](), dict[int, str]()
    for seed in range(first, first + count):
        code, said = store.look(seed)
        codes[code] += 1
        if said:
            wrong[seed] = said
        if seed % 20 == 19:
            store.reset()
    return codes, wrong


def main(count: int = 1000, first: int = 0) -> int:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as home:
        codes, wrong = fuzz(Path(home), count, first)
    return told("tampered runs", codes, wrong, time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
