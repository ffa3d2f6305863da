"""The rank's side where it does not depend on a whole world."""

import socket
import subprocess
import sys
import threading
import time

import pytest

from wirespeed.errors import StorageError, WorldError
from wirespeed.watchdog import Monitor
from wirespeed.watchdog.heartbeat import Heartbeat


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_no_session_is_an_error_within_the_bound():
    began = time.monotonic()
    with pytest.raises(WorldError, match="rank 1 found no session") as caught:
        Heartbeat("127.0.0.1", free_port(), "t", 1, 2).connect(0.5)
    assert time.monotonic() - began < 5
    assert "nc -vz 127.0.0.1" in caught.value.next


def test_a_server_that_never_answers_is_an_error_within_the_bound():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(WorldError, match="does not take rank 0"),
    ):
        Heartbeat("127.0.0.1", server.getsockname()[1], "t", 0, 1).connect(0.5)


def test_wrong_token_and_wrong_world_are_told_apart():
    with Monitor(2, "right", on_record=lambda *_: None) as monitor:
        port = monitor.start()
        with pytest.raises(WorldError, match="another run"):
            Heartbeat("127.0.0.1", port, "wrong", 0, 2).connect(0.3)
        with pytest.raises(WorldError, match="world of 3 ranks, this one has 2"):
            Heartbeat("127.0.0.1", port, "right", 0, 3).connect(5)


def test_the_session_may_come_up_later():
    port = free_port()
    monitor = Monitor(1, "t", on_record=lambda *_: None, port=port)
    late = threading.Timer(0.5, monitor.start)
    late.start()
    try:
        heartbeat = Heartbeat("127.0.0.1", port, "t", 0, 1)
        heartbeat.connect(10)
        assert heartbeat.finish(0)
    finally:
        late.join()
        monitor.close()


def test_an_own_on_abort_is_called_once_and_nothing_can_be_sent_after_it():
    reasons: list[str] = []
    called = threading.Event()

    def on_abort(reason: str) -> None:
        reasons.append(reason)
        called.set()

    with Monitor(1, "t", on_record=lambda *_: None) as monitor:
        heartbeat = Heartbeat("127.0.0.1", monitor.start(), "t", 0, 1, on_abort=on_abort)
        heartbeat.connect(5)
        monitor.interrupt("a test")
        assert called.wait(5)
        with pytest.raises(WorldError, match="interrupted by a test"):
            heartbeat.record("line", {})
        assert not heartbeat.finish(1)
    assert reasons == ["the run was interrupted by a test"]


def test_finish_returns_once_every_record_was_read():
    seen = []
    with Monitor(1, "t", on_record=lambda *record: seen.append(record)) as monitor:
        heartbeat = Heartbeat("127.0.0.1", monitor.start(), "t", 0, 1)
        heartbeat.connect(5)
        heartbeat.record("big", {"text": "x" * 5_000_000})
        heartbeat.record("small", {"text": "✓"})
        assert heartbeat.finish(0)
        assert [(rank, kind, len(data["text"])) for rank, kind, data in seen] == [
            (0, "big", 5_000_000),
            (0, "small", 1),
        ]


def test_a_record_beyond_the_limit_is_an_error_and_the_connection_stays():
    with Monitor(1, "t", on_record=lambda *_: None) as monitor:
        heartbeat = Heartbeat("127.0.0.1", monitor.start(), "t", 0, 1)
        heartbeat.connect(5)
        with pytest.raises(WorldError, match="at most"):
            heartbeat.record("huge", {"text": "x" * (17 * 1024 * 1024)})
        assert heartbeat.finish(0)


def test_before_connect_phases_and_operations_are_only_kept():
    with Monitor(1, "t", on_record=lambda *_: None) as monitor:
        port = monitor.start()
        heartbeat = Heartbeat("127.0.0.1", port, "t", 0, 1)
        heartbeat.phase("running")
        for number in range(40):
            heartbeat.enter(f"op {number}")
        heartbeat.connect(5)
        assert heartbeat.finish(0)
        status = monitor.statuses()[0]
    assert (status.sequence, status.op, status.phase) == (40, "op 39", "finished")


def test_finish_without_connection_has_nobody_to_tell():
    assert Heartbeat("127.0.0.1", 1, "t", 0, 1).finish(0) is False


def test_an_unwritable_stack_file_is_a_clear_error(tmp_path):
    heartbeat = Heartbeat("127.0.0.1", 1, "t", 0, 1, stack_file=tmp_path / "no" / "stack.txt")
    with pytest.raises(StorageError, match="stack file"):
        heartbeat.connect(1)


def test_close_without_goodbye_is_a_death_and_aborts_nobody_here():
    aborted = []
    with Monitor(1, "t", on_record=lambda *_: None) as monitor:
        heartbeat = Heartbeat("127.0.0.1", monitor.start(), "t", 0, 1, on_abort=aborted.append)
        heartbeat.connect(5)
        heartbeat.close()
        outcome = monitor.wait(5)
    assert outcome.findings[0].id == "DIED-001"
    assert aborted == []


def test_a_rank_whose_output_nobody_reads_still_ends_when_told():
    code = (
        "import sys, threading, time\n"
        "from wirespeed.watchdog.heartbeat import leave\n"
        "threading.Timer(0.5, leave, ['enough']).start()\n"
        "while True: sys.stdout.write('x' * 65536)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.wait(15) == 1
    finally:
        process.kill()
        process.communicate()


def test_the_watchdog_needs_no_heavy_module():
    code = (
        "import sys, wirespeed.watchdog\n"
        "heavy = {'torch', 'numpy', 'rich', 'pydantic', 'psutil', 'asyncio'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
