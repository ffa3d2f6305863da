"""A cluster in memory, for faults that a real one does not show at will: `Memory` answers as kubectl.

What it knows: objects by kind and name, labels, server-side apply with its dry run, deletion, and
pods that a StatefulSet gets at once, in a state that the test chooses.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from wirespeed.clusters.kube import Answer, Kubectl

_KINDS = ("statefulsets.apps", "pods", "services", "configmaps", "serviceaccounts")
_KINDS += ("persistentvolumeclaims", "networkpolicies.networking.k8s.io")
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


@dataclass
class Memory:
    """Set `status` for what new pods show, and `refuse` for what is said to a call instead."""

    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=lambda: dict(READY))
    refuse: Callable[[tuple[str, ...]], str | None] = lambda words: None
    events: list[dict[str, Any]] = field(default_factory=list)
    nodes: int = 3
    allocatable: dict[str, str] = field(default_factory=dict)
    """Of each node, beside pods and GPUs."""
    attachments: tuple[str, ...] = ()
    """Names of the namespace's network attachments."""
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def names(self) -> list[str]:
        return sorted(f"{kind} {name}" for kind, name in self.objects)

    def ask(self, words: tuple[str, ...], stdin: str) -> Answer:
        self.calls.append(words)
        if (said := self.refuse(words)) is not None:
            return Answer(words, 1, "", said)
        out = getattr(self, f"_{words[0].replace('-', '_')}")(words, stdin)
        return Answer(words, 0, out, "")

    def _api_resources(self, words: tuple[str, ...], stdin: str) -> str:
        return "\n".join(_KINDS)

    def _apply(self, words: tuple[str, ...], stdin: str) -> str:
        told = [self._merged(one) for one in json.loads(stdin)["items"]]
        if "--dry-run=server" not in words:
            for one in told:
                self.objects[one["kind"], one["metadata"]["name"]] = one
                if one["kind"] == "StatefulSet":
                    self._make_pods(one)
        return _list(told)

    def _merged(self, told: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(json.dumps(told))
        made["metadata"]["uid"] = f"{told['kind']}/{told['metadata']['name']}"
        if told["kind"] == "StatefulSet":
            made["status"] = {"observedGeneration": 1, "updateRevision": "r"}
            made["metadata"]["generation"] = 1
        return made

    def _make_pods(self, maker: dict[str, Any]) -> None:
        template = maker["spec"]["template"]
        for index in range(maker["spec"]["replicas"]):
            name = f"{maker['metadata']['name']}-{index}"
            labels = {**template["metadata"]["labels"], "controller-revision-hash": "r"}
            owner = {"kind": "StatefulSet", "name": maker["metadata"]["name"], "controller": True}
            meta = {"name": name, "uid": name, "labels": labels, "ownerReferences": [owner]}
            spec = {**template["spec"], "nodeName": f"node-{index}"}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
            self.objects["Pod", name] = {**pod, "status": self.status}

    def _get(self, words: tuple[str, ...], stdin: str) -> str:
        if words[1] == "nodes":
            return self._nodes(words)
        if words[1].startswith("network-attachment-definitions"):
            return _list([{"metadata": {"name": name}} for name in self.attachments])
        if words[1] == "events":
            return _list(self.events)
        if "--all-namespaces" in words:
            return ""
        if "--ignore-not-found" in words:
            wanted = {word.partition("/")[2] for word in words if "/" in word}
            found = [
                o for (kind, name), o in self.objects.items() if name in wanted and kind != "Pod"
            ]
            return _list(found) if found else ""
        return _list(self._selected(words))

    def _nodes(self, words: tuple[str, ...]) -> str:
        names = [f"node-{index}" for index in range(self.nodes)]
        if "json" not in words:
            return "".join(f"{name}\tzone-{name[-1]}\n" for name in names)
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        ready["allocatable"] = {"pods": "110", "nvidia.com/gpu": "8", **self.allocatable}
        return _list([{"metadata": {"name": name}, "status": ready} for name in names])

    def _selected(self, words: tuple[str, ...]) -> list[dict[str, Any]]:
        kinds = {
            kind.partition(".")[0].rstrip("s").replace("ie", "y") for kind in words[1].split(",")
        }
        found = [o for (kind, _), o in self.objects.items() if kind.lower() in kinds]
        if "-l" not in words:
            return found
        pairs = [part.split("=") for part in words[words.index("-l") + 1].split(",")]
        return [
            one
            for one in found
            if all(one["metadata"].get("labels", {}).get(key) == value for key, value in pairs)
        ]

    def _delete(self, words: tuple[str, ...], stdin: str) -> str:
        if "-l" in words:
            gone = {(one["kind"], one["metadata"]["name"]) for one in self._selected(words)}
        else:
            named = [word.partition("/")[::2] for word in words[1:] if "/" in word]
            gone = {
                key
                for key in self.objects
                if any(
                    key[1] == name and key[0].lower() == kind.partition(".")[0]
                    for kind, name in named
                )
                or (words[1] == "pods" and key[0] == "Pod" and key[1] in words)
            }
        if any(kind == "StatefulSet" for kind, _ in gone):
            gone |= {key for key in self.objects if key[0] == "Pod"}
        for key in gone:
            self.objects.pop(key, None)
        return ""

    def _annotate(self, words: tuple[str, ...], stdin: str) -> str:
        return ""

    def _logs(self, words: tuple[str, ...], stdin: str) -> str:
        return "first\nTraceback: it broke\n"

    def _config(self, words: tuple[str, ...], stdin: str) -> str:
        return "https://a.example:6443"


def _list(items: list[dict[str, Any]]) -> str:
    return json.dumps({"kind": "List", "items": items})


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """The cluster that every Kubectl of this test talks to."""
    made = Memory()

    def ask(self: Kubectl, *words: str, stdin: str = "", within_s: float = 30.0) -> Answer:
        return made.ask(words, stdin)

    monkeypatch.setattr(Kubectl, "ask", ask)
    return made


@pytest.fixture
def kubectl(memory: Memory) -> Kubectl:
    return Kubectl(program="kubectl", namespace="default")
