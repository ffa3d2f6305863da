"""`image`: the CPU image, built from Debian for real by `images/build`, in a storage of the tests' own.

The base is made by debootstrap, since tests pull nothing; WIRESPEED_TEST_BASE names a tar that `podman
load` or `podman import` takes instead. About 2 minutes and 4 GB in the tests' temporary folder, once
for all workers of pytest-xdist.
"""

import fcntl
import os
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = "localhost/wirespeed:cpu"
BOUND_S = 60.0
BUILD_S = 1500.0
_BASE = "localhost/base:test"
_PIP = ("cert", "find-links", "index-url", "extra-index-url", "proxy", "trusted-host")


class Podman:
    """podman with a storage of its own, set up as a user would: by its two configuration files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Without CAP_SYS_RESOURCE no limit can be raised above this machine's, as podman would.
        limits = (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
        ulimits = ", ".join(f'"{name}={_least(kind)}:{_least(kind)}"' for name, kind in limits)
        runtime = 'runtime = "runc"\n' if shutil.which("runc") else ""
        (folder / "containers.conf").write_text(
            f"[containers]\ndefault_ulimits = [{ulimits}]\n"
            f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n{runtime}'
        )
        self.environment = {
            **os.environ,
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "TMPDIR": str(folder),
            "ENGINE": "podman",
        }
        self.use("overlay")

    def use(self, driver: str) -> None:
        place = self.folder / driver
        (self.folder / "storage.conf").write_text(
            f'[storage]\ndriver = "{driver}"\ngraphroot = "{place}"\nrunroot = "{place}-run"\n'
        )

    def ask(
        self, *words: str, timeout: float = BOUND_S, **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(words),
            cwd=ROOT,
            env={**self.environment, **env},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def __call__(self, *words: str, timeout: float = BOUND_S) -> str:
        """stdout of podman WORDS; fails with what it said."""
        done = self.ask("podman", *words, timeout=timeout)
        assert done.returncode == 0, f"podman {' '.join(words[:2])}: {done.stderr}\n{done.stdout}"
        return done.stdout

    def run(self, *words: str, timeout: float = BOUND_S) -> str:
        """A container that sees no network and goes when it ends."""
        return self("run", "--rm", "--network=none", *words, timeout=timeout)

    def end(self) -> None:
        self.ask("podman", "rm", "--all", "--force", "--time", "1")
        shutil.rmtree(self.folder, ignore_errors=True)


def _least(kind: int) -> int:
    limit = resource.getrlimit(kind)[1]
    return 16_384 if limit == resource.RLIM_INFINITY else min(limit, 16_384)


def _base(podman: Podman) -> None:
    """An image of Debian, without any registry."""
    given = os.environ.get("WIRESPEED_TEST_BASE", "")
    tar = Path(given) if given else podman.folder / "base.tar"
    if not given:
        root = podman.folder / "debian"
        words = ["unshare", "--mount", "debootstrap", "--variant=minbase", "bookworm", str(root)]
        done = podman.ask(*words, timeout=BUILD_S)
        assert done.returncode == 0, done.stdout + done.stderr
        # debootstrap leaves the packages that it took; a base image that is published has none.
        for package in (root / "var/cache/apt/archives").glob("*.deb"):
            package.unlink()
        packed = podman.ask("tar", "-C", str(root), "-cf", str(tar), ".")
        assert packed.returncode == 0, packed.stderr
        shutil.rmtree(root)
    loaded = podman.ask("podman", "load", "--quiet", "--input", str(tar))
    if loaded.returncode:
        podman("import", "--quiet", str(tar), _BASE)
        return
    # What was packed by hand may lack the history that a build goes by: only its files are taken.
    made = podman("create", loaded.stdout.split()[-1], "true").strip()
    files = podman.folder / "files.tar"
    podman("export", "--output", str(files), made)
    podman("import", "--quiet", str(files), _BASE)
    files.unlink()


def _pip(podman: Podman) -> tuple[str, list[str]]:
    """(pip.conf, words for the builder): pip of this machine's own settings, a mirror's for one."""
    words = [sys.executable, "-m", "pip", "config", "list"]
    said = subprocess.run(
        words, capture_output=True, text=True, timeout=BOUND_S, check=False
    ).stdout
    found: dict[str, str] = {}
    for line in said.splitlines():
        key, _, value = line.partition("=")
        found.setdefault(key.split(".")[-1], shlex.split(value)[0] if value else "")
    lines, mounts = ["[global]"], []
    for key in _PIP:
        values = [one for one in found.get(key, "").split() if not one.startswith("file:")]
        for number, value in enumerate(values):
            if Path(value).exists():
                inside = f"/run/pip/{key}-{number}"
                mounts += ["--volume", f"{Path(value).resolve()}:{inside}:ro"]
                values[number] = inside
        if values:
            lines.append(f"{key} = {' '.join(values)}")
    path = podman.folder / "pip.conf"
    path.write_text("\n".join(lines) + "\n")
    return str(path), mounts


def _usable(podman: Podman) -> None:
    """Overlay where the kernel allows it, else the slow vfs; skips where no container can run at all."""
    said = ""
    for driver in ("overlay", "vfs"):
        podman.use(driver)
        empty = podman.ask("podman", "info")
        if empty.returncode == 0:
            return
        said = empty.stderr
    pytest.skip(f"Requires: podman that works here ({said.strip()[-200:]})")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While one process of the tests is in here, the others wait."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(podman: Podman) -> None:
    _base(podman)
    conf, mounts = _pip(podman)
    words = ["images/build", "cpu", "--network=host", *mounts]
    settings = {"PIP_CONF": conf, "CPU_BASE": _BASE, "CPU_TORCH_INDEX": ""}
    built = podman.ask(*words, timeout=BUILD_S, **settings)
    assert built.returncode == 0, (built.stdout + built.stderr)[-4000:]


@pytest.fixture(scope="session")
def image(tmp_path_factory: Any) -> Iterator[Podman]:
    """podman, which has the image `localhost/wirespeed:cpu`; the last process to leave removes all."""
    needed = ["podman", "ip", "unshare", "ssh-keygen"]
    needed += [] if os.environ.get("WIRESPEED_TEST_BASE") else ["debootstrap"]
    missing = [name for name in needed if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"Requires: root and podman, debootstrap, iproute2 (missing: {missing})")
    base: Path = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "images"
    mine = folder / f"user-{os.getpid()}"
    try:
        with _alone(folder):
            folder.mkdir(exist_ok=True)
            mine.touch()
            podman = Podman(folder)
            _usable(podman)
            if podman.ask("podman", "image", "exists", NAME).returncode:
                _build(podman)
        yield podman
    finally:
        with _alone(folder):
            mine.unlink()
            if not list(folder.glob("user-*")):
                podman.end()
