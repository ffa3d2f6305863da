"""YAML that Go's parser (kubectl's own) and Python's read alike, and folders for kubectl kustomize."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.clusters.manifests.conftest import identity

from wirespeed.clusters.manifests.render import as_yaml, write_folder
from wirespeed.errors import UsageError

HOSTILE = (
    "", " ", "~", "null", "NULL", "y", "N", "Yes", "no", "on", "OFF", "true", "False",
    "0", "8", "08", "0o17", "0x1F", "0b1", "1e3", "1E-3", "1_000", "12:30:45", ".5", "-.inf", ".NaN",
    "2024-01-01", "2001-12-14t21:59:43Z", "=", "<<", "-", "- a", "? a", ": a", "a: b", "a:", "a #b",
    "#a", "*a", "&a", "!a", "!!int 3", "%YAML 1.1", "@a", "`a`", "|", ">", "[a]", "{a: b}", "'", '"',
    "it's", 'say "so"', "back\\slash", "\\n", "$(POD_NAME)", "$$(A)", "`id`", "; rm -rf /",
    "--- ", "---", "...", "two\nlines", "lines\nend\n", "lines\nends\n\n", "\n", " indented\n  more\n",
    "tab\there", "trailing \nspace\n", "umlaut ü", "日本", "emoji 🙂", "a" * 5000, "word " * 900,
    "null\n", "next\x85line\n", "separated\u2028line\n", "\u00a0", "{{ template }}",
)  # fmt: skip
kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="Requires: kubectl")


def config_map(values: tuple[str, ...]) -> dict[str, Any]:
    data = {f"key-{index}": text for index, text in enumerate(values)}
    told = {"name": "a", "annotations": dict.fromkeys(("y", "no", "1e3", "8", "b/c"), "yes")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": told, "data": data}


def kustomized(folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def test_python_reads_what_was_meant() -> None:
    made = config_map((*HOSTILE, "\x85next", "\u2028", "\ufeff"))
    assert list(yaml.safe_load_all(as_yaml([made, made]))) == [made, made]


@kubectl
def test_kubectl_reads_what_was_meant(tmp_path: Path) -> None:
    """`--local` reads a file as `kubectl apply` would, and asks no server."""
    made = config_map(HOSTILE)
    (tmp_path / "a.yaml").write_text(as_yaml([made]))
    words = [
        "kubectl",
        "annotate",
        "--local",
        "-f",
        str(tmp_path / "a.yaml"),
        "b/c=yes",
        "-o",
        "json",
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == made


@kubectl
@pytest.mark.parametrize("case", ["rwx-rdma-gpu", "templates-tcp-gpu", "none-tcp-cpu"])
def test_the_folder_holds_the_same_objects(
    case: str, tmp_path: Path, of_file: Callable[..., list[dict[str, Any]]]
) -> None:
    objects = of_file(case)
    paths = write_folder(objects, tmp_path)
    assert len(paths) == len(objects) + 1
    assert sorted(kustomized(tmp_path), key=identity) == sorted(objects, key=identity)


def test_plain_where_it_is_safe() -> None:
    told = {"kind": "StatefulSet", "image": "localhost/wirespeed", "size": "1Gi", "number": 2}
    assert as_yaml([told]) == (
        '---\nkind: StatefulSet\nimage: localhost/wirespeed\nsize: "1Gi"\nnumber: 2\n'
    )


def test_an_object_within_two_others_is_written_twice() -> None:
    """References of YAML are unknown to JSON, and so to Kubernetes."""
    shared = {"a": "b"}
    assert as_yaml([{"one": shared, "two": shared}]).count("a: b") == 2


def test_a_second_render_replaces_the_first(
    tmp_path: Path, of_file: Callable[..., list[dict[str, Any]]]
) -> None:
    write_folder(of_file("rwx-tcp-cpu"), tmp_path)
    (tmp_path / "patch.yaml").write_text("a: b\n")
    (tmp_path / "notes.txt").write_text("mine")
    claim = tmp_path / "persistentvolumeclaim-shared-workspace.yaml"
    assert claim.exists()
    paths = write_folder(of_file("none-tcp-cpu"), tmp_path)
    assert not claim.exists()
    kept = {tmp_path / "patch.yaml", tmp_path / "notes.txt"}
    assert set(tmp_path.iterdir()) == {*paths, *kept}


def test_nothing_of_others_is_overwritten(
    tmp_path: Path, of_file: Callable[..., list[dict[str, Any]]]
) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [mine.yaml]\n")
    with pytest.raises(UsageError, match=r"kustomization\.yaml"):
        write_folder(of_file("none-tcp-cpu"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kustomization.yaml"]
    assert (tmp_path / "kustomization.yaml").read_text() == "resources: [mine.yaml]\n"


def test_a_folder_that_cannot_be(
    tmp_path: Path, of_file: Callable[..., list[dict[str, Any]]]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_folder(of_file("none-tcp-cpu"), tmp_path / "file" / "folder")
