"""kubectl that asks again: a program that fails as kubectl does, and then no longer."""

import json
import stat
import sys
import time
from pathlib import Path

import pytest

from wirespeed.clusters.file import Cluster
from wirespeed.clusters.kube import Kubectl, Refused, Silent, kubectl_of, patient, wrong_server
from wirespeed.clusters.operations.apply import Right, missing_rights


def program(folder: Path, body: str) -> str:
    path = folder / "kubectl"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys\nhere = {str(folder)!r}\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def failing(folder: Path, times: int, words: str) -> Kubectl:
    """Says `words` that often, then answers."""
    body = (
        "count = len(os.listdir(here))\n"
        "open(os.path.join(here, f'call-{count}'), 'w').close()\n"
        f"if count <= {times}:\n    sys.exit({words!r})\n"
        "print('done')"
    )
    return Kubectl(program=program(folder, body), namespace="a")


def test_a_server_that_comes_back_is_asked_until_it_answers(tmp_path: Path) -> None:
    asking = patient(failing(tmp_path, 2, "Error from server: etcdserver: x"), Silent(), 20)
    assert asking.do("get", "pods") == "done\n"
    assert len(list(tmp_path.glob("call-*"))) == 3


def test_it_ends_within_its_bound_and_never_repeats_what_cannot_pass(tmp_path: Path) -> None:
    began = time.monotonic()
    away = failing(tmp_path, 1000, "The connection to the server a:1 was refused")
    with pytest.raises(Refused):
        patient(away, Silent(), 1).do("get", "pods")
    assert time.monotonic() - began < 30
    (tmp_path / "second").mkdir()
    no = failing(tmp_path / "second", 1000, "error: You must be logged in to the server")
    with pytest.raises(Refused):
        patient(no, Silent(), 60).do("get", "pods")
    assert len(list((tmp_path / "second").glob("call-*"))) == 1


def test_rights_that_are_missing_are_those_that_the_server_denies(tmp_path: Path) -> None:
    body = (
        "for one in json.load(sys.stdin)['items']:\n"
        "    of = one['spec']['resourceAttributes']\n"
        "    one['status'] = {'allowed': of['verb'] == 'get'}\n"
        "    print(json.dumps(one, indent=4))"
    )
    asking = Kubectl(program=program(tmp_path, body), namespace="a")
    rights = [Right("get", "pods"), Right("patch", "statefulsets", "apps")]
    assert missing_rights(asking, rights) == (rights[1],)
    assert str(rights[1]) == "patch statefulsets.apps"


@pytest.mark.parametrize(
    ("api", "right"),
    [
        ("", True),
        ("https://A.example:443/", True),
        ("https://a.example", True),
        ("a.example", True),
        ("https://b.example", False),
        ("https://a.example:6443", False),
        ("http://a.example", False),
    ],
)
def test_another_server_than_the_files_is_refused(tmp_path: Path, api: str, right: bool) -> None:
    asking = Kubectl(program=program(tmp_path, "print('https://a.example:443')"), namespace="a")
    found = wrong_server(asking, api)
    assert (found is None) is right
    assert found is None or found.id == "CLUSTER-019"


def test_the_program_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path, "print(json.dumps(sys.argv[1:]))")
    Path(path).rename(tmp_path / "oc")
    monkeypatch.setenv("PATH", str(tmp_path))
    nasty = "a b;$(id)"
    asking = kubectl_of(Cluster(name="demo", namespace="team", context=nasty, kubeconfig="/k"))
    assert asking.program == str(tmp_path / "oc")
    words = ["--namespace=team", f"--context={nasty}", "--kubeconfig=/k", "get", "pods"]
    assert json.loads(asking.do("get", "pods", "-o", "json")) == [*words, "-o", "json"]
