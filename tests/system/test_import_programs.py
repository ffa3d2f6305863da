"""iperf3 and perftest as Debian packages them, beside what is imported of their output."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wirespeed.errors import InputError
from wirespeed.model.records import Run
from wirespeed.process import free_port
from wirespeed.runs.importers import import_bytes

pytestmark = pytest.mark.system

DEVICES = Path("/sys/class/infiniband")
needs_iperf3 = pytest.mark.skipif(not shutil.which("iperf3"), reason="Requires: iperf3")
needs_perftest = pytest.mark.skipif(not shutil.which("ib_write_bw"), reason="Requires: ib_write_bw")


@pytest.fixture
def server() -> Iterator[str]:
    """The port of an iperf3 server on this machine."""
    port = str(free_port())
    process = subprocess.Popen(["iperf3", "-s", "-p", port], stdout=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


def measured(port: str, *options: str) -> str:
    """What the client prints; where the server does not listen yet, `error` and exit code 0."""
    words = ["iperf3", "-c", "127.0.0.1", "-p", port, "-t", "1", *options]
    for _ in range(50):
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        if done.returncode == 0 and '"error"' not in done.stdout:
            break
        time.sleep(0.1)
    assert done.returncode == 0 and '"error"' not in done.stdout, done.stdout + done.stderr
    return done.stdout


def imported(text: str) -> Run:
    (run,) = import_bytes(text.encode(), name="iperf3.json")
    return run


def rates(run: Run) -> list[float]:
    return [one.value for one in run.figures if one.unit == "B/s"]


@needs_iperf3
@pytest.mark.parametrize(
    ("options", "sums"),
    [
        ((), ["sum_received"]),
        (("-R",), ["sum_received"]),
        (("-P", "3"), ["sum_received"]),
        (("--bidir",), ["sum_received", "sum_received_bidir_reverse"]),
    ],
    ids=["one way", "reverse", "streams", "both ways"],
)
def test_iperf3_beside_its_import(server: str, options: tuple[str, ...], sums: list[str]) -> None:
    text = measured(server, "-J", *options)
    end: dict[str, Any] = json.loads(text)["end"]
    run = imported(text)
    assert rates(run) == pytest.approx([end[name]["bits_per_second"] / 8 for name in sums])
    assert len({one.place for one in run.figures}) == len(sums)
    behind = "".join(f"[pod/iperf3-client/main] {line}\n" for line in text.splitlines())
    assert imported(behind).figures == run.figures


@needs_iperf3
def test_iperf3_by_udp_counts_what_came_through(server: str) -> None:
    text = measured(server, "-J", "-u", "-b", "20M")
    end = json.loads(text)["end"]
    total = end["sum"]
    came = total["bits_per_second"] / 8 * (1 - total["lost_percent"] / 100)
    if "sum_received" in end:  # from 3.10 on the receiver's own figure
        came = end["sum_received"]["bits_per_second"] / 8
    assert rates(imported(text)) == pytest.approx([came])


@needs_iperf3
def test_the_stream_of_iperf3_beside_its_import(server: str) -> None:
    """From 3.17 on."""
    if (
        "--json-stream"
        not in subprocess.run(
            ["iperf3", "--help"], capture_output=True, text=True, timeout=20
        ).stdout
    ):
        pytest.skip("Requires: iperf3 with --json-stream")
    text = measured(server, "--json-stream")
    events = [json.loads(line) for line in text.splitlines()]
    (end,) = [one["data"] for one in events if one["event"] == "end"]
    assert rates(imported(text)) == pytest.approx([end["sum_received"]["bits_per_second"] / 8])


@needs_perftest
@pytest.mark.skipif(DEVICES.is_dir() and any(DEVICES.iterdir()), reason="Requires: no RDMA device")
def test_perftest_without_a_device_is_no_result() -> None:
    done = subprocess.run(["ib_write_bw"], capture_output=True, text=True, timeout=20)
    with pytest.raises(InputError, match=r"perftest\.log: no rows of"):
        import_bytes((done.stdout + done.stderr).encode(), name="perftest.log")


@needs_perftest
@pytest.mark.skipif(
    not DEVICES.is_dir() or not any(DEVICES.iterdir()), reason="Requires: an RDMA device"
)
def test_perftest_beside_its_import() -> None:
    port = str(free_port())
    listens = subprocess.Popen(["ib_write_bw", "-p", port], stdout=subprocess.PIPE, text=True)
    try:
        words = ["ib_write_bw", "-p", port, "--report_gbits", "127.0.0.1"]
        for _ in range(50):
            done = subprocess.run(words, capture_output=True, text=True, timeout=60)
            if done.returncode == 0:
                break
            time.sleep(0.1)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        listens.kill()
        listens.wait()
    printed = next(line for line in done.stdout.splitlines() if line.strip().startswith("65536"))
    run = imported(done.stdout)
    assert rates(run) == pytest.approx([float(printed.split()[3]) * 1e9 / 8])
