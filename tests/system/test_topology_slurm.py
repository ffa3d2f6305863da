"""A real slurmctld reads the topology.conf that pairs were made into."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.system
UP_S = 20.0
_CONF = """\
ClusterName=topo
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
TopologyPlugin=topology/tree
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
StateSaveLocation={folder}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
NodeName=node-[0-63] NodeAddr=127.0.0.1 State=FUTURE
PartitionName=all Nodes=node-[0-63] Default=YES
"""


@pytest.fixture
def scontrol(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """`scontrol(topology)`: what `scontrol show topology` of a new slurmctld prints."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("slurmctld", "scontrol"))):
        pytest.skip("Requires: root and Slurm")
    daemons: list[subprocess.Popen[bytes]] = []

    def show(topology: str) -> str:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        config = tmp_path / "slurm.conf"
        host = socket.gethostname().partition(".")[0]
        config.write_text(_CONF.format(folder=tmp_path, host=host, port=port))
        (tmp_path / "topology.conf").write_text(topology)
        environment = {**os.environ, "SLURM_CONF": str(config)}
        with (tmp_path / "out").open("wb") as out:
            words = ["slurmctld", "-D", "-f", str(config)]
            daemons.append(subprocess.Popen(words, stdout=out, stderr=out, env=environment))
        deadline = time.monotonic() + UP_S
        while True:
            words = ["scontrol", "show", "topology"]
            done = subprocess.run(
                words, capture_output=True, text=True, env=environment, timeout=30
            )
            if done.returncode == 0 and done.stdout:
                return done.stdout
            left = "\n".join(path.read_text() for path in tmp_path.glob("*o*[gt]"))
            assert daemons[0].poll() is None and time.monotonic() < deadline, done.stderr + left
            time.sleep(0.1)

    yield show
    for daemon in daemons:
        daemon.terminate()
        daemon.wait(UP_S)


def test_slurm_takes_the_switches(scontrol: Callable[[str], str], cli: Any) -> None:
    words = ["locate", "--simulate", "--nodes", "64", "--faults", "1", "--exhaustive", "-q"]
    assert cli(*words).code in (0, 1)
    made = cli("topo", "--from", "last", "-o", "slurm")
    assert made.code == 0, made.err
    lines = scontrol(made.out).splitlines()
    told = [dict(word.split("=", 1) for word in line.split()) for line in lines]
    leaves = {one["SwitchName"]: one["Nodes"] for one in told if one["Level"] == "0"}
    assert leaves == {
        "leaf1": "node-[0-15]",
        "leaf2": "node-[16-31]",
        "leaf3": "node-[32-47]",
        "leaf4": "node-[48-63]",
    }
    (core,) = [one for one in told if one["Level"] == "1"]
    assert (core["Switches"], core["Nodes"]) == ("leaf[1-4]", "node-[0-63]")
