"""Kubernetes' side of a gate, by a server that keeps nodes as the API does; also tests/system."""

import json
import ssl
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from wirespeed.errors import CannotMeasure
from wirespeed.fleet.gate import kubernetes
from wirespeed.fleet.gate.decision import Act, Decision, Health, Memory
from wirespeed.fleet.gate.kubernetes import CONDITION, KEY, Kubernetes

NODES = 40
DISK = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}


class Server(ThreadingHTTPServer):
    """Nodes n0 … n39, Events, and how often the next changes are refused by a conflict."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.nodes: dict[str, dict[str, Any]] = {
            f"n{index}": {
                "metadata": {"name": f"n{index}", "resourceVersion": "1"},
                "spec": {"taints": [dict(DISK)]},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
            for index in range(NODES)
        }
        self.events: list[dict[str, Any]] = []
        self.conflicts = 0
        self.refuses = ""
        """A verb that answers 403."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        name = unquote(url.path.removeprefix("/api/v1/nodes").strip("/"))
        if name:
            self.answer(200, self.server.nodes[name])
            return
        query = parse_qs(url.query)
        items = [one for one in self.server.nodes.values() if labelled(one, query)]
        if "as=Table" in self.headers["Accept"]:
            self.answer(200, {"rows": [{"cells": []} for _ in items]})
        else:
            self.answer(200, {"items": items or None})

    def do_POST(self) -> None:
        self.server.events.append(self.body())
        self.answer(201, {})

    def do_PATCH(self) -> None:
        body, path = self.body(), urlsplit(self.path).path
        if self.server.refuses == "PATCH":
            self.answer(403, {"message": "nodes is forbidden: <script>\x1b[31m"})
            return
        name = unquote(path.split("/")[4])
        node = self.server.nodes[name]
        if path.endswith("/status"):
            (new,) = body["status"]["conditions"]
            told = [one for one in node["status"]["conditions"] if one["type"] != new["type"]]
            node["status"]["conditions"] = [*told, new]
        elif self.server.conflicts:
            self.server.conflicts -= 1
            self.answer(409, {"message": "the object has been modified"})
            return
        else:
            assert body["metadata"]["resourceVersion"] == node["metadata"]["resourceVersion"]
            for part in ("labels", "annotations"):
                merged = {**node["metadata"].get(part, {}), **body["metadata"][part]}
                kept = {key: value for key, value in merged.items() if value is not None}
                node["metadata"][part] = kept
            node["spec"]["taints"] = body["spec"]["taints"]
        self.answer(200, node)

    def body(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return told

    def answer(self, status: int, told: dict[str, Any]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(told).encode())

    def log_message(self, *_: Any) -> None:
        pass


def labelled(node: dict[str, Any], query: dict[str, list[str]]) -> bool:
    pairs = [one.split("=") for one in query.get("labelSelector", [])]
    return all(node["metadata"].get("labels", {}).get(key) == value for key, value in pairs)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    def plain(host: str, port: int, *, timeout: float, context: ssl.SSLContext) -> HTTPConnection:
        assert context.verify_mode == ssl.CERT_REQUIRED
        return HTTPConnection(host, port, timeout=timeout)

    monkeypatch.setattr(kubernetes, "HTTPSConnection", plain)
    made = Server()
    thread = threading.Thread(target=made.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def gate(server: Server, node: str = "n0", *, taint: bool = True) -> Kubernetes:
    return Kubernetes(node, ("127.0.0.1", server.server_address[1]), "token", taint=taint)


def decided(act: Act, health: Health, why: str = "GPU-002 n0: an error") -> Decision:
    return Decision(act=act, health=health, why=why)


def test_a_taint_comes_and_goes_and_the_others_stay(server: Server) -> None:
    one = gate(server)
    server.conflicts = 2
    one.take("why")
    taints = server.nodes["n0"]["spec"]["taints"]
    assert taints == [DISK, {"key": KEY, "value": "bad", "effect": "NoSchedule"}]
    standing = one.standing(Memory())
    assert (standing.out, standing.ours) == (True, True)
    one.give_back()
    assert server.nodes["n0"]["spec"]["taints"] == [DISK]
    assert KEY not in server.nodes["n0"]["metadata"]["labels"]
    assert not one.standing(Memory()).out


def test_nodes_are_counted_without_reading_them(server: Server) -> None:
    for node in ("n3", "n1", "n2"):
        gate(server, node).take("why")
    fleet = gate(server, "n1").fleet()
    assert fleet.nodes == NODES
    assert set(fleet.taken) == {"n2", "n3"}
    assert {gate(server, f"n{index}").place() for index in (1, 2, 3)} == {0, 1, 2}


def test_without_a_taint_nothing_is_taken(server: Server) -> None:
    one = gate(server, taint=False)
    one.take("why")
    assert server.nodes["n0"]["spec"]["taints"] == [DISK]
    assert one.fleet().taken == ()
    one.told(decided("take", "bad"))
    assert one.standing(Memory()).ours


def test_the_condition_is_told_and_an_event_where_it_changes(server: Server) -> None:
    one = gate(server)
    calls: list[tuple[Act, Health]] = [
        ("pass", "good"), ("pass", "good"), ("take", "bad"), ("keep", "bad"), ("keep", "good"),
        ("return", "good"), ("pass", "unknown"),
    ]  # fmt: skip
    seen = []
    for act, health in calls:
        one.told(decided(act, health))
        conditions = server.nodes["n0"]["status"]["conditions"]
        (ours,) = [condition for condition in conditions if condition["type"] == CONDITION]
        seen.append(ours["status"])
    assert seen == ["True", "True", "False", "False", "False", "True", "Unknown"]
    assert [event["reason"] for event in server.events] == ["GateTake", "GateReturn", "GatePass"]
    assert [event["type"] for event in server.events] == ["Warning", "Normal", "Warning"]
    assert len(conditions) == 2, "the kubelet's own stays"


def test_no_right_to_change_a_node(server: Server) -> None:
    server.refuses = "PATCH"
    with pytest.raises(CannotMeasure) as raised:
        gate(server).take("why")
    assert "refuses (403): nodes is forbidden: <script>" in raised.value.saw
    assert "\x1b" not in raised.value.saw


def test_a_server_that_is_away(server: Server) -> None:
    server.shutdown()
    server.socket.close()
    with pytest.raises(CannotMeasure, match="no answer"):
        gate(server).standing(Memory())


def test_outside_of_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CannotMeasure, match="no pod with an account"):
        Kubernetes.here("n0", taint=False)
