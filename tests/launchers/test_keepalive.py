"""Signs of life on real pipes."""

import os
import time
from pathlib import Path

from wirespeed.launchers.base import Piece
from wirespeed.launchers.children import Keepalive
from wirespeed.launchers.supervise import Bounds, Supervisor


def test_lines_come_until_it_is_forgotten() -> None:
    reading, writing = os.pipe()
    pulse = Keepalive()
    with os.fdopen(writing, "wb") as stdin, os.fdopen(reading, "rb", buffering=0) as heard:
        pulse.add(stdin, 0.1)
        assert heard.read(1) == b"\n"
        assert heard.read(1) == b"\n"
        pulse.forget(stdin)
        os.set_blocking(reading, False)
        heard.read(100)
        time.sleep(0.5)
        assert heard.read(100) is None
        pulse.stop()


def test_a_full_pipe_and_a_closed_one_do_not_hold_it_up() -> None:
    reading, writing = os.pipe()
    other, gone = os.pipe()
    os.close(other)
    pulse = Keepalive()
    with os.fdopen(writing, "wb") as stdin, os.fdopen(gone, "wb") as broken:
        os.set_blocking(writing, False)
        while True:
            try:
                os.write(writing, b"x" * 4096)
            except BlockingIOError:
                break
        pulse.add(stdin, 0.01)
        pulse.add(broken, 0.01)
        time.sleep(0.5)
        began = time.monotonic()
        pulse.stop()
        assert time.monotonic() - began < 10
        os.close(reading)


class _Quiet:
    def __getattr__(self, name: str) -> object:
        return lambda *words, **more: None


def test_the_supervisor_sends_them(tmp_path: Path) -> None:
    """The piece ends with 0 once it has heard three empty lines after its order."""
    script = 'read order; [ "$order" = order ] || exit 1; read a && read b && read c'
    piece = Piece(name="a", command=("sh", "-c", script), stdin="order\n", pulse_s=0.1)
    supervisor = Supervisor(1, "token", _Quiet(), Bounds(startup_s=20))  # type: ignore[arg-type]
    assert supervisor.run([piece]).pieces == {"a": 0}
