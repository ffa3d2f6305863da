"""What is said of a log on the whole: never that it is READY, and good only where that is proven."""

import bz2
import gzip
import lzma
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import zstandard

from wirespeed.diagnose import sources
from wirespeed.diagnose.diagnose import Reading, diagnose
from wirespeed.diagnose.sources import Source, find_sources
from wirespeed.errors import InputError

TABLE = (
    "# nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5\n"
    "           8             2     float     sum      -1     8.69    0.00    0.00      0     8.56    "
    "0.00    0.00      0\n"
)
CLOSING = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 97.93\n"
TRAINED = "step 1\nTraining completed\n"
FULL = "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device\n"


def read(folder: Path, **logs: str | bytes) -> Reading:
    for name, text in logs.items():
        (folder / name.replace("_", ".")).write_bytes(
            text if isinstance(text, bytes) else text.encode()
        )
    return diagnose(find_sources([str(folder)]))


@pytest.mark.parametrize(
    ("text", "verdict", "code"),
    [
        (FULL, "CAUSE NAMED", 1),
        (FULL + TRAINED, "CAUSE NAMED", 1),
        (TABLE + CLOSING, "ENDED WELL", 0),
        (TABLE + CLOSING.replace("0 OK", "3 FAILED"), "SYMPTOMS ONLY", 3),
        (TABLE, "SYMPTOMS ONLY", 3),
        (TABLE + CLOSING + TABLE, "NOTHING KNOWN", 3),
        (CLOSING[:30], "NOTHING KNOWN", 3),
        (TRAINED, "ENDED WELL", 0),
        (TRAINED + "step\n" * 2000, "NOTHING KNOWN", 3),
        (TRAINED + "Job finished with exit code 1\n", "NOTHING KNOWN", 3),
        (TRAINED + "finished with 0 errors, exit code 0\n", "ENDED WELL", 0),
        ("step 1\nwaiting until training is complete\n", "NOTHING KNOWN", 3),
        ("", "NOTHING KNOWN", 3),
    ],
)
def test_the_verdict_on_a_log(tmp_path: Path, text: str, verdict: str, code: int) -> None:
    found = read(tmp_path, job_log=text)
    assert (found.verdict, found.exit_code) == (verdict, code)


def test_a_good_end_is_told_with_its_lines(tmp_path: Path) -> None:
    (told,) = (
        one for one in read(tmp_path, a_log=TABLE + CLOSING).findings if one.id == "DIAG-009"
    )
    assert told.evidence[0].endswith("a.log:3: # Out of bounds values : 0 OK")
    assert "a.log:4: # Avg bus bandwidth" in told.title


def test_every_rank_must_show_its_end(tmp_path: Path) -> None:
    assert read(tmp_path, rank0_log=TRAINED, rank1_log="step 1\n").verdict == "NOTHING KNOWN"
    assert read(tmp_path, rank1_log=TRAINED).verdict == "ENDED WELL"
    assert read(tmp_path, rank1_log="step 1\n", all_log=TABLE + CLOSING).exit_code == 0
    assert read(tmp_path, all2_log=TABLE).exit_code == 3


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, zstandard.compress, bz2.compress, lzma.compress],
    ids=["gzip", "zstd", "bzip2", "xz"],
)
def test_a_packed_log_that_breaks_off_is_no_good_one(tmp_path: Path, pack: object) -> None:
    text = os.urandom(200_000).hex().encode() + b"\n" + TRAINED.encode()
    packed: bytes = pack(text)  # type: ignore[operator]
    whole = read(tmp_path, a_log=packed)
    assert (whole.verdict, whole.lines) == ("ENDED WELL", 3)
    cut = read(tmp_path, a_log=packed[:-3], other_log=TRAINED)
    assert (cut.verdict, cut.exit_code) == ("SYMPTOMS ONLY", 3)
    assert any(one.id == "DIAG-010" and "breaks off" in one.title for one in cut.findings)


def test_frames_one_after_another_are_one_log(tmp_path: Path) -> None:
    two = zstandard.compress(b"step 1\n") + zstandard.compress(b"Training completed\n")
    assert read(tmp_path, a_log=two).verdict == "ENDED WELL"
    assert read(tmp_path, a_log=two + b"more").verdict == "SYMPTOMS ONLY"


def test_zeros_at_the_end_are_what_a_crash_leaves(tmp_path: Path) -> None:
    found = read(tmp_path, a_log=TRAINED.encode() + bytes(4096))
    assert [one.id for one in found.findings if one.status == "warn"] == ["DIAG-010"]


def test_the_zeros_that_end_an_archive_are_none_of_a_crash(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(TRAINED)
    with tarfile.open(tmp_path / "logs.tgz", "w:gz") as archive:
        archive.add(tmp_path / "a.log", "a.log")
    assert diagnose([Source("logs.tgz", tmp_path / "logs.tgz")]).exit_code == 3
    found = diagnose([Source("logs.tgz", tmp_path / "logs.tgz")]).findings
    assert not [one for one in found if one.status == "warn"]


def test_an_archive_that_is_not_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "logs.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(InputError, match="is a zip archive"):
        diagnose([Source("logs.zip", tmp_path / "logs.zip")])


def test_a_last_line_without_end_is_told(tmp_path: Path) -> None:
    found = read(tmp_path, a_log="step 1\nstep 2 lo")
    assert (
        found.exit_code == 3
        and "may break off in its last line: step 2 lo" in found.findings[0].saw
    )


def test_a_folder_that_may_not_be_read_and_a_link_to_nothing_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone.log").symlink_to(tmp_path / "nothing")
    assert read(tmp_path, a_log=TRAINED).exit_code == 3
    (tmp_path / "gone.log").unlink()
    walk = os.walk

    def refuse(top: Path, onerror: Callable[[OSError], None]) -> Iterable[object]:
        onerror(PermissionError(13, "Permission denied", str(tmp_path / "closed")))
        return walk(top)

    monkeypatch.setattr(os, "walk", refuse)  # the user who runs the tests may be root
    found = diagnose(find_sources([str(tmp_path)]))
    assert any("closed cannot be read" in one.title for one in found.findings)
    assert found.exit_code == 3


def test_one_log_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    good, away = tmp_path / "good.log", tmp_path / "gone.log"
    good.write_text(TRAINED)
    found = diagnose([Source("good.log", good), Source("gone.log", away)])
    assert found.exit_code == 3
    assert any("gone.log cannot be read" in one.title for one in found.findings)
    with pytest.raises(InputError, match=r"gone\.log cannot be read"):
        diagnose([Source("gone.log", away)])


@pytest.mark.parametrize("packed", [False, True])
def test_a_fifo_is_opened_once(tmp_path: Path, packed: bool) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    text = (FULL + "step 1\n" * 400_000).encode()
    writer = threading.Thread(
        target=fifo.write_bytes, args=(gzip.compress(text) if packed else text,)
    )
    writer.start()
    found = diagnose(find_sources([str(fifo)]))
    writer.join(timeout=10)
    assert (found.exit_code, found.lines) == (1, 400_001)


def test_a_fifo_without_a_writer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "WRITER_S", 0.1)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="nobody wrote to"):
        diagnose(find_sources([str(tmp_path / "fifo")]))


def test_a_program_may_write_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has opened it: then there is no bound, as for standard input."""
    monkeypatch.setattr(sources, "WRITER_S", 0.1)
    reading, writing = os.pipe()
    words = [sys.executable, "-c", f"import time; time.sleep(.4); print({FULL!r}, flush=True)"]
    with subprocess.Popen(words, stdout=writing):
        os.close(writing)
        found = diagnose(find_sources([f"/dev/fd/{reading}"]))
    os.close(reading)
    assert found.exit_code == 1


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/urandom", "/dev/full"])
def test_a_device_without_end_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is a device, not a log"):
        diagnose(find_sources([name]))


def test_standard_input_is_no_device() -> None:
    words = [sys.executable, "-m", "wirespeed", "diagnose", "-q", "-"]
    with Path("/dev/zero").open("rb") as zero:
        done = subprocess.run(words, stdin=zero, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "standard input is a device" in done.stderr
