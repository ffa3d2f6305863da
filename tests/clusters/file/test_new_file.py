"""The template: it cannot drift from the model, and what is set in it is read as it was set."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wirespeed.clusters.file import Cluster, ClusterFile
from wirespeed.clusters.reading import all_keys, read_cluster
from wirespeed.clusters.template import check_value, new_text, scalar, template, write_file
from wirespeed.errors import StorageError, UsageError
from wirespeed.yaml_tree import parse

PLAIN = template({"cluster.name": "mine"})
ALL = re.sub(r"^( *)#(?! )", r"\1", PLAIN, flags=re.MULTILINE)
"""As if somebody had removed each # without a space behind it."""


def test_as_it_is_it_sets_nothing_but_the_name() -> None:
    assert read_cluster(PLAIN, "new.yaml") == ClusterFile(cluster=Cluster(name="mine"))


def test_every_key_is_in_it() -> None:
    found = {".".join(one for one in key if isinstance(one, str)) for key in parse(ALL).marks}
    assert set(all_keys()) - found == set()


def test_with_every_key_set_it_is_valid() -> None:
    file = read_cluster(ALL, "all.yaml")
    assert file.workload.volumes[0].claim == "data"
    assert file.nodes.tolerations[0].key == "dedicated"


def test_every_key_is_explained_by_the_line_above_it() -> None:
    lines = PLAIN.splitlines()
    keys = [index for index, line in enumerate(lines) if re.match(r" *#?[a-z0-9_]+:", line)]
    assert len(keys) >= len(all_keys())
    assert [lines[index] for index in keys if not re.match(r" *# ", lines[index - 1])] == []


def test_what_is_set_is_read_as_it_was_set() -> None:
    values = {
        "cluster.name": "mine",
        "cluster.description": 'all "of" it: # yes',
        "gpus.per_node": 8,
        "network.rdma.enabled": True,
        "nodes.gpu_nodes": ["node-0", "012"],
        "nodes.node_selector": {"a/b": "no"},
        "workload.volumes": [{"name": "a", "mount_path": "/a", "claim": "null"}],
        "notes": "one\n\n\n\ntwo: 'x'\n# three\n",
    }
    file = read_cluster(template(values, {"gpus.per_node": "found on\n2 of 3 nodes"}), "mine.yaml")
    assert file.cluster.description == values["cluster.description"]
    assert file.gpus.per_node == 8
    assert file.network.rdma.enabled is True
    assert file.nodes.gpu_nodes == ("node-0", "012")
    assert file.nodes.node_selector == {"a/b": "no"}
    assert file.workload.volumes[0].claim == "null"
    assert file.notes == values["notes"]


def test_a_remark_stands_above_its_key() -> None:
    text = template({"cluster.name": "a", "gpus.per_node": 8}, {"gpus.per_node": "on\n2 nodes"})
    assert "\n  # on 2 nodes\n  per_node: 8\n" in text


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_any_text_comes_back_from_yaml(text: str) -> None:
    for line in (
        f"a: {scalar(text)}\n",
        f"a: [x, {scalar(text)}]\n",
        f"a: {{b: {scalar(text)}}}\n",
    ):
        if tree := parse(line):
            data = tree.data["a"]
            found = (
                data[1] if isinstance(data, list) else data["b"] if isinstance(data, dict) else data
            )
            assert found == text
            assert tree.complaints == []


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("ab #:-'\"|\n\t{}[]&*!%@`\\ü"), max_size=30))
def test_any_notes_come_back(notes: str) -> None:
    text = template({"cluster.name": "a", "notes": notes})
    assert read_cluster(text, "a.yaml").notes == notes


def test_a_wrong_value_is_told_without_a_line() -> None:
    with pytest.raises(UsageError) as caught:
        new_text({"cluster.name": "a", "gpus.per_node": 100, "network.preset": "h100"})
    assert str(caught.value).splitlines()[0] == (
        "gpus.per_node: saw '100', expected a whole number from 0 to 64"
    )
    assert "did you mean h100-ib?" in str(caught.value)
    with pytest.raises(UsageError, match=r"cluster\.name"):
        check_value("cluster.name", "a\nb: c")
    check_value("storage.mode", "rwx")


def test_a_file_is_never_overwritten_unasked(folder: Path) -> None:
    path = folder / "deep" / "a.yaml"
    write_file(path, "one", force=False)
    with pytest.raises(UsageError, match="there already"):
        write_file(path, "two", force=False)
    assert path.read_text() == "one"
    write_file(path, "two", force=True)
    assert path.read_text() == "two"
    assert [one.name for one in path.parent.iterdir()] == ["a.yaml"]


def test_a_link_to_nowhere_is_a_file_that_is_there(folder: Path) -> None:
    (folder / "a.yaml").symlink_to(folder / "elsewhere")
    with pytest.raises(UsageError, match="there already"):
        write_file(folder / "a.yaml", "x", force=False)
    assert not (folder / "elsewhere").exists()


def test_where_no_file_can_be(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises((StorageError, UsageError)):
        write_file(folder / "file" / "a.yaml", "x", force=False)
    with pytest.raises(StorageError, match="cannot be written"):
        write_file(folder / ("a" * 300) / "a.yaml", "x", force=True)
