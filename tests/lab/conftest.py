"""Labs for tests: real namespaces, real traffic; needs root and iproute2."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wirespeed.lab import Lab, LabSpec, NodeResult

BOUND_S = 60.0
_SENDER = Path(__file__).parent / "sender.py"
_numbers = itertools.count()


@pytest.fixture
def needs_root() -> None:
    missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"Requires: root and the commands ip, tc (missing: {missing})")


@pytest.fixture
def lab_name(needs_root: None) -> str:
    return f"t{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """States of labs are kept here only."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("wirespeed.lab.state._roots", lambda: [tmp_path])
    return tmp_path


@pytest.fixture
def lab(lab_name: str) -> Iterator[Lab]:
    with Lab(LabSpec(3, lab_name)) as made:
        yield made
    assert not remains(lab_name)


@pytest.fixture
def rate() -> Callable[[Lab, str, str], float]:
    """`rate(lab, "node-0", "node-1")`: bits a second that node-1 got from node-0."""

    def measured(lab: Lab, source: str, target: str) -> float:
        results = transfer(lab, source, target)
        assert [one.returncode for one in results] == [0, 0], results
        return float(results[0].stdout)

    return measured


def transfer(
    lab: Lab, source: str, target: str, seconds: float = 0.6, silence: float = 25.0
) -> list[NodeResult]:
    """TCP that loses packets may be silent for many seconds; both sides fail after `silence`."""
    words = [sys.executable, "-I", "-S", str(_SENDER), "{rank}", "{master}", "{port}"]
    words += [str(seconds), str(silence)]
    return lab.run(words, nodes=[target, source], timeout=BOUND_S, grace=5.0)


@pytest.fixture(name="transfer")
def _transfer() -> Callable[[Lab, str, str], list[NodeResult]]:
    return transfer


def remains(name: str) -> list[str]:
    """Whatever is left of a lab on this machine."""
    found = [str(path) for path in Path("/run/netns").glob(f"wslab-{name}-*")]
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/wslab-{name}-*")]
    roots = {Path("/run"), Path("/tmp"), Path(os.environ.get("XDG_RUNTIME_DIR", "/run"))}
    found += [str(path) for root in roots for path in root.glob(f"wirespeed-lab/{name}*")]
    mark = f"WIRESPEED_LAB={name}".encode(), f"WIRESPEED_LAB_ROLE={name}/".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word == mark[0] or word.startswith(mark[1]) for word in words):
            found.append(str(path))
    return found


@pytest.fixture(name="remains")
def _remains() -> Callable[[str], list[str]]:
    return remains


@pytest.fixture
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`command("up", "--nodes", "2")`: python -m wirespeed.lab, to its end."""

    def run(*words: str, **options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "wirespeed.lab", *words],
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
            env={**os.environ, **options},
        )

    return run
