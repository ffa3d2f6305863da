"""A `kubectl` that answers from a table: in this process, or as a real program where processes count."""

import json
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from wirespeed.clusters.kube import Answer, Kubectl

_PROGRAM = """#!{python} -IS
import json, pathlib, sys, time
folder = pathlib.Path({folder!r})
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
answers = json.loads((folder / "answers.json").read_text())
words = [word for word in sys.argv[1:] if not word.startswith("--")]
told = answers.get(" ".join(words[:2]), {{"code": 1, "err": "error: unknown"}})
time.sleep(told.get("sleep", 0))
sys.stdout.write(told.get("out", ""))
sys.stderr.write(told.get("err", ""))
sys.exit(told.get("code", 0))
"""

FORBIDDEN = (
    'Error from server (Forbidden): {0} is forbidden: User "dev" cannot list resource "{0}" '
    'in API group "" at the cluster scope\n'
)


def listed(*items: dict[str, Any]) -> dict[str, Any]:
    """What `kubectl get … -o json` prints."""
    whole = {
        "apiVersion": "v1",
        "items": items,
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    }
    return {"out": json.dumps(whole)}


def forbidden(kind: str) -> dict[str, Any]:
    return {"code": 1, "err": FORBIDDEN.format(kind)}


def node(name: str, *, labels: dict[str, str] | None = None, **parts: Any) -> dict[str, Any]:
    """A node object, cut down to what is read; `allocatable`, `taints`, `ready`, `cordoned`."""
    spec: dict[str, Any] = {"taints": parts["taints"]} if "taints" in parts else {}
    if parts.get("cordoned"):
        spec["unschedulable"] = True
    ready = "True" if parts.get("ready", True) else "Unknown"
    allocatable = {"cpu": "190", "memory": "2097152Ki", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux", **(labels or {})}},
        "spec": spec,
        "status": {
            "allocatable": {**allocatable, **parts.get("allocatable", {})},
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": ready},
            ],
        },
    }


def storage_class(name: str, provisioner: str, *, default: bool = False) -> dict[str, Any]:
    key = "storageclass.kubernetes.io/is-default-class"
    notes = {key: "true"} if default else {}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": notes},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Near(Kubectl):
    """Answers without a process, as the program does."""

    told: Any = None

    def ask(self, *words: str, stdin: str = "", within_s: float = 0) -> Answer:
        command = self.words(*words)
        answer = self.told.answer_to(command[1:])
        out, err = answer.get("out", ""), answer.get("err", "")
        return Answer(command, answer.get("code", 0), out, err)


class Told:
    """A cluster that answers what it is told to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers: dict[str, Any] = {
            "config view": {"out": "lab\nhttps://api.lab.example:6443\n"},
            "version -o": {"out": json.dumps({"serverVersion": {"gitVersion": "v1.31.4"}})},
            "api-resources -o": {"out": "nodes\npods\nstorageclasses.storage.k8s.io\n"},
            "get namespace": {"out": "NAME STATUS AGE\ndefault Active 1d\n"},
            "get nodes": listed(),
            "get storageclasses": listed(),
        }
        program = folder / "kubectl"
        program.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.program = Kubectl(program=str(program), namespace="default")
        self.kubectl = Near(program="kubectl", namespace="default", told=self)

    def answers(self, **told: dict[str, Any]) -> "Told":
        """By the first two words, `_` between them; `everywhere` for all namespaces."""
        self._answers.update({key.replace("_", " "): value for key, value in told.items()})
        (self._folder / "answers.json").write_text(json.dumps(self._answers))
        return self

    def kinds(self, *names: str) -> "Told":
        return self.answers(**{"api-resources_-o": {"out": "\n".join(names) + "\n"}})

    def answer(self, words: str, told: dict[str, Any]) -> "Told":
        self._answers[words] = told
        return self.answers()

    def answer_to(self, words: Sequence[str]) -> dict[str, Any]:
        """The answer by the first two words, of all namespaces where one is given for them."""
        with (self._folder / "calls").open("a") as calls:
            calls.write(json.dumps(list(words)) + "\n")
        key = " ".join([word for word in words if not word.startswith("--")][:2])
        if "--all-namespaces" in words and f"{key} everywhere" in self._answers:
            key += " everywhere"
        missing = {"code": 1, "err": "error: the server doesn't have a resource type"}
        found: dict[str, Any] = self._answers.get(key, missing)
        return found

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self._folder / "calls").read_text().splitlines()]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path).answers()


@pytest.fixture(name="node")
def _node() -> Callable[..., dict[str, Any]]:
    return node


@pytest.fixture(name="listed")
def _listed() -> Callable[..., dict[str, Any]]:
    return listed


@pytest.fixture(name="storage_class")
def _storage_class() -> Callable[..., dict[str, Any]]:
    return storage_class


@pytest.fixture(name="forbidden")
def _forbidden() -> Callable[[str], dict[str, Any]]:
    return forbidden
