"""A gate under a real Slurm of four nodes: in its prolog, as its health program, by hand."""

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_lab import SlurmLab, made
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, NodeFacts, Run, Subject, World
from wirespeed.runs.folder import new_id
from wirespeed.runs.store import save

pytestmark = pytest.mark.system
SOON_S = 90.0
GATE = (sys.executable, "-m", "wirespeed", "gate")
PROLOG = """\
PrologFlags=Alloc
Prolog={folder}/prolog
SchedulerParameters=nohold_on_prolog_fail
AuthInfo=socket={folder}/munge.socket,cred_expire=5
"""
HEALTH = """\
HealthCheckProgram={folder}/health
HealthCheckInterval=2
HealthCheckNodeState=ANY
"""
ODD = ", 95 °C | \"x\" 'y' $(z) <b> \\"
"""What a reason may hold, and Slurm gives back as it was, so that it is known as ours."""
SCRIPT = """\
#!/bin/sh
export WIRESPEED_HOME={home} PATH={path} SLURM_CONF={conf}
{gate} --for {purpose} --node "$(hostname)" >> {home}.out 2>&1
[ $? -ne 1 ] || exit {refused}
"""


class Gated:
    """A Slurm whose nodes have a home each, in which runs can be stored that blame them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.slurm: Any = None
        self._patch = monkeypatch

    def write(self, name: str, purpose: str, refused: int) -> None:
        home = f"{self.folder}/home-$(hostname)"
        text = SCRIPT.format(
            home=home,
            conf=self.folder / "slurm.conf",
            path=os.environ["PATH"],
            gate=shlex.join(GATE),
            purpose=purpose,
            refused=refused,
        )
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def home(self, node: str) -> Path:
        return self.folder / f"home-{node}"

    def check(self, node: str, status: str) -> None:
        """Store a check of that node, as `wirespeed check` on it would have left it."""
        self._patch.setenv("WIRESPEED_HOME", str(self.home(node)))
        who = Subject("node", node) if status == "fail" else Subject("job", "job")
        found = Finding(id="LOC-001", status=status, title=f"{node} is slow{ODD}", subject=who)
        good = status == "pass"
        run = Run(
            id=new_id(),
            command="check",
            verdict="READY" if good else "NOT READY",
            exit_code=0 if good else 1,
            started="",
            seconds=1.0,
            world=World(
                size=1, nodes=(NodeFacts(host=node, ranks=(0,), facts=Facts()),), backend="gloo",
                launcher="slurm",
            ),
            findings=(found,),
        )  # fmt: skip
        save(run)

    def gate(self, node: str, *words: str, before: tuple[str, ...] = (), called: str = "") -> Any:
        command = [*before, *GATE, *words, "--node", called or node]
        env = {"WIRESPEED_HOME": str(self.home(node))}
        return self.slurm.start(command, env, node=node).wait(60)

    def row(self, node: str) -> tuple[str, str]:
        """State and reason."""
        text = self.slurm.slurm("sinfo", "-hN", "-p", "train", "-n", node, "-o", "%T|%E")
        state, _, reason = text.strip().partition("|")
        return state, reason

    def until(self, true: Callable[[], Any]) -> None:
        end = time.monotonic() + SOON_S
        while not true():
            assert time.monotonic() < end, f"{self.said()}\n{self.slurm.logs()}"
            time.sleep(0.2)

    def said(self) -> str:
        return "\n".join(path.read_text() for path in self.folder.glob("home-*.out"))

    def gates(self, node: str) -> list[dict[str, Any]]:
        found = sorted((self.home(node) / "runs").glob("*/run.json"))
        runs = [json.loads(path.read_text()) for path in found]
        return [run for run in runs if run["command"] == "gate"]


@pytest.fixture
def gated(
    cli: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Gated]]:
    made_ones: list[Iterator[SlurmLab]] = []

    def start(more: str = "", bad: tuple[str, ...] = ()) -> Gated:
        one = Gated(tmp_path_factory.mktemp("slurm"), monkeypatch)
        one.write("prolog", "slurm-prolog", 1)
        one.write("health", "slurm-health", 0)
        for node in bad:
            one.check(node, "fail")
        made_ones.append(made(cli, one.folder, more=more))
        one.slurm = next(made_ones[-1])
        return one

    yield start
    for one in made_ones:
        with pytest.raises(StopIteration):
            next(one)


def older(home: Path, node: str, seconds: float) -> None:
    """As if all that its gate remembers had been so much earlier."""
    path = home / "gate" / f"{node}.json"
    kept = json.loads(path.read_text())
    for look in kept["memory"]["looks"]:
        look["at"] -= seconds
        look["first"] -= seconds
    kept["memory"]["takes"] = [at - seconds for at in kept["memory"]["takes"]]
    path.write_text(json.dumps(kept))


def test_a_refused_node_is_drained_and_its_job_runs_elsewhere(gated: Any) -> None:
    """By the prolog's exit code; the health program gives the reason, and gives it back later."""
    one = gated(PROLOG, bad=("node-0",))
    out = one.folder / "job.out"
    job = one.slurm.slurm("sbatch", "--parsable", "--requeue", f"--output={out}", "--wrap=hostname")
    assert job.strip().isdecimal(), one.slurm.logs()
    one.until(lambda: out.exists() and out.read_text().strip())
    assert out.read_text().strip() != "node-0"
    assert "drain" in one.row("node-0")[0]
    (run,) = one.gates("node-0")
    assert (run["verdict"], run["exit_code"]) == ("NOT READY", 1)
    failed = [found["id"] for found in run["findings"] if found["status"] == "fail"]
    assert failed == ["GATE-002", "GATE-008"]

    done = one.gate("node-0", "--for", "slurm-health")
    assert done.code == 1, done.err
    reason = one.row("node-0")[1]
    assert reason.startswith("wirespeed[")
    assert "node-0 is slow" in reason

    one.check("node-0", "pass")
    for _ in range(2):
        done = one.gate("node-0", "--for", "slurm-health")
        assert "stays out of service" in done.err, done.err
        older(one.home("node-0"), "node-0", 301)
    done = one.gate("node-0", "--for", "slurm-health")
    assert "is in service again" in done.err, done.err
    state, reason = one.row("node-0")
    assert "drain" not in state, reason
    assert one.slurm.slurm("srun", "-w", "node-0", "hostname").strip() == "node-0"


def test_the_health_program_takes_no_more_than_it_may(gated: Any) -> None:
    """Two nodes are bad, and of four one may be out; one that a person took is left alone."""
    one = gated(HEALTH)
    one.check("node-1", "fail")
    one.check("node-2", "fail")
    one.until(lambda: sum("drain" in one.row(node)[0] for node in ("node-1", "node-2")) == 1)
    time.sleep(6)
    out = [node for node in ("node-1", "node-2") if "drain" in one.row(node)[0]]
    assert len(out) == 1, one.said()
    assert one.row(out[0])[1].startswith("wirespeed[")
    (other,) = {"node-1", "node-2"} - {*out}
    assert "GATE-005" in json.dumps(one.gates(other))
    assert "could not" not in one.said()


def test_by_hand(gated: Any) -> None:
    one = gated(bad=("node-1", "node-2"))
    done = one.gate("node-1", "--for", "slurm-health", "--dry-run")
    assert done.code == 0
    assert "dry run" in done.err
    assert one.row("node-1")[0] == "idle"

    done = one.gate("node-1", "--for", "slurm-health", before=STRANGER)
    assert done.code == 3, done.out + done.err
    assert one.row("node-1")[0] == "idle"
    assert "scontrol may not change node-1" in done.err, done.err

    one.slurm.slurm("scontrol", "update", "NodeName=node-2", "State=DRAIN", "Reason=new DIMM")
    done = one.gate("node-2", "--for", "slurm-health")
    assert "left alone: new DIMM" in done.err + done.out
    assert one.row("node-2")[1] == "new DIMM"
    one.check("node-2", "pass")
    for _ in range(4):
        one.gate("node-2", "--for", "slurm-health")
        older(one.home("node-2"), "node-2", 3600)
    assert one.row("node-2")[1] == "new DIMM"


STRANGER = ("setpriv", "--reuid=65534", "--clear-groups")
STRANGER += ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")
"""Nobody, who may read the lab's files: Slurm tells users apart by munge."""
NAMES = ("ALL", "node-[0-3]", "node-0,node-1", "-x", "$(reboot)", "'; DROP TABLE runs", "<script>")


@pytest.mark.hostile("hostile values")
def test_names_of_many_nodes_take_none(gated: Any, count_attacks: Any) -> None:
    one = gated(bad=("node-1",))
    for name in NAMES:
        done = one.gate("node-1", "--for", "slurm-health", called=name)
        assert done.code == 2, name
    count_attacks("hostile values", len(NAMES) - 1)
    assert set(one.slurm.states().values()) == {"idle"}
