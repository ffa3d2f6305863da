"""`wirespeed cluster render`: its options, its forms and its refusals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from wirespeed.cli import run

FILES = Path(__file__).parent / "files"
SMALLEST = str(FILES / "none-tcp-cpu.yaml")
BOTH_FABRICS = str(FILES / "none-rdma-gpu.yaml")
Out = pytest.CaptureFixture[str]


def rendered(capsys: Out, *words: str) -> str:
    code = run(["cluster", "render", *words])
    captured = capsys.readouterr()
    assert (code, captured.err) == (0, "")
    return captured.out


def test_json_is_the_same_as_yaml(capsys: Out) -> None:
    stream = list(yaml.safe_load_all(rendered(capsys, SMALLEST)))
    whole = json.loads(rendered(capsys, SMALLEST, "-o", "json"))
    assert (whole["kind"], whole["items"]) == ("List", stream)


def test_options_come_before_the_file(capsys: Out) -> None:
    text = rendered(capsys, BOTH_FABRICS, "--nodes", "7", "--mode", "tcp")
    *_, made = yaml.safe_load_all(text)
    assert made["spec"]["replicas"] == 7
    assert 'name: NCCL_IB_DISABLE\n          value: "1"' in text
    assert "rail-0" not in text
    made = list(yaml.safe_load_all(rendered(capsys, SMALLEST, "--engine", "jobset")))
    assert "JobSet" in {one["kind"] for one in made}


def test_what_was_chosen_stands_above(capsys: Out) -> None:
    head = rendered(capsys, SMALLEST).partition("---\n")[0].splitlines()
    assert all(line.startswith("# ") for line in head)
    assert head[0] == "# smallest: statefulset in namespace default, 2 pods, 0 GPUs each, tcp"
    assert [line for line in head if line.startswith("# mode tcp: ")]


def test_a_folder(tmp_path: Path, capsys: Out) -> None:
    folder = tmp_path / "one" / "two"
    paths = rendered(capsys, SMALLEST, "--to", str(folder)).splitlines()
    assert sorted(paths) == sorted(str(path) for path in folder.iterdir())
    index = yaml.safe_load((folder / "kustomization.yaml").read_text())
    objects = [yaml.safe_load((folder / name).read_text()) for name in index["resources"]]
    assert objects == list(yaml.safe_load_all(rendered(capsys, SMALLEST)))


def test_rdma_without_adapters_is_refused_unless_tcp_will_do(capsys: Out) -> None:
    assert run(["cluster", "render", SMALLEST, "--mode", "rdma"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "network.rdma.resource" in captured.err
    text = rendered(capsys, SMALLEST, "--mode", "rdma", "--fallback", "tcp")
    assert "NCCL_IB_DISABLE" in text


def test_a_bad_file_is_told_and_nothing_is_written(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("cluster: {name: mine}\nworkload: {imagee: a}\n")
    assert run(["cluster", "render", str(file), "--to", str(tmp_path / "folder")]) == 2
    assert "imagee" in capsys.readouterr().err
    assert not (tmp_path / "folder").exists()


@pytest.mark.slow
def test_it_starts_without_heavy_modules() -> None:
    """The time of a render is that of its imports."""
    code = (
        "import sys; from wirespeed.cli import run; run(sys.argv[1:]);"
        "print(*{'torch', 'numpy', 'rich', 'plotly', 'jinja2'} & set(sys.modules), file=sys.stderr)"
    )
    words = [sys.executable, "-c", code, "cluster", "render", SMALLEST]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "\n"
    assert "kind: StatefulSet" in done.stdout
