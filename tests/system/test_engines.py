"""The other engines on real ranks: DeepSpeed's comm on gloo, mpi4py under mpirun."""

import json
from importlib.util import find_spec

import pytest

MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
QUICK = ["-q", "-w", "1", "-n", "3", "-o", "json"]

needs_mpi = pytest.mark.skipif(find_spec("mpi4py") is None, reason="Requires: the extra mpi")
needs_deepspeed = pytest.mark.skipif(
    find_spec("deepspeed") is None, reason="Requires: the extra deepspeed"
)


def mpirun(cli, ranks, *arguments):
    words = [*MPIRUN, "-n", str(ranks), "python", "-m", "wirespeed", *arguments]
    return cli.start_words(words, env=AS_ROOT).wait()


def all_right(run):
    assert run["measurements"]
    assert {(m["engine"], m["wrong"]) for m in run["measurements"]} == {
        (run["config"]["engine"], 0)
    }
    return {m["op"] for m in run["measurements"]}


@needs_mpi
def test_mpi4py_does_the_whole_catalogue(cli):
    done = mpirun(cli, 3, "bench", "all", "--engine", "mpi4py", "-b", "4K", "-e", "4K", *QUICK)
    assert done.code == 0, done.err
    run = json.loads(done.out)
    assert len(all_right(run)) == 12
    assert run["world"]["launcher"] == "openmpi"


@needs_mpi
def test_mpi4py_in_place_asynchronous_and_in_groups(cli):
    arguments = ["bench", "all_reduce", "all_gather", "gather", "scatter", "reduce", "broadcast"]
    arguments += ["--engine", "mpi4py", "--in-place", "both", "--async", "-m", "2"]
    done = mpirun(cli, 4, *arguments, "--groups", "every-2", "-b", "4K", "-e", "4K", *QUICK)
    assert done.code == 0, done.err
    run = json.loads(done.out)
    assert len(all_right(run)) == 6
    assert {m["ranks"] for m in run["measurements"]} == {2}
    assert {m["in_place"] for m in run["measurements"]} == {False, True}


@needs_mpi
def test_mpi4py_refuses_to_reduce_what_mpi_has_not(cli, finding):
    arguments = ["all_reduce", "all_gather", "--engine", "mpi4py", "-d", "bfloat16", "-e", "1K"]
    done = mpirun(cli, 2, "bench", *arguments, *QUICK)
    assert done.code == 0, done.err
    run = json.loads(done.out)
    assert all_right(run) == {"all_gather"}
    refused = finding(run, "COL-001")
    assert refused["status"] == "not_checked" and "bfloat16" in refused["because"]


@needs_mpi
def test_mpi4py_without_mpirun_says_how_to_start_it(cli, finding):
    done = cli("bench", "all_reduce", "--engine", "mpi4py", "--ranks", "2", "-e", "1K", *QUICK)
    assert done.code == 3
    said = finding(done.json, "WORLD-002")
    assert "mpirun -n 2" in said["next"] and done.json["verdict"] == "UNKNOWN"


@needs_deepspeed
def test_deepspeed_does_the_whole_catalogue(cli):
    done = cli(
        "bench", "all", "--engine", "deepspeed", "--ranks", "2", "-b", "4K", "-e", "4K", *QUICK
    )
    assert done.code == 0, done.err
    assert len(all_right(done.json)) == 12


@needs_deepspeed
def test_deepspeed_catches_wrong_data(cli, finding):
    arguments = ["all_reduce", "--engine", "deepspeed", "--ranks", "2", "-e", "1K"]
    done = cli("bench", *arguments, "--inject", "flip:rank=1", *QUICK)
    assert done.code == 1
    assert finding(done.json, "COL-001")["subject"]["name"] == "rank 1"
