"""Limits that a container or a batch system puts on us: cgroup v2, and v1 where it is still used.

Every cgroup above ours limits us as well, so the smallest along the way counts. A container whose
own cgroup is mounted as the root sees a path in /proc/self/cgroup that is not below the mount; its
mount's root is then all that can be seen.
"""

from collections.abc import Iterator
from pathlib import Path

from wirespeed.world.reading import read_number, read_text

__all__ = ["UNLIMITED", "cpu_quota", "memory_limit", "memory_room", "throttled_s"]

UNLIMITED = "unlimited"
"""How a limit that is not there is noted among the facts."""

_MOUNT = "sys/fs/cgroup"
_NO_LIMIT = 1 << 60
"""v1 writes "no limit" as the largest multiple of a page below 2^63."""


def cpu_quota(root: Path) -> float | None:
    """CPUs' worth of time that we may use, such as 3.5; None without a limit."""
    quotas = [*_quotas_v2(root), *_quotas_v1(root)]
    return min(quotas, default=None)


def throttled_s(root: Path) -> float:
    """Seconds for which a quota has stopped us so far, by the cgroup that was stopped longest."""
    v2 = (_statistic(at / "cpu.stat", "throttled_usec") / 1e6 for at in _folders(root, ""))
    v1 = (_statistic(at / "cpu.stat", "throttled_time") / 1e9 for at in _folders(root, "cpu"))
    return max(*v2, *v1, 0.0, 0.0)


def memory_limit(root: Path) -> int | None:
    """Bytes that our cgroups allow, or None without a limit."""
    return min((limit for limit, _ in _memory(root)), default=None)


def memory_room(root: Path) -> int | None:
    """Bytes that our cgroups leave us: limit less usage, page cache that can be dropped not counted."""
    return min((max(0, limit - used) for limit, used in _memory(root)), default=None)


def _quotas_v2(root: Path) -> Iterator[float]:
    for folder in _folders(root, ""):
        quota, _, period = (read_text(folder / "cpu.max") or "max").partition(" ")
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)


def _quotas_v1(root: Path) -> Iterator[float]:
    for folder in _folders(root, "cpu"):
        quota = read_number(folder / "cpu.cfs_quota_us")
        period = read_number(folder / "cpu.cfs_period_us")
        if quota is not None and period and quota > 0:
            yield quota / period


def _memory(root: Path) -> Iterator[tuple[int, int]]:
    """Limit and use in bytes of each of our cgroups that has a limit."""
    names = (
        ("", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    )
    for controller, limit_name, usage_name, cache_name in names:
        for folder in _folders(root, controller):
            limit = read_number(folder / limit_name)
            if limit is None or limit >= _NO_LIMIT:
                continue
            used = read_number(folder / usage_name) or 0
            yield limit, used - _statistic(folder / "memory.stat", cache_name)


def _statistic(path: Path, name: str) -> int:
    for line in (read_text(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdecimal():
            return int(value)
    return 0


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Our cgroup and those above it; `controller` is empty for v2."""
    mount = root / _MOUNT / controller
    path = _own_path(root, controller)
    if path is None or not mount.is_dir():
        return
    folder = mount / path
    while folder != mount and mount in folder.parents:
        if folder.is_dir():
            yield folder
        folder = folder.parent
    yield mount


def _own_path(root: Path, controller: str) -> str | None:
    """Our path from lines such as `0::/user.slice/x` (v2) and `4:memory:/x` (v1)."""
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(","):
            return path.strip("/").replace("../", "")  # /../x: outside of our cgroup namespace
    return None
