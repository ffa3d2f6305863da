"""Which of this process's variables go along to the ranks: an allow-list, and what was asked for."""

import re
from collections.abc import Mapping, Sequence

from wirespeed.errors import UsageError
from wirespeed.world.redact import is_secret

__all__ = ["forwarded", "shown"]

_FAMILIES = re.compile(
    r"(?:NCCL|RCCL|GLOO|UCX|FI|TORCH)_\w+|OMP_NUM_THREADS|TP_SOCKET_IFNAME|DS_ACCELERATOR"
    r"|CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_BLOCKING|WIRESPEED_HOME"
)
"""What changes how ranks communicate. Not CUDA_VISIBLE_DEVICES: the nodes' GPUs are their own."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def forwarded(environ: Mapping[str, str], asked: Sequence[str] = ()) -> dict[str, str]:
    """Variables for every rank: families that matter to collectives, and each `NAME[=VALUE]` asked.

    UsageError for a name that is none, or that is asked for and not set here.
    """
    found = {k: v for k, v in environ.items() if _FAMILIES.fullmatch(k) and not is_secret(k)}
    for word in asked:
        name, equals, value = word.partition("=")
        if not _NAME.fullmatch(name):
            raise UsageError(f"-x {word!r} names no variable", expected="-x NAME or -x NAME=VALUE")
        if not equals and name not in environ:
            raise UsageError(
                f"-x {name}: it is not set here", expected=f"{name} in the environment, or {name}=…"
            )
        if equals and is_secret(name):
            raise UsageError(
                f"-x {name}=…: anybody on this machine could read the value with ps",
                expected=f"{name} in the environment, and -x {name}",
            )
        if "\0" in value:
            raise UsageError(f"-x {name}: its value holds a NUL", expected="text")
        found[name] = value if equals else environ[name]
    return found


def shown(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What may be written into a script, and the names of the rest."""
    open_ones = {k: v for k, v in environment.items() if not is_secret(k)}
    return open_ones, sorted(set(environment) - set(open_ones))
