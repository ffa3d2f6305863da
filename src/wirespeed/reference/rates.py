"""What the links carry in one direction, by product: NVLink, xGMI, PCIe.

NVLink: NVIDIA's page on NVLink (nvidia.com/en-us/data-center/nvlink/) gives the sum of both
directions, 300, 600, 900 and 1800 GB/s a GPU for its generations 2 to 5; half of it is one
direction. That 450 GB/s is the line rate of H100 says NVIDIA/nccl-tests#212 (2024-05-06), 18 links of
together 900 GB/s of H200 MLCommons' inference_results_v4.1 (closed/NVIDIA/systems).

MI300X: 64 GB/s in one direction of each of seven links, one to each of the other GPUs; errors that are
corrected and the protocol leave about 48 (AMD, rocm.blogs.amd.com/software-tools-optimization/
mi300x-rccl-xgmi, 2025-03-02). So n of them reach n-1 links.

Weaker: H100 NVL, 600 GB/s over the bridge of two cards, is from a reseller's page
(aiminingco.com/gpu/h100-nvl/specs, read 2026-11), since NVIDIA's own was not found; MI325X is taken as
MI300X, whose seven links it keeps; of their rate no source was read.
"""

__all__ = ["GPU_LINKS", "XGMI_LINKS", "pcie_rate"]

XGMI_LINKS = 7
"""Links of one GPU, each to another one of the node, over which the rate below is spread."""

GPU_LINKS: dict[str, tuple[str, float]] = {
    "V100 SXM2": ("nvlink", 150e9),
    "A100 SXM": ("nvlink", 300e9),
    "H100 SXM": ("nvlink", 450e9),
    "H200 SXM": ("nvlink", 450e9),
    "H100 NVL": ("nvlink", 300e9),
    "B200": ("nvlink", 900e9),
    "B300": ("nvlink", 900e9),
    "GB200": ("nvlink", 900e9),
    "GB300": ("nvlink", 900e9),
    "MI300X": ("xgmi", 448e9),
    "MI325X": ("xgmi", 448e9),
}
"""(interconnect, bytes a second in one direction of one GPU) by product."""

_GTPS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
_OLD_CODING_GTPS = 5.0
"""Up to here 8 of 10 bits carry data, above 128 of 130 (PCIe 6 has no such coding)."""


def pcie_rate(generation: object, width: object) -> float | None:
    """Bytes a second in one direction, headers included; None where either is not known."""
    speed = _GTPS.get(generation) if isinstance(generation, int) else generation
    if not isinstance(speed, float) or not isinstance(width, int) or speed <= 0 or width <= 0:
        return None
    return speed * 1e9 / 8 * width * (8 / 10 if speed <= _OLD_CODING_GTPS else 128 / 130)
