"""What GPUDirect RDMA needs of a node: a kernel module for peer memory, or dma-buf.

NCCL's user guide (Troubleshooting, GPU-to-NIC communication): the module nvidia-peermem (its older
name is nv_peer_mem), or dma-buf with Linux 5.12 or newer and NVIDIA's open kernel modules.
"""

import platform
import re
from pathlib import Path

from wirespeed.world.reading import Notes, read_text

__all__ = ["note_gpudirect"]

_PEER_MODULES = {
    "nvidia_peermem": "sys/module/nvidia_peermem",
    "nv_peer_mem": "sys/module/nv_peer_mem",
    "nv_mem": "sys/kernel/mm/memory_peers/nv_mem",
    "nv_mem_nc": "sys/kernel/mm/memory_peers/nv_mem_nc",
}
"""Where each shows that it is loaded; the last two with Mellanox' own RDMA drivers."""
_DMABUF_KERNEL = (5, 12)


def note_gpudirect(notes: Notes) -> None:
    """Note `gpudirect.peer_module` (empty: none), `gpu.open_modules` and `gpudirect.dmabuf_kernel`."""
    if (notes.root / "sys/module").is_dir():
        loaded = [name for name, path in _PEER_MODULES.items() if (notes.root / path).exists()]
        notes.facts["gpudirect.peer_module"] = loaded[0] if loaded else ""
    else:
        notes.unknown["gpudirect.peer_module"] = "/sys/module is not there"
    notes.keep("gpudirect.dmabuf_kernel", _knows_dmabuf(platform.release()), "kernel not known")
    notes.keep(
        "gpu.open_modules", _open_modules(notes.root), "/proc/driver/nvidia/version is not there"
    )


def _knows_dmabuf(release: str) -> bool | None:
    """RDMA devices take dma-bufs from Linux 5.12 on; distributions also give it to older ones."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) >= _DMABUF_KERNEL if match else None


def _open_modules(root: Path) -> bool | None:
    """`NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15 …` says it."""
    text = read_text(root / "proc/driver/nvidia/version")
    return None if text is None else "Open Kernel Module" in text
