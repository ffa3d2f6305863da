"""A real PostgreSQL server of the test's own: on a free port and a socket in a temporary folder."""

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

UP_S = 60.0
OWNER = "keeper"
PASSWORD = "correct horse"


def programs() -> Path | None:
    """The folder with initdb and postgres; Debian keeps them out of PATH."""
    places = [Path(found).parent for found in [shutil.which("initdb")] if found]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next(
        (
            one
            for one in places
            if all((one / name).is_file() for name in ("initdb", "postgres", "psql"))
        ),
        None,
    )


class Postgres:
    """The server; who connects by its socket needs no password, by its port one (SCRAM)."""

    def __init__(self, folder: Path, bin: Path) -> None:
        self.folder, self._bin = folder, bin
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
        self._user = "postgres" if os.geteuid() == 0 else None  # the server refuses to be root
        if self._user:
            os.chown(folder, pwd.getpwnam(self._user).pw_uid, -1)
        self._log = (folder / "log").open("wb")
        self._made = itertools.count()
        words = ["initdb", "-D", "data", "-U", "postgres", "--auth-local=trust", "--no-sync"]
        done = self._start(*words, "--auth-host=scram-sha-256", "-E", "UTF8", "--locale=C").wait(
            UP_S
        )
        assert done == 0, (folder / "log").read_text()
        self.start()
        self.sql(f"CREATE ROLE {OWNER} LOGIN PASSWORD '{PASSWORD}'")

    def _start(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        command = [str(self._bin / program), *words]
        if shutil.which("setpriv"):  # it ends with the tests, however these do
            command = ["setpriv", "--pdeathsig", "INT", "--", *command]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            user=self._user,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )

    def start(self) -> None:
        settings = ("listen_addresses=127.0.0.1", "fsync=off", "max_connections=30")
        settings += ("shared_buffers=16MB", f"unix_socket_directories={self.folder}")
        options = [word for one in settings for word in ("-c", one)]
        self.process = self._start("postgres", "-D", "data", "-p", str(self.port), *options)
        end = time.monotonic() + UP_S
        while self._psql("SELECT 1").returncode:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < end, (self.folder / "log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """At once, as a server stops that an administrator shuts down."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGINT)
        self.process.wait(UP_S)

    def close(self) -> None:
        self.stop()
        self._log.close()

    def _psql(self, text: str, database: str = "postgres") -> subprocess.CompletedProcess[str]:
        words = [
            "-X",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            str(self.folder),
            "-p",
            str(self.port),
        ]
        return subprocess.run(
            [str(self._bin / "psql"), *words, "-U", "postgres", "-d", database, "-c", text],
            capture_output=True,
            text=True,
            timeout=UP_S,
        )

    def sql(self, text: str, database: str = "postgres") -> str:
        """As its superuser; what psql prints, a line a row with | between columns."""
        done = self._psql(text, database)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def database(self) -> str:
        """A new one of OWNER; its name."""
        name = f"fleet_{next(self._made)}"
        self.sql(f"CREATE DATABASE {name} OWNER {OWNER}")
        return name

    def url(self, database: str, user: str = OWNER) -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}&port={self.port}"

    def tcp(self, database: str, user: str = OWNER) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    bin = programs()
    if bin is None:
        pytest.skip("Requires: PostgreSQL (Debian: postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: a socket's path has 107 bytes
    server = Postgres(folder, bin)
    try:
        yield server
    finally:
        server.close()
        shutil.rmtree(folder)


@pytest.fixture
def store(postgres: Postgres) -> Iterator[str]:
    """The address of an empty store that is set up."""
    from wirespeed.fleet.common_store.tables import set_up

    name = postgres.database()
    set_up(postgres.url(name))
    yield postgres.url(name)
    postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")
