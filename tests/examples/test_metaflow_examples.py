"""examples/metaflow as its README starts them; S3 is served on loopback by moto."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(400),
    pytest.mark.skipif(find_spec("metaflow") is None, reason="Requires: metaflow"),
]

FLOWS = Path(__file__).parents[2] / "examples" / "metaflow"
BOUND_S = 280.0
LEAST = ("--level", "quick", "--more", "--only correctness")
"""Where the flow is what is tried; a whole check runs in `check_flow.py`."""
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
S3 = """\
import sys, time
import boto3
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
port = server.get_host_and_port()[1]
boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}").create_bucket(Bucket="flows")
open(sys.argv[1] + ".new", "w").write(str(port))
__import__("os").rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""


def settings(folder: Path) -> dict[str, str]:
    """Metaflow's own: its home here, and what it keeps in `.metaflow` of the working directory.

    Where that is said with METAFLOW_DATASTORE_SYSROOT_LOCAL, 2.19.39 does not find its cards.
    """
    here = str(folder)
    names = ("HOME", "TEMPDIR", "CLIENT_CACHE_PATH")
    return {**{f"METAFLOW_{name}": here for name in names}, "METAFLOW_USER": "somebody"}


def run(cli: Any, flow: str, *words: str, **env: str) -> Any:
    """One run of a flow, to its end."""
    environment = {**settings(cli.folder), "GLOO_SOCKET_IFNAME": "lo", **env}
    command = [sys.executable, str(FLOWS / flow), "--no-pylint", *words]
    return cli.start_words(command, env=environment).wait(BOUND_S)


def ask(cli: Any, program: str) -> str:
    """What a program that uses Metaflow's client says of the last run, as `run`."""
    head = "from metaflow import Flow, namespace; namespace(None); "
    head += "run = Flow('WirespeedCheck').latest_run; "
    done = cli.start_words([sys.executable, "-c", head + program], env=settings(cli.folder)).wait(
        BOUND_S
    )
    assert done.code == 0, done.err
    return str(done.out).strip()


def test_check_flow_stores_a_verdict_and_a_card(cli: Any) -> None:
    done = run(cli, "check_flow.py", "run", "--nodes", "2", "--level", "quick")
    assert done.code == 0, done.out + done.err
    told = "d = run['report'].task.data; print(d.verdict, d.exit_code, sorted(d.codes.items()), "
    told += (
        "d.run['world']['size'], d.run['world']['launcher'], any('records' in n for n in d.files))"
    )
    assert ask(cli, told) == "READY 0 [(0, 0), (1, 0)] 2 metaflow True"
    card = cli.folder / "card.html"
    ask(
        cli,
        "from metaflow.cards import get_cards; "
        f"open({str(card)!r}, 'w').write(get_cards(run['report'].task)[0].get())",
    )
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        pytest.skip("Requires: chromium, for the last part")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    words += ["--virtual-time-budget=8000", f"--user-data-dir={cli.folder / 'profile'}"]
    dom = subprocess.run(
        [browser, *words, "--dump-dom", card.as_uri()],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=True,
    ).stdout
    # The page is in a frame of its own, whose source names the verdict.
    frame = dom.partition("<iframe")[2].partition("</iframe>")[0]
    assert 'title="wirespeed"' in frame
    assert "READY (speed not judged)" in frame


def test_check_flow_fails_with_the_verdict_once_all_is_stored(cli: Any) -> None:
    fault = "--timeout 5 --inject kill:rank=1,after=1"
    done = run(cli, "check_flow.py", "run", "--nodes", "2", "--level", "quick", "--more", fault)
    assert done.code == 1
    told = "d = run['report'].task.data; print(d.verdict, d.exit_code, run.successful, "
    told += "[f['id'] for f in d.run['findings'] if f['status'] == 'fail'][0], "
    told += "run['end'].task.metadata_dict.get('return_code'))"
    words = ask(cli, told).split()
    assert words[:-1] == ["NOT", "READY", "1", "False", "DIED-001"], words


@pytest.mark.parametrize("verb", ["topo", "bench"])
def test_other_verbs(cli: Any, verb: str) -> None:
    more = ("--more", "broadcast -b 1K -e 1K -n 3") if verb == "bench" else ()
    done = run(cli, "check_flow.py", "run", "--verb", verb, "--ranks-per-node", "1", *more)
    assert done.code == 0, done.out + done.err
    assert ask(cli, "print(run['report'].task.data.run['world']['size'])") == "2"


def test_a_wrong_verb_is_told_before_a_node_is_asked_for(cli: Any) -> None:
    done = run(cli, "check_flow.py", "run", "--verb", "chek")
    assert done.code != 0
    assert "expected one of check" in done.out + done.err
    assert "/ranks/" not in done.out


def test_deepspeed_flow_does_not_touch_this_machine(cli: Any) -> None:
    """It is never let past its first step: what it would edit is in the docstring."""
    text = (FLOWS / "deepspeed_flow.py").read_text()
    assert text.index("raise RuntimeError") < text.index("self.next(self.ranks")


@pytest.fixture
def s3(cli: Any) -> Iterator[dict[str, str]]:
    missing = [name for name in ("moto", "flask", "boto3") if find_spec(name) is None]
    if missing:
        pytest.skip(f"Requires: moto[server,s3] (missing: {', '.join(missing)})")
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    keys |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    told = cli.folder / "port"
    server = cli.start_words([sys.executable, "-c", S3, str(told)], env=keys)
    port = cli.until(lambda: told.exists() and told.read_text())
    endpoint = f"http://127.0.0.1:{port}"
    yield {
        **keys,
        "METAFLOW_S3_ENDPOINT_URL": endpoint,
        "METAFLOW_DATASTORE_SYSROOT_S3": "s3://flows/mf",
    }
    server.kill()


def extension(name: str) -> bool:
    try:
        return find_spec(f"metaflow_extensions.{name}") is not None
    except ModuleNotFoundError:
        return False


def free_port() -> str:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.skipif(not extension("torchrun"), reason="Requires: metaflow-torchrun")
def test_torchrun_flow(cli: Any, s3: dict[str, str]) -> None:
    words = ("--datastore", "s3", "run", "--nodes", "2", *LEAST)
    done = run(cli, "torchrun_flow.py", *words, WIRESPEED_TORCHRUN_PORT=free_port(), **s3)
    assert done.code == 0, done.out + done.err
    assert "PASSED  exit code 0" in done.out


@pytest.mark.skipif(not extension("ray"), reason="Requires: metaflow-ray")
def test_ray_flow_leaves_no_ray(cli: Any, s3: dict[str, str]) -> None:
    # Ray's sockets need a short path, and metaflow-ray always uses the port 6379.
    import socket
    import tempfile

    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 6379)) == 0:
            pytest.skip("Requires: port 6379, which something uses here")
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as short:
        words = ("--datastore", "s3", "run", "--nodes", "2", *LEAST)
        done = run(cli, "ray_flow.py", *words, RAY_TMPDIR=short, **s3)
        assert done.code == 0, done.out + done.err
        assert "PASSED  exit code 0" in done.out
        assert list(Path(short).iterdir()) == []
