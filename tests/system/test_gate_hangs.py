"""A gate whose home hangs: a frozen file system holds whoever writes, even against SIGKILL."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.system
NEEDED = ("mkfs.ext4", "mount", "fsfreeze")


@pytest.fixture
def frozen(cli: Any, tmp_path: Path) -> Iterator[Path]:
    """A home with a run in it, on a file system that stands still until the test is over."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"Requires: root, {', '.join(NEEDED)} and a loop device (missing: {missing})")
    image, place = tmp_path / "image", tmp_path / "disk"
    image.write_bytes(b"")
    os.truncate(image, 16 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    place.mkdir()
    mounted = subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=False)
    if mounted.returncode:
        pytest.skip("Requires: a loop device")
    home = place / "home"
    home.mkdir(mode=0o700)
    try:
        assert cli("topo", "-q", env={"WIRESPEED_HOME": str(home)}).code == 0
        subprocess.run(["fsfreeze", "-f", str(place)], check=True)
        try:
            yield home
        finally:
            subprocess.run(["fsfreeze", "-u", str(place)], check=True)
            cli.end_all()
    finally:
        cli.until(lambda: subprocess.run(["umount", str(place)], check=False).returncode == 0)


@pytest.mark.parametrize("unknown", ["pass", "fail"])
def test_an_answer_comes_in_time_and_says_what_hung(unknown: str, cli: Any, frozen: Path) -> None:
    """Even `fail` refuses nothing here: without Slurm nobody can count who is out already."""
    words = ("gate", "--for", "slurm-prolog", "--unknown", unknown, "--within", "5")
    done = cli(*words, env={"WIRESPEED_HOME": str(frozen)})
    assert done.seconds < 6.5
    assert done.code == 0, done.err
    assert "no end within its time" in done.err
    assert "by --unknown" in done.err or "not taken" in done.err
