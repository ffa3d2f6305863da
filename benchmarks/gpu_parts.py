"""What `make gpu` measures, a function a part, in the order in which they would be missed."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gpu_day import OURS, Broke, CannotRun, Day, Run, data, size_text, sound, times, verdict

JOB = Path(__file__).with_name("watched_job.py")
OP_SIZES = ("-b", "64K", "-e", "64M", "-f", "1024", "--time-per-size", "0.3")
ONE = ("--ranks", "1", "--backend", "nccl")


def facts(day: Day) -> None:
    """What the node is, and whether its GPUs are well."""
    run = day.run("check", "-l", "quick", "--only", "nodes", *ONE)
    node = run["world"]["nodes"][0]
    known = {**node["facts"], **run["versions"]}
    for name in ("cuda", "nccl", "torch", "gpu.driver", "gpu.cuda", "kernel", "cpu.model"):
        if name in known:
            day.figure(name, str(known[name]))
    for gpu in node["gpus"]:
        told = [str(gpu[one]) for one in ("name", "uuid", "pci") if one in gpu]
        told += [f"{gpu['memory_bytes'] / 2**30:.0f} GiB"] if "memory_bytes" in gpu else []
        told += [f"MIG {'on' if gpu['mig'] else 'off'}"] if "mig" in gpu else []
        for name, unit in (("temperature_C", "°C"), ("power_limit_W", "W at most")):
            told += [f"{gpu[name]:.0f} {unit}"] if name in gpu else []
        day.figure(f"GPU {gpu['index']}", ", ".join(told))
    for name, why in node["unknown"].items():
        if name.startswith(("gpu", "cuda")):
            day.cannot(f"{name}: {why}")
    products = Counter(str(gpu.get("name")) for gpu in node["gpus"])
    day.notes["gpu"] = ", ".join(f"{count} × {name}" for name, count in products.items())
    day.notes["nccl"] = str(known.get("nccl", ""))
    verdict(day, run, "node")


def one_rank(day: Day) -> None:
    """Every operation, type, reduction and root over NCCL, by one rank: kernels, copies, the oracle."""
    run = day.run("check", "-l", "medium", *ONE, bound_s=120)
    verdict(day, run, "check -l medium, 1 rank")
    data(day, run)


def timings(day: Day) -> None:
    """The three clocks: events around a call, a batch as nccl-tests', a CUDA graph."""
    runs = []
    for timing in ("each", "batch", "graph"):
        with day.trying(timing):
            run = day.run("bench", "all", *ONE, *OP_SIZES, "--timing", timing)
            runs.append(sound(day, run, timing))
            data(day, run)
    times(day, runs)


def several(day: Day) -> None:
    """Two and four ranks on one GPU: data between processes, the watchdog, pairs."""
    how, each = sharing(day)
    flags = ("--backend", "nccl", "-b", "256K", "-e", "256K", "-n", "10", "-w", "2")
    with together(day):
        for count in (2, 4):
            with day.trying(f"{count} ranks"):
                run = day.world(map(each, range(count)), "bench", "all", *flags, bound_s=60)
                data(day, sound(day, run, f"bench, {count} ranks"))
                times(day, [run], name=f", {how}")
    # Not under MPS, which a client that is killed at work may leave broken for the others.
    for kind, expected in (("stop", "HANG"), ("kill", "DIED"), ("flip", "COL")):
        with day.trying(f"fault {kind} of 2 ranks"):
            words = (*fault(kind, 1), "--backend", "nccl")
            caught(day, day.world(map(each, range(2)), *words, bound_s=40), kind, expected)
    with together(day), day.trying("locate"):
        words = ("locate", "--over", "ranks", "--backend", "nccl", "--allow", "ENV-006")
        verdict(day, day.world(map(each, range(2)), *words, bound_s=60), "locate, 2 ranks")


def sharing(day: Day) -> tuple[str, Callable[[int], dict[str, str]]]:
    """How ranks share a GPU, in words and as each rank's variables; CannotRun where there is no way.

    NCCL 2.30 has a variable for it. Older ones refuse ranks of one host that use one GPU, so that each
    rank calls itself another host: they then speak over sockets. NVLS, which needs a GPU for each rank,
    is left out, and few blocks are used, so that the kernels of all ranks fit on the GPU at once.
    """
    said = day.notes.get("nccl") or nccl_here()
    known = tuple(int(word) for word in said.split(".")[:2] if word.isdecimal())
    if not known:
        raise CannotRun("the version of NCCL is not known")
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0] or "0"  # of a machine with more
    shared = {"NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2", "CUDA_VISIBLE_DEVICES": gpu}
    if known >= (2, 30):
        return "shared GPU", lambda rank: {**shared, "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    return "as hosts over sockets", lambda rank: {
        **shared,
        "NCCL_HOSTID": f"rank-{rank}",
        "NCCL_SOCKET_IFNAME": "lo",
    }


def nccl_here() -> str:
    code = "import torch; print('.'.join(map(str, torch.cuda.nccl.version())))"
    words = [sys.executable, "-c", code]
    return subprocess.run(words, capture_output=True, text=True, timeout=20).stdout.strip()


@contextmanager
def together(day: Day) -> Iterator[None]:
    """Within, kernels of several processes run on the GPU at once, where NVIDIA's MPS can be started.

    Without it they take turns of some milliseconds, and each step of a collective waits for its turn.
    """
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        day.cannot(
            "MPS: nvidia-cuda-mps-control is not installed, so that ranks take turns on the GPU"
        )
        yield
        return
    with tempfile.TemporaryDirectory(prefix="wirespeed-mps-") as folder:
        places = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
        environ = {name: str(folder) for name in places}
        # The GPUs that the daemon sees are counted anew for who uses it: it sees all.
        whole = {**os.environ, **environ}
        whole.pop("CUDA_VISIBLE_DEVICES", None)
        # Not with pipes: the daemon may keep them, and who reads them would wait for its end.
        with Path(folder, "said").open("w+") as said:
            words = [control, "-d"]
            started = subprocess.run(words, env=whole, stdout=said, stderr=said, timeout=20)
            said.seek(0)
            told = said.read().strip()[:200]
        if started.returncode:
            day.cannot(f"MPS: {told}")
            yield
            return
        day.environ |= environ
        try:
            yield
        finally:
            for name in places:
                del day.environ[name]
            subprocess.run(
                [control],
                input=b"quit\n",
                env=whole,
                capture_output=True,
                timeout=20,
            )


def caught(day: Day, run: Run, kind: str, expected: str) -> None:
    """Whether an injected fault is named."""
    failed = [one for one in run["findings"] if one["status"] == "fail"]
    named = [one for one in failed if one["id"].startswith(expected)]
    seen = named or failed
    told = f"{seen[0]['id']} {seen[0]['title']}" if seen else f"{run['verdict']}, nothing named"
    day.figure(f"fault {kind}", told, bool(named))


def fault(kind: str, rank: int) -> tuple[str, ...]:
    words = ("check", "-l", "quick", "--only", "correctness", "--timeout", "10")
    return (*words, "--inject", f"{kind}:rank={rank}")


def faults(day: Day) -> None:
    """What the watchdog and the oracle say of faults, on one rank."""
    for kind, expected in (
        ("flip", "COL"),
        ("raise", "RAISED"),
        ("stop", "HANG"),
        ("kill", "DIED"),
    ):
        with day.trying(f"fault {kind}"):
            caught(day, day.run(*fault(kind, 0), *ONE, bound_s=60), kind, expected)


def compute(day: Day) -> None:
    """Matrix products, memory and copies beside the product's data sheet; are products right?"""
    for op in ("gemm", "memory", "copy"):
        with day.trying(f"bench {op}"):
            run = day.run("bench", op, *ONE, "--time-per-size", "1", bound_s=60)
            for one in (run.get("compute") or {}).get("rates", ()):
                rate(day, one)
            verdict(day, run, f"bench {op}")
    run = day.run("check", "--only", "compute", *ONE, bound_s=120)
    for one in (run.get("compute") or {}).get("proofs", ()):
        told = one.get("reason") or f"{one['products']:,} products, {one['elements']:,} elements"
        day.figure(f"proof {one['device']} {one['dtype']}", told, not one.get("faults"))
    verdict(day, run, "check --only compute")


def rate(day: Day, one: dict[str, Any]) -> None:
    """How fast one device did one thing, and how near that is to its data sheet."""
    size = one["shape"] or f"{one['size_bytes'] >> 20} MiB"
    what = f"{one['op']} {one['dtype']} {size}, {one['device']}"
    if one.get("reason"):
        day.cannot(f"{what}: {one['reason']}")
        return
    unit, scale = ("TFLOP/s", 1e12) if one["op"] == "gemm" else ("GB/s", 1e9)
    half = (one["high"] - one["low"]) / 2 / one["per_second"] if one["per_second"] else 0.0
    words = [f"{one['per_second'] / scale:.4g} {unit} ± {half:.1%}"]
    if one.get("peak"):
        words.append(f"{one['per_second'] / one['peak']:.0%} of its data sheet")
    for name, unit in (("clock_MHz", "MHz"), ("temperature_C", "°C"), ("power_W", "W")):
        words += [f"{one[name]:.0f} {unit}"] if one.get(name) else []
    words += [f"slowed by {', '.join(one['slowed_by'])}"] if one.get("slowed_by") else []
    day.figure(what, ", ".join(words), not one["wrong"])


def training(day: Day) -> None:
    """Strategies, their proof against one process, memory measured and by the formulas."""
    most = "naive,bucketed,ddp,ddp-view,zero1,sharded"
    for dtype, names, batch in (
        ("bf16", most, "64"),
        ("bf16", "fsdp2", "64"),
        ("float32", "ddp", "8"),
    ):
        with day.trying(f"{names} {dtype}"):
            words = ("train", "--model", "small", "--batch", batch, "--strategy", names)
            run = day.run(*words, "--dtype", dtype, *ONE, "--memory", "--max-time", "8")
            for one in run.get("training", ()):
                strategy(day, one, dtype)
            verdict(day, run, f"train {names} {dtype}")


def strategy(day: Day, one: dict[str, Any], dtype: str) -> None:
    step, used, foreseen = one["step_ms"], one["memory"], one["memory_predicted"]
    words = [f"{step['mean']:.2f} ms a step"] + ([f"MFU {one['mfu']:.1%}"] if one["mfu"] else [])
    words += [f"peak {used['peak'] / 1e9:.2f} GB"] if used else []
    words += [f"by the formula {foreseen['peak'] / 1e9:.2f} GB"] if foreseen else []
    day.figure(f"{one['strategy']} {dtype}", ", ".join(words))


def soak(day: Day) -> None:
    """Every operation again and again, each result compared."""
    verdict(day, day.run("check", "-l", "soak", "--for", "15s", *ONE, bound_s=60), "soak, 15 s")


def watch(day: Day) -> None:
    """Jobs of somebody else, watched from inside; of two ranks one is slower from step 200 on."""
    with together(day):
        for fault in ("sleep", "compute"):
            with day.trying(fault):
                watched(day, fault)


def watched(day: Day, fault: str) -> None:
    given = ["--device", "cuda", "--wide", "512", "--losses-every", "20", "--steps", "500"]
    given += ["--fault", fault, "--rank", "1", "--from", "200", "--ms", "20"]
    words = ["launch", "--watch", "--ranks", "2", "--"]
    day.command("wirespeed", *words, "python", f"benchmarks/{JOB.name}", *given)
    with tempfile.TemporaryDirectory(prefix="wirespeed-gpu-") as home:
        where = {"WIRESPEED_HOME": home}
        code, out, err = day.program([*OURS, *words, sys.executable, str(JOB), *given], where)
        _, told, _ = day.program([*OURS, "runs", "show", "last", "-o", "json"], where)
    said = (err or out).strip().splitlines() or ["no word"]
    try:
        run = json.loads(told)
    except ValueError:
        raise Broke(f"exit {code}: {said[-1][:200]}") from None
    named = [one for one in run["findings"] if one["status"] in ("fail", "warn")]
    for one in named:
        right = one["id"] == "WATCH-001" and one["subject"]["name"] == "rank 1"
        told = f"{one['title']}: {one['saw']}".replace(f"{JOB.parents[1]}/", "")
        day.figure(f"{fault}: {one['id']} {one['status']}", told[:240], right)
    if not any(one["id"] == "WATCH-001" for one in named):
        day.figure(f"{fault}: rank 1 is late from 200 on", f"not named: {run['verdict']}", False)


def nccl_tests(day: Day) -> None:
    """The same operations by nccl-tests, one GPU, by the host and from a CUDA graph."""
    folder = os.environ.get("NCCL_TESTS", "")
    for op in ("all_gather", "reduce_scatter"):  # in place one rank has nothing to do
        program = shutil.which(f"{op}_perf", path=f"{folder}:{folder}/build:{os.environ['PATH']}")
        if program is None:
            raise CannotRun(
                f"{op}_perf is not in PATH: build nccl-tests, and name its folder in NCCL_TESTS"
            )
        for timing, graphs in (("batch", "0"), ("graph", "20")):
            words = [program, *("-b", "64K", "-e", "64M", "-f", "1024", "-g", "1", "-n", "50")]
            words += ["-w", "20", "-G", graphs]
            day.command(" ".join(words))
            code, text, err = day.program(words)
            theirs = dict(perf_rows(text))
            if not theirs:
                said = (err or text).strip().splitlines() or ["no word"]
                day.cannot(f"{op}_perf ended with {code} and no times: {said[-1][:200]}")
                continue
            run = day.run("bench", op, *ONE, *OP_SIZES, "--timing", timing)
            sound(day, run, f"bench {op}")
            for one in run.get("measurements", ()):
                known = theirs.get(one["size_bytes"])
                if known:
                    ours = one["time_us"]["median"]
                    day.figure(
                        f"{op} {size_text(one['size_bytes'])}, {timing}",
                        f"{ours:.2f} µs, nccl-tests {known:.2f} µs: {ours / known:.3f} ×",
                    )


def perf_rows(text: str) -> Iterator[tuple[int, float]]:
    """(bytes, µs out of place) of the table that nccl-tests prints."""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 9 and words[0].isdecimal() and not line.lstrip().startswith("#"):
            with suppress(ValueError):
                yield int(words[0]), float(words[5])


def mig(day: Day) -> None:
    """NCCL of one rank in a MIG instance, and between two of one GPU."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise CannotRun("nvidia-smi is not installed")
    text = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=30).stdout
    instances = re.findall(r"UUID: (MIG-[^)\s]+)", text)
    if not instances:
        raise CannotRun("no GPU here is cut into MIG instances (nvidia-smi -L)")
    words = ("bench", "all_reduce", "--backend", "nccl", "-b", "1M", "-e", "1M", "-n", "10")
    run = day.run(*words, "--ranks", "1", CUDA_VISIBLE_DEVICES=instances[0])
    times(day, [sound(day, run, "MIG")], name=", MIG")
    if len(instances) < 2:
        raise CannotRun("there is one MIG instance, and two are needed for the rest")
    how, each = sharing(day)
    own = [{**each(rank), "CUDA_VISIBLE_DEVICES": instances[rank]} for rank in range(2)]
    run = day.world(own, *words, bound_s=60)
    times(day, [sound(day, run, "2 MIG instances")], name=f", 2 MIG instances, {how}")


PARTS: dict[Callable[[Day], None], float] = {
    facts: 60.0,
    one_rank: 80.0,
    timings: 90.0,
    faults: 75.0,
    compute: 130.0,
    training: 140.0,
    several: 120.0,
    watch: 80.0,
    nccl_tests: 50.0,
    mig: 40.0,
    soak: 40.0,
}
"""With the seconds that each may take at most, of what is left."""
