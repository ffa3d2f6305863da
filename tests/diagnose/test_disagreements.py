"""Who says something else than most."""

from pathlib import Path

from wirespeed.diagnose.diagnose import diagnose
from wirespeed.diagnose.sources import Source


def logs(folder: Path, networks: list[str]) -> list[tuple[str, str, str]]:
    lines = [
        f"gpu-{node}:10:20 [0] NCCL INFO Using network {network}\n"
        for node, network in enumerate(networks)
    ]
    path = folder / "job.log"
    path.write_text("".join(lines))
    found = diagnose([Source("job.log", path)]).findings
    return [(one.id, one.status, one.subject.name) for one in found if one.id == "DIAG-002"]


def test_the_one_on_another_network_is_named(tmp_path: Path) -> None:
    assert logs(tmp_path, ["IB", "IB", "Socket", "IB"]) == [("DIAG-002", "warn", "gpu-2")]


def test_all_alike_or_no_majority_is_no_finding(tmp_path: Path) -> None:
    assert logs(tmp_path, ["IB"] * 4) == []
    assert logs(tmp_path, ["IB", "IB", "Socket", "Socket"]) == []
    assert logs(tmp_path, ["IB", "Socket"]) == []
