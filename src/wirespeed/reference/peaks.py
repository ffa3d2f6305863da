"""Peak arithmetic of GPUs as their vendors publish it, dense (without 2:4 sparsity).

For model FLOPs utilisation. A device is known only by its whole product name as the driver reports
it: a slice of a GPU (MIG), a variant for one customer or a new product is unknown, not "nearly".
Where a data sheet gives a figure with sparsity only, it is halved, and the source says so.
Processors have no entry: their peak depends on clocks that no data sheet promises.
"""

import re
from dataclasses import dataclass

__all__ = ["PEAKS", "Peak", "Product", "peak_flops", "product_named"]

_TERA = 1e12
_ALIASES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float": "float32",
}


@dataclass(frozen=True, slots=True)
class Peak:
    flops_per_s: float
    """Dense, of one device as the driver counts devices."""
    product: str
    source: str
    """The vendor's publication."""
    date: str
    """When it was published, as far as it says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One product; TFLOP/s are dense, None where the data sheet gives none."""

    name: str
    pattern: str
    """A regular expression for the whole reported name, without `NVIDIA `, `Tesla `, `AMD Instinct `."""
    bfloat16: float | None
    float16: float | None
    tf32: float | None
    float32: float | None
    """Without TF32."""
    source: str
    date: str


def peak_flops(device_name: str, dtype: str) -> Peak | None:
    """The peak of a device for multiplications in dtype; None: not known.

    device_name: as `torch.cuda.get_device_name()` tells it. dtype: bfloat16, float16, tf32 or
    float32 (also bf16, fp16, fp32), with or without `torch.` before it; tf32 is float32 where the
    program allows TF32 for it.
    """
    kind = dtype.removeprefix("torch.").lower()
    kind = _ALIASES.get(kind, kind)
    if kind not in ("bfloat16", "float16", "tf32", "float32"):
        return None
    product = product_named(device_name)
    tera: float | None = getattr(product, kind) if product else None
    if product is None or tera is None:
        return None
    return Peak(tera * _TERA, product.name, product.source, product.date)


def product_named(device_name: str) -> Product | None:
    """The product whose driver reports that name; None: not known."""
    bare = _VENDOR.sub("", device_name.strip())
    return next((one for one in PEAKS if re.fullmatch(one.pattern, bare)), None)


_VENDOR = re.compile(r"^(?:(?:NVIDIA|Tesla|AMD|Instinct)\s+)*")


def _tensor(
    name: str,
    pattern: str,
    half: float,
    tf32: float | None,
    float32: float | None,
    source: tuple[str, str],
) -> Product:
    """A product whose bfloat16 is as fast as its float16."""
    return Product(
        name=name,
        pattern=pattern,
        bfloat16=half,
        float16=half,
        tf32=tf32,
        float32=float32,
        source=source[0],
        date=source[1],
    )


def _volta(name: str, pattern: str, float16: float, float32: float) -> Product:
    """V100: tensor cores for float16 only."""
    return Product(
        name=name,
        pattern=pattern,
        bfloat16=None,
        float16=float16,
        tf32=None,
        float32=float32,
        source="NVIDIA V100 Tensor Core GPU data sheet, 1165301",
        date="2020-01",
    )


_A100 = ("NVIDIA A100 Tensor Core GPU data sheet, 1758950", "2021-06")
_H100 = ("NVIDIA H100 Tensor Core GPU Architecture white paper, table of peak rates", "2022")
_NVL = "nvidia.com/en-us/data-center/{}/, specifications (with sparsity; halved here)"
_HGX = (
    "nvidia.com/en-us/data-center/hgx/, specifications of 8 GPUs (with sparsity; a 16th here)",
    "2025",
)
_AMD = "amd.com, AMD Instinct {} specifications"

PEAKS: tuple[Product, ...] = (
    _volta("V100 SXM2", r"V100-SXM2-(16|32)GB", 125, 15.7),
    _volta("V100 PCIe", r"V100-PCIE-(16|32)GB", 112, 14),
    _volta("V100S PCIe", r"V100S-PCIE-32GB", 130, 16.4),
    _tensor("A100 SXM", r"A100-SXM4-(40|80)GB", 312, 156, 19.5, _A100),
    _tensor("A100 PCIe", r"A100(-PCIE-40GB| 80GB PCIe)", 312, 156, 19.5, _A100),
    _tensor("A10", r"A10", 125, 62.5, 31.2, ("NVIDIA A10 Tensor Core GPU data sheet", "2021")),
    _tensor("A40", r"A40", 149.7, 74.8, 37.4, ("NVIDIA A40 data sheet", "2021")),
    _tensor(
        "L4",
        r"L4",
        121,
        60,
        30.3,
        ("NVIDIA L4 Tensor Core GPU data sheet (with sparsity; halved here)", "2023"),
    ),
    _tensor("L40S", r"L40S", 362.05, 183, 91.6, ("NVIDIA L40S data sheet", "2023")),
    _tensor("H100 SXM", r"H100 80GB HBM3", 989.4, 494.7, 66.9, _H100),
    _tensor("H100 PCIe", r"H100 PCIe", 756, 378, 51.2, _H100),
    _tensor("H100 NVL", r"H100 NVL", 835.5, 417.5, 60, (_NVL.format("h100"), "2024")),
    _tensor("H200 SXM", r"H200", 989.5, 494.5, 67, (_NVL.format("h200"), "2024")),
    _tensor("H200 NVL", r"H200 NVL", 835.5, 417.5, 60, (_NVL.format("h200"), "2024")),
    _tensor("B200", r"B200", 2250, 1125, 75, _HGX),
    _tensor("B300", r"B300( SXM6( AC)?)?", 2250, 1125, 75, _HGX),
    _tensor(
        "GB200",
        r"GB200",
        2500,
        1250,
        80,
        ("nvidia.com, GB200 NVL72 specifications of 72 GPUs (with sparsity; halved here)", "2024"),
    ),
    # The driver shows each of the two dies of an MI250X as a device of its own: half of the sheet's
    # 383 and 95.7 (float32 by matrix cores).
    _tensor("MI250X, one die", r"MI250X", 191.5, None, 47.85, (_AMD.format("MI250X"), "2021-11")),
    _tensor("MI300X", r"MI300X", 1307.4, 653.7, 163.4, (_AMD.format("MI300X"), "2023-12")),
    _tensor("MI325X", r"MI325X", 1307.4, 653.7, 163.4, (_AMD.format("MI325X"), "2024-10")),
)
