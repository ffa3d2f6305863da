"""More of the kernel's GPU messages: rarer Xids, GPUs that the driver cannot take over, heat."""

from collections.abc import Iterator

from wirespeed.diagnose.evidence import Evidence
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Hit
from wirespeed.reference.xids import codes_of

__all__ = ["RULES"]

_LINKS = ("https://docs.nvidia.com/deploy/xid-errors/index.html",)
_DEVICE = r"nvrm: xid \((?:PCI:)?(?P<device>[0-9a-f:.]+)\): (?P<code>"
_DOWN = ("launcher-exit", "exit-code", "watchdog-timeout", "mpi-lost-node", "KERN-008")
_HEALTHY = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.104.05"


def _lost(evidence: Evidence) -> Iterator[Hit]:
    """Which GPU fell off the bus; the driver may name it on the line before."""
    said = {hit.line.source for hit in evidence.seen["KERN-001"].hits}
    for hit in evidence.seen["KERN-055"].hits:
        device = next(iter(hit.groups.values()), "?")
        if hit.line.source in said:
            yield Hit(_LOST, hit.line, {"device": device})


_LOST = Rule(
    id="KERN-056",
    category="gpu-lost",
    role="cause",
    stage="machine",
    confidence="certain",
    needs=("KERN-001", "KERN-055"),
    derive=_lost,
    sentence="the GPU at {device} has fallen off the bus (Xid 79): it no longer answers over PCIe",
    because="the driver cannot reach the GPU: power, heat, a loose card or riser, or broken "
    "hardware",
    costs="the process on this GPU fails, and with it the job",
    fix="drain the node and power it off and on (a reboot may not be enough); if it comes back, "
    "reseat or "
    "replace the GPU at {device}, check its power and temperature",
    next="on that node: lspci -s {device}; dmesg -T | grep -iE 'xid|pcie|aer'; nvidia-smi",
    explains=("KERN-001", "gpu-visible", "driver-not-loaded", "pcie-error", "cuda-error", *_DOWN),
    links=_LINKS,
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="KERN-050",
        category="gpu-memory-error",
        role="fact",
        anchors=("NVRM: Xid",),
        pattern=rf"{_DEVICE}63)\b",
        sentence="the GPU at {device} replaced a row of its memory (Xid {code}): reset it between "
        "jobs, "
        "so that the replacement takes effect",
        links=_LINKS,
        positive=(
            "NVRM: Xid (PCI:0000:01:00): 63, pid=8, name=python, Row Remapper: New row marked for "
            "remapping, reset gpu to activate.",
        ),
        negative=("NVRM: Xid (PCI:0000:01:00): 64, Row remapper: failed to remap", _HEALTHY),
    ),
    Rule(
        id="KERN-051",
        category="gpu-program-error",
        role="symptom",
        stage="program",
        anchors=("NVRM: Xid",),
        pattern=rf"{_DEVICE}{'|'.join(map(str, codes_of('program')))})\b",
        sentence="the driver reports Xid {code} for the GPU at {device}: an error of a program's "
        "commands to "
        "it",
        checks=(
            "whether the program's own log names the error: CUDA_LAUNCH_BLOCKING=1, "
            "compute-sanitizer",
            "whether it comes with other programs on this GPU only: then PCIe (AER lines in "
            "dmesg), its "
            "riser or the GPU itself: dcgmi diag -r 3, and have it replaced",
            "whether driver and CUDA of the container fit: update the driver",
        ),
        explains=_DOWN,
        links=_LINKS,
        positive=(
            "NVRM: Xid (PCI:0000:3b:00): 69, pid=8, name=python, Class Error: ChId 0008",
            "NVRM: Xid (PCI:0000:3b:00): 32, pid=8, Channel ID 00000008 intr0 00040000",
        ),
        negative=("NVRM: Xid (PCI:0000:3b:00): 63, pid=8, Row Remapper: New row", _HEALTHY),
    ),
    Rule(
        id="KERN-053",
        category="driver-not-loaded",
        role="cause",
        stage="machine",
        anchors=(
            "probe with driver nvidia failed",
            "NVIDIA probe routine",
            "No NVIDIA GPU found",
            "BAR1 is 0M",
            "requires additional power",
        ),
        pattern=r"probe with driver nvidia failed with error (?P<error>-\d+)|NVIDIA probe routine "
        r"(?:failed|was not called) for (?P<count>\d+) device|No NVIDIA GPU found|BAR1 is 0M @ 0x0|"
        r"does not have the necessary power cables connected",
        sentence="the NVIDIA driver could not take over a GPU of this node when it was loaded",
        because="the GPU does not answer, has no PCIe address space (BIOS: Above 4G decoding), is "
        "held by "
        "another driver (nouveau, vfio-pci), or has no power",
        costs="the node has a GPU less than it should",
        fix="look at the NVRM lines around it; blacklist nouveau; enable Above 4G Decoding and "
        "Resizable "
        "BAR in the BIOS; power the node off and on; reseat the GPU and its power cables",
        next="dmesg -T | grep -i nvrm; lspci -nnk | grep -A3 -i nvidia; nvidia-smi -L",
        explains=("gpu-visible", *_DOWN),
        links=("https://docs.nvidia.com/datacenter/tesla/tesla-installation-notes/index.html",),
        positive=(
            "nvidia 0000:b3:00.0: probe with driver nvidia failed with error -1",
            "NVRM: The NVIDIA probe routine was not called for 1 device(s).",
            "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:3b:00.0)",
        ),
        negative=(_HEALTHY, "nvidia 0000:b3:00.0: enabling device (0140 -> 0142)"),
    ),
    Rule(
        id="KERN-055",
        category="gpus",
        role="fact",
        anchors=("The NVIDIA GPU", "NVRM: Xid", "fallen off the bus"),
        pattern=r"nvrm: the NVIDIA GPU (?P<bus>[0-9a-f:.]+)\s*$|xid "
        r"\((?:PCI:)?(?P<device>[0-9a-f:.]+)\): "
        r"79\b|nvrm: GPU (?P<address>[0-9a-f:.]+?):? GPU has fallen",
        sentence="the driver tells of a GPU",
        links=_LINKS,
        positive=("NVRM: The NVIDIA GPU 0000:b3:00.0",),
        negative=("NVRM: Xid (PCI:0000:3b:00): 31, pid=8, name=python, MMU Fault", _HEALTHY),
    ),
    _LOST,
    Rule(
        id="KERN-054",
        category="gpu-thermal",
        role="symptom",
        stage="machine",
        anchors=(
            "Thermal Slowdown",
            "Power Brake",
            "thermal event",
            "clocks have been reduced",
            "temperature above threshold",
            "Temperature above threshold",
        ),
        pattern=r"hw (?:thermal|power brake) slowdown\s*: active|gpu.{0,60}clocks have been "
        r"reduced.{0,60}"
        r"(?:thermal|power)|(?:cpu|core|package).{0,30}temperature above threshold",
        unless=r"not active",
        sentence="a GPU or CPU of this node is slowed down because of heat or power",
        checks=(
            "whether cooling or a power supply failed: nvidia-smi -q -d "
            "TEMPERATURE,POWER,PERFORMANCE; "
            "ipmitool sel list; mend fans and power, drain the node meanwhile",
        ),
        positive=(
            "        HW Thermal Slowdown                   : Active",
            "mce: CPU3: Core temperature above threshold, cpu clock throttled (total events = 1)",
        ),
        negative=("        HW Thermal Slowdown                   : Not Active",),
    ),
)
