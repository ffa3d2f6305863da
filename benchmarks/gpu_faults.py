"""What `wirespeed check --only gpu` says of pretended GPUs, healthy and broken in every way.

    python benchmarks/gpu_faults.py --lab FOLDER [--profile h100] [--whole]

The folder holds `up PROFILE`, which prints the environment in which any program that loads
`libnvidia-ml.so.1` sees 8 GPUs of a product, and names the program that breaks them (`GPU_LAB_CTL`).
Printed is a Markdown table: status, finding and exit code of each fault (GPU 3's unless it says
otherwise) on each profile. Facts are read and judged in this process; with `--whole` the command is run
for each cell, some seconds long, and its exit code is shown. Exit code 1 where a
cell is not as it must be.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wirespeed.checks.gpu_faults import gpu_fault_findings
from wirespeed.checks.gpu_health import gpu_findings, gpu_state_findings
from wirespeed.checks.verdicts import Extent, grade
from wirespeed.model.records import Finding, NodeFacts, World
from wirespeed.node.gpus import gather_gpus
from wirespeed.node.reading import Notes

PROFILES = ("a100", "h100", "b200", "gb200", "gb300", "l40s", "t4")
LINKED = ("a100", "h100", "gb200", "gb300")
"""Profiles whose NVLinks are up."""
DOWN = (2, 7)


@dataclass(frozen=True, slots=True)
class GpuFault:
    """What is done to a healthy node, and what must be said."""

    name: str
    says: Literal["fail", "warn", ""]
    """Empty: nothing at all."""
    id: str = ""
    orders: tuple[str, ...] = ()
    """Words for the lab's program, one string an order."""
    links_down: bool = False
    profiles: tuple[str, ...] = PROFILES

    @property
    def exit_code(self) -> int:
        return 1 if self.says == "fail" else 0


def _of_fabric(state: str, says: Literal["fail", "warn"] = "fail") -> GpuFault:
    return GpuFault(
        f"fabric: {state}",
        says,
        "GPU-007",
        (f"fabric-health --gpu 3 {state}",),
        profiles=LINKED[1:],
    )


FAULTS = (
    GpuFault("healthy", ""),
    GpuFault("lost", "fail", "GPU-009", ("fail --gpu 3 --mode lost",)),
    GpuFault(
        "off the bus (Xid 79)", "fail", "GPU-009", ("fail --gpu 3 --mode fallen_off_bus --xid 79",)
    ),
    GpuFault(
        "lost after 5 calls", "fail", "GPU-009", ("fail --gpu 3 --mode lost --after-calls 5",)
    ),
    GpuFault("uncorrectable ECC", "fail", "GPU-002", ("fail --gpu 3 --mode ecc_uncorrectable",)),
    GpuFault(
        "SRAM above threshold", "fail", "GPU-002", ("sram-ecc --gpu 3 5 --threshold-exceeded",)
    ),
    GpuFault("row remap pending", "fail", "GPU-005", ("set --gpu 3 remapped_rows.pending=true",)),
    GpuFault(
        "row remap failed", "fail", "GPU-005", ("set --gpu 3 remapped_rows.failure_occurred=true",)
    ),
    GpuFault(
        "NVLink errors, 1000 a second",
        "fail",
        "GPU-010",
        ("nvlink-error --gpu 3 1000",),
        profiles=LINKED,
    ),
    GpuFault("two NVLinks down", "fail", "GPU-007", links_down=True, profiles=LINKED),
    GpuFault(
        "fabric in progress",
        "fail",
        "GPU-007",
        ("set --gpu 3 fabric.state=in_progress",),
        profiles=LINKED[1:],
    ),
    _of_fabric("no_partition"),
    _of_fabric("insufficient_nvlinks"),
    _of_fabric("incompatible_gpu_fw"),
    _of_fabric("route_unhealthy"),
    GpuFault("PCIe x4 of x16", "fail", "GPU-001", ("set --gpu 3 pcie.current_link_width=4",)),
    GpuFault(
        "PCIe x8 of x16, all GPUs", "fail", "GPU-001", ("set --gpu all pcie.current_link_width=8",)
    ),
    GpuFault("PCIe generation 1", "fail", "GPU-001", ("set --gpu 3 pcie.current_link_gen=1",)),
    GpuFault("hardware slowdown", "fail", "GPU-004", ("throttle --gpu 3 hw_slowdown",)),
    GpuFault("thermal, by hardware", "fail", "GPU-004", ("throttle --gpu 3 hw_thermal_slowdown",)),
    GpuFault("power brake", "fail", "GPU-004", ("throttle --gpu 3 hw_power_brake_slowdown",)),
    GpuFault("thermal, by software", "warn", "GPU-004", ("throttle --gpu 3 sw_thermal_slowdown",)),
    GpuFault("clocks at 100 MHz", "warn", "GPU-012", ("clocks --gpu 3 100",)),
    GpuFault("95 °C", "warn", "GPU-011", ("temp --gpu 3 95",)),
    _of_fabric("degraded_bandwidth", "warn"),
    _of_fabric("route_recovery", "warn"),
    GpuFault("MIG on", "warn", "GPU-003", ("set --gpu 3 mig.mode_current=enabled",)),
    GpuFault("power cap", "", "", ("throttle --gpu 3 sw_power_cap",)),
    GpuFault(
        "asleep: P8, PCIe generation 1",
        "",
        "",
        ("pstate --gpu 3 8", "set --gpu 3 pcie.current_link_gen=1"),
    ),
)


@contextmanager
def laboratory(folder: Path, profile: str) -> Iterator[dict[str, str]]:
    """The environment of 8 healthy GPUs; its folder is removed at the end."""
    script = 'eval "$("$0" "$1")" && env -0'
    done = subprocess.run(
        ["bash", "-c", script, str(folder / "up"), profile],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    environment = dict(pair.split("=", 1) for pair in done.stdout.split("\0") if "=" in pair)
    try:
        yield environment
    finally:
        shutil.rmtree(environment["GPU_LAB_HOME"])


@contextmanager
def broken(environment: dict[str, str], fault: GpuFault) -> Iterator[None]:
    """The fault, undone at the end."""
    config = Path(environment["MOCK_NVML_CONFIG"])
    before = config.read_text()
    try:
        if fault.links_down:
            config.write_text(_with_links_down(before))
        for order in fault.orders:
            _order(environment, order)
        yield
    finally:
        config.write_text(before)
        _order(environment, "reset --gpu all")


def _order(environment: dict[str, str], words: str) -> None:
    command = [environment["GPU_LAB_CTL"], *words.split()]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=20)


def _with_links_down(text: str) -> str:
    """The profile with all links of GPU 3 listed one by one, two of them inactive."""
    number = int(text.partition("links_per_gpu:")[2].split()[0])
    states = ("inactive" if link in DOWN else "active" for link in range(number))
    links = ", ".join(f"{{link: {link}, state: {state}}}" for link, state in enumerate(states))
    extra = f"  device_links: [{{index: 3, links: [{links}]}}]\n"
    line = "  links_per_gpu:"
    return text.replace(line, extra + line, 1)


def judged(environment: dict[str, str]) -> list[Finding]:
    """The findings about GPUs, of facts read there as a rank reads them."""
    notes = Notes()
    notes.keep("gpu.on_bus", [])
    before = dict(os.environ)
    os.environ |= environment
    try:
        gpus = gather_gpus(notes)
    finally:
        os.environ.clear()
        os.environ |= before
    node = NodeFacts(host="node", ranks=(0,), facts=notes.facts, gpus=gpus, unknown=notes.unknown)
    world = World(size=1, nodes=(node,), backend="gloo", launcher="local")
    return gpu_findings(world) + gpu_fault_findings(world) + gpu_state_findings(world)


def whole(environment: dict[str, str]) -> int:
    """The exit code of the command."""
    command = [sys.executable, "-m", "wirespeed", "check", "--only", "gpu", "-q"]
    return subprocess.run(command, env=environment, capture_output=True, timeout=120).returncode


@dataclass(frozen=True, slots=True)
class Cell:
    findings: tuple[Finding, ...]
    """Those that failed or warned."""
    exit_code: int

    @property
    def text(self) -> str:
        said = ", ".join(f"{finding.status} {finding.id}" for finding in self.findings)
        return f"{said or '-'} ({self.exit_code})"

    def right_for(self, fault: GpuFault) -> bool:
        """The wanted finding is the gravest, and nothing is said where nothing is wrong."""
        told = {finding.id: finding.status for finding in self.findings}
        good = not told if not fault.says else told.get(fault.id) == fault.says
        return good and self.exit_code == fault.exit_code


def cell(environment: dict[str, str], fault: GpuFault, *, command: bool = False) -> Cell:
    """What is said of a node with that fault."""
    with broken(environment, fault):
        found = judged(environment)
        code = grade("check", found, Extent(only=True)).exit_code
        told = tuple(one for one in found if one.status in ("warn", "fail"))
        return Cell(told, whole(environment) if command else code)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--lab", type=Path, required=True)
    parser.add_argument("--profile", action="append", choices=PROFILES)
    parser.add_argument("--whole", action="store_true", help="run the whole command for each cell")
    asked = parser.parse_args(words)
    profiles = asked.profile or list(PROFILES)
    columns: dict[str, dict[str, str]] = {}
    wrong = 0
    for profile in profiles:
        columns[profile] = {}
        with laboratory(asked.lab, profile) as environment:
            for fault in FAULTS:
                if profile not in fault.profiles:
                    continue
                found = cell(environment, fault, command=asked.whole)
                right = found.right_for(fault)
                wrong += not right
                columns[profile][fault.name] = found.text + ("" if right else " WRONG")
    print(f"| GPU 3 is | {' | '.join(profiles)} |")
    print("|---" * (len(profiles) + 1) + "|")
    for fault in FAULTS:
        cells = (columns[profile].get(fault.name, "") for profile in profiles)
        print(f"| {fault.name} | {' | '.join(cells)} |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
