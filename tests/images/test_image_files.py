"""What images are built from: pinned, without secrets, and shell that says no to what it cannot use."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "images"
DOCKERFILES = sorted(IMAGES.glob("Dockerfile.*"))
SCRIPTS = sorted(
    path
    for path in [*IMAGES.rglob("*")]
    if path.is_file() and path.read_bytes().startswith(b"#!/bin/sh")
)
BOUND_S = 60.0


def instructions(path: Path) -> list[tuple[str, str]]:
    """(instruction, its words) of a Dockerfile, continued lines joined."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [
        (line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined if line.strip()
    ]


def versions() -> dict[str, str]:
    lines = (IMAGES / "versions.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def words_of(*instruction: str, path: Path) -> list[str]:
    return [words for name, words in instructions(path) if name in instruction]


def sh(script: Path | str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", str(IMAGES / script), *words]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        env={**os.environ, **env},
        check=False,
    )


def tool(name: str) -> str:
    """A linter, from PATH or beside this Python."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = shutil.which(name, path=path)
    if found is None:
        pytest.skip(f"Requires: {name}")
    return found


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
class TestDockerfile:
    def test_every_base_is_an_argument_or_a_stage_of_the_file(self, path: Path) -> None:
        stages: set[str] = set()
        for words in words_of("FROM", path=path):
            base, *name = words.split()
            assert base in stages or re.fullmatch(r"\$\{[A-Z_]+\}", base), base
            stages |= {name[-1]} if name else set()

    def test_bases_are_pinned_by_digest_and_have_a_tag_that_tells_what_they_are(
        self, path: Path
    ) -> None:
        names = re.findall(r"^FROM \$\{(\w+)\}", path.read_text(), re.M)
        for name in set(names):
            assert re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", versions()[name]), name
            assert ":latest" not in versions()[name]

    def test_every_argument_has_its_version_in_versions_env(self, path: Path) -> None:
        arguments = {words.split("=")[0] for words in words_of("ARG", path=path)}
        assert arguments <= {*versions(), "SOURCE_DATE_EPOCH"}

    def test_nothing_is_fetched_unchecked(self, path: Path) -> None:
        assert words_of("ADD", path=path) == []
        assert not re.search(r"curl|wget|git clone|pip install|apt-get", path.read_text())

    def test_runs_as_a_number_that_is_not_root_in_group_root(self, path: Path) -> None:
        assert words_of("USER", path=path)[-1] == "1000:0"
        after = [name for name, _ in instructions(path)]
        assert "RUN" not in after[after.index("USER") :]

    def test_has_no_secret_and_no_key(self, path: Path) -> None:
        for words in words_of("ENV", "ARG", "COPY", path=path):
            assert not re.search(r"token|password|secret|id_rsa|host_key", words, re.I), words

    def test_hadolint_has_nothing_to_say(self, path: Path) -> None:
        done = subprocess.run(
            [tool("hadolint"), str(path)],
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "")


class TestVersions:
    def test_commits_and_checksums_are_whole(self) -> None:
        for name, value in versions().items():
            if name.endswith("_COMMIT"):
                assert re.fullmatch(r"[0-9a-f]{40}", value), name
            if name.endswith("_SHA256") and value:
                assert re.fullmatch(r"[0-9a-f]{64}", value), name

    def test_each_is_used_by_an_image(self) -> None:
        used = "".join(path.read_text() for path in DOCKERFILES)
        assert [name for name in versions() if not re.search(rf"^ARG {name}\b", used, re.M)] == []

    def test_the_lock_pins_everything_and_agrees_with_what_the_tests_run_with(self) -> None:
        def pins(path: Path) -> dict[str, str]:
            lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
            assert all(re.match(r"[A-Za-z0-9._-]+==\S+", line) for line in lines)
            pairs = (line.split(";")[0].strip().split("==") for line in lines)
            return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}

        lock, tested = pins(IMAGES / "python.lock"), pins(ROOT / "constraints.txt")
        both = sorted(set(lock) & set(tested))
        assert {"torch", "numpy", "pydantic", "deepspeed", "mpi4py"} <= set(both)
        assert [lock[name] for name in both] == [tested[name] for name in both]

    def test_the_lock_has_what_the_package_needs(self) -> None:
        project = (ROOT / "pyproject.toml").read_text()
        needed = re.findall(
            r'"([A-Za-z0-9_-]+)>=', project.split("dependencies = [")[1].split("]")[0]
        )
        lock = (IMAGES / "python.lock").read_text().lower().replace("_", "-")
        assert [
            name for name in needed if f"\n{name.lower().replace('_', '-')}==" not in lock
        ] == []
        for path in DOCKERFILES:
            text = path.read_text().lower().replace("_", "-")
            assert [name for name in needed if name.lower().replace("_", "-") not in text] == []

    def test_only_what_is_named_goes_to_the_builder(self) -> None:
        lines = (ROOT / ".dockerignore").read_text().splitlines()
        rules = [line for line in lines if line and not line.startswith("#")]
        assert rules[0] == "*"
        taken = {line[1:] for line in rules if line.startswith("!")}
        copied = {
            source
            for path in DOCKERFILES
            for words in words_of("COPY", path=path)
            if not words.startswith("--from")
            for source in words.split()[:-1]
        }
        assert copied <= taken


class TestBuild:
    @pytest.fixture
    def engine(self, tmp_path: Path) -> str:
        """Says its words, one a line, and builds nothing."""
        path = tmp_path / "engine"
        path.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
        path.chmod(0o755)
        return str(path)

    @pytest.mark.parametrize("kind", ["cpu", "cuda"])
    def test_gives_each_version_that_the_image_asks_for(self, engine: str, kind: str) -> None:
        said = sh("build", kind, ENGINE=engine, SOURCE_DATE_EPOCH="1700000000").stdout.splitlines()
        asked = {
            words.split("=")[0] for words in words_of("ARG", path=IMAGES / f"Dockerfile.{kind}")
        }
        given = [said[at + 1] for at, word in enumerate(said) if word == "--build-arg"]
        wanted = {**versions(), "SOURCE_DATE_EPOCH": "1700000000"}
        assert sorted(given) == sorted(f"{name}={wanted[name]}" for name in asked)
        assert said[said.index("--timestamp") + 1] == "1700000000"
        assert [said[0], said[-1]] == ["build", "."]
        assert f"images/Dockerfile.{kind}" in said

    def test_the_environment_has_precedence_and_may_be_empty_or_strange(self, engine: str) -> None:
        strange = "a b=c; $(touch /never) 'd'"
        said = sh(
            "build", "cpu", "--no-cache", ENGINE=engine, CPU_BASE=strange, CPU_TORCH_INDEX=""
        ).stdout
        assert f"\nCPU_BASE={strange}\n" in said
        assert "\nCPU_TORCH_INDEX=\n" in said
        assert "\n--no-cache\n" in said

    def test_pip_conf_is_a_secret_of_the_build(self, engine: str) -> None:
        said = sh("build", "cpu", ENGINE=engine, PIP_CONF="/etc/my pip.conf").stdout.splitlines()
        assert said[said.index("--secret") + 1] == "id=pip,src=/etc/my pip.conf"

    @pytest.mark.parametrize("words", [(), ("gpu",), ("../cpu",)])
    def test_tells_how_it_is_used(self, engine: str, words: tuple[str, ...]) -> None:
        done = sh("build", *words, ENGINE=engine)
        assert (done.returncode, done.stdout) == (2, "")
        assert "images/build cpu|cuda" in done.stderr

    def test_says_that_no_builder_is_here(self, tmp_path: Path) -> None:
        for name in ("sh", "dirname"):
            (tmp_path / name).symlink_to(shutil.which(name) or name)
        done = sh("build", "cpu", PATH=str(tmp_path), ENGINE="")
        assert done.returncode == 3
        assert "podman" in done.stderr


class TestSteps:
    @pytest.mark.parametrize(
        ("step", "words", "said"),
        [
            ("source", ("https://example.invalid", "main", "/never"), "main is no commit"),
            ("source", ("https://example.invalid", "", "/never"), "is no commit"),
            ("mpi", ("mpich",), "not hpcx or openmpi"),
            ("mpi", ("hpcx",), "needs HPCX_URL and HPCX_SHA256"),
            ("ofed", ("24.10-4.1.4.0",), "needs OFED_KEY_SHA256"),
        ],
    )
    def test_refuses_what_is_not_pinned(self, step: str, words: tuple[str, ...], said: str) -> None:
        done = sh(f"steps/{step}", *words)
        assert done.returncode == 2
        assert said in done.stderr


class TestStartSshd:
    @pytest.fixture
    def keys(self, tmp_path: Path) -> Path:
        (tmp_path / "authorized_keys").write_text("ssh-ed25519 AAAA\n")
        return tmp_path

    @pytest.mark.parametrize("port", ["", "ssh", "22 -o X=y", "-1", "123456"])
    def test_a_port_is_a_number(self, keys: Path, port: str) -> None:
        done = sh("files/usr/local/bin/start-sshd", "-k", str(keys), "-p", port)
        assert done.returncode == 2
        assert "the port" in done.stderr

    def test_without_authorized_keys_it_says_so(self, tmp_path: Path) -> None:
        done = sh("files/usr/local/bin/start-sshd", "-k", str(tmp_path / "none"))
        assert done.returncode == 2
        assert "none/authorized_keys cannot be read" in done.stderr

    @pytest.mark.parametrize("name", ["a b", 'a"b', "a%h", "a\nb"])
    def test_a_folder_that_sshd_would_read_as_something_else_is_refused(
        self, keys: Path, name: str
    ) -> None:
        folder = keys / name
        folder.mkdir()
        (folder / "authorized_keys").write_text("ssh-ed25519 AAAA\n")
        done = sh("files/usr/local/bin/start-sshd", "-k", str(folder))
        assert done.returncode == 2
        assert "sshd takes no such name" in done.stderr

    def test_help_is_its_first_comment(self) -> None:
        done = sh("files/usr/local/bin/start-sshd", "-h")
        assert done.returncode == 0
        assert done.stdout.startswith("start-sshd [-p PORT] [-k FOLDER]")
        assert "#" not in done.stdout

    def test_a_job_without_a_key_has_no_host_key_to_tell(self, tmp_path: Path) -> None:
        done = sh("files/usr/local/bin/job-host-key", SSHD_KEYS=str(tmp_path))
        assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shell_is_clean(path: Path) -> None:
    done = subprocess.run(
        [tool("shellcheck"), str(path)],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_every_script_is_executable_and_posix() -> None:
    assert len(SCRIPTS) >= 12
    assert [path.name for path in SCRIPTS if not os.access(path, os.X_OK)] == []
    assert [
        path.name
        for path in IMAGES.rglob("*")
        if path.is_file() and b"bash" in path.read_bytes()[:20]
    ] == []
