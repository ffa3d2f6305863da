"""Collectives, element types and groups as traces name them, and as records do."""

import re
from functools import lru_cache

from wirespeed.collectives.catalogue import CATALOGUE, collective_named
from wirespeed.collectives.collective import dtype_named
from wirespeed.errors import UsageError

_KERNEL = re.compile(r"(?:nccl|rccl)(?:Symk?)?(?:Dev)?Kernel_([A-Za-z0-9]+)")
_SYMMETRIC = re.compile(
    r".*\b(?:multimem|one_shot|two_shot)_(?:one_shot_)?(\w+?)(?:_out)?_kernel\b"
)
"""torch's kernels on symmetric memory: `multimem_one_shot_all_reduce_kernel<float, 16>`."""
_ENDS = ("_coalesced", "_base", "_single", "_tensor", "_into", "_")
_WORDS = {"long": "int64", "longint": "int64", "int": "int32", "char": "int8", "byte": "uint8"}
_WORDS |= {"signedchar": "int8", "unsignedchar": "uint8", "short": "int16", "bool": "bool"}
_SIZES = {"bool": 1, "int16": 2, "complex64": 8, "complex128": 16}
_TRANSFERS = ("send", "recv")
_AS_ONE = {"recvanysource": "recv", "isend": "send", "irecv": "recv"}


@lru_cache(maxsize=1024)
def op_named(name: str) -> str:
    """The catalogue's name of `gloo:all_reduce`, `_allgather_base` and so on, else the name itself.

    Sends and receives are `send` and `recv`; of several in one kernel `send_recv`.
    """
    plain = name.rpartition(":")[2].strip("_ ").lower()
    if plain in _TRANSFERS:
        return plain
    for end in ("", *_ENDS):
        plain = plain.removesuffix(end)
        try:
            return collective_named(plain).name
        except UsageError:
            continue
    letters = plain.replace("_", "")
    return _AS_ONE.get(letters) or ("send_recv" if letters == "sendrecv" else plain[:40])


@lru_cache(maxsize=1024)
def op_of_kernel(name: str) -> str | None:
    """`all_reduce` of `ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)`; None: it does not communicate."""
    match = _KERNEL.match(name) or _SYMMETRIC.match(name)
    return op_named(match[1]) if match else None


@lru_cache(maxsize=256)
def dtype_known(name: str) -> tuple[str, int]:
    """(the records' name, bytes of an element) of `BFloat16`, `c10::Half`; bytes 0: not known."""
    plain = name.rpartition("::")[2].replace(" ", "").lower()
    plain = _WORDS.get(plain, plain)
    try:
        known = dtype_named(plain)
    except UsageError:
        return plain[:20], _SIZES.get(plain, 0)
    return known.name, known.itemsize


@lru_cache(maxsize=1024)
def synchronises(op: str) -> bool:
    """Whether no member leaves it before the last has come."""
    return op == "barrier" or (op in CATALOGUE and CATALOGUE[op].synchronising)


@lru_cache(maxsize=4096)
def ranks_in(text: str) -> tuple[int, ...]:
    """Of `[0, 1, 2]`; empty where it is cut (`[0, 1, ..., 7]`) or of another kind."""
    words = text.strip().strip("[]").split(",")
    numbers = tuple(int(word) for word in words if word.strip().isdecimal())
    return numbers if len(numbers) == len(words) and len(set(numbers)) == len(words) else ()
