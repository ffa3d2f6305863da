"""`cluster discover` against a real API server: a file that validates, settles and runs there."""

import os
from pathlib import Path
from typing import Any

import yaml

from wirespeed.clusters.deployment import settle
from wirespeed.clusters.reading import read_cluster


def kubeconfig(folder: Path, **changed: Any) -> str:
    """The tests' own kubeconfig with another user or server."""
    told = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    told["users"][0]["user"].update(changed.get("user", {}))
    told["clusters"][0]["cluster"].update(changed.get("cluster", {}))
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(told))
    return str(path)


def test_what_is_there_becomes_a_file_that_settles(kube: Any) -> None:
    words = ["cluster", "discover", "--namespace", kube.namespace, "--name", "lab"]
    done = kube.cli(*words, "-o", "clusters/lab.yaml")
    assert done.code == 0, done.err
    assert done.out == ""
    path = kube.cli.folder / "clusters" / "lab.yaml"
    valid = kube.cli("cluster", "validate", "lab")
    assert valid.code == 0, valid.err + valid.out
    file = read_cluster(path.read_text(), str(path))
    nodes = kube.json("get", "nodes")["items"]
    gpus = {int(one["status"]["allocatable"].get("nvidia.com/gpu", 0)) for one in nodes}
    assert file.gpus.per_node in gpus
    assert file.cluster.namespace == kube.namespace
    assert not file.cluster.create_namespace
    text = path.read_text()
    assert kube.json("version")["serverVersion"]["gitVersion"] in text
    assert any(one["metadata"]["name"] in text for one in nodes)
    classes = {one["metadata"]["name"] for one in kube.json("get", "storageclasses")["items"]}
    assert {file.storage.class_rwo, file.storage.class_rwx} - {""} <= classes
    made = settle(file, nodes=1)
    assert (made.name, made.nodes) == ("lab", 1)
    again = kube.cli(*words, "-o", "clusters/lab.yaml")
    assert again.code == 2
    assert path.read_text() == text


def test_who_may_read_nothing_still_gets_a_file(kube: Any) -> None:
    nobody = kubeconfig(kube.cli.folder, user={"as": "ws-nobody"})
    words = ["cluster", "discover", "--kubeconfig", nobody, "--namespace", "missing-here"]
    done = kube.cli(*words)
    assert done.code == 0, done.err
    said = " ".join(done.out.replace("#", " ").split())
    assert "could not be read: nodes: Error from server (Forbidden)" in said
    assert "ws-nobody" in said
    file = read_cluster(done.out, "stdout")
    assert (file.gpus.per_node, file.storage.mode) == (0, "none")
    assert "things could not be read" in done.err


def test_a_server_that_is_not_there_is_told_and_nothing_written(kube: Any) -> None:
    away = kubeconfig(kube.cli.folder, cluster={"server": "https://127.0.0.1:1"})
    done = kube.cli("cluster", "discover", "--kubeconfig", away, "-o", "lab.yaml")
    assert done.code == 3
    assert "127.0.0.1:1" in done.err
    assert "Traceback" not in done.err
    assert not (kube.cli.folder / "lab.yaml").exists()
