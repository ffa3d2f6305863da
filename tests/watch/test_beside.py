"""Messages of other nodes' ranks: taken where they bear the mark of the job's secret."""

import pytest

from wirespeed.watch.beside import marked, opened


def test_a_message_passes() -> None:
    assert opened(marked('{"r":1}', "secret"), "secret") == '{"r":1}'


@pytest.mark.hostile("forged messages")
@pytest.mark.parametrize(
    "datagram", [b"", b"x", b"0" * 16, b"0" * 16 + b'{"r":1}', marked("a", "other")]
)
def test_a_stranger_is_not_heard(datagram: bytes) -> None:
    assert opened(datagram, "secret") is None
