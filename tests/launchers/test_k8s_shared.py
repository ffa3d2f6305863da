"""Is the shared volume shared: real files, pods that are folders, and a kubectl that runs words here."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from wirespeed.clusters import pods as shared
from wirespeed.clusters.kube import Answer, Kubectl
from wirespeed.clusters.pods import shared_findings

PODS = ("demo-0", "demo-1", "demo-2")
SIZE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Pods(Kubectl):
    """Each pod's /workspace is a folder here."""

    folders: dict[str, Path]
    torn: str = ""
    """A pod whose file has another first byte."""
    done: list[str] = field(default_factory=list)

    def ask(self, *words: str, stdin: str = "", within_s: float = 30.0) -> Answer:
        pod, far = words[2], list(words[words.index("--") + 1 :])
        self.done.append(pod)
        folder = self.folders[pod]
        far[4] = far[4].replace("/workspace", str(folder))
        if pod == self.torn:
            path = Path(far[4])
            path.with_name("torn").write_bytes(b"x" + path.read_bytes()[1:])
            far[4] = str(path.with_name("torn"))
        done = subprocess.run(far, capture_output=True, text=True, timeout=20, check=False)
        return Answer(words, done.returncode, done.stdout, done.stderr)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_SEEN_WITHIN_S", 0.2)


def found(pods: Pods, names: tuple[str, ...] = PODS) -> list[tuple[str, str]]:
    findings = shared_findings(pods, names, sys.executable, "/workspace", size=SIZE)
    assert {one.id for one in findings} <= {"CLUSTER-047"}
    return [(one.status, one.title) for one in findings]


def kubectl(folders: dict[str, Path], torn: str = "") -> Pods:
    return Pods(program="kubectl", namespace="ml", folders=folders, torn=torn)


def test_all_read_what_one_wrote_and_nothing_is_left(tmp_path: Path) -> None:
    ((status, title),) = found(kubectl(dict.fromkeys(PODS, tmp_path)))
    assert status == "pass"
    assert title.startswith("/workspace is shared: 2 pods read the 64 KiB that demo-0 wrote in ")
    assert list(tmp_path.iterdir()) == []


def test_a_pod_with_a_volume_of_its_own_is_named(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    shared_folder = tmp_path / "shared"
    shared_folder.mkdir()
    folders = {**dict.fromkeys(PODS, shared_folder), "demo-2": own}
    assert found(kubectl(folders)) == [
        ("fail", "demo-2 does not read what demo-0 wrote to /workspace")
    ]
    assert list(shared_folder.iterdir()) == []


def test_other_bytes_are_found(tmp_path: Path) -> None:
    pods = kubectl(dict.fromkeys(PODS, tmp_path), torn="demo-1")
    (finding,) = shared_findings(pods, PODS, sys.executable, "/workspace", size=SIZE)
    assert finding.saw == "64 KiB with other content"
    assert finding.subject.name == "demo-1"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    pods = kubectl(dict.fromkeys(PODS, tmp_path / "missing"))
    (finding,) = shared_findings(pods, PODS, sys.executable, "/workspace", size=SIZE)
    assert finding.title == "demo-0 cannot write to /workspace"
    assert "No such file" in finding.saw
    assert pods.done == ["demo-0"]


def test_one_pod_shares_with_nobody(tmp_path: Path) -> None:
    assert found(kubectl({"demo-0": tmp_path}), ("demo-0",)) == []
