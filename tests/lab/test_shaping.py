"""From faults to what each end of a link may send."""

from pathlib import Path

from wirespeed.lab.faults import cpu_hierarchy
from wirespeed.lab.network import Shape, plan_in, plan_out, tc_commands
from wirespeed.lab.spec import Mtu, Slow, SlowLink

GIGA, SLOW = 10**9, 10**8
ADDRESSES = {"node-0": "10.0.0.1", "node-1": "10.0.0.2"}


def test_a_slow_node_is_slow_both_ways_and_no_other_is() -> None:
    faults = [Slow("node-1", SLOW)]
    assert plan_out("node-1", GIGA, faults) == Shape(SLOW)
    assert plan_in("node-1", GIGA, faults) == Shape(SLOW)
    assert plan_out("node-0", GIGA, faults) == plan_in("node-0", GIGA, faults) == Shape(GIGA)


def test_one_way_is_the_other_way_as_before() -> None:
    assert plan_out("node-1", GIGA, [Slow("node-1", SLOW, "out")]) == Shape(SLOW)
    assert plan_in("node-1", GIGA, [Slow("node-1", SLOW, "out")]) == Shape(GIGA)
    assert plan_out("node-1", GIGA, [Slow("node-1", SLOW, "in")]) == Shape(GIGA)
    assert plan_in("node-1", GIGA, [Slow("node-1", SLOW, "in")]) == Shape(SLOW)


def test_the_slowest_of_several_counts() -> None:
    faults = [Slow("node-1", SLOW), Slow("node-1", SLOW // 2, "out")]
    assert plan_out("node-1", GIGA, faults) == Shape(SLOW // 2)
    assert plan_in("node-1", GIGA, faults) == Shape(SLOW)


def test_a_slow_pair_is_shaped_at_both_senders_and_towards_each_other_only() -> None:
    faults = [SlowLink("node-0", "node-1", SLOW)]
    assert plan_out("node-0", GIGA, faults) == Shape(GIGA, {"node-1": SLOW})
    assert plan_out("node-1", GIGA, faults) == Shape(GIGA, {"node-0": SLOW})
    assert plan_out("node-2", GIGA, faults) == Shape(GIGA)
    assert plan_in("node-0", GIGA, faults) == Shape(GIGA)


def test_a_pair_that_is_faster_than_its_node_changes_nothing() -> None:
    faults = [SlowLink("node-0", "node-1", SLOW), Slow("node-0", SLOW // 2)]
    assert plan_out("node-0", GIGA, faults) == Shape(SLOW // 2)


def test_a_small_mtu_limits_the_frame_that_the_switch_sends() -> None:
    shape = plan_in("node-1", GIGA, [Mtu("node-1", 1400)])
    (command,) = tc_commands("port", shape, ADDRESSES)
    assert command[command.index("burst") + 1] == "1414"


def test_every_command_names_the_interface_and_a_pair_its_address() -> None:
    commands = tc_commands("eth0", Shape(GIGA, {"node-1": SLOW}), ADDRESSES)
    assert all("eth0" in words for words in commands)
    assert [words for words in commands if "10.0.0.2/32" in words]
    assert not [words for words in commands if "10.0.0.1/32" in words]


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
