"""What is so on this node, gathered once by one rank of it. Nothing here raises.

Whatever cannot be read is in `unknown` with the reason. On 2 cores it takes about 30 ms without
GPUs, and up to 100 ms for copying memory; starting NVML is the rest.
"""

import os
import platform
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from wirespeed.records import NodeFacts
from wirespeed.world.cpus import gather_cpus, llc_bytes
from wirespeed.world.gpus import gather_gpus
from wirespeed.world.hardware import note_hardware
from wirespeed.world.limits import gather_limits, memory_available_bytes
from wirespeed.world.memory_copy import note_copy_rate
from wirespeed.world.network.gather import note_network
from wirespeed.world.nics import gather_nics
from wirespeed.world.placement.gather import note_placement
from wirespeed.world.rdma import gather_rdma
from wirespeed.world.reading import Notes, read_text
from wirespeed.world.redact import allowed_environment

__all__ = ["gather_node", "llc_bytes", "memory_available_bytes"]

_ROOT = Path("/")


def gather_node(
    ranks: Sequence[int],
    *,
    root: Path = _ROOT,
    environ: Mapping[str, str] | None = None,
    nvml: Any = None,
) -> NodeFacts:
    """The facts of this node, on which the global `ranks` run.

    `root`, `environ` and `nvml` stand in for /, os.environ and pynvml in tests. Versions of torch,
    NCCL and CUDA are known only where torch is imported already: importing it takes a second.
    """
    notes = Notes(root)
    _gather_system(notes)
    _gather_torch(notes, sys.modules.get("torch"))
    gather_cpus(notes)
    gather_limits(notes)
    note_hardware(notes)
    note_placement(notes, environ)
    variables = os.environ if environ is None else environ
    nics, rdma = gather_nics(notes), gather_rdma(notes)
    note_network(notes, variables, nics, rdma)
    note_copy_rate(notes)
    return NodeFacts(
        host=socket.gethostname(),
        ranks=tuple(ranks),
        gpus=gather_gpus(notes, nvml, environ=variables),
        nics=nics,
        rdma=rdma,
        environment=allowed_environment(variables),
        facts=notes.facts,
        unknown=notes.unknown,
    )


def _gather_system(notes: Notes) -> None:
    notes.facts["kernel"] = platform.release()
    notes.facts["python"] = platform.python_version()
    release = (read_text(notes.root / "etc/os-release") or "").splitlines()
    names = [line.partition("=")[2] for line in release if line.startswith("PRETTY_NAME=")]
    notes.keep("os", names[0].strip("\"'") if names else None, "/etc/os-release has no PRETTY_NAME")


def _gather_torch(notes: Notes, torch: ModuleType | None) -> None:
    if torch is None:
        for name in ("torch", "cuda", "nccl"):
            notes.unknown[name] = "torch is not imported in this process"
        return
    notes.keep("torch", str(torch.__version__))
    notes.keep("cuda", torch.version.cuda, "this torch is built without CUDA")
    notes.keep("nccl", _nccl(torch), "this torch is built without NCCL")


def _nccl(torch: Any) -> str | None:
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        return None
    version = torch.cuda.nccl.version()
    return ".".join(str(part) for part in version) if isinstance(version, tuple) else str(version)
