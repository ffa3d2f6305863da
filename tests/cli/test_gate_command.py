"""`wirespeed gate` as it is called: usage, what it prints, and its exit codes."""

import json
import socket
from typing import Any

import pytest

from wirespeed.fleet.gate import guarded
from wirespeed.fleet.gate.guarded import Answer, Line

FINDING = Line(id="GPU-002", status="fail", title="n1: \x1b[31mGPU3: 4 errors")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--for", "slurm-prolog", "--node", "ALL"), "no node's name"),
        (("--for", "slurm-health", "--every", "1m"), "of a node's condition on Kubernetes"),
        (("--for", "k8s", "--taint"), "of a node's condition on Kubernetes"),
        (("--for", "k8s", "--every", "soon"), "no length of time"),
        (("--for", "slurm-prolog", "--allow", "GPU-999"), "no finding has that id"),
        (("--for", "slurm-prolog", "--never-take-more-than", "none"), "not a percentage"),
        (("--for", "slurm-prolog", "--never-take-more-than", "1000%"), "more than all nodes"),
        (
            (
                "--for",
                "cron",
            ),
            "cron",
        ),
        ((), "--for"),
    ],
)
def test_wrong_usage_is_no_refusal(words: tuple[str, ...], said: str, cli: Any) -> None:
    done = cli.here("gate", *words)
    assert done.code == 2
    assert said in done.err


def test_a_good_node(cli: Any) -> None:
    """A whole call, with its worker; what it kept is for its owner alone."""
    done = cli("gate", "--for", "slurm-prolog", "--node", "n1", "-o", "json")
    assert done.code == 0, done.err
    assert (done.json["act"], done.json["health"]) == ("pass", "good")
    (kept,) = (cli.home / "gate").iterdir()
    assert (kept.name, kept.stat().st_mode & 0o777) == ("n1.json", 0o600)
    assert not cli.folders(), "nothing was done, so that nothing is stored"


@pytest.mark.parametrize(
    ("words", "code"),
    [(("slurm-prolog",), 1), (("slurm-health",), 1), (("slurm-prolog", "--dry-run"), 0)],
)
def test_a_bad_node(
    words: tuple[str, ...], code: int, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Answer(
        node="n1", act="take", health="bad", refuses=True, why="GPU-002", findings=(FINDING,)
    )
    monkeypatch.setattr(guarded, "answered", lambda *_: answer)
    done = cli.here("gate", "--for", *words, "--quiet")
    assert done.code == code
    assert "n1 is taken out of service" in done.err
    assert ("dry run" in done.err) == ("--dry-run" in words)
    assert "\x1b" not in done.err


@pytest.mark.slow
@pytest.mark.hostile("slow callers")
def test_a_store_that_is_silent_costs_time_and_no_memory(cli: Any) -> None:
    """The look is kept, so that faults still count up to three, and the second call says nothing new."""
    pytest.importorskip("psycopg", reason="Requires: psycopg, the extra `store`")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/db?sslmode=disable"
        for _ in range(2):
            words = ("--for", "slurm-prolog", "--node", "n1", "--within", "6")
            done = cli("gate", *words, env={"WIRESPEED_STORE": where})
            assert done.code == 0
            assert "by --unknown pass: not known" in done.err
    kept = json.loads((cli.home / "gate" / "n1.json").read_text())
    assert [look["health"] for look in kept["memory"]["looks"]] == ["unknown", "unknown"]
    assert len(cli.folders()) == 1
