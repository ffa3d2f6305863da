"""Files of the older tool are read unchanged, with each kind of value that such files have."""

from pathlib import Path

import pytest

from wirespeed.clusters.file import Amounts, ClusterFile
from wirespeed.clusters.reading import read_cluster

OLDER = Path(__file__).with_name("older.yaml").read_text("utf-8")


def changed(*pairs: tuple[str, str]) -> ClusterFile:
    text = OLDER
    for before, after in pairs:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return read_cluster(text, "older.yaml")


def test_as_its_template_has_it() -> None:
    file = changed()
    assert file.cluster.api == "api.lab-one.example.org"
    assert file.nodes.gpu_nodes == ("gpu-node-u25", "gpu-node-u23")
    assert file.network.rdma.gid_index == "3"
    assert file.network.rdma.enabled is True
    assert file.network.tcp.interface_exclude == "^lo,docker0"
    assert file.gpus.per_node == 4
    assert file.gpus.type == "NVIDIA-H100-80GB-HBM3", "as the node label has it"
    assert file.resources.requests == Amounts(cpu="32", memory="128Gi")
    assert file.resources.limits == Amounts(cpu="64", memory="256Gi")
    assert file.notes.endswith("\"quotes\", 'more', $(nothing), {{ nothing }} and\ta tab\n")


def test_numbers_without_quotes_and_numbers_with_them() -> None:
    pairs = [(f'{key}: "{value}"', f"{key}: {value}") for key, value in RDMA.items()]
    pairs += [("per_node: 4", 'per_node: "4"'), ("cpu: 32", 'cpu: "32"')]
    assert changed(*pairs) == changed()


RDMA = {"gid_index": 3, "gdr_level": 5, "cross_nic": 1, "ib_timeout": 22, "min_nchannels": 4}


@pytest.mark.parametrize("word", ["yes", "on", "True", '"true"'])
def test_yes_in_each_spelling(word: str) -> None:
    assert changed(("enabled: true", f"enabled: {word}")) == changed()


@pytest.mark.parametrize("word", ["no", "off", "False", '"false"'])
def test_no_in_each_spelling(word: str) -> None:
    assert changed(("enabled: true", f"enabled: {word}")).network.rdma.enabled is False


@pytest.mark.parametrize("empty", ["", " ~", " null", " []"])
def test_no_node_is_named(empty: str) -> None:
    nodes = "gpu_nodes:\n    - gpu-node-u25\n    - gpu-node-u23\n"
    assert changed((nodes, f"gpu_nodes:{empty}\n")).nodes.gpu_nodes == ()
    assert changed((nodes, "gpu_nodes:\n    -\n    -\n")).nodes.gpu_nodes == ()


def test_empty_sections_and_keys_are_defaults() -> None:
    text = "cluster: {name: a}\n" + "".join(
        f"{section}:\n" for section in ClusterFile.model_fields if section != "cluster"
    )
    plain = read_cluster("cluster: {name: a}\n", "a.yaml")
    assert read_cluster(text, "a.yaml") == plain
    assert (
        read_cluster(text.replace("network:", "network: {rdma: , tcp: {}, port: ~}"), "") == plain
    )


def test_an_empty_value_is_not_said() -> None:
    """What is said has precedence over a preset, so this must not look like it."""
    file = read_cluster("cluster: {name: a}\ngpus: {per_node: , default_nodes: 2}\n", "a.yaml")
    assert file.gpus.model_fields_set == {"default_nodes"}


def test_what_its_discovery_writes_without_rdma() -> None:
    text = """\
cluster: {name: found, api: 'https://api.x.example.org:6443', namespace: default}
nodes: {gpu_nodes: []}
network:
  rdma: {enabled: false, devices: '', interfaces: '', gid_index: '3', gdr_level: '5'}
  tcp: {interface_exclude: ^lo,docker0, p2p_level: NVL}
security: {ipc_lock: false, requires_privileged_scc: false, service_account: ml-dev-sa}
notes: "Auto-discovered\\n\\nCluster details:\\n- API: x\\n"
"""
    assert read_cluster(text, "found.yaml").network.rdma.devices == ""
