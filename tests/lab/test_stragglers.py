"""Where a CPU quota can be set: version 1, version 2, or nowhere."""

from pathlib import Path

from wirespeed.lab.faults import cpu_hierarchy


def test_version_1_by_its_option() -> None:
    mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /c/cpuset cgroup rw,cpuset 0 0\n"
    assert cpu_hierarchy(mounts) is None
    assert cpu_hierarchy(mounts + "cgroup /c/cpu cgroup rw,cpu,cpuacct 0 0\n") == Path("/c/cpu")


def test_version_2_only_where_children_get_the_cpu_controller(tmp_path: Path) -> None:
    mounts = f"cgroup2 {tmp_path} cgroup2 rw 0 0\n"
    assert cpu_hierarchy(mounts) is None
    (tmp_path / "cgroup.subtree_control").write_text("memory pids\n")
    assert cpu_hierarchy(mounts) is None
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory\n")
    assert cpu_hierarchy(mounts) == tmp_path
