"""`wirespeed cluster discover` as it is typed: where the file goes, and what is refused before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wirespeed.cli import run
from wirespeed.clusters.reading import read_cluster

Make = Callable[..., dict[str, Any]]
BASE = ["cluster", "discover"]


@pytest.fixture
def here(told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the cluster's kubectl first on the PATH."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.chdir(work)
    return work


@pytest.mark.slow
def test_the_file_goes_to_stdout(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(BASE) == 0
    out, err = capsys.readouterr()
    assert read_cluster(out, "stdout").cluster.name == "lab"
    assert "wirespeed cluster validate FILE" in err
    assert not list(here.iterdir())
    assert run([*BASE, "-q"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_file_is_written_once(here: Path, told: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*BASE, "-o", "clusters/lab.yaml"]
    assert run(words) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "wirespeed cluster validate clusters/lab.yaml" in err
    path = here / "clusters" / "lab.yaml"
    text = path.read_text()
    assert read_cluster(text, str(path)).cluster.name == "lab"
    asked = len(told.calls())
    assert run(words) == 2
    assert "exists already" in capsys.readouterr().err
    assert path.read_text() == text
    assert len(told.calls()) == asked, "the cluster is not asked for nothing"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--namespace", "../x"], "--namespace '../x'"),
        (["--name", "Upper"], "--name 'Upper'"),
        (["--context", "a\nb"], "--context"),
        (["-o", "file/below.yaml"], "cannot be written"),
    ],
)
def test_what_cannot_be_is_refused(
    here: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "file").write_text("in the way")
    assert run([*BASE, *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "expected" in err


@pytest.mark.slow
def test_options_are_given_to_kubectl(here: Path, told: Any) -> None:
    assert run([*BASE, "--context=prod", "--kubeconfig=k.yaml", "--namespace=ml", "-q"]) == 0
    for call in told.calls():
        assert {"--context=prod", "--kubeconfig=k.yaml"} <= set(call)
    assert "--namespace=ml" in told.calls()[-1]


def test_a_cluster_that_does_not_answer_is_exit_code_3(
    here: Path, told: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    told.answer("version -o", {"code": 1, "err": "Unable to connect to the server: EOF\n"})
    assert run([*BASE, "-o", "lab.yaml"]) == 3
    assert "Unable to connect to the server" in capsys.readouterr().err
    assert not list(here.iterdir())
