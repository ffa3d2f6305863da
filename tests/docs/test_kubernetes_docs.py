"""docs/kubernetes.md and docs/openshift.md say what is really there: findings, rights, keys, presets."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from wirespeed.checks.registry import EXPLAINED
from wirespeed.cli.cluster import cluster
from wirespeed.clusters.deployment import settle
from wirespeed.clusters.file import ClusterFile, EngineName
from wirespeed.clusters.manifests.render import render
from wirespeed.clusters.operations.apply import _rights
from wirespeed.clusters.reading import read_cluster

ROOT = Path(__file__).parents[2]
KUBERNETES = (ROOT / "docs/kubernetes.md").read_text()
OPENSHIFT = (ROOT / "docs/openshift.md").read_text()
GOOD = {"CLUSTER-015"}
"""Told when all is well: nothing to do."""


def blocks(text: str) -> list[Any]:
    found = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [one for block in found for one in yaml.safe_load_all(block)]


def numbers(text: str) -> set[str]:
    """Ids in the tables: `CLUSTER-020, 021` and `CLUSTER-030 … 039` are several."""
    found: set[str] = set()
    for first, sign, last in re.findall(r"CLUSTER-(\d{3})(?: ?(,|…) (\d{3}))?", text):
        many = range(int(first), int(last) + 1) if sign == "…" else [int(first), int(last or first)]
        found |= {f"CLUSTER-{one:03d}" for one in many}
    return found


def test_every_finding_has_its_line_and_every_line_a_finding() -> None:
    known = {id for id in EXPLAINED if id.startswith("CLUSTER-")}
    assert numbers(KUBERNETES) | GOOD == known
    assert numbers(OPENSHIFT) <= known


def test_every_verb_part_and_engine_is_told() -> None:
    verbs = KUBERNETES.split("## The verbs")[1].split("## The cluster file")[0]
    rows = re.findall(r"^\| ([^|]+) \|", verbs, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`([a-z-]+)", row)}
    assert set(cluster.list_commands(None)) - told == set()  # type: ignore[arg-type]
    parts = KUBERNETES.split("## The cluster file")[1].split("### Modes")[0]
    assert [name for name in ClusterFile.model_fields if f"`{name}`" not in parts] == []
    engines = KUBERNETES.split("### Engines")[1].split("## What the manifests")[0]
    assert [name for name in get_args(EngineName) if f"| `{name}` |" not in engines] == []


def test_the_cluster_files_of_the_docs_are_valid() -> None:
    (mine,) = (one for one in blocks(KUBERNETES) if "kind" not in one)
    assert settle(read_cluster(yaml.safe_dump(mine), "docs")).mode == "rdma"
    (part,) = (one for one in blocks(OPENSHIFT) if "kind" not in one)
    told = {"cluster": {"name": "mine"}, **part}
    settled = settle(read_cluster(yaml.safe_dump(told), "docs"))
    assert settled.preset is not None
    assert settled.mode == "rdma"


@pytest.mark.parametrize("engine", get_args(EngineName))
@pytest.mark.parametrize("storage", ["rwx", "volumeClaimTemplates", "none"])
def test_the_role_gives_what_deploy_asks_for_and_no_secret(engine: str, storage: str) -> None:
    (role,) = (one for one in blocks(KUBERNETES) if one.get("kind") == "Role")
    given = {
        (verb, resource, group)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    told = {"cluster": {"name": "mine"}, "storage": {"mode": storage}}
    objects = render(settle(read_cluster(yaml.safe_dump(told), "docs"), engine=engine))
    asked = {(one.verb, one.resource, one.group) for one in _rights(objects)}
    assert asked - given == set()
    resources = {resource for _, resource, _ in given}
    assert not resources & {"secrets", "*", "roles", "nodes"}
    assert "*" not in {verb for verb, _, _ in given}


def test_the_constraint_allows_what_rdma_pods_ask_and_nothing_privileged() -> None:
    (constraint,) = (
        one for one in blocks(OPENSHIFT) if one.get("kind") == "SecurityContextConstraints"
    )
    told = {"cluster": {"name": "mine"}, "security": {"ipc_lock": True}, "storage": {"mode": "rwx"}}
    objects = render(settle(read_cluster(yaml.safe_dump(told), "docs")))
    (pods,) = (one["spec"]["template"]["spec"] for one in objects if one["kind"] == "StatefulSet")
    kinds = {key for volume in pods["volumes"] for key in volume if key != "name"}
    allowed = {"persistentVolumeClaim", *constraint["volumes"]}
    assert kinds <= allowed
    added = pods["containers"][0]["securityContext"]["capabilities"]["add"]
    assert added == constraint["allowedCapabilities"] == ["IPC_LOCK"]
    allows = {key: value for key, value in constraint.items() if key.startswith("allow")}
    assert [key for key, value in allows.items() if value is True] == []
