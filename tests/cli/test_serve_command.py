"""`wirespeed serve`: what it refuses before it listens, and a token over TLS as a real command."""

import base64
import http.client
import re
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wirespeed.cli import run

BOUND_S = 30.0


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("s" * 40 + "\n")
    file.chmod(0o600)
    return file


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--listen", "9477"], 2, "is no address"),
        (["--listen", "0.0.0.0:0"], 2, "reachable from other machines"),
        (["--listen", "[::]:0", "--token-file", "TOKEN"], 2, "--tls-cert and --tls-key too"),
        (["--tls-cert", "c.pem"], 2, "go together"),
        (["--tls-cert", "gone.pem", "--tls-key", "gone.pem"], 2, "cannot be used"),
        (["--token-file", "gone"], 2, "--token-file gone"),
        (["--token-file", "OPEN"], 2, "is open to others"),
        (["--listen", "unix:/no/such/folder/s"], 3, "cannot listen on /no/such/folder/s"),
        (["more"], 2, "unexpected"),
    ],
)
def test_refusals(
    words: list[str],
    code: int,
    said: str,
    secret: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    public = tmp_path / "public"
    public.write_text("s" * 40)
    public.chmod(0o644)
    known = {"TOKEN": str(secret), "OPEN": str(public)}
    assert run(["serve", *(known.get(word, word) for word in words)]) == code
    told = capsys.readouterr()
    assert said in told.err and told.out == "" and "s" * 40 not in told.err


def test_without_its_packages_it_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    for name in [one for one in sys.modules if one.startswith("wirespeed.site")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setitem(sys.modules, "starlette.requests", None)
    monkeypatch.setitem(sys.modules, "starlette.responses", None)
    monkeypatch.setitem(sys.modules, "starlette.datastructures", None)
    assert run(["serve", "--listen", "127.0.0.1:0"]) == 2
    assert "pip install 'wirespeed[serve]'" in capsys.readouterr().err


@pytest.mark.hostile("strangers")
def test_other_machines_get_pages_by_the_token_over_tls_only(
    cli: Any, secret: Path, tmp_path: Path
) -> None:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("Requires: openssl")
    pair = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=w"
    files = ("-addext", "subjectAltName=IP:127.0.0.1", "-out", pair[0], "-keyout", pair[1])
    subprocess.run([program, *words.split(), *files], check=True, capture_output=True, timeout=30)
    given = ("--tls-cert", str(pair[0]), "--tls-key", str(pair[1]), "--token-file", str(secret))
    running = cli.start("serve", "--listen", "0.0.0.0:0", *given)
    address = cli.until(lambda: re.search(r"https://0\.0\.0\.0:(\d+)/", running.err()))
    trusted = ssl.create_default_context(cafile=str(pair[0]))

    def get(**headers: str) -> tuple[int, str]:
        link = http.client.HTTPSConnection(
            "127.0.0.1", int(address[1]), timeout=BOUND_S, context=trusted
        )
        link.request("GET", "/", headers=headers)
        answer = link.getresponse()
        found = answer.status, answer.read().decode()
        link.close()
        return found

    assert get()[0] == 401
    assert get(Authorization="Bearer wrong")[0] == 401
    basic = base64.b64encode(b"me:" + b"s" * 40).decode()
    status, page = get(Authorization=f"Basic {basic}")
    assert status == 200 and "No run has told of a node yet" in page and "s" * 40 not in page
    running.signal(signal.SIGTERM)
    done = running.wait()
    assert done.code == 0 and done.err.endswith("stopped\n") and "s" * 40 not in done.err
