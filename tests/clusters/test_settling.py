"""From a file and options to a deployment: the order of precedence, refusals, and told choices."""

from typing import Any

import pytest

from wirespeed.clusters.deployment import Deployment, settle
from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.presets import preset_named, preset_names
from wirespeed.errors import UsageError


def file_with(**parts: Any) -> ClusterFile:
    return ClusterFile.model_validate({"cluster": {"name": "lab"}, **parts})


def network(**keys: Any) -> ClusterFile:
    return file_with(network=keys)


def chosen(deployment: Deployment) -> dict[str, str]:
    return {one.name: one.value for one in deployment.choices}


def variables(deployment: Deployment) -> dict[str, str]:
    preset = deployment.preset
    return {one.name: one.value for one in preset.environment} if preset else {}


def test_a_bare_file_runs_anywhere() -> None:
    made = settle(file_with())
    assert (made.mode, made.nodes, made.engine, made.gpus) == ("tcp", 2, "statefulset", 0)
    assert chosen(made) == {"nodes": "2", "engine": "statefulset", "mode": "tcp", "gpus": "0"}
    assert all(one.reason for one in made.choices)


def test_what_is_said_is_no_choice() -> None:
    file = file_with(workload={"engine": "jobset"}, gpus={"per_node": 8}, network={"mode": "tcp"})
    made = settle(file, nodes=3)
    assert (made.nodes, made.engine, made.mode) == (3, "jobset", "tcp")
    assert made.choices == ()
    assert settle(file, engine="mpijob").engine == "mpijob"


@pytest.mark.parametrize(
    ("keys", "option", "mode"),
    [
        ({"mode": "rdma", "rdma": {"resource": "rdma/ib"}}, None, "rdma"),
        ({"mode": "rdma", "rdma": {"resource": "rdma/ib"}}, "tcp", "tcp"),
        ({"mode": "tcp", "rdma": {"resource": "rdma/ib", "enabled": True}}, None, "tcp"),
        ({"mode": "tcp", "rdma": {"resource": "rdma/ib", "enabled": True}}, "auto", "rdma"),
        ({"mode": "tcp", "rdma": {"resource": "rdma/ib"}}, "rdma", "rdma"),
        ({"preset": "h100-ib"}, None, "rdma"),
        ({"preset": "h100-ib", "rdma": {"enabled": False}}, None, "tcp"),
        ({"preset": "gcp-tcpxo"}, None, "tcp"),
        ({"rdma": {"resource": "rdma/ib"}}, None, "tcp"),
    ],
)
def test_option_before_file_before_preset(
    keys: dict[str, Any], option: str | None, mode: str
) -> None:
    assert settle(network(**keys), mode=option).mode == mode


@pytest.mark.parametrize("keys", [{}, {"preset": "rdma"}, {"preset": "ethernet"}])
def test_rdma_that_nothing_names_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        settle(network(**keys), mode="rdma")
    assert "--mode rdma" in caught.value.saw
    assert "no RDMA resource, network or device" in caught.value.saw
    for key in ("network.rdma.resource", "network.rdma.networks", "network.rdma.devices"):
        assert key in caught.value.expected
    assert "--fallback tcp" in caught.value.next


def test_enabled_alone_is_not_enough() -> None:
    with pytest.raises(UsageError, match=r"network\.rdma\.enabled is true"):
        settle(network(rdma={"enabled": True}))


def test_fallback_goes_on_and_says_so() -> None:
    made = settle(network(preset="rdma"), mode="rdma", fallback="tcp")
    assert made.mode == "tcp"
    reason = next(one.reason for one in made.choices if one.name == "mode")
    assert "no RDMA resource" in reason
    assert "--fallback tcp" in reason
    there = settle(network(preset="h100-ib"), mode="rdma", fallback="tcp")
    assert there.mode == "rdma", "nothing to fall back from"


@pytest.mark.parametrize(
    ("rdma", "lost"),
    [
        ({"interfaces": "net1,net2", "networks": ["a"]}, "net2"),
        ({"interfaces": "=net1", "networks": ["a@rail0"]}, "net1"),
    ],
)
def test_interfaces_that_no_network_attaches_are_refused(rdma: dict[str, Any], lost: str) -> None:
    file = network(rdma={"enabled": True, "resource": "rdma/ib", **rdma})
    with pytest.raises(UsageError) as caught:
        settle(file)
    assert f"names {lost}," in caught.value.saw
    assert "network.rdma.networks" in caught.value.expected
    assert settle(file, fallback="tcp").mode == "tcp"
    assert settle(file, mode="tcp").mode == "tcp"


@pytest.mark.parametrize(
    "rdma",
    [
        {"interfaces": "net1,net2", "networks": ["a", "team/b"]},
        {"interfaces": "net2", "networks": ["a@rail0", "b"]},
        {"interfaces": "^net1"},
        {"interfaces": "eth0,ib0"},
    ],
)
def test_interfaces_that_are_there_are_taken(rdma: dict[str, Any]) -> None:
    made = settle(network(rdma={"enabled": True, "resource": "rdma/ib", **rdma}))
    assert made.mode == "rdma"
    assert made.file.network.rdma.interfaces == rdma["interfaces"]


def test_tcp_carries_nothing_of_an_rdma_preset() -> None:
    for name in preset_names():
        if preset_named(name).mode == "rdma":
            made = settle(network(preset=name), mode="tcp")
            assert made.preset is not None
            assert not variables(made)
            assert not made.preset.resources
            assert not made.preset.ipc_lock
            assert made.preset.same_zone == preset_named(name).same_zone
            assert chosen(made)["preset"] == "none"


def test_rdma_carries_nothing_of_a_tcp_preset() -> None:
    made = settle(network(preset="ethernet", rdma={"resource": "rdma/ib"}), mode="rdma")
    assert made.mode == "rdma"
    assert not variables(made)


def test_every_preset_settles_as_its_own_mode() -> None:
    for name in preset_names():
        preset = preset_named(name)
        needs = {} if preset.resources else {"resource": "rdma/ib"}
        made = settle(network(preset=name, rdma=needs))
        assert made.mode == preset.mode
        assert variables(made) == {one.name: one.value for one in preset.environment}


def test_the_resource_is_asked_for_once() -> None:
    made = settle(network(preset="h100-ib"))
    assert (made.file.network.rdma.resource, made.file.network.rdma.count) == ("rdma/ib", 1)
    own = settle(network(preset="h100-ib", rdma={"resource": "nvidia.com/hca", "count": 8}))
    assert (own.file.network.rdma.resource, own.file.network.rdma.count) == ("nvidia.com/hca", 8)
    counted = settle(network(preset="aws-efa", rdma={"count": 32}))
    assert counted.file.network.rdma.resource == "vpc.amazonaws.com/efa"
    assert counted.file.network.rdma.count == 32
    for one in (made, own, counted):
        assert one.preset is not None
        assert not one.preset.resources, "it stands in the network now"


@pytest.mark.parametrize(
    ("devices", "ucx"),
    [
        ("mlx5_0,mlx5_1:2", "mlx5_0:1,mlx5_1:2"),
        ("=mlx5_0", "mlx5_0:1"),
        ("^mlx5_9", None),
        ("", "ibp0:1,ibp1:1,ibp2:1,ibp3:1"),
    ],
)
def test_ucx_follows_the_devices_of_the_file(devices: str, ucx: str | None) -> None:
    made = settle(network(preset="a100-ib", rdma={"devices": devices}))
    assert variables(made).get("UCX_NET_DEVICES") == ucx
    assert ("UCX_NET_DEVICES" in chosen(made)) == bool(devices)


def test_interfaces_of_a_tcp_preset_come_before_our_default() -> None:
    made = settle(network(preset="gcp-tcpx"))
    assert made.file.network.tcp.interface_exclude == "eth0"
    own = settle(network(preset="gcp-tcpx", tcp={"interface_exclude": "eth5"}))
    assert own.file.network.tcp.interface_exclude == "eth5"
    assert settle(network()).file.network.tcp.interface_exclude == "^lo,docker0"


def test_never_more_pods_than_named_nodes() -> None:
    named = file_with(nodes={"gpu_nodes": ["a", "b", "c"]}, gpus={"default_nodes": 3})
    assert settle(named).nodes == 3
    with pytest.raises(UsageError, match=r"--nodes asks for 4 nodes, and nodes\.gpu_nodes names 3"):
        settle(named, nodes=4)
    one = file_with(nodes={"gpu_nodes": ["a"]})
    assert (settle(one).nodes, chosen(settle(one))["nodes"]) == (1, "1")
    said = file_with(nodes={"gpu_nodes": ["a"]}, gpus={"default_nodes": 2})
    with pytest.raises(UsageError, match=r"gpus\.default_nodes asks for 2 nodes"):
        settle(said)


@pytest.mark.parametrize(
    "words", [{"mode": "roce"}, {"engine": "job"}, {"fallback": "rdma"}, {"nodes": 0}]
)
def test_unknown_words_are_refused(words: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        settle(file_with(), **words)


def test_another_name_makes_another_environment() -> None:
    made = settle(file_with(), name="other")
    assert (made.name, made.pods[0]) == ("other", "other-0")
    with pytest.raises(UsageError, match="cannot be the name"):
        settle(file_with(), name="$(id)")


def test_a_preset_for_other_gpus_is_remarked() -> None:
    file = file_with(network={"preset": "a100-ib"}, gpus={"type": "NVIDIA-H100-80GB-HBM3"})
    reason = next(one.reason for one in settle(file).choices if one.name == "preset")
    assert "made for A100" in reason


@pytest.mark.parametrize(("engine", "told"), [("statefulset", False), ("jobset", True)])
def test_claims_that_go_with_their_pods_are_told(engine: str, told: bool) -> None:
    made = settle(file_with(storage={"mode": "volumeClaimTemplates"}), engine=engine)
    assert ("storage" in chosen(made)) is told
