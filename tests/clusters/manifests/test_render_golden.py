"""What `wirespeed cluster render` prints, letter for letter (tests/golden/README.md: how to renew)."""

import os
from pathlib import Path

import pytest

from wirespeed.cli import run

FILES = Path(__file__).parent / "files"
GOLDEN = Path(__file__).parents[2] / "golden"
CASES = sorted(path.stem for path in FILES.glob("*.yaml"))


@pytest.mark.parametrize("case", CASES)
def test_the_stream(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "render", str(FILES / f"{case}.yaml")]) == 0
    text = capsys.readouterr().out
    path = GOLDEN / f"cluster.{case}.yaml"
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "if this is wanted, see tests/golden/README.md"


def test_storage_modes_and_fabrics_and_devices_are_all_among_them() -> None:
    assert {case.split("-")[0] for case in CASES} == {"none", "rwx", "templates"}
    assert {tuple(case.split("-")[1:]) for case in CASES} >= {("rdma", "gpu"), ("tcp", "cpu")}
    assert {f"cluster.{case}.yaml" for case in CASES} <= {path.name for path in GOLDEN.iterdir()}
