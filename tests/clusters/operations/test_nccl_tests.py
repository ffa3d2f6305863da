"""nccl-tests as an MPIJob where things go wrong, with a kubectl that answers from a table."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from wirespeed.clusters.deployment import settle
from wirespeed.clusters.file import ClusterFile
from wirespeed.clusters.kube import Answer, Kubectl, Silent
from wirespeed.clusters.operations.nccl_tests import Ended, environment_of, run_tests
from wirespeed.errors import CannotMeasure, Interrupted

NAME = "mine-nccl-tests"
RAW = {"groupVersion": "kubeflow.org/v2beta1", "resources": [{"name": "mpijobs"}]}


@dataclass(frozen=True, kw_only=True)
class Fake(Kubectl):
    """A cluster of one namespace whose operator makes what `pods` says."""

    folder: Path
    pods: list[dict[str, Any]] = field(default_factory=list)
    job: list[dict[str, Any]] = field(default_factory=list)
    log: str = ""
    refused: dict[str, int] = field(default_factory=dict)
    """How often a verb fails before it works."""
    raw: dict[str, Any] | None = field(default_factory=lambda: RAW)
    done: list[tuple[str, ...]] = field(default_factory=list)
    applied: list[str] = field(default_factory=list)

    def ask(self, *words: str, stdin: str = "", within_s: float = 30.0) -> Answer:
        self.done.append(words)
        if self.refused.get(words[0], 0) > 0:
            self.refused[words[0]] -= 1
            return Answer(words, 1, "", "error: it fails")
        code, told = self._told(words, stdin)
        return Answer(words, code, told, "" if code == 0 else told)

    def _told(self, words: tuple[str, ...], stdin: str) -> tuple[int, str]:
        if "--raw" in words:
            gone = "Error from server (NotFound): the server could not find the requested resource"
            return (1, gone) if self.raw is None else (0, json.dumps(self.raw))
        if words[0] == "apply":
            self.applied.append(stdin)
        if words[0] == "delete":
            self.job.clear()
            self.applied.clear()
        if words[0] != "get":
            return 0, ""
        if words[1] == "mpijobs.kubeflow.org":
            return 0, json.dumps(self.job[0]) if self.job else ""
        pods = self.pods if self.applied else []
        if words[1] == "pod":
            one = [pod for pod in pods if pod["metadata"]["name"] == words[2]]
            return 0, json.dumps(one[0]) if one else ""
        return 0, json.dumps({"items": pods})

    def words(self, *words: str) -> tuple[str, ...]:
        assert words[:2] == ("logs", "-f")
        path = self.folder / "log"
        path.write_text(self.log)
        return (sys.executable, "-c", f"print(open({str(path)!r}).read(), end='')")


def pod(role: str, state: dict[str, Any], phase: str, ready: bool = False) -> dict[str, Any]:
    status = {
        "phase": phase,
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": str(ready)},
        ],
        "containerStatuses": [{"name": "ranks", "restartCount": 0, "state": state}],
    }
    labels = {"app.kubernetes.io/component": role}
    meta = {"name": f"{NAME}-{role}", "uid": role, "labels": labels}
    return {"kind": "Pod", "metadata": meta, "spec": {"nodeName": "n"}, "status": status}


def launcher(code: int) -> dict[str, Any]:
    return pod("launcher", {"terminated": {"exitCode": code}}, "Failed" if code else "Succeeded")


@pytest.fixture
def cluster(tmp_path: Path) -> Callable[..., Fake]:
    def make(**parts: Any) -> Fake:
        return Fake(program="kubectl", namespace="here", folder=tmp_path, **parts)

    return make


def run(fake: Fake, *, start_s: float = 5.0, line: Callable[[str], None] = lambda _: None) -> Ended:
    told = {"cluster": {"name": "mine", "namespace": "here"}, "gpus": {"per_node": 1}}
    environment = environment_of(settle(ClusterFile.model_validate(told)))
    return run_tests(
        fake, environment, ["all_reduce_perf"], Silent(), line, start_s=start_s, within_s=20.0
    )


def removed(fake: Fake) -> list[tuple[str, ...]]:
    return [words for words in fake.done if words[0] == "delete"]


def test_its_lines_are_handed_on_and_everything_of_it_is_removed(
    cluster: Callable[..., Fake],
) -> None:
    seen: list[str] = []
    fake = cluster(pods=[launcher(0)], log="one\n\x1b[31mtwo\nunfinished")
    tested = run(fake, line=seen.append)
    assert (tested.code, tested.findings) == (0, ())
    assert seen == ["one", "\x1b[31mtwo"]
    (words,) = removed(fake)
    kinds = set(words[1].split(","))
    assert {"MPIJob.v2beta1.kubeflow.org", "ConfigMap", "ServiceAccount"} <= kinds
    assert "Namespace" not in kinds and not [kind for kind in kinds if "Claim" in kind]
    assert words[3].endswith("wirespeed/run=nccl-tests") and f"instance={NAME}" in words[3]


def test_a_launcher_that_fails_is_a_finding_with_its_last_lines(
    cluster: Callable[..., Fake],
) -> None:
    fake = cluster(pods=[launcher(134)], log="".join(f"line {i}\n" for i in range(50)))
    (finding,) = run(fake).findings
    assert finding.id == "CLUSTER-051" and "134" in finding.title
    assert finding.evidence[-1] == "line 49"
    assert removed(fake)


def test_without_an_operator_nothing_is_made(cluster: Callable[..., Fake]) -> None:
    fake = cluster(raw=None)
    (finding,) = run(fake).findings
    assert finding.id == "CLUSTER-016" and "--engine statefulset" in finding.fix
    assert "https://" in finding.fix
    assert {words[0] for words in fake.done} == {"get"}


def test_why_it_does_not_start_is_told_and_it_is_removed(cluster: Callable[..., Fake]) -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    fake = cluster(pods=[pod("ranks", waiting, "Pending")])
    finding = run(fake, start_s=0.1).findings[0]
    assert finding.id == "CLUSTER-003", finding
    assert removed(fake)


def test_where_no_cause_is_known_it_is_said_what_was_seen(cluster: Callable[..., Fake]) -> None:
    fake = cluster(pods=[pod("ranks", {"running": {}}, "Running", ready=True)])
    (finding,) = run(fake, start_s=0.1).findings
    assert finding.id == "CLUSTER-050" and "1 of 2 workers ready" in finding.saw


@pytest.mark.parametrize(
    ("labels", "who", "taken"),
    [
        ({}, "", True),
        ({"wirespeed/run": "nccl-tests"}, "jane@login-1", True),
        ({"wirespeed/run": "nccl-tests"}, "me", False),
    ],
)
def test_a_job_of_somebody_else_is_left_alone(
    labels: dict[str, str], who: str, taken: bool, cluster: Callable[..., Fake],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("wirespeed.clusters.operations.nccl_tests._me", lambda: "me")
    meta = {"name": NAME, "labels": labels, "annotations": {"wirespeed/started-by": who}}
    fake = cluster(job=[{"metadata": meta}], pods=[launcher(0)])
    findings = run(fake).findings
    assert [one.id for one in findings] == (["CLUSTER-012"] if taken else [])
    assert bool(removed(fake)) is not taken


def test_a_finished_job_of_somebody_else_gives_way(cluster: Callable[..., Fake]) -> None:
    meta = {"name": NAME, "labels": {"wirespeed/run": "nccl-tests"}}
    ended = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    fake = cluster(job=[{"metadata": meta, "status": ended}], pods=[launcher(0)])
    assert run(fake).code == 0


def test_a_removal_that_fails_is_tried_again_and_then_told(cluster: Callable[..., Fake]) -> None:
    fake = cluster(pods=[launcher(0)], refused={"delete": 2})
    assert run(fake).code == 0
    assert len(removed(fake)) == 3
    with pytest.raises(CannotMeasure, match="could not be removed") as caught:
        run(cluster(pods=[launcher(0)], refused={"delete": 99}))
    assert caught.value.next.startswith("kubectl -n here delete ")


def test_an_interrupted_run_is_removed_too(cluster: Callable[..., Fake]) -> None:
    def stop(_: str) -> None:
        raise Interrupted("Ctrl-C")

    fake = cluster(pods=[launcher(0)], log="one\n")
    with pytest.raises(Interrupted):
        run(fake, line=stop)
    assert removed(fake)
