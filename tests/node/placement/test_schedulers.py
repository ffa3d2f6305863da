"""Kubernetes and Slurm: labels by file and by API server, switches by the environment."""

import json
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wirespeed.node.placement import Placement
from wirespeed.node.placement.gather import gather_placement

HERE = socket.gethostname().partition(".")[0]
ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"
TOKEN = "eyJhbGciOi.fake-token.of_this_test"


# Slurm.


@pytest.mark.parametrize(
    ("address", "pattern", "rack"),
    [
        (f"root.cell1.leaf4.{HERE}", "switch.switch.switch.node", "leaf4"),
        (f"s0.s[4-5].{HERE}", "switch.switch.node", "s[4-5]"),
        (f"b1.{HERE}", "block.node", "b1"),
        (f"s0.s1.{HERE}", "", "s1"),
    ],
)
def test_the_leaf_switch_is_the_rack(address: str, pattern: str, rack: str, tmp_path: Path) -> None:
    environ = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}
    found = gather_placement(environ, tmp_path)
    assert (found.source, found.rack, found.zone) == ("slurm", rack, "")


@pytest.mark.parametrize(
    ("address", "pattern", "reason"),
    [
        (HERE, "node", "no topology plugin"),
        ("s0.s1.elsewhere", "switch.switch.node", "was not set on this node"),
        (f"s0..{HERE}", "switch.switch.node", "does not fit"),
        (f"s0.<b>.{HERE}", "switch.switch.node", "does not fit"),
    ],
)
def test_an_address_that_tells_nothing(
    address: str, pattern: str, reason: str, tmp_path: Path
) -> None:
    environ = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": pattern}
    found = gather_placement(environ, tmp_path)
    assert found == Placement(reason=found.reason)
    assert reason in found.reason


# Kubernetes, by file.

LABELS = """app="train"
topology.kubernetes.io/region="us-west-2"
topology.kubernetes.io/zone="us-west-2a"
topology.k8s.aws/zone-id="usw2-az1"
topology.k8s.aws/network-node-layer-3="nn-cccc"
"""


def podinfo(root: Path, text: str) -> Path:
    (root / "etc/podinfo").mkdir(parents=True)
    (root / "etc/podinfo/labels").write_text(text)
    return root


def test_labels_of_the_downward_api(tmp_path: Path) -> None:
    found = gather_placement({"NODE_NAME": "ip-10-0-0-1"}, podinfo(tmp_path, LABELS))
    assert found == Placement(
        source="kubernetes",
        zone="us-west-2a",
        zone_id="usw2-az1",
        region="us-west-2",
        rack="nn-cccc",
        physical_host="ip-10-0-0-1",
    )


def test_a_file_that_is_named(tmp_path: Path) -> None:
    file = tmp_path / "labels"
    file.write_text("topology.kubernetes.io/zone=hall-2\n")
    assert gather_placement({"WIRESPEED_LABELS_FILE": str(file)}, tmp_path).zone == "hall-2"
    missing = gather_placement({"WIRESPEED_LABELS_FILE": f"{file}s"}, tmp_path)
    assert "WIRESPEED_LABELS_FILE" in missing.reason


@pytest.mark.parametrize("text", ["", "app=x", "<html>", 'topology.kubernetes.io/zone=""'])
def test_a_file_without_the_label(text: str, tmp_path: Path) -> None:
    found = gather_placement({}, podinfo(tmp_path, text))
    assert not found.zone
    assert "no label topology.kubernetes.io/zone" in found.reason


# Kubernetes, by API server.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and its certificate for 127.0.0.1 in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("Requires: openssl")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-days", "2", "-subj", "/CN=fake", "-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    both = folder / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    return both


def api_server(labels: dict[str, str], *, allowed: bool = True) -> Callable[..., Any]:
    """Knows the pod pod-0 of train on node-7, for the bearer of the token."""
    known = {
        "/api/v1/namespaces/train/pods/pod-0": {"spec": {"nodeName": "node-7"}},
        "/api/v1/nodes/node-7": {"metadata": {"labels": labels}},
    }

    def reply(method: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], str]:
        if headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, {}, "{}"
        if not allowed:
            return 403, {}, "{}"
        return (200, {}, json.dumps(known[path])) if path in known else (404, {}, "{}")

    return reply


@pytest.fixture
def pod(tmp_path: Path, certificate: Path, serve: Any) -> Callable[..., Any]:
    """`pod(reply)`: the environment of a pod whose API server is that, and the server."""
    account = tmp_path / ACCOUNT
    account.mkdir(parents=True)
    (account / "token").write_text(TOKEN)
    (account / "namespace").write_text("train")
    (account / "ca.crt").write_text(certificate.read_text())

    def start(reply: Any, how: str = "") -> tuple[dict[str, str], Any]:
        server = serve(reply, how, certificate)
        host, _, port = server.url.removeprefix("https://").partition(":")
        found = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        return {**found, "HOSTNAME": "pod-0"}, server

    return start


def test_labels_of_the_api_server(pod: Any, tmp_path: Path) -> None:
    environ, _ = pod(api_server({"topology.kubernetes.io/zone": "eu-west-1b"}))
    found = gather_placement(environ, tmp_path)
    assert (found.source, found.zone) == ("kubernetes", "eu-west-1b")
    assert found.physical_host == "node-7"


def test_the_right_to_read_nodes_is_missing(pod: Any, tmp_path: Path) -> None:
    environ, _ = pod(api_server({}, allowed=False))
    found = gather_placement(environ | {"NODE_NAME": "node-7"}, tmp_path)
    assert "may not read nodes (status 403)" in found.reason
    assert TOKEN not in found.reason


def test_a_server_with_another_certificate_gets_no_token(
    pod: Any, tmp_path: Path, certificate: Path
) -> None:
    environ, server = pod(api_server({"topology.kubernetes.io/zone": "eu-west-1b"}))
    (tmp_path / ACCOUNT / "ca.crt").write_text("")
    found = gather_placement(environ, tmp_path)
    assert not found.zone
    assert server.asked == []


@pytest.mark.parametrize("how", ["silent", "drip", "cut"])
def test_a_server_that_never_ends(how: str, pod: Any, tmp_path: Path) -> None:
    environ, _ = pod(api_server({"topology.kubernetes.io/zone": "eu-west-1b"}), how)
    found = gather_placement(environ, tmp_path)
    assert not found.zone
    assert found.reason.startswith("kubernetes: ")


@pytest.mark.parametrize("name", ["", "../secrets", "a b", "a?x=1"])
def test_a_pod_without_a_name_asks_for_nothing(name: str, pod: Any, tmp_path: Path) -> None:
    environ, server = pod(api_server({}))
    found = gather_placement(environ | {"HOSTNAME": name}, tmp_path)
    assert server.asked == []
    assert "NODE_NAME" in found.reason


def test_no_service_account(tmp_path: Path) -> None:
    found = gather_placement({"KUBERNETES_SERVICE_HOST": "127.0.0.1"}, tmp_path)
    assert "no service account" in found.reason


def test_a_server_that_answers_with_html(pod: Any, tmp_path: Path, fakes: ModuleType) -> None:
    environ, _ = pod(fakes.always(200, fakes.HTML))
    assert "cannot be read" in gather_placement(environ, tmp_path).reason
