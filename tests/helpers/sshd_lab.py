"""`ssh_lab`: four nodes with one real sshd each, and what is needed to log in to them from node-0.

    def test_something(ssh_lab):
        done = ssh_lab.run(["ssh", "-F", ssh_lab.config, "node-2", "hostname"])
        assert (done.code, done.out) == (0, "node-2\\n")

`run` and `start` run a command inside node-0, as if that were the user's machine, with a
WIRESPEED_HOME of its own (`cli.home`). Programs that cannot be given an ssh configuration find one
with `env=ssh_lab.ssh_first`: a PATH on which `ssh` is a script that adds `-F CONFIG`. Nodes share
this machine's files, so `sys.executable` is the Python of all. After the test nothing but the sshds
may live on a node (`nothing_left`), which is checked. The next test in this process gets the same nodes,
unless something lives there, a fault of the lab is left, or a server or a key was changed. Needs root
and the packages openssh-server, openssh-client and iproute2.
"""

import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from wirespeed.lab import Lab, LabSpec

NODES = 4
BOUND_S = 120.0
START_S = 20.0
LEFT_S = 25.0
_SSHD = "/usr/sbin/sshd"
_numbers = itertools.count()

_SERVER = """\
Port 22
ListenAddress {address}
HostKey {folder}/{node}/host_key
AuthorizedKeysFile {folder}/{node}/authorized_keys
PidFile {folder}/{node}/sshd.pid
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
MaxStartups 100
PrintMotd no
"""
_CLIENT = """\
Host node-*
  IdentityFile {folder}/client_key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  UpdateHostKeys no
  BatchMode yes
  ConnectTimeout 10
"""


class SshLab:
    """Nodes `node-0` … `node-3`; `lab` is theirs, with its faults (`ssh_lab.lab.cut("node-2")`)."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.hosts = lab.nodes
        self.config = str(folder / "ssh_config")
        self.client_key = str(folder / "client_key")
        self.cli: Any = None
        """Of the test that uses it now."""
        self.changed = False
        """A server or a key is no longer as it was."""
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    # Commands on node-0.

    def run(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = BOUND_S,
    ) -> Any:
        """Run a command on node-0 to its end: `.code`, `.out`, `.err`, `.seconds`."""
        return self.start(words, env=env).wait(timeout)

    def start(self, words: Sequence[str], *, env: Mapping[str, str] | None = None) -> Any:
        """Start it: `.out()`, `.err()`, `.signal(number)`, `.wait()`, `.process`."""
        return self.cli.start_words(self.lab.on("node-0", *words), env=dict(env or {}))

    @property
    def ssh_first(self) -> dict[str, str]:
        """Environment in which `ssh` knows the configuration, and mpirun and pdsh use that ssh."""
        return {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{self.cli.environment()['PATH']}",
            "PDSH_RCMD_TYPE": "ssh",
        }

    # Servers.

    def stop_sshd(self, node: str) -> None:
        """Kill the server of that node and every connection to it."""
        self.changed = True
        server = self._servers.pop(node)
        for pid in self._sshd_pids(node):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.wait(START_S)

    def start_sshd(self, node: str) -> None:
        log = self.folder / node / "sshd.log"
        log.write_text("")
        words = [_SSHD, "-D", "-f", str(self.folder / node / "sshd_config"), "-E", str(log)]
        self._servers[node] = subprocess.Popen(
            self.lab.on(node, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + START_S
        while "Server listening" not in log.read_text():
            assert time.monotonic() < deadline, f"no sshd on {node}: {log.read_text()}"
            time.sleep(0.02)

    def change_host_key(self, node: str) -> None:
        """A new one, as after a new installation; clients still know the old one."""
        self.stop_sshd(node)
        _make_key(self.folder / node / "host_key")
        self.start_sshd(node)

    def forget_host_key(self, node: str) -> None:
        """As if this client had never been there."""
        self.changed = True
        known = self.folder / "known_hosts"
        lines = known.read_text().splitlines()
        known.write_text("\n".join(line for line in lines if not line.startswith(node)) + "\n")

    def refuse_key(self, node: str) -> None:
        """From now on the client's key is not accepted there."""
        self.changed = True
        (self.folder / node / "authorized_keys").write_text("")

    # What runs.

    def server_pid(self, node: str) -> int:
        """Of the node's sshd, whose files and mounts a login sees: who asks may change them."""
        self.changed = True
        return self._servers[node].pid

    def processes(self, node: str) -> dict[int, str]:
        """Command line by pid of what lives on a node, without its sshd."""
        found = {}
        for pid in set(self.lab.pids(node)) - set(self._sshd_pids(node)):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                found[pid] = b" ".join(words).decode("utf-8", "replace").strip()
        return found

    def left(self) -> dict[str, dict[int, str]]:
        return {node: found for node in self.hosts if (found := self.processes(node))}

    def nothing_left(self, timeout: float = LEFT_S) -> None:
        """Fails when something but sshd still lives on a node after that many seconds."""
        deadline = time.monotonic() + timeout
        while left := self.left():
            assert time.monotonic() < deadline, f"still there after {timeout} s: {left}"
            time.sleep(0.1)

    def _sshd_pids(self, node: str) -> list[int]:
        found = []
        for pid in self.lab.pids(node):
            with suppress(OSError):
                if Path(f"/proc/{pid}/exe").readlink() == Path(_SSHD):
                    found.append(pid)
        return found

    # Up and down.

    def up(self) -> None:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd keeps nothing, but must be
        _make_key(Path(self.client_key))
        known = []
        for node in self.hosts:
            folder = self.folder / node
            folder.mkdir()
            _make_key(folder / "host_key")
            public = Path(f"{self.client_key}.pub").read_text()
            (folder / "authorized_keys").write_text(public)
            address = self.lab.address(node)
            text = _SERVER.format(address=address, folder=self.folder, node=node)
            (folder / "sshd_config").write_text(text)
            known.append(f"{node},{address} {(folder / 'host_key.pub').read_text()}")
            self.start_sshd(node)
        (self.folder / "known_hosts").write_text("".join(known))
        Path(self.config).write_text(_CLIENT.format(folder=self.folder))
        self._make_ssh()

    def _make_ssh(self) -> None:
        script = self.folder / "bin" / "ssh"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F "{self.config}" "$@"\n')
        script.chmod(0o755)

    def down(self) -> None:
        """All of it, also what tests left there."""
        for server in self._servers.values():
            server.kill()
            server.wait(START_S)
        self.lab.down()


def _make_key(path: Path) -> None:
    for old in (path, Path(f"{path}.pub")):
        old.unlink(missing_ok=True)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "wirespeed-lab", "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, timeout=START_S)


class Nodes:
    """One `SshLab` after the other; the same again for as long as nobody changed it."""

    def __init__(self, folders: Callable[[str], Path]) -> None:
        self._folders = folders
        self._up: SshLab | None = None

    def take(self, cli: Any) -> SshLab:
        if self._up is None:
            lab = Lab(LabSpec(NODES, f"s{os.getpid()}-{next(_numbers)}"))
            lab.up()
            self._up = SshLab(lab, self._folders("ssh"))
            self._up.up()
        self._up.cli = cli
        return self._up

    def end(self) -> None:
        if self._up is not None:
            self._up.down()
            self._up = None


@pytest.fixture(scope="session")
def ssh_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path_factory.mktemp)
    yield nodes
    nodes.end()


@pytest.fixture
def ssh_lab(cli: Any, ssh_nodes: Nodes) -> Iterator[SshLab]:
    """Four nodes that can be logged in to; see the top of this file."""
    programs = (_SSHD, "ssh", "ssh-keygen", "ip", "tc")
    missing = [name for name in programs if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"Requires: root, and the commands {', '.join(programs)} (missing: {missing})")
    whole = False
    try:
        lab = ssh_nodes.take(cli)
        yield lab
        lab.nothing_left()
        whole = not (lab.changed or lab.lab.spec.faults)
    finally:
        if not whole:
            ssh_nodes.end()
            cli.end_all()
