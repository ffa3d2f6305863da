"""Element types: their size, and up to where integers stay exact in them."""

from dataclasses import dataclass

from wirespeed.errors import UsageError


@dataclass(frozen=True, slots=True)
class DType:
    name: str
    """The name that torch uses too."""
    itemsize: int
    floating: bool
    signed: bool
    exact: int
    """Every integer from 0 to here (and its negative, if signed) is exactly representable and is
    not the sentinel that marks an element as unwritten. For floats 2 to the significand's bits."""
    max_exponent: int
    """2 to this power, and every lower power from 0, is exactly representable."""


DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("float32", 4, True, True, 2**24, 127),
        DType("float64", 8, True, True, 2**53, 1023),
        DType("float16", 2, True, True, 2**11, 15),
        DType("bfloat16", 2, True, True, 2**8, 127),
        DType("float8_e4m3fn", 1, True, True, 2**4, 8),
        DType("float8_e5m2", 1, True, True, 2**3, 15),
        DType("int8", 1, False, True, 127, 6),
        DType("int32", 4, False, True, 2**31 - 1, 30),
        DType("int64", 8, False, True, 2**53, 62),
        DType("uint8", 1, False, False, 254, 7),
    )
}

ALIASES = {
    "float": "float32",
    "fp32": "float32",
    "double": "float64",
    "fp64": "float64",
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "float8": "float8_e4m3fn",
    "fp8": "float8_e4m3fn",
    "f8e4m3": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "f8e5m2": "float8_e5m2",
}


def dtype_named(name: str) -> DType:
    """The type of that name or nccl-tests alias; UsageError lists the names otherwise."""
    found = DTYPES.get(ALIASES.get(name.lower(), name.lower()))
    if found is None:
        raise UsageError(f"unknown dtype {name!r}", expected=", ".join(DTYPES))
    return found
