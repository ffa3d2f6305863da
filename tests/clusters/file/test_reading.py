"""All problems of a cluster file at once, each with line, key, what was seen, expected and meant."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import hostile_files as hostile
from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.reading import ClusterFileError, decode, read_cluster
from wirespeed.errors import UsageError
from wirespeed.yaml_tree import Problem, parse

NAMED = "cluster: {name: a}\n"


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(ClusterFileError) as caught:
        read_cluster(text, "a.yaml")
    assert caught.value.exit_code == 2
    return caught.value.problems


def only(text: str) -> Problem:
    (problem,) = problems(text)
    return problem


def test_all_problems_in_the_order_of_their_lines() -> None:
    text = """\
cluster:
  name: Mine!
  nmespace: x
gpus: {per_node: many}
network:
  devices: mlx5_0
  preset: h100
workload:
  env:
    RANK: 3
  volumes:
    - {name: a, mount_path: /dev, claim: x, secret: y}
    - {name: a, mount_path: /data, claim: ../x}
resources:
  requests: {memory: 2Gi}
  limits: {memory: 1Gi}
storage: rwx
"""
    found = [(one.line, one.key) for one in problems(text)]
    assert found == [
        (2, "cluster.name"),
        (3, "cluster.nmespace"),
        (4, "gpus.per_node"),
        (6, "network.devices"),
        (7, "network.preset"),
        (10, "workload.env.RANK"),
        (13, "workload.volumes[1].claim"),
        (15, "resources.requests.memory"),
        (17, "storage"),
    ]


def test_the_message_begins_each_line_with_the_place() -> None:
    with pytest.raises(UsageError) as caught:
        read_cluster(
            "cluster: {name: a}\ngpus:\n  per_node: 1e3\nnccl: {debug: infos}\n", "c/a.yaml"
        )
    assert str(caught.value).splitlines() == [
        "c/a.yaml has 2 problems",
        "c/a.yaml:3: gpus.per_node: saw '1e3', expected a whole number from 0 to 64",
        "c/a.yaml:4: nccl.debug: saw 'infos', expected nothing, 'VERSION', 'WARN', "
        "'INFO' or 'TRACE'; did you mean INFO?",
        "  next      wirespeed cluster validate c/a.yaml",
    ]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("network: {rdma: {device: x}}", "devices"),
        ("network: {devices: x}", "network.rdma.devices"),
        ("devices: x", "network.rdma.devices"),
        ("image: x", "workload.image"),
        ("nodes: {gpuNodes: [a]}", "gpu_nodes"),
        ("nodes: {nodeSelector: {a: b}}", "node_selector"),
        ("workload: {tolerations: []}", "nodes.tolerations"),
        ("network: {rdma: {gid-index: 3}}", "gid_index"),
        ("gpu: {}", "gpus"),
        ("resources: {cpu: 3}", "resources.requests.cpu or resources.limits.cpu"),
        ("storage: {storage_class: x}", ""),
        ("qqqqqq: 3", ""),
        ("gpus: {nodes: 3}", "nodes"),
        ("workload: {volumes: [{name: a, mountPath: /a, mount_path: /a, claim: c}]}", "mount_path"),
    ],
)
def test_an_unknown_key_names_the_one_that_was_meant(text: str, meant: str) -> None:
    found = only(NAMED + text)
    assert found.saw == "an unknown key"
    assert found.meant == meant
    assert found.line == 2


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "gpus: {}", "cluster:", "cluster: {}"])
def test_what_is_needed_is_named(text: str) -> None:
    found = only(text)
    assert found.saw == "nothing"
    assert "name" in found.expected
    assert found.key.startswith("cluster")


@pytest.mark.parametrize("text", ["[]", "a", "- cluster\n- x", "3"])
def test_a_file_that_is_no_map(text: str) -> None:
    assert only(text).expected.startswith("keys with values: cluster, workload")


@pytest.mark.parametrize(
    ("text", "saw", "expected"),
    [
        ("gpus: {per_node: [8]}", "a list", "a whole number from 0 to 64"),
        ("gpus: {per_node: 012}", "'012'", "a whole number"),
        ("gpus: {per_node: 1_0}", "'1_0'", "a whole number"),
        ("gpus: {per_node: 8.0}", "'8.0'", "a whole number"),
        ("gpus: {per_node: -1}", "'-1'", "a whole number"),
        ("gpus: {per_node: " + "9" * 5000 + "}", "'9999", "a whole number"),
        ("network: {policy: maybe}", "'maybe'", "true or false"),
        ("network: {policy: {}}", "an empty map", "true or false"),
        ("network: {mode: no}", "'no'", "'auto', 'rdma' or 'tcp'"),
        ("nodes: {gpu_nodes: node-0}", "'node-0'", "a list"),
        ("nodes: {gpu_nodes: [[a]]}", "a list", "text"),
        ("nodes: {node_selector: [a]}", "a list", "keys with values"),
        ("nodes: {node_selector: {'a b': c}}", "the key 'a b'", "PREFIX/NAME"),
        ("nodes: {tolerations: [3]}", "'3'", "keys with values: key, operator"),
        ("storage: {workspace_size: 100}", "'100'", "an amount with its unit"),
        ("storage: {workspace_size: 100GB}", "'100GB'", "an amount with its unit"),
        ("storage: {workspace_size: 0Gi}", "'0Gi'", "an amount with its unit"),
        ("resources: {limits: {memory: 128m}}", "'128m'", "an amount with its unit"),
        ("resources: {limits: {cpu: 4 cores}}", "'4 cores'", "a number of CPUs"),
        ("network: {rdma: {devices: 'mlx5_0, mlx5_1'}}", "'mlx5_0, mlx5_1'", "no spaces"),
        ("network: {rdma: {networks: ['a,b']}}", "'a,b'", "a network attachment"),
        ('workload: {env: {A: "x\\ny"}}', r"'x\ny'", "one line"),
        ('workload: {env: {A: "\\e[31m"}}', r"'\x1b[31m'", "without control"),
        ("workload: {image: 'a b'}", "'a b'", "an image"),
        ("workload: {image: 'x;reboot'}", "'x;reboot'", "an image"),
        ("workload: {python: '/usr/bin/$(id)'}", "'/usr/bin/$(id)'", "an absolute path"),
        ("workload: {python: python3}", "'python3'", "an absolute path"),
    ],
)
def test_a_wrong_value(text: str, saw: str, expected: str) -> None:
    found = only(NAMED + text)
    assert found.saw.startswith(saw)
    assert expected in found.expected
    assert len(found.saw) < 80


BAD_NAMES = ("../x", "a b", "$(id)", "`id`", "a'b", 'a"b', "a\nb", "A", "-a", "a/b")


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("key", ["name", "namespace"])
def test_hostile_names_are_refused_and_shown_harmless(key: str, name: str) -> None:
    text = hostile.written({"cluster": {"name": "a", key: name}}, block=False)
    found = only(text)
    assert found.key == f"cluster.{key}"
    assert str(found).isprintable()


@pytest.mark.hostile("hostile values")
def test_hostile_text_in_values_stays_what_it_is() -> None:
    values = [one for one in hostile.HOSTILE if one.isprintable() and len(one) < 100]
    env = {f"V{index}": value for index, value in enumerate(values)}
    text = hostile.written({"cluster": {"name": "a"}, "workload": {"env": env}}, block=True)
    assert read_cluster(text, "a.yaml").workload.env == env


def test_a_text_that_looks_like_anything_else_stays_text() -> None:
    words = ["no", "012", "1e3", "1.10", "true", "True", "0x10", "2026-01-01", ".5", "="]
    lines = "".join(f"    V{index}: {word}\n" for index, word in enumerate(words))
    file = read_cluster(NAMED + "workload:\n  env:\n" + lines + "    EMPTY:\n", "a.yaml")
    assert list(file.workload.env.values()) == [*words, ""]


@pytest.mark.parametrize(
    ("data", "line", "saw"),
    [
        (b"a: 1\nb: \xff\n", 2, "0xff"),
        ("a: ü\n".encode("latin-1"), 1, "0xfc"),
        ("cluster: {name: a}".encode("utf-16"), 1, "not UTF-8"),
    ],
)
def test_bytes_that_are_no_utf_8(data: bytes, line: int, saw: str) -> None:
    with pytest.raises(ClusterFileError) as caught:
        decode(data, "a.yaml")
    (problem,) = caught.value.problems
    assert problem.line == line
    assert saw in problem.saw


def test_a_byte_order_mark_and_windows_lines_are_read() -> None:
    text = decode(b"\xef\xbb\xbfcluster:\r\n  name: a\r\n", "a.yaml")
    assert read_cluster(text, "a.yaml").cluster.name == "a"


def test_a_syntax_error_stands_alone_with_what_came_before_it() -> None:
    text = "cluster: {name: a}\ngpus: {}\ngpus: {}\nnodes: [\nunknown: 3\n"
    assert [one.line for one in problems(text)] == [3, 4]


@pytest.mark.slow
def test_thousands_of_problems_are_counted_and_quick() -> None:
    with pytest.raises(ClusterFileError) as caught:
        read_cluster(NAMED + "".join(f"key{index}: x\n" for index in range(20_000)), "a.yaml")
    lines = str(caught.value).splitlines()
    assert lines[0] == "a.yaml has 20000 problems"
    assert lines[-2] == "… and 19950 more problems"
    assert len(lines) == 53
    assert len(caught.value.problems) == 20_000


def test_a_source_that_would_steer_a_terminal_is_quoted() -> None:
    with pytest.raises(ClusterFileError) as caught:
        read_cluster("", "a\x1b[2J\n.yaml")
    assert "\x1b" not in str(caught.value)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(hostile.files())
def test_what_the_schema_allows_is_read_or_breaks_a_rule(data: Any) -> None:
    hostile.check_schema(data)
    hostile.check_valid(data)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(hostile.damaged())
def test_damage_gives_clear_errors_only(data: Any) -> None:
    hostile.check_text(hostile.written(data, block=False))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(hostile.texts() | hostile.raw())
def test_text_gives_clear_errors_only(text: str) -> None:
    hostile.check_text(text)


def test_the_check_of_the_fuzzer_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterFile, "model_validate", lambda data: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        hostile.check_text(NAMED)
    assert parse(NAMED).data == {"cluster": {"name": "a"}}
