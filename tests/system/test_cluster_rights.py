"""What a pod may really do on a real cluster: lock memory, share a volume, use a missing account."""

import json
import os
import resource
import shutil
import subprocess
from typing import Any

import pytest

pytestmark = pytest.mark.system

LOCK = (
    "import ctypes, mmap\n"
    "size = 64 << 20\n"
    "memory = mmap.mmap(-1, size)\n"
    "first = ctypes.addressof(ctypes.c_char.from_buffer(memory))\n"
    "libc = ctypes.CDLL(None)\n"
    "print(libc.mlock(ctypes.c_void_p(first), ctypes.c_size_t(size)))\n"
)
"""0: 64 MiB could be locked; -1: they could not."""
IPC_LOCK = 1 << 14
SIZE_KIB = 64 << 10


def told(kube: Any, pod: str) -> tuple[str, int, int]:
    """(`ulimit -l` in KiB, the effective capabilities, whether 64 MiB can be locked) in the pod."""
    shell = "ulimit -l; grep CapEff /proc/self/status"
    seen = kube("exec", pod, "-c", "ranks", "--", "sh", "-c", shell)
    assert seen.returncode == 0, seen.stderr
    limit, effective = seen.stdout.split("\n")[:2]
    locked = kube("exec", pod, "-c", "ranks", "--", "python3", "-c", LOCK)
    assert locked.returncode == 0, locked.stderr
    return limit, int(effective.split()[1], 16), int(locked.stdout)


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="Requires: root and setpriv"
)
@pytest.mark.parametrize(("user", "locked", "effective"), [(0, 0, IPC_LOCK), (1000, -1, 0)])
def test_the_kernel_gives_a_containers_capability_to_root_alone(
    user: int, locked: int, effective: int
) -> None:
    """As a runtime starts a container: the bounding set holds it, and nothing is ambient."""
    words = ["setpriv", f"--reuid={user}", "--clear-groups", "--inh-caps=-all"]
    words += ["--bounding-set=-all,+ipc_lock", "/usr/bin/python3", "-c"]
    told = "print(*[line.split()[1] for line in open('/proc/self/status') if 'CapEff' in line])"
    done = subprocess.run(
        [*words, f"{LOCK}{told}"],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 << 20, 8 << 20)),
    )
    first, second = done.stdout.split()
    assert (int(first), int(second, 16)) == (locked, effective)


@pytest.mark.parametrize("user", [0, 1000])
def test_ipc_lock_is_roots_alone(kube: Any, user: int) -> None:
    kube.file(security={"ipc_lock": True, "run_as_user": user}, gpus={"default_nodes": 1})
    done = kube.cli("cluster", "deploy", "demo", "-o", "json")
    assert done.code == 0, done.out + done.err
    warned = [one["id"] for one in done.json["findings"] if one["status"] == "warn"]
    assert warned == (["CLUSTER-046"] if user else [])
    limit, effective, locked = told(kube, "demo-0")
    assert bool(effective & IPC_LOCK) == (user == 0)
    enough = limit == "unlimited" or int(limit) >= SIZE_KIB
    assert locked == (0 if user == 0 or enough else -1), f"ulimit -l: {limit}"


def test_a_check_sees_that_the_volume_is_shared(kube: Any, finding: Any) -> None:
    pytest.importorskip("torch", reason="Requires: torch")
    kube.file(storage={"mode": "rwx", "workspace_size": "16Mi"})
    done = kube.cli("cluster", "deploy", "demo", timeout=170.0)
    assert done.code == 0, done.out + done.err
    words = ("--on", "k8s", "--cluster", "demo", "-q", "--only", "COL-001")
    done = kube.cli("check", *words, timeout=170.0)
    run: dict[str, Any] = json.loads((kube.cli.folders()[-1] / "run.json").read_text())
    seen = finding(run, "CLUSTER-047")
    assert (done.code, seen["status"]) == (0, "pass"), done.out + done.err
    assert "1 pod read the 8 MiB that demo-0 wrote" in seen["title"]
    left = kube("exec", "demo-1", "-c", "ranks", "--", "ls", "-A", "/workspace")
    assert ".wirespeed-shared" not in left.stdout


def test_an_account_that_is_missing_comes_with_the_command(kube: Any) -> None:
    kube.file(security={"service_account": "nope"})
    done = kube.cli("cluster", "deploy", "demo", "-o", "json")
    (lost,) = [one for one in done.json["findings"] if one["id"] == "CLUSTER-025"]
    assert lost["next"] == f"kubectl create serviceaccount nope --namespace {kube.namespace}"
    made = kube(*lost["next"].split()[1:])
    assert made.returncode == 0, made.stderr
    again = kube.cli("cluster", "deploy", "demo")
    assert again.code == 0, again.out + again.err
