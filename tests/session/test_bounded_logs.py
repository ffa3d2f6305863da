"""A log that grows for ever: head and tail stay, and who appends goes on."""

from pathlib import Path

from wirespeed.session.soaking import cut


def test_head_and_tail_stay(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_bytes(b"first\n" + b"x" * 5000 + b"\nlast\n")
    with log.open("ab", buffering=0) as writer:
        assert cut(log, bound=1000, head=6, tail=6)
        writer.write(b"next\n")
    text = log.read_text()
    assert text.startswith("first\n")
    assert text.endswith("last\nnext\n")
    assert "cut 5000 bytes" in text
    assert log.stat().st_size < 200


def test_a_small_log_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.log"
    log.write_bytes(b"x" * 900)
    assert not cut(log, bound=1000, head=6, tail=6)
    assert log.read_bytes() == b"x" * 900


def test_a_log_that_is_gone_is_no_error(tmp_path: Path) -> None:
    assert not cut(tmp_path / "rank-0.log", bound=1)
