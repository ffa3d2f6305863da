"""ENV-001 and on: each rule finds its own example, and lets the other one pass."""

import pytest
from msgspec.structs import asdict, replace

from wirespeed.checks.registry import EXPLAINED
from wirespeed.checks.settings import (
    Example,
    Port,
    Rule,
    known_names,
    settings_findings,
    settings_told,
)
from wirespeed.model.codec import from_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import NodeFacts, World
from wirespeed.node.redact import allowed_environment

PORT = Port(link_layer="Ethernet", gids=4)
RULES = settings_told().rules


def node(example: Example, host: str = "node-a") -> NodeFacts:
    return NodeFacts(
        host=host,
        ranks=(0,),
        facts=Facts(),
        gpus=tuple({"index": i, "name": example.gpu} for i in range(example.gpus)),
        rdma=tuple(asdict(port) for port in example.rdma),
        environment=dict(example.environment),
    )


def world(*nodes: NodeFacts) -> World:
    return World(size=len(nodes), nodes=nodes, backend="gloo", launcher="local")


def ids(**environment: str) -> list[str]:
    found = settings_findings(world(node(Example(environment=environment))))
    return [one.id for one in found if one.status == "warn"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_finds_its_example(rule: Rule) -> None:
    found = [one for one in settings_findings(world(node(rule.bad))) if one.id == rule.id]
    assert [one.status for one in found] == ["warn"]
    (one,) = found
    assert one.subject.name == "node-a"
    assert next(iter(rule.bad.environment)) in one.title
    assert all((one.saw, one.because, one.costs, one.fix, one.next, one.evidence))
    assert rule.link in one.expected


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_no_rule_finds_what_is_fine(rule: Rule) -> None:
    (one,) = settings_findings(world(node(rule.fine)))
    assert one.status == "pass"


def test_a_clean_environment_is_one_pass() -> None:
    clean = Example(environment={"NCCL_DEBUG": "WARN", "MASTER_ADDR": "node-a"})
    (one,) = settings_findings(world(node(clean), node(clean, "node-b")))
    assert (one.status, one.title) == ("pass", "no setting that is known to hurt on 2 nodes")


def test_no_nodes_have_no_findings() -> None:
    assert settings_findings(world()) == []


def test_a_setting_of_the_whole_job_is_one_finding() -> None:
    bad = Example(environment={"NCCL_PROTO": "LL"})
    (one,) = settings_findings(world(node(bad), node(bad, "node-b")))
    assert one.title == "every node (2): NCCL_PROTO=LL"
    assert one.evidence == ("node-a: NCCL_PROTO=LL", "node-b: NCCL_PROTO=LL")


def test_the_one_node_that_has_it_is_named() -> None:
    good, bad = Example(environment={}), Example(environment={"NCCL_PROTO": "LL"})
    (one,) = settings_findings(world(node(good), node(bad, "node-b")))
    assert one.subject.name == "node-b"
    assert one.title == "node-b: NCCL_PROTO=LL"


def test_nccl_s_own_files_count_and_the_environment_wins() -> None:
    in_file = NodeFacts(
        host="a", ranks=(0,), facts=from_json(Facts, {"net.nccl.conf": {"NCCL_PROTO": "LL"}})
    )
    assert [one.id for one in settings_findings(world(in_file))] == ["ENV-004"]
    over = NodeFacts(
        host="a", ranks=(0,), facts=in_file.facts, environment={"NCCL_PROTO": "^LL128"}
    )
    assert settings_findings(world(over))[0].status == "pass"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NCCL_SOKET_IFNAME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOCKET_IFNMAE", "NCCL_SOCKET_IFNAME"),
        ("NCCL_DEBU", "NCCL_DEBUG"),
        ("NCCL_IBHCA", "NCCL_IB_HCA"),
        ("GLOO_SOCKET_IFNAM", "GLOO_SOCKET_IFNAME"),
        ("TORCH_NCCL_BLOCKING_WIAT", "TORCH_NCCL_BLOCKING_WAIT"),
    ],
)
def test_a_typing_error_is_told_with_what_was_meant(name: str, meant: str) -> None:
    (one,) = settings_findings(world(node(Example(environment={name: "0"}))))
    assert one.id == "ENV-017"
    assert f"{name} (no such variable; {meant}?)" in one.title


@pytest.mark.parametrize("name", ["NCCL_MY_SITE_PLUGIN_OPTION", "NCCL_ROOT", "NCCL_TESTS_DEVICE"])
def test_a_name_unlike_any_other_is_nobody_s_error(name: str) -> None:
    assert ids(**{name: "x"}) == []


def test_known_names_are_never_errors() -> None:
    names = known_names() - set(settings_told().obsolete)
    assert "ENV-017" not in ids(**dict.fromkeys(names, ""))
    assert set(settings_told().numbers) <= known_names()
    assert set(settings_told().choices) <= known_names()


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("NCCL_IB_RETRY_CNT", "9", "0 to 7"),
        ("NCCL_BUFFSIZE", "4M", "no whole number"),
        ("NCCL_DEBUG", "VERBOSE", "none of VERSION"),
        ("NCCL_SOCKET_FAMILY", "ipv4", "none of AF_INET"),
        ("NCCL_NVLS_ENABLE", "-1", "0 to 2"),
    ],
)
def test_a_value_of_another_form_is_told(setting: str, value: str, said: str) -> None:
    (one,) = settings_findings(world(node(Example(environment={setting: value}))))
    assert one.id == "ENV-018"
    assert said in one.title


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("NCCL_DEBUG", "warn"),
        ("NCCL_P2P_LEVEL", "3"),
        ("NCCL_SOCKET_NTHREADS", " 4 "),
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"),
        ("NCCL_ALGO", "allreduce:^tree"),
    ],
)
def test_a_value_that_is_documented_passes(setting: str, value: str) -> None:
    assert ids(**{setting: value}) == []


def test_a_gid_index_beyond_the_table_is_found_on_roce() -> None:
    few = Example(environment={"NCCL_IB_GID_INDEX": "7"}, rdma=(PORT,))
    (one,) = settings_findings(world(node(few)))
    assert one.id == "ENV-007"
    assert "mlx5_0 port 1 has 4 GID(s)" in one.title


def test_an_idle_port_makes_no_contradiction() -> None:
    down = replace(PORT, state="DOWN")
    example = Example(environment={"NCCL_IB_DISABLE": "1"}, rdma=(down,))
    assert settings_findings(world(node(example)))[0].status == "pass"


def test_cards_without_peer_to_peer_lose_nothing() -> None:
    off = Example(environment={"NCCL_P2P_DISABLE": "1"}, gpus=4, gpu="NVIDIA GeForce RTX 4090")
    assert settings_findings(world(node(off)))[0].status == "pass"


def test_ll128_by_force_is_told_as_dangerous() -> None:
    (one,) = settings_findings(world(node(Example(environment={"NCCL_PROTO": "LL128"}))))
    assert "corrupts data" in one.title


def test_every_rule_is_explained_with_its_title_first() -> None:
    assert [rule.id for rule in RULES] == [f"ENV-{i:03d}" for i in range(1, len(RULES) + 1)]
    for rule in RULES:
        assert EXPLAINED[rule.id].explanation.startswith(rule.good)
        assert rule.good.count(".") == 1


def test_the_variables_reach_the_rules() -> None:
    """Redaction drops what it does not know: every example must come through it."""
    for rule in RULES:
        missing = set(rule.bad.environment) - set(allowed_environment(rule.bad.environment))
        assert not missing, rule.id
