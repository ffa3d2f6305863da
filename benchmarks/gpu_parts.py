"""What `make gpu` measures, a function a part, in the order in which they would be missed."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gpu_day import CannotRun, Day, Run, data, times, verdict

JOB = Path(__file__).with_name("gpu_job.py")
OP_SIZES = ("-b", "64K", "-e", "64M", "-f", "1024", "--max-time", "0.3")
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
        told = ("name", "uuid", "pci", "memory_bytes", "temperature", "power_w", "mig")
        day.figure(f"GPU {gpu['index']}", ", ".join(str(gpu[one]) for one in told if one in gpu))
    for name, why in node["unknown"].items():
        if name.startswith(("gpu", "cuda")):
            day.cannot(f"{name}: {why}")
    day.notes["gpu"] = ", ".join(str(gpu.get("name")) for gpu in node["gpus"])
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
        runs.append(day.run("bench", "all", *ONE, *OP_SIZES, "--timing", timing))
        data(day, runs[-1])
    times(day, runs)


def several(day: Day) -> None:
    """Two and four ranks on one GPU: data between processes, the watchdog, pairs."""
    how, each = sharing(day)
    with together(day):
        for count in (2, 4):
            words = (
                "bench",
                "all",
                "--backend",
                "nccl",
                "-b",
                "256K",
                "-e",
                "256K",
                "-n",
                "10",
                "-w",
                "2",
            )
            run = day.world(map(each, range(count)), *words, bound_s=100)
            data(day, run)
            times(day, [run], name=f", {how}")
        run = day.world(
            map(each, range(2)), "locate", "--over", "ranks", "--backend", "nccl", bound_s=60
        )
        verdict(day, run, "locate, 2 ranks")
        for kind, expected in (("stop", "HANG"), ("kill", "DIED"), ("flip", "COL")):
            words = ("check", "-l", "quick", "--only", "correctness", "--backend", "nccl")
            words += ("--timeout", "10", "--inject", f"{kind}:rank=1")
            caught(day, day.world(map(each, range(2)), *words, bound_s=60), kind, expected)


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
    shared = {"NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2"}
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
    return subprocess.run(words, capture_output=True, text=True, timeout=60).stdout.strip()


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
        started = subprocess.run(
            [control, "-d"], env={**os.environ, **environ}, capture_output=True, timeout=20
        )
        if started.returncode:
            day.cannot(f"MPS: {started.stderr.decode(errors='replace').strip()[:200]}")
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
                env={**os.environ, **environ},
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


def faults(day: Day) -> None:
    """What the watchdog and the oracle say of faults, on one rank."""
    for kind, expected in (
        ("flip", "COL"),
        ("raise", "RAISED"),
        ("stop", "HANG"),
        ("kill", "DIED"),
    ):
        words = ("check", "-l", "quick", "--only", "correctness", *ONE, "--timeout", "10")
        caught(day, day.run(*words, "--inject", f"{kind}:rank=0", bound_s=60), kind, expected)


def compute(day: Day) -> None:
    """Matrix products, memory and copies against what the product is known for."""
    for op in ("gemm", "memory", "copy"):
        generic(day, day.run("bench", op, *ONE))
    verdict(day, day.run("check", "--only", "compute", *ONE, bound_s=120), "check --only compute")


def generic(day: Day, run: Run) -> None:
    """Rows of whatever records of computing the run has: texts name them, rates are figures."""
    rows = [
        one for name, found in run.items() if name.startswith("compute") for one in listed(found)
    ]
    for one in rows:
        words = " ".join(str(v) for v in one.values() if isinstance(v, str) and v)
        rates = [f"{k} {v:.4g}" for k, v in one.items() if isinstance(v, float)]
        day.figure(words[:100], ", ".join(rates)[:200])
    if not rows:
        day.cannot(f"{run['command']}: the run has no records of computing")


def listed(found: Any) -> list[dict[str, Any]]:
    if isinstance(found, dict):
        return [row for one in found.values() for row in listed(one)]
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def training(day: Day) -> None:
    """Strategies, their proof against one process, memory measured and by the formulas."""
    names = "naive,bucketed,ddp,ddp-view,fsdp2,zero1,sharded"
    for dtype in ("float32", "bf16"):
        words = ("train", "--model", "small", "--batch", "8", "--strategy", names, *ONE)
        run = day.run(*words, "--dtype", dtype, "--memory", "--max-time", "8", bound_s=150)
        for one in run["training"]:
            step, mfu = one["step_ms"], one["mfu"]
            used, foreseen = one["memory"], one["memory_predicted"]
            memory = f", peak {used['peak'] / 1e9:.2f} GB" if used else ""
            memory += f" (by the formula {foreseen['peak'] / 1e9:.2f})" if used and foreseen else ""
            rate = f", MFU {mfu:.1%}" if mfu else ""
            day.figure(f"{one['strategy']} {dtype}", f"{step['mean']:.2f} ms a step{rate}{memory}")
        verdict(day, run, f"train {dtype}")


def soak(day: Day) -> None:
    """Every operation again and again, each result compared."""
    verdict(day, day.run("check", "-l", "soak", "--for", "15s", *ONE, bound_s=60), "soak, 15 s")


def watch(day: Day) -> None:
    """A job of somebody else, watched from inside; it slows down at step 250."""
    day.command("wirespeed launch --watch --ranks 1 -- python benchmarks/gpu_job.py")
    words = [sys.executable, "-m", "wirespeed", "launch", "--watch", "--ranks", "1", "--"]
    environ = {**os.environ, **day.environ}
    with tempfile.TemporaryDirectory(prefix="wirespeed-gpu-") as home:
        environ["WIRESPEED_HOME"] = home
        done = subprocess.run(
            [*words, sys.executable, str(JOB)],
            env=environ,
            capture_output=True,
            timeout=min(90.0, day.left_s()),
        )
        shown = [sys.executable, "-m", "wirespeed", "runs", "show", "last", "-o", "json"]
        told = subprocess.run(shown, env=environ, capture_output=True, timeout=30)
    try:
        run = json.loads(told.stdout)
    except ValueError:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise CannotRun(
            f"exit {done.returncode}: {said[-1][:200] if said else 'no word'}"
        ) from None
    for one in run["findings"]:
        if one["status"] in ("fail", "warn", "pass"):
            day.figure(f"{one['id']} {one['status']}", f"{one['title']}: {one['saw']}"[:200])


def nccl_tests(day: Day) -> None:
    """The same operation by nccl-tests, one GPU, and how both figures compare."""
    folder = os.environ.get("NCCL_TESTS", "")
    program = shutil.which("all_reduce_perf", path=f"{folder}:{folder}/build:{os.environ['PATH']}")
    if program is None:
        raise CannotRun(
            "all_reduce_perf is not in PATH: build nccl-tests, and name its folder in NCCL_TESTS"
        )
    for op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast"):
        path = Path(program).with_name(f"{op}_perf")
        if not path.exists():
            day.cannot(f"{path.name} is not beside {program}")
            continue
        words = [
            str(path),
            *("-b", "64K", "-e", "64M", "-f", "1024", "-g", "1", "-n", "20", "-w", "5"),
        ]
        day.command(" ".join(words))
        text = subprocess.run(words, capture_output=True, text=True, timeout=60).stdout
        theirs = {row[0]: row[1] for row in perf_rows(text)}
        run = day.run("bench", op, *ONE, *OP_SIZES, "--timing", "batch", "-n", "20", "-w", "5")
        for one in run["measurements"]:
            known = theirs.get(one["size_bytes"])
            if known:
                ours = one["time_us"]["median"]
                day.figure(
                    f"{op} {one['size_bytes'] / 2**20:g} MiB beside nccl-tests",
                    f"{ours:.1f} µs, nccl-tests {known:.1f} µs: {ours / known:.3f} ×",
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
    instances = [part.strip(" )\n") for part in text.split("UUID: ") if part.startswith("MIG-")]
    instances = [one.split(")")[0] for one in instances]
    if not instances:
        raise CannotRun("no GPU here is cut into MIG instances (nvidia-smi -L)")
    words = ("bench", "all_reduce", "--backend", "nccl", "-b", "1M", "-e", "1M", "-n", "10")
    run = day.run(*words, "--ranks", "1", CUDA_VISIBLE_DEVICES=instances[0])
    times(day, [run], name=", MIG")
    if len(instances) < 2:
        raise CannotRun("there is one MIG instance, and two are needed for the rest")
    how, each = sharing(day)
    own = [{**each(rank), "CUDA_VISIBLE_DEVICES": instances[rank]} for rank in range(2)]
    times(day, [day.world(own, *words, bound_s=60)], name=f", 2 MIG instances, {how}")


PARTS: dict[str, Callable[[Day], None]] = {
    part.__name__: part
    for part in (
        facts,
        one_rank,
        timings,
        several,
        compute,
        training,
        faults,
        watch,
        nccl_tests,
        mig,
        soak,
    )
}
