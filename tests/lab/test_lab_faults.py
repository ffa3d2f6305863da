"""Each fault for real: what it breaks, what it leaves alone, and that it heals."""

import shutil
import sys
from collections.abc import Callable

import pytest

from wirespeed.lab import Lab

pytestmark = [pytest.mark.system, pytest.mark.quiet]
Rate = Callable[[Lab, str, str], float]
WORK = "import time\nt = time.monotonic()\nfor _ in range(12_000_000): pass\nprint(time.monotonic() - t)"


def reached(lab: Lab, source: str, target: str) -> bool:
    """One small message there and back, over TCP."""
    code = (
        "import socket, sys\n"
        "s = socket.socket(); s.settimeout(1.5)\n"
        "try: s.connect((sys.argv[1], 9))\n"
        "except ConnectionRefusedError: sys.exit(0)\n"
        "except OSError: sys.exit(1)\n"
    )
    words = [sys.executable, "-I", "-S", "-c", code, lab.address(target)]
    (result,) = lab.run(words, nodes=[source], timeout=20.0)
    return result.returncode == 0


def round_trip(lab: Lab, source: str, target: str) -> float:
    code = (
        "import socket, sys, time\n"
        "best = 9.0\n"
        "for _ in range(5):\n"
        "    s = socket.socket(); s.settimeout(5); t = time.monotonic()\n"
        "    try: s.connect((sys.argv[1], 9))\n"
        "    except ConnectionRefusedError: best = min(best, time.monotonic() - t)\n"
        "    s.close()\n"
        "print(best)\n"
    )
    words = [sys.executable, "-I", "-S", "-c", code, lab.address(target)]
    (result,) = lab.run(words, nodes=[source], timeout=40.0)
    return float(result.stdout)


def work(lab: Lab, node: str) -> float:
    words = [sys.executable, "-I", "-S", "-c", WORK]
    return min(float(lab.run(words, nodes=[node])[0].stdout) for _ in range(2))


def test_a_slow_node_is_slow_both_ways_and_heals(lab: Lab, rate: Rate) -> None:
    lab.slow("node-2", "50mbit")
    healthy = rate(lab, "node-0", "node-1")
    assert rate(lab, "node-2", "node-0") < healthy / 3
    assert rate(lab, "node-0", "node-2") < healthy / 3
    lab.heal("node-2")
    assert rate(lab, "node-2", "node-0") > healthy / 3


@pytest.mark.parametrize("way", ["out", "in"])
def test_one_way_is_one_way(lab: Lab, rate: Rate, way: str) -> None:
    lab.one_way("node-1", "50mbit", way)  # type: ignore[arg-type]
    out, back = rate(lab, "node-1", "node-0"), rate(lab, "node-0", "node-1")
    slow, fast = (out, back) if way == "out" else (back, out)
    assert slow < fast / 3


def test_a_slow_pair_is_slow_with_each_other_only(lab: Lab, rate: Rate) -> None:
    lab.slow_link("node-0", "node-2", "50mbit")
    pair = rate(lab, "node-0", "node-2"), rate(lab, "node-2", "node-0")
    others = rate(lab, "node-0", "node-1"), rate(lab, "node-2", "node-1")
    assert max(pair) < min(others) / 3


def test_a_delay_is_in_every_round_trip_of_that_node(lab: Lab, rate: Rate) -> None:
    lab.delay("node-2", "20ms")
    assert round_trip(lab, "node-0", "node-2") >= 0.04
    assert round_trip(lab, "node-0", "node-1") < 0.04
    assert rate(lab, "node-2", "node-0") > 0
    lab.heal()
    assert round_trip(lab, "node-0", "node-2") < 0.04


def test_losses_cost_that_node_alone(lab: Lab, rate: Rate) -> None:
    if shutil.which("nft") is None:
        pytest.skip("Requires: nft")
    lab.lossy("node-1", "5%")
    healthy = rate(lab, "node-0", "node-2")
    assert rate(lab, "node-1", "node-0") < healthy / 2
    assert rate(lab, "node-0", "node-1") < healthy / 2
    lab.heal()
    assert rate(lab, "node-1", "node-0") > healthy / 2


def test_an_mtu_black_hole_lets_small_messages_pass_and_large_ones_vanish(
    lab: Lab, transfer: Callable[..., list], rate: Rate
) -> None:
    lab.mtu("node-1", 1400)
    assert reached(lab, "node-0", "node-1")
    assert reached(lab, "node-1", "node-0")
    for source, target in (("node-0", "node-1"), ("node-1", "node-0")):
        results = transfer(lab, source, target, silence=3.0)
        codes = [result.returncode for result in results]
        assert codes != [0, 0], f"{source} to {target}"
    assert rate(lab, "node-0", "node-2") > 0
    lab.heal()
    assert rate(lab, "node-0", "node-1") > 0


def test_a_cut_node_reaches_nobody_and_comes_back(lab: Lab) -> None:
    lab.cut("node-2")
    assert not reached(lab, "node-0", "node-2")
    assert not reached(lab, "node-2", "node-1")
    assert reached(lab, "node-0", "node-1")
    lab.heal("node-2")
    assert reached(lab, "node-0", "node-2")


@pytest.mark.parametrize("how", ["20%", "stop:300ms/400ms"])
def test_a_straggler_computes_slowly_and_heals(lab: Lab, how: str) -> None:
    lab.straggler("node-1", how)
    slow, healthy = work(lab, "node-1"), work(lab, "node-0")
    assert slow > 1.5 * healthy
    lab.heal()
    assert work(lab, "node-1") < slow


def test_without_cgroups_a_straggler_stops_and_goes(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wirespeed.lab.faults.cpu_hierarchy", lambda mounts: None)
    lab.straggler("node-1", "20%")
    assert work(lab, "node-1") > 1.5 * work(lab, "node-0")
