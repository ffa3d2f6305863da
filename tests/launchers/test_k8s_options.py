"""`--cluster` and `wirespeed cluster run` on the command line."""

from pathlib import Path

import pytest

from wirespeed.cli import run

FILE = "cluster: {name: demo, namespace: team}\nworkload: {python: /opt/py/bin/python}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "--cluster", "demo"], "--on k8s"),
        (["launch", "--on", "ssh", "--cluster", "demo", "--", "true"], "--cluster says nothing"),
        (["launch", "--on", "k8s", "--", "true"], "--cluster NAME"),
        (["launch", "--on", "k8s", "--cluster", "demo", "--", "true"], "clusters/demo.yaml"),
        (["launch", "--on", "k8s", "--with", "leese=3", "--", "true"], "do you mean lease?"),
        (["cluster", "run", "demo"], "no command to run"),
        (["cluster", "run", "demo", "-x", "NOT_SET", "--", "true"], "NOT_SET"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    assert said in capsys.readouterr().err


def test_cluster_run_is_launch_on_k8s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without kubectl, and so without a cluster, both write the same down."""
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "demo.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = ["--nodes", "3", "--with", "torchrun=no", "--dry-run", "--", "echo", "a b"]
    assert run(["cluster", "run", "demo", *command]) == 0
    ran = capsys.readouterr().out
    assert run(["launch", "--on", "k8s", "--cluster", "demo", *command]) == 0
    assert capsys.readouterr().out == ran
    assert ran.count(" exec -i demo-") == 3
    assert '"WORLD_SIZE": "3"' in ran
    assert "kubectl --namespace=team delete" in ran
