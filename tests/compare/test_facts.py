"""What differs between runs, what is alike, and what nobody recorded."""

from dataclasses import replace

from wirespeed.compare.figures import differences, facts_of
from wirespeed.model.derived_records import Difference
from wirespeed.model.records import World


def test_each_kind_of_difference_is_named(make_run) -> None:  # type: ignore[no-untyped-def]
    a = make_run(
        "a", versions={"nccl": "2.28.9"}, environment={"NCCL_ALGO": "Ring", "OMP_NUM_THREADS": "1"}
    )
    b = make_run(
        "b", versions={"nccl": "2.29.1"}, environment={"OMP_NUM_THREADS": "1"}, host="node-b"
    )
    found, alike, unknown = differences(facts_of([a]), facts_of([b]))
    assert found == (
        Difference("versions", "nccl", "2.28.9", "2.29.1"),
        Difference("environment", "NCCL_ALGO", "Ring", "(not set)"),
        Difference("hosts", "hosts", "node-a", "node-b"),
    )
    assert alike == ("world",)
    assert unknown == ("image", "hardware", "clocks", "options")


def test_values_of_several_runs_stand_side_by_side(make_run) -> None:  # type: ignore[no-untyped-def]
    mixed = [make_run("a", versions={"nccl": v}) for v in ("1", "2")]
    (found,), _, _ = differences(facts_of(mixed), facts_of([make_run("b", versions={"nccl": "2"})]))
    assert (found.before, found.after) == ("1 | 2", "2")


def test_what_one_side_did_not_record_is_unknown(make_run) -> None:  # type: ignore[no-untyped-def]
    """An import knows no environment: that is not the same as having none."""
    own = make_run("a", environment={"NCCL_ALGO": "Ring"})
    nowhere = World(size=0, nodes=(), backend="", launcher="")
    imported = replace(make_run("b"), world=nowhere, versions={})
    found, alike, unknown = differences(facts_of([own]), facts_of([imported]))
    assert found == ()
    assert alike == ()
    assert {"versions", "environment", "hosts"} <= set(unknown)


def test_devices_and_settings(make_run) -> None:  # type: ignore[no-untyped-def]
    def run(clock: int, iterations: int):  # type: ignore[no-untyped-def]
        plain = make_run("a")
        node = replace(
            plain.world.nodes[0],
            gpus=({"name": "H100", "clock_sm_max_MHz": clock}, {"name": "H100"}),
            nics=({"name": "lo", "loopback": True, "mtu": 65536}, {"name": "eth0", "mtu": 9000}),
        )
        world = replace(plain.world, nodes=(node,))
        return replace(plain, world=world, config={"iterations": iterations, "color": "auto"})

    found, alike, _ = differences(facts_of([run(1980, 10)]), facts_of([run(1410, 20)]))
    assert found == (
        Difference("clocks", "gpu clock_sm_max_MHz", "1980", "1410"),
        Difference("options", "iterations", "10", "20"),
    )
    assert "hardware" in alike
    assert facts_of([run(1980, 10)])["hardware", "nic mtu"] == {"9000"}
