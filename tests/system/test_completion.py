"""Completions in real shells, man pages in the real man, and both in a real wheel."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from wirespeed.cli.completion import script

ROOT = Path(__file__).parents[2]
MAN = ROOT / "share" / "man"
BOUND_S = 30.0


def needed(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"Requires: {program}")
    return found


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A home with one stored run, and `wirespeed` of this Python on the PATH."""
    (tmp_path / "home" / "runs" / "20261103-101112-7f3c0001").mkdir(parents=True)
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "mine.yaml").write_text("")
    (tmp_path / "out.html").write_text("")
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "WIRESPEED_HOME": str(tmp_path / "home"),
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
    }


class Terminal:
    """An interactive shell at a pseudo-terminal: keys go in, what it shows comes out."""

    def __init__(self, argv: list[str], env: dict[str, str], folder: Path) -> None:
        self._handle, inner = pty.openpty()
        words = [needed("setsid"), "--ctty", *argv]
        self._process = subprocess.Popen(
            words, stdin=inner, stdout=inner, stderr=inner, env=env, cwd=folder
        )
        os.close(inner)
        self.shown = ""

    def type(self, keys: str, until: str) -> None:
        """Until that text has come, from here on; TimeoutError tells what came instead."""
        start = len(self.shown)
        os.write(self._handle, keys.encode())
        end = time.monotonic() + BOUND_S
        while until not in self.shown[start:]:
            ready, _, _ = select.select([self._handle], [], [], 0.2)
            if ready:
                self.shown += os.read(self._handle, 65536).decode("utf-8", "replace")
            if time.monotonic() > end:
                raise TimeoutError(f"no {until!r} after {keys!r} in {self.shown[start:]!r}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait(BOUND_S)
        os.close(self._handle)


@pytest.fixture
def terminal(env: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Starts a shell; it is gone when the test ends."""
    with ExitStack() as ends:

        def start(*argv: str) -> Terminal:
            started = Terminal([needed(argv[0]), *argv[1:]], env, tmp_path)
            ends.callback(started.close)
            return started

        yield start


def bash(terminal: Callable[..., Terminal]) -> Terminal:
    return with_script(terminal("bash", "--norc", "--noprofile", "-i"), "bash")


def zsh(terminal: Callable[..., Terminal]) -> Terminal:
    shell = terminal("zsh", "-f", "-i")
    shell.type("autoload -Uz compinit && compinit -u -D && echo comp''inited\n", "compinited")
    return with_script(shell, "zsh")


def with_script(terminal: Terminal, shell: str) -> Terminal:
    """As the help of `wirespeed completion` tells the user to do it."""
    terminal.type(
        f"PS1='> '; source <(wirespeed completion {shell}) && echo sour''ced\n", "sourced"
    )
    return terminal


TYPED = (
    ("wirespeed che\t", "wirespeed check "),
    ("wirespeed cluster nccl\t", "nccl-tests "),
    ("wirespeed check --level=qu\t", "--level=quick "),
    ("wirespeed runs show 7\t", "7f3c0001 "),
    ("wirespeed train --strategy naive,fla\t", "naive,flat "),
    ("wirespeed check --inject flip:r\t", "flip:rank=1 "),
    ("wirespeed cluster deploy mi\t", "mine "),
    ("wirespeed locate --html ou\t", "out.html "),
    ("wirespeed locate --html=ou\t", "--html=out.html "),
    ("wirespeed check --on ssh --with tor\t22", "torchrun=22"),
)
"""What is typed, and what then stands there; the cursor's line is thrown away behind each."""


@pytest.mark.parametrize("shell", [bash, zsh])
def test_the_shell_completes_what_is_typed(
    shell: Callable[..., Terminal], terminal: Callable[..., Terminal]
) -> None:
    started = shell(terminal)
    for keys, stands in TYPED:
        started.type(keys, stands)
        started.type("\x15", "")


def test_fish_completes_what_is_typed(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "script.fish").write_text(script("fish"))
    asked = [keys.split("\t")[0] for keys, _ in TYPED]
    commands = "; ".join(f"complete -C '{line}'; echo ==" for line in asked)
    words = [needed("fish"), "--no-config", "-c", f"source script.fish; {commands}"]
    done = subprocess.run(
        words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=BOUND_S, check=True
    )
    answers = done.stdout.split("==\n")
    for (keys, stands), answer in zip(TYPED, answers, strict=False):
        word = stands.split()[-1].removesuffix("22")
        assert word in [line.split("\t")[0] for line in answer.splitlines()], keys


def test_a_shell_says_nothing_where_wirespeed_is_broken(
    env: dict[str, str], tmp_path: Path
) -> None:
    broken = tmp_path / "bin" / "wirespeed"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho 'Traceback (most recent call last)' >&2\nexit 1\n")
    broken.chmod(0o755)
    (tmp_path / "script").write_text(script("bash"))
    asked = "source ./script; COMP_WORDS=(wirespeed ch); COMP_CWORD=1; COMP_LINE='wirespeed ch'"
    words = f"{asked}; COMP_POINT=12; _wirespeed_completion wirespeed; echo ${{#COMPREPLY[@]}}"
    done = subprocess.run(
        [needed("bash"), "-c", words],
        env=env | {"PATH": f"{broken.parent}:/usr/bin:/bin"},
        cwd=tmp_path, capture_output=True, text=True, timeout=BOUND_S, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_groff_has_no_warning() -> None:
    pages = sorted(map(str, (MAN / "man1").glob("*.1")))
    done = subprocess.run(
        [needed("groff"), "-man", "-Tutf8", "-P-cbu", "-ww", *pages],
        capture_output=True, text=True, timeout=BOUND_S, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.count("SEE ALSO") == len(pages)


def test_man_shows_a_page_by_name(env: dict[str, str]) -> None:
    done = subprocess.run(
        [needed("man"), "-M", str(MAN), "wirespeed-check"],
        env=env | {"MANWIDTH": "90", "MANPAGER": "cat"},
        capture_output=True, text=True, timeout=BOUND_S, check=True,
    )  # fmt: skip
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "-o, --output [table|wide|json|jsonl|md|nccl-tests|csv]" in lines
    assert "wirespeed check --explain COL-001           what a finding means" in lines


def test_a_wheel_brings_them_to_where_they_are_looked_for(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="Requires: hatchling")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, capture_output=True, timeout=BOUND_S, check=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        names = [name.partition(".data/data/") for name in content.namelist()]
        at = {inside: f"{before}{cut}{inside}" for before, cut, inside in names if inside}
        for shell, place in (
            ("bash", "share/bash-completion/completions/wirespeed"),
            ("zsh", "share/zsh/site-functions/_wirespeed"),
            ("fish", "share/fish/vendor_completions.d/wirespeed.fish"),
        ):
            assert content.read(at[place]).decode() == script(shell)
    pages = {f"share/man/man1/{page.name}" for page in (MAN / "man1").iterdir()}
    assert len(pages) > 40
    assert pages | {"share/man/man1/wirespeed.1"} <= set(at)
