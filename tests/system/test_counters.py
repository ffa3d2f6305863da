"""Counters that grow for real: TCP on a lossy path, GPUs that a library pretends, a node's /sys."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wirespeed.checks.counting import count_findings
from wirespeed.lab import Lab, LabSpec
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import NodeFacts, World
from wirespeed.node.counters import growth, take

pytestmark = pytest.mark.system

GPU_LAB = os.environ.get("WIRESPEED_TEST_GPU_LAB", "")
needs_gpu_lab = pytest.mark.skipif(not GPU_LAB, reason="Requires: WIRESPEED_TEST_GPU_LAB")
LOOK = """
import json, subprocess, sys
from wirespeed.node.counters import growth, take
before = take()
subprocess.run(json.loads(sys.argv[1]), check=True, timeout=20)
import time; time.sleep(1.5)
print(json.dumps(growth(before, take())))
"""


def judged(told: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    node = NodeFacts(host="n0", ranks=(0,), facts=Facts(), counters=told)
    found: dict[str, list[tuple[str, str]]] = {}
    for one in count_findings(World(size=1, nodes=(node,), backend="gloo", launcher="local")):
        found.setdefault(one.id, []).append((one.status, one.title))
    return found


@pytest.mark.timeout(300)
def test_a_lossy_path_shows_in_the_nodes_own_tcp(tmp_path: Path) -> None:
    missing = [name for name in ("ip", "tc", "nft") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"Requires: root and the commands ip, tc and nft (missing: {missing})")
    env = {"WIRESPEED_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    words = (sys.executable, "-m", "wirespeed", "check", "--only", "COUNT", "-l", "quick")

    def counted(lab: Lab) -> dict[str, Any]:
        run = json.loads(lab.run([*words, "-q", "-o", "json"], env=env, timeout=120)[0].stdout)
        (found,) = [one for one in run["findings"] if one["id"] == "COUNT-008"]
        return dict(found)

    with Lab(LabSpec(3, f"n{os.getpid()}")) as lab:
        assert counted(lab)["status"] == "pass"
        lab.lossy("node-1", "3%")
        found = counted(lab)
    assert found["status"] in ("warn", "fail"), found
    assert "RetransSegs" in found["saw"]


def pretended(profile: str) -> dict[str, str]:
    """The environment in which NVML answers from that profile."""
    told = subprocess.run(
        [str(Path(GPU_LAB) / "up"), profile], capture_output=True, text=True, check=True, timeout=60
    )
    pairs = (word.partition("=") for word in told.stdout.replace("export ", "").split())
    env = {name: value for name, _, value in pairs}
    env["LD_LIBRARY_PATH"] = env["LD_LIBRARY_PATH"].partition("$")[0]
    return {**os.environ, **env}


@needs_gpu_lab
def test_nvlink_errors_during_the_traffic_fail() -> None:
    pytest.importorskip("pynvml", reason="Requires: nvidia-ml-py")
    env = pretended("h100")
    control = [env["GPU_LAB_CTL"], "nvlink-error", "--gpu", "3", "1000"]
    for command, status in ((["true"], "pass"), (control, "fail")):
        done = subprocess.run(
            [sys.executable, "-c", LOOK, json.dumps(command)],
            env=env, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = judged(json.loads(done.stdout.splitlines()[-1]))
        assert [one for one, _ in found["COUNT-006"]] == [status]
        assert found["COUNT-007"][0][0] == "pass"
        assert status == "pass" or "NVLink GPU 3" in found["COUNT-006"][0][1]


@needs_gpu_lab
def test_ports_of_a_real_node_are_read_and_tell_what_grew(tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(Path(GPU_LAB) / "sys", root / "sys")
    for folder in root.rglob("*"):
        folder.chmod(0o755 if folder.is_dir() else 0o644)
    before = take(root, own=dict)
    assert before.unread == {}
    ports = [name for name in before.values if name.startswith("RDMA")]
    assert len(ports) == 9
    untouched = growth(before, take(root, own=dict))
    # On that node one port's counter of eight bits stands at its end: what it does now is not known.
    assert "RDMA mlx5_1 port 1: link_downed" in untouched["full"]
    told = [judged(untouched)[id][0][0] for id in ("COUNT-001", "COUNT-002", "COUNT-003")]
    assert told == ["not_checked", "pass", "pass"]
    port = root / "sys/class/infiniband/mlx5_4/ports/1"
    for name, more in {
        "counters/link_downed": 1,
        "counters/symbol_error": 500,
        "hw_counters/packet_seq_err": 90_000,
        "counters/port_rcv_packets": 1_000_000,
    }.items():
        file = port / name
        file.write_text(str(int(file.read_text()) + more))
    found = judged(growth(before, take(root, own=dict)))
    for id in ("COUNT-001", "COUNT-002", "COUNT-003"):
        status, title = found[id][0]
        assert (status, "mlx5_4 port 1" in title) == ("fail", True)
