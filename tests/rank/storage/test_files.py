"""Files as a worker writes them: what is wrong with them is seen, and the page cache is left out."""

from pathlib import Path

import pytest

from wirespeed.rank.storage import files
from wirespeed.rank.storage.files import BLOCK, PAGE, Pattern

SIZE = 2 * BLOCK
LONG_S = 60.0


def pattern() -> Pattern:
    return Pattern.of("0123456789abcdef", lambda: None)


def written(path: Path, direct: bool = False) -> None:
    answer = files.write(path, pattern(), 3, SIZE, LONG_S, direct=direct)
    assert (answer.size_bytes, answer.calls) == (SIZE, 2)
    assert answer.seconds >= answer.max >= answer.median > 0


def wrong(path: Path, rank: int = 3) -> int:
    return files.read(path, pattern(), rank, LONG_S, direct=False, compare=True).wrong


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written(tmp_path / "file")
    assert wrong(tmp_path / "file") == 0
    assert wrong(tmp_path / "file", rank=2) == SIZE, "another rank's data are others"


def test_a_flipped_bit_and_two_pages_in_each_others_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    written(path)
    data = bytearray(path.read_bytes())
    data[BLOCK + 77_777] ^= 4
    path.write_bytes(data)
    assert wrong(path) == BLOCK
    written(path)
    data = bytearray(path.read_bytes())
    data[:PAGE], data[PAGE : 2 * PAGE] = data[PAGE : 2 * PAGE], data[:PAGE]
    path.write_bytes(data)
    assert wrong(path) == BLOCK


def test_pages_are_all_different_so_that_no_storage_keeps_two_as_one(tmp_path: Path) -> None:
    written(tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    assert len({data[at : at + PAGE] for at in range(0, SIZE, PAGE)}) == SIZE // PAGE


def test_a_file_that_is_on_the_disk_leaves_the_page_cache(tmp_path: Path) -> None:
    """On tmpfs the cache is the disk: nothing can leave it, and it is told."""
    path = tmp_path / "file"
    path.write_bytes(bytes(SIZE))
    try:
        assert files.cached_share(path) == 1
    except AssertionError:
        pytest.skip("Requires: a file system that tells what is cached (RWF_NOWAIT)")
    files.synchronise(path)
    assert files.cached_share(path) in (0, 1)


def test_small_files(tmp_path: Path) -> None:
    made = files.create(tmp_path / "small", 5, 1000, LONG_S, lambda: None)
    names = [tmp_path / "small" / str(number) for number in range(5)]
    read = files.each(names, files.read_small, lambda: None)
    assert (made.calls, made.size_bytes, read.size_bytes) == (5, 0, 5000)
    assert len({name.read_bytes() for name in names}) == 5, "a storage may keep equal ones once"
    assert files.create(tmp_path / "slow", 5, 1000, 0.0, lambda: None).calls == 1


def test_a_change_is_seen_or_not_in_time(tmp_path: Path) -> None:
    files.put(tmp_path / "token", "old")
    ticks: list[None] = []

    def seen(name: str, text: str, within_s: float) -> float:
        return files.seen_after(tmp_path / name, text, within_s, lambda: ticks.append(None))

    assert seen("token", "old", 5.0) >= 0
    assert ticks == []
    assert seen("token", "new", 0.02) == -1
    assert ticks, "who waits for another node is no storage that hangs"
    assert seen("absent", "new", 0.0) == -1


@pytest.mark.filterwarnings("ignore:torch.distributed is")  # that is meant
@pytest.mark.slow  # imports torch
def test_a_checkpoint_of_another_rank_is_loaded_without_its_pickle(tmp_path: Path) -> None:
    import torch

    from wirespeed.rank.storage.checkpoint import Checkpoints

    torch.manual_seed(0)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):  # what torch raises is no Exception
        Checkpoints(1 << 20).save(tmp_path / "file" / "below")
    torch.manual_seed(0)
    mine, theirs = Checkpoints(1 << 20), Checkpoints(1 << 20)
    assert mine.save(tmp_path / "mine").size_bytes == 1 << 20
    theirs.save(tmp_path / "theirs")
    same = [(tmp_path / one / "__0_0.distcp").read_bytes() for one in ("mine", "theirs")]
    assert same[0] != same[1], "a storage may keep equal ones once"
    (tmp_path / "theirs" / ".metadata").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    assert mine.load(tmp_path / "theirs").seconds > 0
