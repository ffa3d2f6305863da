"""Peaks by the names that drivers report; what is not known is None."""

import re

import pytest

from wirespeed.reference.shape import PEAKS, peak_flops

# Names as torch.cuda.get_device_name() reports them, and the data sheets' dense figures in TFLOP/s.
KNOWN = {
    "Tesla V100-SXM2-16GB": ("float16", 125),
    "Tesla V100-PCIE-32GB": ("float16", 112),
    "NVIDIA A100-SXM4-80GB": ("bfloat16", 312),
    "A100-SXM4-40GB": ("tf32", 156),
    "NVIDIA A100 80GB PCIe": ("float32", 19.5),
    "NVIDIA A10": ("bfloat16", 125),
    "NVIDIA L4": ("bfloat16", 121),
    "NVIDIA L40S": ("bfloat16", 362.05),
    "NVIDIA H100 80GB HBM3": ("bfloat16", 989.4),
    "NVIDIA H100 PCIe": ("bfloat16", 756),
    "NVIDIA H100 NVL": ("bfloat16", 835.5),
    "NVIDIA H200": ("bfloat16", 989.5),
    "NVIDIA B200": ("bfloat16", 2250),
    "NVIDIA B300 SXM6 AC": ("bfloat16", 2250),
    "NVIDIA GB200": ("bfloat16", 2500),
    "AMD Instinct MI250X": ("bfloat16", 191.5),
    "AMD Instinct MI300X": ("tf32", 653.7),
    "AMD Instinct MI325X": ("float32", 163.4),
}
UNKNOWN = [
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    "NVIDIA A100-SXM-64GB",
    "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
    "NVIDIA H100",
    "NVIDIA H20",
    "NVIDIA B2000",
    "NVIDIA L40",
    "AMD Instinct MI250X / MI250",
    "AMD EPYC 9654 96-Core Processor",
    "Intel(R) Xeon(R) Platinum 8481C",
    "cpu",
    "",
]


@pytest.mark.parametrize("name", KNOWN)
def test_known_products(name):
    dtype, tera = KNOWN[name]
    peak = peak_flops(name, dtype)
    assert peak is not None
    assert peak.flops_per_s == pytest.approx(tera * 1e12)
    assert re.search("NVIDIA|nvidia|amd", peak.source)
    assert peak.date.startswith("20")


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_unknown_products_have_no_peak(name, dtype):
    assert peak_flops(name, dtype) is None


def test_dtypes_that_a_product_lacks_or_nobody_knows():
    assert peak_flops("Tesla V100-SXM2-16GB", "bfloat16") is None
    assert peak_flops("AMD Instinct MI250X", "tf32") is None
    assert peak_flops("NVIDIA H200", "int64") is None
    assert peak_flops("NVIDIA A40", "float8_e4m3fn") is None
    assert peak_flops("NVIDIA H200", "pattern") is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("bf16", "bfloat16"),
        ("torch.bfloat16", "bfloat16"),
        ("fp16", "float16"),
        ("FP32", "float32"),
    ],
)
def test_other_names_of_a_dtype(one, other):
    assert peak_flops("NVIDIA H200", one) == peak_flops("NVIDIA H200", other) is not None


def test_no_name_is_two_products():
    for name in KNOWN:
        bare = re.sub(r"^(NVIDIA|Tesla|AMD Instinct) ", "", name)
        assert sum(bool(re.fullmatch(one.pattern, bare)) for one in PEAKS) == 1


def test_each_product_is_consistent():
    """Dense tensor cores: TF32 at about half of bfloat16's rate, and float32 not above TF32."""
    for one in PEAKS:
        assert one.source
        assert one.date
        if one.tf32 is not None:
            assert one.tf32 == pytest.approx(one.bfloat16 / 2, rel=0.02)
            assert one.float32 <= one.tf32
