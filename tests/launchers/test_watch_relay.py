"""The node's end of a watched rank: what it hands on, and how it looks at who is silent."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wirespeed.launchers import watch_relay
from wirespeed.launchers.watch_relay import WatchRelay
from wirespeed.session.folders import new_scratch


@pytest.fixture
def relay() -> Iterator[WatchRelay]:
    made = WatchRelay()
    yield made
    made.close()


def tell(relay: WatchRelay, **message: Any) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.sendto(json.dumps(message).encode(), str(relay.path))


def test_messages_pass_as_they_are(relay: WatchRelay) -> None:
    tell(relay, r=1, k="t", s=3)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.sendto(b"\xff nonsense", str(relay.path))
    assert list(relay.read()) == ['{"r": 1, "k": "t", "s": 3}', "\ufffd nonsense"]
    assert list(relay.read()) == []


def test_the_program_finds_the_agent_before_its_own_path(relay: WatchRelay) -> None:
    found = relay.environment({"PYTHONPATH": "/mine", "TORCH_FR_BUFFER_SIZE": "7"})
    first, second = found["PYTHONPATH"].split(os.pathsep)
    assert (Path(first) / "sitecustomize.py").is_file() and second == "/mine"
    assert "TORCH_FR_BUFFER_SIZE" not in found
    assert relay.environment({})["TORCH_FR_BUFFER_SIZE"] == "512"
    assert Path(found["WIRESPEED_WATCH"]).stat().st_mode & 0o077 == 0 or (
        Path(found["WIRESPEED_WATCH"]).parent.stat().st_mode & 0o077 == 0
    )


def test_a_long_temporary_folder_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / ("long" * 30)
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    made = WatchRelay()
    tell(made, r=1, k="t")
    assert len(list(made.read())) == 1
    made.close()
    assert not made.path.parent.exists()


def test_what_a_killed_one_leaves_goes_with_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import os; from wirespeed.launchers.watch_relay import WatchRelay;"
        "print(WatchRelay().path.parent, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    left = Path(done.stdout.strip())
    assert left.is_dir()
    monkeypatch.setattr(tempfile, "tempdir", str(left.parent))
    own = new_scratch()
    shutil.rmtree(own)
    assert not left.exists()


def test_it_leaves_nothing(relay: WatchRelay) -> None:
    other = WatchRelay()
    other.close()
    assert not other.path.parent.exists() and relay.path.parent.exists()


def test_a_stopped_process_is_seen_and_not_woken(
    relay: WatchRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_relay, "_SILENT_S", 0.0)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        tell(relay, r=2, k="hi", p=process.pid, sf=str(relay.path.parent / f"stack-{process.pid}"))
        list(relay.read())
        (said,) = map(json.loads, relay.look())
        assert (said["k"], said["r"], said["st"]) == ("o", 2, "T")
        assert list(relay.look()) == []  # not again at once
        process.kill()
        process.wait()
        monkeypatch.setattr(watch_relay, "_LOOK_S", 0.0)
        (gone,) = map(json.loads, relay.look())
        assert gone["st"] == "" and list(relay.look()) == []
    finally:
        process.kill()
        process.wait()


HOLDS = """
import ctypes, faulthandler, os, signal, sys
file = open(sys.argv[1], "a")
faulthandler.register(signal.SIGRTMIN + 7, file=file, all_threads=True)
def holding():
    print("up", flush=True)
    while True:
        ctypes.PyDLL(None).usleep(60_000_000)
holding()
"""


def test_who_holds_its_interpreter_still_shows_its_stack(
    relay: WatchRelay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_relay, "_SILENT_S", 0.0)
    monkeypatch.setattr(watch_relay, "_spied", lambda pid: [])
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(relay.path.parent / "stack-0")], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"up\n"
            own = relay.path.parent / f"stack-{process.pid}"
            (relay.path.parent / "stack-0").rename(own)
            tell(relay, r=0, k="hi", p=process.pid, sf=str(own))
            list(relay.read())
            time.sleep(0.1)
            (said,) = map(json.loads, relay.look())
            assert "in holding" in " ".join(said["stack"]) and process.poll() is None
        finally:
            process.kill()


@pytest.mark.hostile("forged messages")
def test_no_message_makes_it_read_other_files_or_signal_strangers(
    relay: WatchRelay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(watch_relay, "_SILENT_S", 0.0)
    secret = tmp_path / "secret"
    secret.write_text("File most recent call first")
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        tell(relay, r=0, k="hi", p=stranger.pid, sf=str(secret))
        for nonsense in ({"k": "hi"}, {"r": 1, "k": "hi", "p": "x"}, {"r": [], "k": "bye"}):
            tell(relay, **nonsense)
        assert len(list(relay.read())) == 4
        stacks = [json.loads(text)["stack"] for text in relay.look()]
        # It has set up no handler, so that the signal, which would end it, is not sent.
        assert all("secret" not in str(one) for one in stacks) and stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
