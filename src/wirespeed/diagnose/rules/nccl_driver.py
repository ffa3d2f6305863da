"""GPU drivers that are too old for the CUDA that NCCL was built for."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = ("https://docs.nvidia.com/deploy/cuda-compatibility/",)
_FOLLOWS = (
    "nccl-cuda-error",
    "nccl-system-error",
    "nccl-trace",
    "nccl-peer-lost",
    "exit-code",
    "launcher-exit",
)
_FIX = (
    "update the GPU driver, or use an image (torch wheel, NCCL) built for a CUDA that the driver "
    "knows; on data-centre GPUs the cuda-compat package can help"
)
_NEXT = "nvidia-smi (CUDA Version in its first lines)"
_DRIVERS = {10: "NCCL-120", 11: "NCCL-121", 12: "NCCL-122"}
_BUILT = {11: "NCCL-123", 12: "NCCL-124", 13: "NCCL-125"}
_REFUSED = "NCCL-111"


def _driver(id: str, major: int) -> Rule:
    """What a driver of this major version of CUDA says of itself (1000 for each, 10 a minor one)."""
    return Rule(
        id=id,
        category="driver",
        role="fact",
        anchors=(f"cudaDriverVersion {major}0",),
        pattern=rf"cudaDriverVersion (?P<driver>{major}\d\d\d)\b",
        sentence="driver for CUDA {driver}",
        positive=(f"NCCL INFO cudaDriverVersion {major}040",),
        negative=(f"NCCL INFO cudaDriverVersion {major + 1}040",),
    )


def _built(id: str, major: int) -> Rule:
    return Rule(
        id=id,
        category="version",
        role="fact",
        anchors=(f"+cuda{major}.",),
        pattern=rf"NCCL version (?P<nccl>[\d.]+\+cuda{major}\.\d+)",
        sentence="NCCL {nccl}",
        positive=(f"NCCL version 2.21.5+cuda{major}.1",),
        negative=(f"NCCL version 2.21.5+cuda{major - 1}.1",),
    )


def _older(number: int, driver: int, built: int) -> Rule:
    """A driver of one major version under an NCCL of a later one."""
    return Rule(
        id=f"NCCL-{number}",
        category="driver-too-old",
        role="cause",
        confidence="certain",
        needs=(_DRIVERS[driver], _BUILT[built]),
        sentence="the GPU driver is too old: it knows CUDA only up to {driver} "
        "(cudaDriverVersion), and this is NCCL {nccl}",
        because="a driver runs programs built for its own major version of CUDA and for older ones",
        costs="CUDA calls of NCCL fail",
        fix=_FIX,
        next=_NEXT,
        explains=("driver-too-old", *_FOLLOWS),
        links=_LINKS,
    )


def _refused(number: int, driver: int) -> Rule:
    """A driver that lacked a call, and says which version it is."""
    return Rule(
        id=f"NCCL-{number}",
        category="driver-too-old",
        role="cause",
        confidence="certain",
        needs=(_REFUSED, _DRIVERS[driver]),
        sentence="the GPU driver is too old: it knows CUDA only up to {driver} (cudaDriverVersion) "
        "and lacks a call that NCCL was built with",
        because="NCCL, or torch, was built for a newer CUDA than the driver's",
        costs="CUDA calls of NCCL fail",
        fix=_FIX,
        next=_NEXT,
        explains=(_REFUSED, *_FOLLOWS),
        links=_LINKS,
    )


RULES: tuple[Rule, ...] = (
    Rule(
        id=_REFUSED,
        category="driver-too-old",
        role="cause",
        confidence="certain",
        anchors=(
            "installed CUDA driver",
            "driver version is insufficient",
            "unsupported toolchain",
            "driver on your system is too old",
        ),
        pattern=r"API call is not supported in the installed CUDA driver|CUDA driver version is "
        r"insufficient|PTX was compiled with an unsupported toolchain|NVIDIA driver on your system "
        r"is too old",
        unless=r"Test CUDA failure",
        sentence="the GPU driver is too old for the CUDA that this program or NCCL was built for",
        because="the driver does not know that version of CUDA",
        costs="CUDA calls fail",
        fix=_FIX,
        next=_NEXT,
        explains=_FOLLOWS,
        links=_LINKS,
        positive=(
            "NCCL WARN Cuda failure 'API call is not supported in the installed CUDA driver'",
            "Cuda failure 35 'CUDA driver version is insufficient for CUDA runtime version'",
            "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
        ),
        negative=("NCCL INFO cudaDriverVersion 11000",),
    ),
    *(_driver(id, major) for major, id in _DRIVERS.items()),
    *(_built(id, major) for major, id in _BUILT.items()),
    _older(126, 10, 11),
    _older(127, 10, 12),
    _older(128, 11, 12),
    _older(129, 11, 13),
    _older(150, 12, 13),
    _refused(151, 10),
    _refused(152, 11),
    _refused(153, 12),
)
