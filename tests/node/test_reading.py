"""Files that somebody else may have put there: read within bounds, or refused by what they are."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from wirespeed.node import reading
from wirespeed.node.reading import read_whole


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 10)
    (tmp_path / "link").symlink_to(file)
    assert read_whole(file, 10, links=False) == b"x" * 10
    assert read_whole(tmp_path / "link", 10) == b"x" * 10
    with pytest.raises(OSError, match="a link to another place"):
        read_whole(tmp_path / "link", 10, links=False)
    with pytest.raises(OSError, match="larger than 9 B"):
        read_whole(file, 9)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, "it is a pipe"),
        (os.mkdir, "it is a folder"),
        (lambda path: path.symlink_to("/dev/zero"), "it is a device"),
    ],
)
def test_anything_else_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], None], told: str
) -> None:
    make(tmp_path / "x")
    with pytest.raises(OSError, match=told):
        read_whole(tmp_path / "x", 10)


def test_a_pipe_of_a_shell_is_read_where_it_may_be(tmp_path: Path) -> None:
    ends = os.pipe()
    os.write(ends[1], b"node-0\n")
    os.close(ends[1])
    try:
        assert read_whole(Path(f"/dev/fd/{ends[0]}"), 100, pipes=True) == b"node-0\n"
    finally:
        os.close(ends[0])


def test_a_pipe_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIPE_S", 0.1)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(OSError, match="took more than"):
        read_whole(fifo, 100, pipes=True)
    monkeypatch.setattr(reading, "PIPE_S", 10.0)

    def flood() -> None:
        with pytest.raises(BrokenPipeError), fifo.open("wb", buffering=0) as out:
            while True:
                out.write(b"x" * 4096)

    writer = threading.Thread(target=flood)
    writer.start()
    with pytest.raises(OSError, match="larger than"):
        read_whole(fifo, 100_000, pipes=True)
    writer.join(10)
    assert not writer.is_alive()
