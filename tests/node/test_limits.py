"""Payload trees follow the kernel's documentation: admin-guide/cgroup-v2 and cgroup-v1."""

import subprocess
import sys
from pathlib import Path

import pytest

from wirespeed.errors import CannotMeasure
from wirespeed.node import limits
from wirespeed.node.limits import memory_available_bytes
from wirespeed.node.reading import Notes


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


V2 = "sys/fs/cgroup"


def test_cgroup_v2_the_smallest_limit_above_us_counts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pod/box",
        "proc/meminfo": "MemTotal:       16777216 kB\nMemAvailable:   8388608 kB",
        f"{V2}/pod/box/cpu.max": "max 100000",
        f"{V2}/pod/cpu.max": "350000 100000",
        f"{V2}/pod/cpu.stat": "nr_throttled 3\nthrottled_usec 250000",
        f"{V2}/pod/box/memory.max": "max",
        f"{V2}/pod/memory.max": str(4 << 30),
        f"{V2}/pod/memory.current": str(3 << 30),
        f"{V2}/pod/memory.stat": f"anon 1\ninactive_file {1 << 30}",
    }
    tree(tmp_path, files)
    assert limits.cpu_quota(tmp_path) == 3.5
    assert limits.throttled_s(tmp_path) == 0.25
    assert limits.memory_limit(tmp_path) == 4 << 30
    assert limits.memory_available_bytes(tmp_path) == 2 << 30


def test_cgroup_v1_in_a_container_that_sees_its_own_as_the_root(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/",
        "proc/meminfo": "MemAvailable:   8388608 kB",
        f"{V2}/cpu/cpu.cfs_quota_us": "150000",
        f"{V2}/cpu/cpu.stat": "nr_throttled 3\nthrottled_time 1500000000",
        f"{V2}/cpu/cpu.cfs_period_us": "100000",
        f"{V2}/memory/memory.limit_in_bytes": str(1 << 30),
        f"{V2}/memory/memory.usage_in_bytes": str(1 << 29),
    }
    tree(tmp_path, files)
    assert limits.cpu_quota(tmp_path) == 1.5
    assert limits.throttled_s(tmp_path) == 1.5
    assert limits.memory_available_bytes(tmp_path) == 1 << 29


def test_no_limit_is_said_and_not_unknown(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/\n3:cpu:/",
        f"{V2}/cpu/cpu.cfs_quota_us": "-1",
        f"{V2}/cpu/cpu.cfs_period_us": "100000",
        f"{V2}/memory/memory.limit_in_bytes": "9223372036854771712",
    }
    notes = Notes(tree(tmp_path, files))
    limits.gather_cpus(notes)
    limits.gather_limits(notes)
    assert notes.facts.cpu_quota == notes.facts.memory_limit_bytes == "unlimited"


def test_a_limit_below_the_use_leaves_nothing(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/x",
        f"{V2}/x/memory.max": "100",
        f"{V2}/x/memory.current": "200",
    }
    assert limits.memory_room(tree(tmp_path, files)) == 0


@pytest.mark.slow
def test_the_lock_limit_is_that_of_the_process() -> None:
    code = """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, hard))
from wirespeed.node.facts import gather_node
print(gather_node([0]).facts.memlock_soft)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "65536"


@pytest.mark.parametrize(
    ("capabilities", "users", "exempt"),
    [
        ("000001ffffffffff", "0 0 4294967295", True),
        ("0000000000004000", "         0          0 4294967295", True),
        ("00000000a80425fb", "0 0 4294967295", False),  # docker's default set
        ("000001ffffffffff", "0 1000 1", False),  # a rootless container
    ],
)
def test_who_may_lock_memory_without_limit(
    tmp_path: Path, capabilities: str, users: str, exempt: bool
) -> None:
    files = {"proc/self/status": f"Name:\tx\nCapEff:\t{capabilities}", "proc/self/uid_map": users}
    notes = Notes(tree(tmp_path, files))
    limits.gather_limits(notes)
    assert notes.facts.memlock_exempt is exempt


def test_as_many_as_asked_for():
    assert limits.choose_ranks(3, "gloo").value == "3"


def test_more_ranks_than_memory_are_refused_with_the_most_that_fit():
    most = (memory_available_bytes() - limits.TORCH_BYTES) // limits.RANK_BYTES
    with pytest.raises(CannotMeasure, match=f"--ranks {4 * most} would take") as refused:
        limits.choose_ranks(4 * most, "gloo")
    # Memory comes and goes while this runs: the figure is near, and what it says is accepted.
    said = int(refused.value.next.rpartition(" ")[2])
    assert most / 2 <= said <= most * 2
    assert limits.choose_ranks(said // 2, "gloo").value == str(said // 2)


def test_unknown_memory_refuses_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "memory_available_bytes", lambda: 0)
    assert limits.choose_ranks(1000, "gloo").value == "1000"
