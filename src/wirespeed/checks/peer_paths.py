"""Whether GPUs and network cards reach each other directly: NODE-012 and NODE-013."""

from wirespeed.checks.per_node import Blind, judge_nodes, worse
from wirespeed.model.records import Finding, NodeFacts, World

__all__ = ["peer_findings"]

_OWN_PEER_MEMORY = ("efa",)
"""RDMA drivers that reach GPU memory without nvidia-peermem (Amazon's efa asks NVIDIA's itself)."""
_GPU_GUIDE = "NCCL user guide, Troubleshooting"


def peer_findings(world: World) -> list[Finding]:
    """NODE-012, NODE-013."""
    return [*_gpudirect(world), *_redirects(world)]


def _gpus(node: NodeFacts) -> int:
    """GPUs of the node: those that NVML told, or that are on the bus."""
    return len(node.gpus) or len(node.facts.gpu_on_bus or ())


# NODE-012.


def _gpudirect(world: World) -> list[Finding]:
    return judge_nodes(
        "NODE-012",
        [node for node in world.nodes if _gpus(node) and node.rdma],
        _judge_gpudirect,
        none="no node has both GPUs and RDMA devices",
    )


def _judge_gpudirect(node: NodeFacts) -> Finding | Blind | None:
    drivers = {port.get("driver") for port in node.rdma}
    if drivers <= set(_OWN_PEER_MEMORY):
        return Blind(
            f"the driver {', '.join(_OWN_PEER_MEMORY)} brings its own access to GPU memory"
        )
    module = node.facts.gpudirect_peer_module
    by_dmabuf = (node.facts.gpudirect_dmabuf_kernel, node.facts.gpu_open_modules)
    if module or all(by_dmabuf):
        return None
    if module is None or (by_dmabuf[1] is None and by_dmabuf[0]):
        name = "gpudirect.peer_module" if module is None else "gpu.open_modules"
        return Blind(node.unknown.get(name, f"{name} not reported"))
    return _no_gpudirect(node)


def _no_gpudirect(node: NodeFacts) -> Finding:
    kernel = node.facts.kernel or "unknown"
    modules = "open" if node.facts.gpu_open_modules else "closed"
    return worse(
        "NODE-012",
        "warn",
        node,
        "no GPUDirect RDMA: nvidia-peermem is not loaded, and dma-buf is not possible",
        saw=f"/sys/module/nvidia_peermem is not there; kernel {kernel}, {modules} NVIDIA modules",
        expected=f"nvidia-peermem, or Linux 5.12 or newer with open modules ({_GPU_GUIDE})",
    )


# NODE-013.


def _redirects(world: World) -> list[Finding]:
    return judge_nodes(
        "NODE-013",
        [node for node in world.nodes if _gpus(node) > 1 or (_gpus(node) and node.rdma)],
        _judge_redirects,
        none="no node has a GPU and another GPU or an RDMA device",
    )


def _judge_redirects(node: NodeFacts) -> Finding | Blind | None:
    virtual = node.facts.machine_virtual
    if virtual:
        return Blind("virtual machine: ACS isolates it and has to stay (the card should have ATS)")
    groups = node.facts.iommu_groups or {}
    translated = {one: kind for one, kind in groups.items() if kind.startswith("DMA")}
    bridges = node.facts.acs_redirects or {}
    if (translated or bridges) and virtual is None:
        return Blind(f"bare metal or not: {node.unknown.get('machine.virtual', 'not reported')}")
    if translated or bridges:
        return _redirected(node, translated, bridges)
    if node.facts.acs_redirects is None:
        return Blind(node.unknown.get("acs.redirects", "ACS not reported"))
    return None


def _redirected(node: NodeFacts, translated: dict[str, str], bridges: dict[str, str]) -> Finding:
    texts, fixes = [], []
    if translated:
        kinds = "/".join(sorted(set(translated.values())))
        texts.append(f"IOMMU translates for {len(translated)} GPU and RDMA devices ({kinds})")
        fixes.append("iommu=pt on the kernel's command line (or off in the BIOS)")
    if bridges:
        texts.append(f"ACS is on at {len(bridges)} PCI bridges above GPU and RDMA devices")
        fixes.append("setpci -s BRIDGE ECAP_ACS+0x6.w=0000 after every start (or off in the BIOS)")
    kernel = " ".join(node.facts.iommu_kernel or ()) or "nothing about the IOMMU"
    return worse(
        "NODE-013",
        "warn",
        node,
        "; ".join(texts),
        saw="; ".join(texts) + f"; kernel started with {kernel}",
        expected=f"identity or no IOMMU, and no ACS on bare metal ({_GPU_GUIDE}, PCI Access Control "
        "Services)",
        fix="; ".join(fixes),
        evidence=(
            *(f"{one}: IOMMU group {kind}" for one, kind in sorted(translated.items())),
            *(f"{one}: ACSCtl {bits}" for one, bits in sorted(bridges.items())),
        ),
    )
