"""What the links carry in one direction, by product: NVLink, xGMI, PCIe.

NVLink: NVIDIA's page on NVLink (nvidia.com/en-us/data-center/nvlink/) gives the sum of both
directions, 300, 600, 900 and 1800 GB/s a GPU for its generations 2 to 5; half of it is one
direction. NVL cards (600 GB/s over the bridge) and MI300X (seven Infinity Fabric links of 128 GB/s, both
directions together) are as their makers' data sheets are commonly quoted, and not read again.
"""

__all__ = ["GPU_LINKS", "pcie_rate"]

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
