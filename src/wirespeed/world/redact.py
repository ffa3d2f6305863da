"""The part of the environment that may be stored and shown.

An allow-list of what changes how ranks communicate; of that, nothing whose name speaks of a secret;
and of the rest, no user, password or token that is part of a value.
"""

import re
from collections.abc import Mapping

__all__ = ["allowed_environment", "is_secret", "redact_value"]

_ALLOWED = re.compile(
    r"(?:NCCL|GLOO|UCX|OMPI_MCA|FI|TORCH|MASTER)_\w+"
    r"|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_BLOCKING|OMP_NUM_THREADS"
    r"|TP_SOCKET_IFNAME"
)
_SECRET = re.compile(
    r"TOKEN|SECRET|PSK|PASSW|CREDENTIAL|API_?KEY|PRIVATE|(?:^|_)(?:KEY|KEYS|PWD|AUTH)(?:_|$)"
    r"|PRECONDITION_TRANSPORTS",  # Open MPI's key of a job
    re.IGNORECASE,
)
"""NCCL_IB_PKEY, the index of a partition, is not one."""

_USER = re.compile(r"([\w+.-]+://)\S*@|(?<![\w/])[^\s:/@,;=]+:[^\s@]+@")
"""`scheme://user:password@`, up to the last @ of the word, as a password may hold an unescaped
slash, and a bare `user:password@`."""
_QUERY = re.compile(
    r"((?:^|[?&;,\s])[\w-]*(?:token|secret|passw\w*|credential\w*|signature|sig|key)=)[^&;,\s]+",
    re.IGNORECASE,
)
_HIDDEN = "***"


def allowed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that may be stored, by name, each value through `redact_value`."""
    return {
        name: redact_value(environ[name])
        for name in sorted(environ)
        if _ALLOWED.fullmatch(name) and not is_secret(name)
    }


def is_secret(name: str) -> bool:
    """Whether the name of a variable speaks of a secret."""
    return _SECRET.search(name) is not None


def redact_value(value: str) -> str:
    """`value` with `user:password@` and `token=…` hidden."""
    value = _USER.sub(lambda found: (found[1] or "") + _HIDDEN + "@", value)
    return _QUERY.sub(r"\1" + _HIDDEN, value)
