"""Environment: order, precedence, and that values reach the ranks as they stand in the file."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from wirespeed.clusters.deployment import Deployment
from wirespeed.clusters.manifests import environment, escaped, variables

Make = Callable[..., Deployment]
RDMA = {"mode": "rdma", "rdma": {"resource": "rdma/ib"}}


def values(made: Deployment) -> dict[str, str]:
    return {one["name"]: one["value"] for one in environment(made) if "value" in one}


def test_the_order_is_fixed_whatever_the_files(deployment: Make) -> None:
    one = deployment(workload={"env": {"ZED": "1", "ALPHA": "2"}}, nccl={"debug": "INFO"})
    two = deployment(workload={"env": {"ALPHA": "2", "ZED": "1"}}, nccl={"debug": "INFO"})
    names = [entry["name"] for entry in environment(one)]
    assert environment(one) == environment(two)
    assert names[:6] == ["NODE_NAME", "POD_IP", "POD_NAME", "MASTER_ADDR", "MASTER_PORT", "NNODES"]
    assert names[6:] == ["ALPHA", "NCCL_DEBUG", "NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME", "ZED"]


def test_ranks_meet_at_the_first_pod(deployment: Make) -> None:
    found = values(deployment(pods=3, network={"port": 29400}))
    assert found["MASTER_ADDR"] == "mine-0.mine.here.svc"
    assert (found["MASTER_PORT"], found["NNODES"]) == ("29400", "3")


def test_tcp(deployment: Make) -> None:
    found = variables(deployment(network={"mode": "tcp", "tcp": {"p2p_level": "NVL"}}))
    assert found == {
        "NCCL_IB_DISABLE": "1",
        "NCCL_P2P_LEVEL": "NVL",
        "NCCL_SOCKET_IFNAME": "^lo,docker0",
    }


def test_rdma_says_only_what_the_file_says(deployment: Make) -> None:
    assert variables(deployment(network=RDMA)) == {"NCCL_IB_DISABLE": "0"}
    keys = {
        "devices": "mlx5_2", "interfaces": "net1", "networks": ["rail-0"], "gid_index": "3",
        "gdr_level": "5", "cross_nic": "1", "ib_timeout": "22", "min_nchannels": "4",
    }  # fmt: skip
    assert variables(deployment(network={"mode": "rdma", "rdma": keys})) == {
        "NCCL_CROSS_NIC": "1",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_IB_HCA": "mlx5_2",
        "NCCL_IB_TIMEOUT": "22",
        "NCCL_MIN_NCHANNELS": "4",
        "NCCL_NET_GDR_LEVEL": "5",
        "NCCL_SOCKET_IFNAME": "net1",
    }


def test_workload_env_comes_before_the_network_keys_and_these_before_the_preset(
    deployment: Make,
) -> None:
    name = "NCCL_IB_HCA"
    preset = variables(deployment(network={"preset": "h100-ib"}))[name]
    network = {"preset": "h100-ib", "rdma": {"devices": "mlx5_7"}}
    assert preset not in ("mlx5_7", "mlx5_9")
    assert variables(deployment(network=network))[name] == "mlx5_7"
    own = {"env": {name: "mlx5_9"}}
    assert variables(deployment(network=network, workload=own))[name] == "mlx5_9"


def test_our_default_interfaces_give_way_to_the_presets_and_not_what_the_file_says(
    deployment: Make,
) -> None:
    from dataclasses import replace

    from wirespeed.clusters.presets import Preset, Variable

    theirs = Variable(name="NCCL_SOCKET_IFNAME", value="eth7", why="")
    preset = Preset(name="p", summary="", why="", source="", mode="tcp", environment=(theirs,))
    silent = replace(deployment(), preset=preset)
    said = replace(deployment(network={"tcp": {"interface_exclude": "^lo"}}), preset=preset)
    assert variables(silent)["NCCL_SOCKET_IFNAME"] == "eth7"
    assert variables(said)["NCCL_SOCKET_IFNAME"] == "^lo"


def test_what_follows_from_the_pod_cannot_be_set(deployment: Make) -> None:
    for entry in environment(deployment()):
        if (name := entry["name"]).startswith("NCCL"):
            continue
        with pytest.raises(ValidationError, match="another variable"):
            deployment(workload={"env": {name: "x"}})


@pytest.mark.parametrize(
    ("text", "written"),
    [("$(POD_NAME)", "$$(POD_NAME)"), ("$$(A)", "$$$$(A)"), ("a$", "a$$"), ("5 %", "5 %")],
)
def test_kubernetes_gets_no_reference_out_of_a_value(
    text: str, written: str, deployment: Make
) -> None:
    """As its expansion reads: `$$` is a `$`, and `$(` begins a name unless it was one of these."""
    assert escaped(text) == written
    found = values(deployment(workload={"env": {"HOSTILE": text}}))
    assert found["HOSTILE"] == written


def test_each_name_stands_once(deployment: Make) -> None:
    """Twice the same name is refused by server-side apply."""
    made = deployment(workload={"env": {"NCCL_IB_DISABLE": "0", "NCCL_DEBUG": "WARN"}})
    names: list[Any] = [one["name"] for one in environment(made)]
    assert len(names) == len(set(names))
