"""Nodes that were set up in a wrong way, for real: a firewall, a name, a variable."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from processes import until
from wirespeed.errors import UsageError
from wirespeed.lab import Lab, LabSpec, Running
from wirespeed.lab.spec import Firewall, LoopbackName, Variable

pytestmark = [pytest.mark.system]
Command = Callable[..., subprocess.CompletedProcess[str]]
PYTHON = [sys.executable, "-I", "-S"]
ANSWERER = [*PYTHON, str(Path(__file__).parent / "answerer.py")]
BOUND_S = 20.0
OPEN, SHUT = 7001, 7002
"""Below the ports that the kernel gives to those who ask for any."""


@pytest.fixture
def needs_nft(needs_root: None) -> None:
    if shutil.which("nft") is None:
        pytest.skip("Requires: nft")


Serve = Callable[..., Running]


@pytest.fixture
def serve(lab: Lab) -> Iterator[Serve]:
    """`serve("node-2", "tcp", 7001)`: it answers there, and at the `port` of what is returned."""
    running: list[Running] = []

    def start(node: str, kind: str, *ports: int) -> Running:
        words = [*ANSWERER, "serve", kind, "{port}", *map(str, ports)]
        running.append(lab.start(words, nodes=[node]))
        port = running[-1].port
        until(lambda: asked(lab, node, "127.0.0.1", kind, port) == [node])
        return running[-1]

    yield start
    for one in running:
        one.end(within_s=0.0)


def asked(lab: Lab, source: str, host: str, kind: str, *ports: int) -> list[str]:
    """What `source` hears at these ports of `host`, a node or an address."""
    there = lab.address(host) if host in lab.nodes else host
    words = [*ANSWERER, "ask", kind, there, *map(str, ports)]
    (result,) = lab.run(words, nodes=[source], timeout=BOUND_S)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def printed(lab: Lab, node: str, code: str) -> list[str]:
    (result,) = lab.run([*PYTHON, "-c", code], nodes=[node], timeout=BOUND_S)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.mark.usefixtures("needs_nft")
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_firewall_lets_in_the_ports_it_names_and_no_other(
    lab: Lab, serve: Serve, kind: str
) -> None:
    port = serve("node-2", kind, OPEN, SHUT).port
    ports = (OPEN, SHUT, port)
    assert asked(lab, "node-0", "node-2", kind, *ports) == ["node-2"] * 3
    lab.firewall("node-2", OPEN)
    assert asked(lab, "node-0", "node-2", kind, *ports) == ["node-2", "nothing", "nothing"]
    # Dropped, not refused: also where nobody listens.
    assert asked(lab, "node-0", "node-2", kind, 9) == ["nothing"]
    # Inside the node everything is as before, at each of its addresses.
    for host in ("127.0.0.1", "node-2"):
        assert asked(lab, "node-2", host, kind, SHUT) == ["node-2"]
    lab.heal("node-2")
    assert asked(lab, "node-0", "node-2", kind, *ports) == ["node-2"] * 3


@pytest.mark.usefixtures("needs_nft")
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_from_behind_its_firewall_a_node_reaches_others(lab: Lab, serve: Serve, kind: str) -> None:
    serve("node-0", kind, OPEN)
    lab.firewall("node-2")
    assert asked(lab, "node-2", "node-0", kind, OPEN) == ["node-0"]
    assert asked(lab, "node-1", "node-0", kind, OPEN) == ["node-0"]


@pytest.mark.usefixtures("needs_nft")
@pytest.mark.parametrize("first", ["firewall", "run"])
def test_a_firewall_without_ports_lets_in_the_master_port_of_each_run(
    lab: Lab, serve: Serve, first: str
) -> None:
    if first == "firewall":
        lab.firewall("node-2")
    ports = [serve("node-2", "tcp", OPEN).port, serve("node-2", "tcp", SHUT).port]
    if first == "run":
        lab.firewall("node-2")
    heard = asked(lab, "node-0", "node-2", "tcp", *ports, OPEN, SHUT)
    assert heard == ["node-2", "node-2", "nothing", "nothing"]


@pytest.mark.usefixtures("needs_nft")
def test_a_connection_that_is_older_than_the_firewall_goes_on(
    lab: Lab, serve: Serve, tmp_path: Path
) -> None:
    serve("node-2", "tcp", OPEN)
    file = tmp_path / "held"
    words = [*ANSWERER, "hold", lab.address("node-2"), str(OPEN), str(file)]
    holding = lab.start(words, nodes=["node-0"])
    until(file.exists)
    lab.firewall("node-2", SHUT)
    assert asked(lab, "node-0", "node-2", "tcp", OPEN) == ["nothing"]
    file.unlink()
    (result,) = holding.wait(BOUND_S, 1.0)
    assert (result.returncode, result.stdout) == (0, "node-2"), result.stderr


@pytest.mark.usefixtures("needs_nft")
def test_all_nodes_can_have_a_firewall_and_a_new_one_takes_the_place_of_the_old(
    lab: Lab, serve: Serve
) -> None:
    lab.firewall("all", SHUT)
    lab.firewall("node-1", OPEN)
    assert lab.spec.faults == (
        Firewall("node-0", (SHUT,)),
        Firewall("node-2", (SHUT,)),
        Firewall("node-1", (OPEN,)),
    )
    for node in lab.nodes[1:]:
        serve(node, "tcp", OPEN, SHUT)
    assert asked(lab, "node-0", "node-1", "tcp", OPEN, SHUT) == ["node-1", "nothing"]
    assert asked(lab, "node-0", "node-2", "tcp", OPEN, SHUT) == ["nothing", "node-2"]


RESOLVED = (
    "import socket, sys\n"
    "found = socket.getaddrinfo('node-1', None, type=socket.SOCK_STREAM)\n"
    "print(*sorted({info[4][0].removeprefix('::ffff:') for info in found}))\n"
)


def test_a_name_can_mean_loopback_on_its_own_node_and_heals(lab: Lab) -> None:
    lab.loopback_name("node-1")
    assert printed(lab, "node-1", "import socket; print(socket.gethostname())") == ["node-1"]
    assert printed(lab, "node-1", RESOLVED) == ["127.0.1.1"]
    for other in ("node-0", "node-2"):
        assert printed(lab, other, RESOLVED) == [lab.address("node-1")]
    others = "import socket; print(socket.gethostbyname('node-0'))"
    assert printed(lab, "node-1", others) == [lab.address("node-0")]
    lab.heal("node-1")
    assert printed(lab, "node-1", RESOLVED) == [lab.address("node-1")]


def test_nothing_hides_what_a_name_means(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    code = "import os; print('GLOO_SOCKET_IFNAME' in os.environ)"
    assert printed(lab, "node-1", code) == ["False"]


def test_a_command_that_runs_already_sees_the_name_change(lab: Lab, tmp_path: Path) -> None:
    code = (
        "import pathlib, socket, sys, time\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "file.touch()\n"
        "for _ in range(1000):\n"
        "    if not file.exists(): break\n"
        "    time.sleep(0.02)\n"
        "print(socket.gethostbyname('node-1'))\n"
    )
    file = tmp_path / "runs"
    running = lab.start([*PYTHON, "-c", code, str(file)], nodes=["node-1"])
    until(file.exists)
    lab.loopback_name("node-1")
    file.unlink()
    assert running.wait(BOUND_S, 1.0)[0].stdout == "127.0.1.1\n"


def test_a_variable_of_one_node_is_stronger_than_what_the_run_sets(lab: Lab) -> None:
    lab.environment("node-2", "GLOO_SOCKET_IFNAME", "ib0")
    lab.environment("node-2", "MASTER_PORT", "1=2 ")
    code = "import os; e = os.environ; print(e['GLOO_SOCKET_IFNAME'], e['MASTER_PORT'])"
    run = lab.run([*PYTHON, "-c", code], env={"GLOO_SOCKET_IFNAME": "eth0"}, timeout=BOUND_S)
    told = [result.stdout.split() for result in run]
    assert [words[0] for words in told] == ["eth0", "eth0", "ib0"]
    assert [words[1] == "1=2" for words in told] == [False, False, True]
    done = subprocess.run(
        lab.on("node-2", *PYTHON, "-c", code), capture_output=True, text=True, timeout=BOUND_S
    )
    assert done.stdout == "ib0 1=2\n"
    lab.environment("node-2", "GLOO_SOCKET_IFNAME", "ib1")
    assert lab.spec.faults == (
        Variable("node-2", "MASTER_PORT", "1=2"),
        Variable("node-2", "GLOO_SOCKET_IFNAME", "ib1"),
    )
    lab.heal()
    run = lab.run([*PYTHON, "-c", code], env={"GLOO_SOCKET_IFNAME": "eth0"}, timeout=BOUND_S)
    assert {result.stdout.split()[0] for result in run} == {"eth0"}


def test_the_lab_s_own_variables_cannot_be_broken(lab: Lab) -> None:
    with pytest.raises(UsageError, match="the lab's own"):
        lab.environment("node-1", "WIRESPEED_LAB_RUN", "x")
    assert not lab.spec.faults


@pytest.mark.usefixtures("needs_nft")
def test_faults_of_up_are_there_for_a_run_of_another_process(
    lab_name: str, command: Command, remains: Callable[[str], list[str]]
) -> None:
    faults = ("--firewall", "all", "--loopback-name", "node-1", "--env", "node-1=A=b=c")
    done = command("up", "--nodes", "2", "--name", lab_name, *faults)
    try:
        assert done.returncode == 0, done.stderr
        assert "firewall node-1, loopback-name node-1, env node-1=A=b=c" in done.stdout
        state = Lab.attach(lab_name).spec
        assert state == LabSpec(
            2,
            lab_name,
            faults=(
                Firewall("node-0"),
                Firewall("node-1"),
                LoopbackName("node-1"),
                Variable("node-1", "A", "b=c"),
            ),
        )
        script = (
            f"if [ $RANK = 0 ]; then exec {' '.join(ANSWERER)} serve tcp $MASTER_PORT {SHUT}; fi\n"
            "sleep 1\n"
            f"{' '.join(ANSWERER)} ask tcp $MASTER_ADDR $MASTER_PORT {SHUT}; echo $A; exit 4\n"
        )
        words = ("run", "--name", lab_name, "--grace", "0", "--", "sh", "-c", script)
        done = command(*words)
        told = [line.removeprefix("[node-1] ") for line in done.stdout.splitlines()]
        assert told == ["node-0", "nothing", "b=c"], done.stderr
    finally:
        assert command("down", "--name", lab_name).returncode == 0
    assert not remains(lab_name)


def test_a_firewall_without_its_tool_makes_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wirespeed.errors import CannotMeasure
    from wirespeed.lab import processes

    where = processes.where
    monkeypatch.setattr(processes, "where", lambda name: None if name == "nft" else where(name))
    with pytest.raises(CannotMeasure) as raised:
        lab.firewall("node-1")
    assert raised.value.next == "apt-get install nftables"
    assert not lab.spec.faults
