"""fio's JSON: figures, errors, and what is none."""

import json
from pathlib import Path
from typing import Any

import pytest

from wirespeed.rank.storage import files, fio
from wirespeed.rank.storage.worker import Worker

JOB: dict[str, Any] = {
    "jobname": "wirespeed",
    "error": 0,
    "write": {
        "io_bytes": 16777216,
        "total_ios": 16,
        "clat_ns": {
            "min": 613688,
            "max": 8397138,
            "mean": 2087325.8125,
            "N": 16,
            "percentile": {"50.000000": 1351680, "95.000000": 8355840, "99.000000": 8355840},
        },
    },
}
"""What fio 3.33 said of 16 MiB, shortened."""


def test_figures_behind_a_warning() -> None:
    text = "note: both iodepth >= 1 and synchronous I/O engine are selected\n"
    found = fio.answer_of(text + json.dumps({"jobs": [JOB]}), "write")
    assert (found.size_bytes, found.calls) == (16777216, 16)
    assert found.seconds == pytest.approx(0.0334, rel=0.01)
    assert (found.median, found.max) == (0.00135168, 0.008397138)


def test_an_error_is_the_systems() -> None:
    text = "fio: io_u error on file rank-0.bin: No space left on device\n"
    with pytest.raises(OSError, match="No space left") as raised:
        fio.answer_of(text + json.dumps({"jobs": [{**JOB, "error": 28}]}), "write")
    assert raised.value.errno == 28


@pytest.mark.parametrize(
    "text", ["", "fio: job startup failed", '{"jobs": []}', '{"jobs": [{', "{}"]
)
def test_what_cannot_be_read_is_shown(text: str) -> None:
    with pytest.raises(ValueError, match="fio's answer cannot be read"):
        fio.answer_of(text, "write")


@pytest.mark.system
@pytest.mark.skipif(not fio.version(), reason="Requires: fio")
def test_fio_itself(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ValueError"):
        fio.run("read", tmp_path / "absent", 1 << 20, 5.0, direct=False)
    path = tmp_path / "rank-0.bin"
    assert fio.run("write", path, 1 << 20, 5.0, direct=False).size_bytes == 1 << 20
    pieces = fio.run("random read", path, 1 << 20, 5.0, direct=False, pieces=(16, 4000))
    assert (pieces.calls, pieces.size_bytes) == (16, 1 << 16)


@pytest.mark.system
@pytest.mark.skipif(not fio.version(), reason="Requires: fio")
def test_a_worker_has_fio_write_and_read_and_looks_into_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(0, str(tmp_path), "0123456789abcdef")
    worker.begin(first=True)
    written = worker.write(4 << 20, 5.0, "fio")
    monkeypatch.setattr(files, "cached_share", lambda path: 0.75)
    read = worker.read(0, 5.0, "fio")
    pieces = worker.read_pieces(0, 4000, 16, 5.0, "fio")
    assert (written.size_bytes, read.size_bytes, pieces.calls) == (4 << 20, 4 << 20, 16)
    assert (read.cached, pieces.cached) == (0.75, 0.75)
    worker.clean(last=True)
    assert list(tmp_path.iterdir()) == []
