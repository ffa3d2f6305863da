"""A kubectl that prints rubbish, too much or nothing: told as such, in bounded time and memory."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from wirespeed.cli import run
from wirespeed.clusters import kube as module
from wirespeed.clusters.kube import Kubectl, Refused, finding_of

pytestmark = pytest.mark.hostile("rubbish of programs")

RUBBISH = {
    "half": "{",
    "page": "<html>\x1b[2Jno</html>",
    "null": "null",
    "list": "[]",
    "number": "7",
    "deep": '{"items":' + "[" * 100_000,
    "deep objects": '{"a":' * 3000 + "1" + "}" * 3000,
    "items": '{"items": 7}',
    "no objects": '{"items": [7]}',
    "no name": '{"items": [{"metadata": {}}]}',
    "odd name": '{"items": [{"metadata": {"name": []}}]}',
    "odd labels": '{"items": [{"metadata": {"name": "a", "labels": 3}}]}',
    "odd state": '{"items": [{"status": {"containerStatuses": [{"name": "a", "state": 7}]}}]}',
    "half a condition": '{"items": [{"status": {"conditions": [{"type": "Ready"}]}}]}',
    "odd amount": '{"items": [{"spec": {"requests": {"cpu": []}}}]}',
    "odd spec": '{"items": [{"metadata": {"name": "a"}, "spec": {"containers": [1]}}]}',
    "bytes": "\ufffd\0",
}


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that every kubectl prints now, and a cluster file `mine`."""
    program, text = tmp_path / "bin" / "kubectl", tmp_path / "said"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec cat "{text}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("cluster: {name: mine}\n")
    return text


def of(script: str, tmp_path: Path) -> Kubectl:
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Kubectl(program=str(program), namespace="ml")


@pytest.mark.parametrize("kind", RUBBISH)
def test_what_is_no_list_of_objects_is_refused_with_a_finding(kind: str, says: Path) -> None:
    says.write_text(RUBBISH[kind])
    kubectl = Kubectl(program=str(says.parent / "bin" / "kubectl"), namespace="ml")
    with pytest.raises(Refused) as caught:
        kubectl.items("get", "pods")
    told = finding_of(caught.value)
    assert told.id.startswith("CLUSTER-") and told.status == "fail"
    assert "answer" in told.title
    assert caught.value.exit_code == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("status", "mine.yaml"),
        ("deploy", "mine.yaml", "-q"),
        ("clean", "mine.yaml", "--yes"),
        ("logs", "mine.yaml"),
        ("gpus", "mine.yaml"),
        ("discover", "-q"),
    ],
    ids=lambda words: str(words[0]),
)
def test_no_verb_ends_with_a_traceback(
    words: tuple[str, ...], says: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in RUBBISH.values():
        says.write_text(text)
        code = run(["cluster", *words])
        out, err = capsys.readouterr()
        assert code in (2, 3), (text[:40], err)
        assert "Traceback" not in err
        assert "CLUSTER-" in out + err
        assert "\x1b" not in out + err


def test_nulls_say_nothing(tmp_path: Path) -> None:
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    told = json.dumps({"items": [{**pod, "spec": None, "status": None}]})
    assert of(f"echo '{told}'", tmp_path).items("get", "pods") == [pod]


def test_endless_text_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    for script in ("exec yes", "exec yes >&2"):
        answer = of(script, tmp_path).ask("get", "pods")
        assert answer.code not in (None, 0)
        assert len(answer.out) + len(answer.err) < 4 << 20
    assert "more than 1 MiB" in of("exec yes", tmp_path).ask("get", "pods").err


def test_one_that_hangs_is_ended_and_what_it_left_is_not_waited_for(tmp_path: Path) -> None:
    begin = time.monotonic()
    answer = of("echo some; sleep 3 & exec sleep 3", tmp_path).ask("get", "pods", within_s=0.2)
    assert (answer.code, answer.out) == (None, "some\n")
    assert time.monotonic() - begin < 2.5


def test_what_is_handed_in_and_comes_back_is_whole(tmp_path: Path) -> None:
    text = "x" * 300_000
    answer = of("cat; echo done >&2; exit 3", tmp_path).ask("apply", stdin=text)
    assert (answer.code, answer.out, answer.err) == (3, text, "done\n")
    assert of("exec true", tmp_path).ask("apply", stdin=text).code == 0
