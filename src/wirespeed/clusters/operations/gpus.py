"""`cluster gpus`: nvidia-smi's query of every pod at once.

Fields and their units are those of `nvidia-smi --help-query-gpu`
(https://docs.nvidia.com/deploy/nvidia-smi/): memory in MiB, power in W, temperatures in °C.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from wirespeed.clusters.deployment import CONTAINER
from wirespeed.clusters.kube import Answer, Kubectl, said
from wirespeed.clusters.manifests import shell
from wirespeed.clusters.operations.pod_lookup import Pod

_FIELDS = (
    "index",
    "name",
    "uuid",
    "memory.used",
    "memory.total",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "ecc.errors.uncorrected.volatile.total",
)
_PROCESSES = "---processes---"
_BOUND_S, _CALL_S = 15, 40.0
"""In the pod for each of the two calls, and here for all: a GPU that hangs holds nvidia-smi for ever."""
_AT_ONCE = 16
_MIB = 1 << 20
_UNKNOWN = ("n/a", "not supported", "not available", "")
_HUNG = (124, 137)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU; None: the GPU or its driver does not tell."""

    index: int | None
    name: str
    uuid: str
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    utilization_percent: float | None
    """Share of the last second or less in which any kernel ran."""
    temperature_C: float | None
    power_W: float | None
    power_limit_W: float | None
    ecc_uncorrected: int | None
    """Since the driver was loaded."""
    processes: int | None
    """That compute on it; a container sees its own only, on some systems none."""
    remarks: tuple[str, ...] = ()
    """What stood where a figure was expected, such as `power.draw: [Unknown Error]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGpus:
    """What one pod told."""

    pod: str
    node: str
    gpus: tuple[Gpu, ...] = ()
    problem: str = ""
    """Why it told nothing, or less than it should."""


def ask_gpus(kubectl: Kubectl, pods: Sequence[Pod]) -> list[PodGpus]:
    """Every pod, in their order; bounded, whatever a GPU does."""
    with ThreadPoolExecutor(max(1, min(_AT_ONCE, len(pods)))) as pool:
        return list(pool.map(lambda pod: _ask(kubectl, pod), pods))


def _ask(kubectl: Kubectl, pod: Pod) -> PodGpus:
    if pod.phase != "Running":
        state = pod.status or pod.phase
        return PodGpus(pod=pod.name, node=pod.node, problem=f"the pod does not run: {state}")
    script = shell("gpus", FIELDS=",".join(_FIELDS), PROCESSES=_PROCESSES)
    words = ("exec", pod.name, "-c", CONTAINER, "--", "sh", "-c", script, "sh", str(_BOUND_S))
    return read_answer(pod, kubectl.ask(*words, within_s=_CALL_S))


def read_answer(pod: Pod, answer: Answer) -> PodGpus:
    """What the pod's answer means."""
    table, _, processes = answer.out.partition(_PROCESSES)
    lines = [line.strip() for line in table.splitlines() if line.strip()]
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    uuids = (line.partition(",")[0].strip() for line in processes.splitlines())
    running = Counter(uuids) if answer.code == 0 else None
    gpus = tuple(_gpu(row, running) for row in rows if len(row) == len(_FIELDS))
    others = [line for line, row in zip(lines, rows, strict=True) if len(row) != len(_FIELDS)]
    problem = _problem(pod, answer, gpus, others)
    return PodGpus(pod=pod.name, node=pod.node, gpus=gpus, problem=problem)


def _problem(pod: Pod, answer: Answer, gpus: Sequence[Gpu], others: Sequence[str]) -> str:
    if answer.code is None:
        return f"no answer within {_CALL_S:.0f} s"
    if answer.code in _HUNG:
        return f"nvidia-smi hangs, or was killed: no answer within {_BOUND_S} s"
    if answer.code == 127:
        told = "" if pod.gpus else ", and the pod asks for no GPU"
        return f"there is no nvidia-smi{told}"
    if answer.code:
        words = [line for line in said(answer) if "command terminated with exit code" not in line]
        told = "; ".join([*others, *words][:2]) or "it said nothing"
        return f"nvidia-smi ended with {answer.code}: {told}"
    if others:
        return f"nvidia-smi said: {others[0]}"
    return f"{len(gpus)} of {pod.gpus} GPUs" if len(gpus) < pod.gpus else ""


def _gpu(row: Sequence[str], running: Counter[str] | None) -> Gpu:
    told = dict(zip(_FIELDS, row, strict=True))
    figures = {name: _number(told[name]) for name in _FIELDS if name not in ("name", "uuid")}
    odd = [
        name
        for name, value in figures.items()
        if value is None and told[name].strip("[] ").lower() not in _UNKNOWN
    ]
    return Gpu(
        index=_whole(figures["index"]),
        name=told["name"],
        uuid=told["uuid"],
        memory_used_bytes=_whole(figures["memory.used"], _MIB),
        memory_total_bytes=_whole(figures["memory.total"], _MIB),
        utilization_percent=figures["utilization.gpu"],
        temperature_C=figures["temperature.gpu"],
        power_W=figures["power.draw"],
        power_limit_W=figures["power.limit"],
        ecc_uncorrected=_whole(figures[_FIELDS[-1]]),
        processes=None if running is None else running[told["uuid"]],
        remarks=tuple(f"{name}: {told[name]}" for name in odd),
    )


def _number(text: str) -> float | None:
    plain = text.replace(".", "", 1)
    return float(text) if plain.isascii() and plain.isdigit() and len(text) < 16 else None


def _whole(figure: float | None, unit: int = 1) -> int | None:
    return None if figure is None else int(figure * unit)
