"""Pretended GPUs of seven products, healthy and broken, through a real NVML library.

WIRESPEED_TEST_GPU_LAB names the folder that makes them (`up PROFILE`). Facts are read and judged in this
process; a few whole commands show that they come to their exit codes. All faults on all profiles are in
`benchmarks/gpu_faults.py`, whose table is in docs/checks.md.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpu_faults as table

FOLDER = os.environ.get("WIRESPEED_TEST_GPU_LAB", "")
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not FOLDER, reason="Requires: WIRESPEED_TEST_GPU_LAB, a folder that pretends GPUs"
    ),
]


FAULTS = {fault.name: fault for fault in table.FAULTS}
ON_OTHERS = ("lost", "two NVLinks down", "PCIe x4 of x16")


@pytest.fixture(scope="module")
def h100() -> Iterator[dict[str, str]]:
    pytest.importorskip("pynvml", reason="Requires: nvidia-ml-py")
    with table.laboratory(Path(FOLDER), "h100") as environment:
        yield environment


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_its_finding(h100: dict[str, str], name: str) -> None:
    found = table.cell(h100, FAULTS[name])
    assert found.right_for(FAULTS[name]), found.text


@pytest.mark.parametrize("profile", [name for name in table.PROFILES if name != "h100"])
def test_other_products(profile: str) -> None:
    """A healthy node gives no finding at all; some faults of each kind are found."""
    pytest.importorskip("pynvml", reason="Requires: nvidia-ml-py")
    with table.laboratory(Path(FOLDER), profile) as environment:
        for fault in (FAULTS["healthy"], *(FAULTS[name] for name in ON_OTHERS)):
            if profile in fault.profiles:
                found = table.cell(environment, fault)
                assert found.right_for(fault), f"{fault.name}: {found.text}"


def test_a_finding_names_node_gpu_and_what_to_do(h100: dict[str, str]) -> None:
    [finding] = table.cell(h100, FAULTS["off the bus (Xid 79)"]).findings
    assert finding.subject.kind == "node"
    assert finding.subject.name in finding.title
    for said in ("GPU3", "0000:4b:00.0", "GPU-01000100-0000-0000-0000-000000000003", "lost"):
        assert said in finding.saw
    assert "drain the node" in finding.fix
    [finding] = table.cell(h100, FAULTS["row remap pending"]).findings
    assert "nvidia-smi --gpu-reset -i 0000:4b:00.0" in finding.fix


@pytest.mark.parametrize(
    ("name", "code", "verdict"),
    [
        ("healthy", 0, "PASSED"),
        ("off the bus (Xid 79)", 1, "FAILED"),
        ("clocks at 100 MHz", 0, "PASSED"),
    ],
)
def test_the_whole_command(h100: dict[str, str], name: str, code: int, verdict: str) -> None:
    command = [sys.executable, "-m", "wirespeed", "check", "--only", "gpu", "-o", "json"]
    with table.broken(h100, FAULTS[name]):
        done: Any = subprocess.run(
            [*command, "--ranks", "2"], env=h100, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == code, done.stderr
    assert f'"verdict": "{verdict}"' in done.stdout
    assert (FAULTS[name].id in done.stdout) or not FAULTS[name].id


@pytest.mark.parametrize(
    ("name", "code"), [("healthy", 0), ("lost", 1), ("uncorrectable ECC", 1), ("power brake", 0)]
)
def test_a_gate_keeps_pods_off_a_broken_gpu(
    h100: dict[str, str], name: str, code: int, tmp_path: Path
) -> None:
    """What may be gone in a moment is told, and does not count at the first look."""
    command = [sys.executable, "-m", "wirespeed", "gate", "--for", "k8s"]
    with table.broken(h100, FAULTS[name]):
        environment = {**h100, "WIRESPEED_HOME": str(tmp_path / "home")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    assert FAULTS[name].id in done.stdout + done.stderr


def test_one_rank_beside_a_gpu_has_no_rate_and_is_not_ready(
    h100: dict[str, str], tmp_path: Path
) -> None:
    """Nothing moves in a world of one rank: no bandwidth is shown, stored or passed."""
    environment = {**h100, "WIRESPEED_HOME": str(tmp_path / "home")}
    words = ("check", "-l", "quick", "--ranks", "1", "--backend", "gloo", "-q", "-o", "json")
    command = [sys.executable, "-m", "wirespeed", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done.stderr
    run = json.loads(done.stdout)
    assert (run["verdict"], run["speed_judged"]) == ("UNKNOWN", False)
    assert len(run["world"]["nodes"][0]["gpus"]) == 8
    assert run["measurements"] and not any(one["busbw_GBps"] for one in run["measurements"])
    speed = {one["id"]: one["status"] for one in run["findings"] if one["id"][:3] in ("BW-", "LAT")}
    assert set(speed.values()) == {"measured"} and not any(id.startswith("BW") for id in speed)
    (alone,) = [one for one in run["findings"] if one["id"] == "WORLD-005"]
    assert alone["next"].startswith("wirespeed check --only compute")
