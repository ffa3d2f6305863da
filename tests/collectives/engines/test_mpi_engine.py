"""MpiEngine: what it refuses, and real runs under mpirun."""

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.collectives.collective import DTYPES, Geometry
from wirespeed.collectives.engines import Call, Group

if TYPE_CHECKING:
    from wirespeed.collectives.engines.mpi_engine import MpiEngine

if find_spec("mpi4py") is None:
    pytest.skip("Requires: the extra mpi", allow_module_level=True)

pytestmark = pytest.mark.system  # the extra mpi comes with what system tests install

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
QUICK = ("-b", "1021", "-e", "1021", "-w", "1", "-n", "2", "-q", "-o", "json")
REDUCED = {"float32", "float64", "int8", "int32", "int64", "uint8"}
STOPPED_S = 80.0


@pytest.fixture
def engine() -> "MpiEngine":
    """One that has not opened MPI: what it refuses it knows without."""
    from wirespeed.collectives.engines.mpi_engine import MpiEngine

    return object.__new__(MpiEngine)


@pytest.fixture
def mpirun(cli: Any) -> Any:
    """`mpirun(3, "bench", …)`: run to its end; `unset` takes a variable from the ranks.

    MPI's shared memory lies in the test's folder: ranks that are killed leave its files behind.
    """
    program = shutil.which("mpirun", path=cli.environment()["PATH"])
    if program is None:
        pytest.skip("Requires: mpirun, from the extra mpi")

    (shared := cli.folder / "shared").mkdir()
    always = {**AS_ROOT, "OMPI_MCA_btl_sm_backing_directory": str(shared)}

    def run(ranks: int, *words: str, unset: str = "NOTHING", **env: str) -> Any:
        launch = [program, "-n", str(ranks), "--oversubscribe", "--bind-to", "none"]
        python = ["env", "-u", unset, sys.executable, "-m", "wirespeed", *words]
        return cli.start_words([*launch, *python], env={**always, **env}).wait()

    return run


def bench(*operations: str) -> tuple[str, ...]:
    return ("bench", *operations, "--engine", "mpi4py", *QUICK)


# What it refuses.


@pytest.mark.parametrize("dtype", DTYPES)
def test_reduces_what_mpi_has_and_moves_everything(engine: "MpiEngine", dtype: str) -> None:
    for collective in CATALOGUE.values():
        reason = engine.why_not(collective, dtype, "sum", False)
        refused = collective.reduces and dtype not in REDUCED
        assert (dtype in reason) if refused else reason == ""


def test_mpi_has_no_average(engine: "MpiEngine") -> None:
    assert "avg" in engine.why_not(CATALOGUE["reduce"], "float32", "avg", False)
    assert engine.why_not(CATALOGUE["gather"], "float32", "avg", False) == ""


@pytest.mark.parametrize("op", CATALOGUE)
def test_in_place_where_mpi_has_it(engine: "MpiEngine", op: str) -> None:
    has = {"all_reduce", "all_gather", "broadcast", "reduce", "gather", "scatter"}
    assert (engine.why_not(CATALOGUE[op], "float32", "sum", True) == "") == (op in has)


@pytest.mark.parametrize(("op", "count"), [("broadcast", 2**31), ("all_to_all_v", 2**29)])
def test_counts_beyond_a_c_int_are_refused_on_every_rank(
    engine: "MpiEngine", op: str, count: int
) -> None:
    from wirespeed.collectives.engines.torch_engine import is_refusal

    empty = torch.empty(0)
    for rank in range(3):
        call = Call(
            collective=CATALOGUE[op],
            geometry=Geometry(rank, 3, count),
            redop="none",
            input=empty,
            output=empty,
            group=Group((0, 1, 2), rank, None),
        )
        with pytest.raises(ValueError, match="not supported") as caught:
            engine.bind(call)
        assert is_refusal(caught.value)


# Real runs.


@pytest.mark.system
@pytest.mark.parametrize("how", [(), ("--async", "-m", "2")], ids=["blocking", "in flight"])
def test_all_operations_types_reductions_and_places(mpirun: Any, how: tuple[str, ...]) -> None:
    """Every configuration is either exact or refused for a reason that MPI gives."""
    types = ("-d", "float32,bfloat16,int64,uint8", "-o", "sum,max,avg", "--root", "2")
    done = mpirun(3, *bench("all"), *types, "--in-place", "both", *how)
    assert done.code == 0, done.err
    run = json.loads(done.out)
    assert {(m["engine"], m["wrong"]) for m in run["measurements"]} == {("mpi4py", 0)}
    assert {m["op"] for m in run["measurements"]} == set(CATALOGUE)
    for one in run["verifications"]:
        collective = CATALOGUE[one["op"]]
        expect_refused = (
            collective.reduces and (one["dtype"] == "bfloat16" or one["redop"] == "avg")
        ) or (one["in_place"] and one["op"] == "reduce_scatter")
        assert (one["wrong"] is None) == expect_refused, one
        assert bool(one["reason"]) == expect_refused, one


@pytest.mark.system
def test_a_rank_outside_of_every_group(mpirun: Any) -> None:
    how = ("--groups", "pairs", "--in-place", "both", "--async", "-m", "2")
    done = mpirun(3, *bench("all"), *how)
    assert done.code == 0, done.err
    measured = json.loads(done.out)["measurements"]
    assert {m["op"] for m in measured} == set(CATALOGUE)
    assert {(m["wrong"], m["ranks"]) for m in measured} == {(0, 2)}
    assert {m["in_place"] for m in measured} == {False, True}


@pytest.mark.system
def test_what_mpi_cannot_reduce_is_a_finding(mpirun: Any, finding: Any) -> None:
    done = mpirun(2, *bench("all_reduce", "all_gather"), "-d", "bfloat16")
    assert done.code == 0, done.err
    run = json.loads(done.out)
    assert [m["op"] for m in run["measurements"]] == ["all_gather"]
    refused = finding(run, "COL-001")
    assert refused["status"] == "not_applicable" and "bfloat16" in refused["because"]


@pytest.mark.system
def test_our_own_ranks_are_refused_before_mpi_begins(
    cli: Any, finding: Any, tmp_path: Path
) -> None:
    """A process that is alone in MPI leaves its shared memory's file behind."""
    (shared := tmp_path / "shared").mkdir()
    env = {"OMPI_MCA_btl_sm_backing_directory": str(shared)}
    words = [sys.executable, "-m", "wirespeed", *bench("all_reduce"), "--ranks", "2"]
    done = cli.start_words(words, env=env).wait()
    assert done.code == 3, done.err
    assert finding(done.json, "WORLD-002")["next"].startswith("mpirun -n 2 ")
    assert done.json["verdict"] == "UNKNOWN"
    assert list(shared.iterdir()) == []


# Under mpirun the code and the output of a refused run depend on which rank ends first: see the
# stored run.


@pytest.mark.system
def test_ranks_of_another_mpi_are_refused(cli: Any, mpirun: Any, finding: Any) -> None:
    """As if mpi4py's MPI could not talk to this mpirun: each rank is alone in it."""
    assert mpirun(2, *bench("all_reduce"), unset="PMIX_NAMESPACE").code != 0
    run = cli.run()
    assert (run["verdict"], run["exit_code"]) == ("UNKNOWN", 3)
    found = finding(run, "WORLD-002")
    assert "MPI sees 1 rank(s), and this world has 2" in found["saw"] + found["title"]
    assert "Open MPI" in found["saw"] + found["title"]


@pytest.mark.system
def test_no_mpi_library(cli: Any, mpirun: Any, finding: Any, tmp_path: Path) -> None:
    assert mpirun(2, *bench("all_reduce"), MPI4PY_LIBMPI=str(tmp_path / "none.so")).code != 0
    run = cli.run()
    assert (run["verdict"], run["exit_code"]) == ("UNKNOWN", 3)
    assert "none.so" in json.dumps(finding(run, "WORLD-002"))


@pytest.mark.system
def test_a_stopped_rank_is_named_in_time(cli: Any, mpirun: Any, finding: Any) -> None:
    """The others wait inside of MPI, where no time-out of torch's ends them."""
    stop = ("--inject", "stop:rank=1,at=all_gather", "--timeout", "4")
    done = mpirun(3, *bench("all_reduce", "all_gather"), *stop)
    assert done.seconds < STOPPED_S
    run = cli.run()
    assert (run["verdict"], run["exit_code"]) == ("FAILED", 1)
    assert finding(run, "HANG-001")["subject"] == {"kind": "rank", "name": "rank 1"}
    assert [m["op"] for m in run["measurements"]] == ["all_reduce"]
