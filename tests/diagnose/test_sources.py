"""Logs as they come: packed, damaged, without end."""

import gzip
import io
import os
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.diagnose.sources import BLOCK, LONGEST, Source, blocks, find_sources
from wirespeed.errors import InputError

LINES = b"".join(b"line %d of a log\n" % number for number in range(200_000))


def whole(path: Path) -> bytes:
    stream = Source(str(path), path).open()
    try:
        return b"".join(blocks(stream))
    finally:
        stream.close()


def test_plain_gzip_and_zstd_read_alike(tmp_path: Path) -> None:
    plain, packed, other = tmp_path / "a.log", tmp_path / "a.log.gz", tmp_path / "named.anything"
    plain.write_bytes(LINES)
    packed.write_bytes(gzip.compress(LINES))
    other.write_bytes(zstandard.compress(LINES))
    assert whole(plain) == whole(packed) == whole(other) == LINES


def test_blocks_end_with_whole_lines() -> None:
    found = list(blocks(io.BytesIO(LINES)))
    assert len(found) > 1
    assert all(block.endswith(b"\n") and len(block) <= 2 * BLOCK for block in found)


def test_a_packed_log_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    packed = gzip.compress(os.urandom(300_000).hex().encode() + b"\nthe last line\n")
    path.write_bytes(packed[: len(packed) // 2])
    assert whole(path)
    path = tmp_path / "cut.zst"
    packed = zstandard.compress(os.urandom(300_000).hex().encode())
    path.write_bytes(packed[: len(packed) // 2])
    assert isinstance(whole(path), bytes)


@pytest.mark.parametrize("length", [LONGEST + 1, 10_000_000])
def test_a_line_without_end_costs_no_memory(length: int) -> None:
    stream = io.BytesIO(b"before\n" + b"x" * length + b"\nafter\n")
    found = list(blocks(stream, 4096))
    assert b"".join(found) == stream.getvalue(), "nothing is lost"
    assert max(map(len, found)) <= LONGEST + 4096


def test_a_progress_bar_is_cut_where_it_begins_anew() -> None:
    bar = b"".join(b"\r%6d/100000 steps" % step for step in range(10_000))
    assert all(one.startswith(b" ") for one in list(blocks(io.BytesIO(bar), 4096))[1:-1])


def test_the_last_line_needs_no_newline() -> None:
    assert b"".join(blocks(io.BytesIO(b"one\ntwo"))) == b"one\ntwo"


def test_a_folder_gives_all_logs_below_and_no_programs(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "b.log").write_text("b")
    (tmp_path / "deep" / "er" / "a.txt").write_text("a")
    (tmp_path / "model.pt").write_text("no log")
    names = [Path(source.name).name for source in find_sources([str(tmp_path)])]
    assert names == ["b.log", "a.txt"]


def test_what_is_not_there_is_told() -> None:
    with pytest.raises(InputError, match="there is no /nonexistent/log"):
        find_sources(["/nonexistent/log"])


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no log file"):
        find_sources([str(tmp_path)])


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    """Reading one could run any program; those of torch's flight recorder are read with care."""
    import pickle

    path = tmp_path / "weights"
    path.write_bytes(pickle.dumps({"layers": []}))
    with pytest.raises(InputError, match="pickle"):
        Source(str(path), path).open()
    (tmp_path / "rank-0.log").write_text("a log beside it")
    assert [source.path for source in find_sources([str(tmp_path)])] == [tmp_path / "rank-0.log"]


@given(st.binary(max_size=5000), st.integers(1, 700))
def test_no_byte_is_lost_or_made_up(data: bytes, size: int) -> None:
    assert b"".join(blocks(io.BytesIO(data), size)) == data
