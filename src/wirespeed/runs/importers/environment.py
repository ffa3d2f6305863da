"""Which environment variables of a foreign file are kept: few, and never a secret."""

import re
from collections.abc import Iterable

__all__ = ["keep_known"]

_KNOWN = re.compile(
    r"(NCCL|RCCL|GLOO|UCX|OMPI|FI|SHARP|TORCH|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_MAX_CONNECTIONS)"
    r"(_[A-Z0-9_]*)?"
)
_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL|COOKIE|AUTH", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")


def keep_known(pairs: Iterable[object]) -> dict[str, str]:
    """The `K=V` texts that tell how communication was set up, without logins in addresses."""
    kept = {}
    for pair in pairs:
        name, found, value = str(pair).partition("=")
        if found and _KNOWN.fullmatch(name) and not _SECRET.search(name):
            kept[name] = _LOGIN.sub("***@", value)[:1000]
    return dict(sorted(kept.items()))
