"""A check through each engine on this machine: planted failures end with the right finding.

Ready worlds, and failures on other nodes, are in each engine's own tests; so is a rank that is killed
in a check on DeepSpeed.
"""

import importlib.util
import shutil
from typing import Any

import pytest

ENGINES = {
    "mpi": ("--with", "allow-root", "--with", "oversubscribe"),
    "deepspeed": (),
    "ray": (),
}
KILL, STOP = "kill:rank=1,after=1", "stop:rank=1,after=1"
FAULTS = {KILL: "DIED-001", STOP: "HANG-001"}
CASES = [("mpi", KILL), ("mpi", STOP), ("deepspeed", STOP), ("ray", KILL), ("ray", STOP)]


def require(engine: str) -> None:
    if engine == "mpi":
        if shutil.which("mpirun") is None:
            pytest.skip("Requires: mpirun (pip install 'wirespeed[mpi]')")
    elif importlib.util.find_spec(engine) is None:
        pytest.skip(f"Requires: {engine} (pip install 'wirespeed[{engine}]')")


@pytest.mark.parametrize(("engine", "fault"), CASES)
def test_a_planted_failure_is_named(cli: Any, finding: Any, engine: str, fault: str) -> None:
    require(engine)
    words = ("check", "--only", "correctness", "--ranks", "2", "-q", "--timeout", "4")
    done = cli(*words, "--on", engine, *ENGINES[engine], "--inject", fault, timeout=150.0)
    assert done.code == 1, done.out + done.err
    run = cli.run()
    named = finding(run, FAULTS[fault])
    assert (named["status"], named["subject"]["name"]) == ("fail", "rank 1")
    assert run["world"]["launcher"] == engine
    assert run["verifications"], "what was checked before is kept"
    assert "trust" not in {one["name"] for one in run["choices"]}, (
        "the job's secret came to its ranks"
    )
    cli.nothing_runs()
