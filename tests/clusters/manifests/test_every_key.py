"""Every key of a cluster file reaches the manifests, or what kubectl is told, and with its value.

The keys come from the JSON Schema of the model, so that a new one without an effect fails here.
"""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from wirespeed.clusters.deployment import settle
from wirespeed.clusters.file import Cluster, ClusterFile
from wirespeed.clusters.kube import kubectl_of
from wirespeed.clusters.manifests.render import render
from wirespeed.errors import UsageError

Key = tuple[str, ...]

KUBECTL = {"cluster.context", "cluster.kubeconfig", "cluster.program"}
"""Say how kubectl is started."""
ELSEWHERE = {
    "cluster.api": "compared with the address that kubectl has, before anything is done",
    "workload.python": "the program that kubectl exec starts in a pod",
}
"""Neither manifests nor kubectl's first words; the parts that read them have tests of their own."""
RENAMED = {"network.mode", "network.preset"}
"""Choose among others; their own words are nowhere in the manifests."""

VOLUME = {"name": "more", "mount_path": "/more", "empty_dir": "1Gi"}
RDMA = {"rdma": {"resource": "rdma/ib", "networks": ["rail-0"]}, "mode": "rdma"}
BASES: tuple[dict[str, Any], ...] = (
    {"storage": {"mode": "rwx", "datasets_size": "1Gi"}, "gpus": {"per_node": 2}, "network": RDMA},
    {"storage": {"mode": "volumeClaimTemplates"}, "network": {"mode": "tcp"}},
    {"network": {"rdma": {"resource": "rdma/ib"}}},
)
"""Where a key has an effect differs: a storage class for its mode, adapters for RDMA."""

VALUES: dict[str, Any] = {
    "cluster.name": "other",
    "cluster.namespace": "elsewhere",
    "cluster.api": "https://api.example.org:6443",
    "cluster.context": "other-context",
    "cluster.kubeconfig": "/other/kubeconfig",
    "cluster.program": "oc",
    "cluster.description": "other words",
    "workload.image": "registry.example.org/other:2",
    "workload.image_pull_secrets": ["other-secret"],
    "workload.python": "/opt/other/bin/python3",
    "workload.shm_size": "77Gi",
    "workload.env": {"OTHER": "other-value"},
    "workload.env_from_secrets": ["other-secret"],
    "workload.labels": {"example.org/other": "other-value"},
    "workload.annotations": {"example.org/other": "other value"},
    "workload.service_annotations": {"example.org/other": "other value"},
    "workload.priority_class": "other-class",
    "workload.scheduler": "other-scheduler",
    "workload.queue": "other-queue",
    "workload.runtime_class": "other-runtime",
    "nodes.gpu_nodes": ["other-0", "other-1"],
    "nodes.node_selector": {"example.org/other": "other-value"},
    "nodes.spread_over": "example.org/other",
    "nodes.tolerations.key": "example.org/other",
    "nodes.tolerations.operator": "Equal",
    "nodes.tolerations.value": "other-value",
    "nodes.tolerations.toleration_seconds": 77,
    "gpus.resource": "example.org/gpu",
    "gpus.type": "Other-GPU",
    "resources.requests.cpu": "7",
    "resources.requests.memory": "77Mi",
    "resources.limits.cpu": "78",
    "resources.limits.memory": "78Gi",
    "storage.class_rwx": "other-rwx",
    "storage.class_rwo": "other-rwo",
    "storage.workspace_size": "77Gi",
    "storage.datasets_size": "78Gi",
    "network.preset": "h100-ib",
    "network.rdma.resource": "example.org/nic",
    "network.rdma.devices": "mlx5_77",
    "network.rdma.interfaces": "eth77",
    "network.rdma.networks": ["other-rail"],
    "network.rdma.gid_index": "7",
    "network.rdma.gdr_level": "PXB",
    "network.rdma.cross_nic": "2",
    "network.rdma.ib_timeout": "27",
    "network.rdma.min_nchannels": "17",
    "network.tcp.interface_exclude": "^lo,eth77",
    "network.tcp.p2p_level": "SYS",
    "security.service_account": "other-account",
    "security.run_as_user": 77,
    "security.fs_group": 78,
    "workload.volumes.name": "other",
    "workload.volumes.mount_path": "/other",
    "workload.volumes.claim": "other-claim",
    "workload.volumes.config_map": "other-map",
    "workload.volumes.secret": "other-secret",
    "workload.volumes.host_path": "/other/path",
    "workload.volumes.empty_dir": "77Gi",
    "notes": "other words\n",
}
"""What the schema alone cannot tell: a text of the right form that stands nowhere by itself."""


def leaves(
    schema: dict[str, Any], whole: dict[str, Any], at: Key = ()
) -> Iterator[tuple[Key, Any]]:
    """Each key with its schema; of a list of sections, the keys of one section."""
    for name, part in schema["properties"].items():
        section = part.get("$ref") or part.get("items", {}).get("$ref")
        if section:
            yield from leaves(whole["$defs"][section.rpartition("/")[2]], whole, (*at, name))
        else:
            yield (*at, name), part


SCHEMA = ClusterFile.model_json_schema()
KEYS = {".".join(key): part for key, part in leaves(SCHEMA, SCHEMA)}


def other_value(key: str) -> Any:
    """One that is not the default."""
    part, default = KEYS[key], KEYS[key].get("default")
    if key in VALUES:
        return VALUES[key]
    if part.get("type") == "boolean":
        return not default
    if "enum" in part:
        return [one for one in part["enum"] if one != default][-1]
    assert part.get("type") == "integer", f"{key} is new: say a value for it in VALUES"
    return default + 5


def changed(base: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The base with this key set; in a list of sections, with what else its section needs."""
    told: dict[str, Any] = json.loads(json.dumps(base))
    *path, last = key.split(".")
    if path[-1:] == ["volumes"]:
        source = last in ("claim", "config_map", "secret", "host_path")
        one = {**({**VOLUME, "empty_dir": ""} if source else VOLUME), last: value}
        return {**told, "workload": {"volumes": [one]}}
    if path[-1:] == ["tolerations"]:
        needs = {"value": {"key": "a", "operator": "Equal"}, "operator": {"key": "a"}}
        needs["toleration_seconds"] = {"effect": "NoExecute"}
        return {**told, "nodes": {"tolerations": [{**needs.get(last, {}), last: value}]}}
    section = told
    for name in path:
        section = section.setdefault(name, {})
    section[last] = value
    return told


def text(told: dict[str, Any]) -> str:
    whole = {**told, "cluster": {"name": "mine", **told.get("cluster", {})}}
    return json.dumps(render(settle(ClusterFile.model_validate(whole))))


def words_of(value: Any) -> list[str]:
    """What of a value has to stand in the manifests."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, list):
        return value
    return [] if isinstance(value, bool) else [json.dumps(str(value))[1:-1]]


def base_without(base: dict[str, Any], key: str) -> dict[str, Any]:
    """What the changed text is compared with: a section of a list that lacks the key, or its like."""
    if key.startswith("workload.volumes."):
        return {**base, "workload": {"volumes": [VOLUME]}}
    if key == "nodes.tolerations.value":
        return changed(base, "nodes.tolerations.operator", "Equal")
    if key.startswith("nodes.tolerations."):
        return {**base, "nodes": {"tolerations": [{}]}}
    return base


@pytest.mark.parametrize("key", sorted(KEYS.keys() - KUBECTL - ELSEWHERE.keys()))
def test_it_reaches_the_manifests(key: str) -> None:
    value = other_value(key)
    told = [(text(changed(base, key, value)), text(base_without(base, key))) for base in BASES]
    seen = [now for now, before in told if now != before]
    assert seen, f"{key}: {value!r} changes nothing"
    if key not in RENAMED:
        assert any(all(word in now for word in words_of(value)) for now in seen), seen[0]


@pytest.mark.parametrize("engine", ["mpijob", "trainjob", "jobset"])
def test_no_engine_leaves_a_key_out_in_silence(engine: str) -> None:
    def outcome(told: dict[str, Any]) -> str:
        workload = {**told.get("workload", {}), "engine": engine}
        try:
            return text({**told, "workload": workload})
        except UsageError as refused:
            return str(refused)

    for key in KEYS.keys() - KUBECTL - ELSEWHERE.keys() - {"workload.engine"}:
        value = other_value(key)
        seen = [outcome(changed(base, key, value)) for base in BASES]
        before = [outcome(base_without(base, key)) for base in BASES]
        assert seen != before, f"{key}: {value!r} changes nothing with {engine}"


@pytest.mark.parametrize("key", sorted(KUBECTL))
def test_it_reaches_kubectl_and_nothing_else(
    key: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in ("kubectl", "oc"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("oc") == str(tmp_path / "oc")
    name, value = key.rpartition(".")[2], other_value(key)
    plain = kubectl_of(Cluster(name="mine")).words("get")
    words = kubectl_of(Cluster.model_validate({"name": "mine", name: value})).words("get")
    assert words != plain
    assert any(value in word for word in words)
    assert not any(text(changed(base, key, value)) != text(base) for base in BASES)


def test_the_lists_of_exceptions_are_no_longer_than_they_must_be() -> None:
    assert KUBECTL | ELSEWHERE.keys() | RENAMED <= KEYS.keys()
    for key in ELSEWHERE:
        value = other_value(key)
        assert not any(text(changed(base, key, value)) != text(base) for base in BASES), key
    for key in RENAMED:
        value = other_value(key)
        seen = [text(changed(base, key, value)) for base in BASES]
        (word,) = words_of(value)
        assert not any(word in now for now in seen), key


def test_every_value_differs_from_the_default() -> None:
    assert VALUES.keys() <= KEYS.keys()
    assert not [key for key in KEYS if other_value(key) == KEYS[key].get("default")]
