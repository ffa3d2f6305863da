"""Kubernetes' quantities as numbers: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""

import re
from collections.abc import Iterable, Mapping

__all__ = ["amounts", "quantity", "shown", "together"]

_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?\.?")
_SCALES = {
    **{"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3},
    **{letter: 1000.0 ** (2 + i) for i, letter in enumerate("MGTPE")},
    **{f"{letter}i": 1024.0 ** (1 + i) for i, letter in enumerate("KMGTPE")},
}


def quantity(text: object) -> float:
    """`500m` is 0.5, `64Gi` is 2³⁶ · 1; 0 for what is none (a server never sends such)."""
    found = _QUANTITY.fullmatch(str(text).strip())
    if found is None:
        return 0.0
    suffix = found[2] or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix != "Ei":
        return float(found[1] + suffix)
    return float(found[1]) * _SCALES[suffix]


def amounts(told: Mapping[str, object] | None) -> dict[str, float]:
    """A resource list as numbers."""
    return {key: quantity(value) for key, value in (told or {}).items()}


def together(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sum of resource lists."""
    total: dict[str, float] = {}
    for part in parts:
        for key, value in part.items():
            total[key] = total.get(key, 0.0) + value
    return total


def shown(resource: str, value: float) -> str:
    """A figure of that resource for people: memory in GiB, cores with two digits, else a count."""
    if resource.endswith(("memory", "storage")) or resource.startswith("hugepages-"):
        return f"{value / 2**30:.3g} GiB"
    return f"{value:.2f}".rstrip("0").rstrip(".")
