"""`make dist` and `make audit`: the same bytes wherever they are built, and no clean result unasked."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EPOCH = "1767225600"
NOT_SOURCES = shutil.ignore_patterns(
    *(".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "build", "dist", "site", "*.log")
)


def built(sources: Path, umask: int) -> dict[str, str]:
    """SHA-256 by name of the wheel and the sdist, built there."""
    out = sources.parent / f"{sources.name}-dist"
    words = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    env = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    subprocess.run(words, cwd=sources, env=env, umask=umask, check=True, timeout=120)
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in out.iterdir()}


def with_modes(place: Path, file_mode: int, folder_mode: int) -> Path:
    """The sources there as a checkout under that umask has them."""
    for path in place.rglob("*"):
        runs = path.stat().st_mode & 0o100
        path.chmod(
            folder_mode if path.is_dir() else file_mode | (file_mode & 0o444) >> 2 * bool(runs)
        )
    return place


def test_two_folders_two_umasks_one_sum(tmp_path: Path) -> None:
    """The second folder is the first one's sdist: it makes the wheel, and itself."""
    shutil.copytree(ROOT, tmp_path / "one", ignore=NOT_SOURCES)
    first = built(with_modes(tmp_path / "one", 0o644, 0o755), 0o022)
    assert len(first) == 2
    (sdist,) = (tmp_path / "one-dist").glob("*.tar.gz")
    with tarfile.open(sdist) as packed:
        packed.extractall(tmp_path / "another place", filter="data")
    (unpacked,) = (tmp_path / "another place").iterdir()
    assert built(with_modes(unpacked, 0o600, 0o700), 0o077) == first


@pytest.mark.parametrize(("report", "code", "made"), [("", 1, 2), ("{}", 0, 0), ("{}", 1, 2)])
def test_an_audit_that_asked_nobody_is_no_clean_one(
    report: str, code: int, made: int, tmp_path: Path
) -> None:
    """pip-audit writes its report only when it was answered; here a program stands for it."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for folder in ("bin", "build", "dist"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bin/python").write_text("#!/bin/sh\n")
    (tmp_path / "bin/pip-audit").write_text(
        f"#!/bin/sh\nprintf '{report}' >dist/audit.json\nexit {code}\n"
    )
    for tool in (tmp_path / "bin").iterdir():
        tool.chmod(0o755)
    words = ["make", "-o", "sbom", "audit", "BIN=bin"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == made, done.stdout + done.stderr
    assert ("NOT AUDITED" in done.stderr) == (not report)
