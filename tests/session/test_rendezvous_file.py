"""The folder in which ranks of one machine meet lies where every user may write."""

import os
import tempfile
from pathlib import Path

import pytest

from wirespeed.errors import StorageError
from wirespeed.node.identity import detect
from wirespeed.session.rendezvous import rendezvous_file

pytestmark = pytest.mark.hostile("strangers")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"wirespeed-{os.getuid()}"


def test_it_is_refused_where_somebody_else_may_have_made_it(folder: Path, tmp_path: Path) -> None:
    identity = detect({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"})
    assert identity is not None
    assert rendezvous_file(identity).parent == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(StorageError, match="is somebody else's"):
        rendezvous_file(identity)
    folder.rename(tmp_path / "mine")
    (tmp_path / "mine").chmod(0o700)
    folder.symlink_to(tmp_path / "mine")  # a folder of ours, where we do not expect to write
    with pytest.raises(StorageError, match="is somebody else's"):
        rendezvous_file(identity)
