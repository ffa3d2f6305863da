"""`--store`: which store is meant, and what is said where it is none; no server is needed."""

import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

LOG = str(Path(__file__).parents[1] / "runs" / "samples" / "wrong_column.txt")
READING = (
    ["runs", "list"],
    ["runs", "show", "last"],
    ["runs", "export", "--parquet", "x"],
    ["compare", "a", "b"],
    ["trend"],
    ["report", "last"],
    ["baseline", "set", "last"],
    ["reference", "add", "last"],
    ["reference", "ask", "--run", "last"],
    ["predict", "last"],
    ["nodes", "list"],
)


@pytest.mark.parametrize("words", READING)
def test_what_reads_runs_takes_it(cli: Any, says_clearly: Any, words: list[str]) -> None:
    said = says_clearly(cli.here(*words, "--store", "common"), 2)
    assert "no common store is named" in said
    assert "WIRESPEED_STORE" in said


@pytest.mark.parametrize("verb", ["check", "bench", "locate", "train", "launch"])
def test_what_stores_a_run_takes_it(cli: Any, says_clearly: Any, verb: str) -> None:
    said = says_clearly(cli.here(verb, "--store", "postgresql://a:secret@db/fleet"), 2)
    assert "holds a password" in said
    assert "secret" not in said


def test_a_variable_with_a_password_is_refused_before_anything_is_measured(
    cli: Any, says_clearly: Any
) -> None:
    env = {"WIRESPEED_STORE": "postgresql://a:secret@db/fleet"}
    said = says_clearly(cli.here("check", "-l", "quick", env=env), 2)
    assert "holds a password" in said
    assert "secret" not in said
    assert cli.folders() == []


def test_without_the_libraries(
    cli: Any, says_clearly: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    env = {"WIRESPEED_STORE": "postgresql:///x"}
    said = says_clearly(cli.here("runs", "list", "--store", "common", env=env), 2)
    assert "pip install 'wirespeed[store]'" in said


@pytest.mark.slow
@pytest.mark.hostile("strangers")
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"E" * 100_000])
def test_a_stranger_at_the_port_of_the_store(cli: Any, says_clearly: Any, answer: bytes) -> None:
    held = []

    def greet() -> None:
        with suppress(OSError):
            while True:
                held.append(server.accept()[0])
                held[-1].sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=greet)
        thread.start()
        url = f"postgresql://127.0.0.1:{server.getsockname()[1]}/fleet"
        said = says_clearly(cli.here("runs", "list", "--store", url), 3)
        assert "the store postgresql://127.0.0.1:" in said
        done = cli("runs", "import", LOG, env={"WIRESPEED_STORE": url})
        assert done.code == 0
        assert "not sent yet" in done.err
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    for one in held:
        one.close()


def test_sending_needs_a_store(cli: Any, says_clearly: Any) -> None:
    assert cli.here("runs", "send").out == "sent 0 runs\n"
    for words in (["--all"], ["last"], ["--set-up"]):
        assert "no store is named" in says_clearly(cli.here("runs", "send", *words), 2)
