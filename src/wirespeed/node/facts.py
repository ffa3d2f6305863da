"""What is so on this node, gathered once by one rank of it. Nothing here raises.

Whatever cannot be read is in `unknown` with the reason. On 2 cores it takes about 30 ms without
GPUs, and up to 100 ms for copying memory; starting NVML is the rest.
"""

import os
import platform
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from wirespeed.model.codec import to_json
from wirespeed.model.records import NodeFacts
from wirespeed.node.cpus import gather_cpus, llc_bytes, note_copy_rate
from wirespeed.node.gpus import gather_gpus
from wirespeed.node.limits import gather_limits, memory_available_bytes
from wirespeed.node.machine import note_installed
from wirespeed.node.network.selection import note_network
from wirespeed.node.nics import gather_nics, gather_rdma
from wirespeed.node.pci import note_hardware
from wirespeed.node.placement.gather import note_placement
from wirespeed.node.reading import Notes, read_text
from wirespeed.node.redact import allowed_environment
from wirespeed.node.topology import note_topology

__all__ = ["gather_node", "llc_bytes", "memory_available_bytes", "survey_node"]


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
    notes.facts = replace(notes.facts, kernel=platform.release(), python=platform.python_version())
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


def survey_node(
    ranks: Sequence[int],
    *,
    root: Path = _ROOT,
    environ: Mapping[str, str] | None = None,
    nvml: Any = None,
) -> NodeFacts:
    """As `gather_node`, which it extends, in a process that has not imported torch. Nothing raises."""
    node = gather_node(ranks, root=root, environ=environ, nvml=nvml)
    notes = Notes(root)
    notes.facts = node.facts
    note_installed(notes)
    note_topology(notes, node.gpus, node.nics, node.rdma)
    _note_addresses(notes)
    known = to_json(notes.facts)
    unknown = {name: why for name, why in node.unknown.items() if name not in known}
    return replace(node, facts=notes.facts, unknown=unknown | notes.unknown)


def _note_addresses(notes: Notes) -> None:
    """Note `topo.addresses`: IPv4 and IPv6 addresses by interface, link-local ones left out."""
    import psutil

    try:
        found = psutil.net_if_addrs()
    except OSError as error:
        notes.unknown["topo.addresses"] = f"the interfaces cannot be listed: {error.strerror}"
        return
    told = {
        name: [one.address for one in addresses if _is_told(one)]
        for name, addresses in found.items()
        if any(map(_is_told, addresses))
    }
    notes.facts = replace(notes.facts, topo_addresses=told)


def _is_told(one: Any) -> bool:
    return one.family in (socket.AF_INET, socket.AF_INET6) and not one.address.startswith("fe80:")
