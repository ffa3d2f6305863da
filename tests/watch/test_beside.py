"""Messages of other nodes' ranks: taken where they bear the mark of the job's secret."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wirespeed.session import beside as session_module
from wirespeed.watch.beside import marked, opened

session: Any = session_module


def test_a_message_passes() -> None:
    assert opened(marked('{"r":1}', "secret"), "secret") == '{"r":1}'


@pytest.mark.hostile("forged messages")
@pytest.mark.parametrize(
    "datagram", [b"", b"x", b"0" * 16, b"0" * 16 + b'{"r":1}', marked("a", "other")]
)
def test_a_stranger_is_not_heard(datagram: bytes) -> None:
    assert opened(datagram, "secret") is None


def test_ranks_meet_where_the_kernel_has_no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.socket, "AF_INET6", 9999)
    there = session._open_to_all()
    monkeypatch.undo()
    sender = session._Sender()
    sender.take('{"r":1,"k":"hi"}')
    told = {"r": 1, "k": "to", "host": "localhost", "at": f"{there.getsockname()[1]}:secret"}
    sender.take(json.dumps(told, separators=(",", ":")))
    there.settimeout(10)
    try:
        assert opened(there.recv(1000), "secret") == '{"r":1,"k":"hi"}'
    finally:
        there.close()
        sender._socket.close()


def test_a_watch_that_cannot_be_stored_says_so_in_a_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    job = tmp_path / "job.py"
    job.write_text("print('trained')")
    env = {**os.environ, "WIRESPEED_HOME": str(blocked)}
    words = [sys.executable, "-m", "wirespeed.watch", str(job)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "Traceback" not in done.stderr and "is not watched" in done.stderr
