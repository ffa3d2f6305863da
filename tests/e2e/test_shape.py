"""`wirespeed bench --shape` on real ranks: a job's groups alone and at once, and what cannot be."""

from typing import Any

import pytest

from wirespeed.model.codec import validated
from wirespeed.model.records import Run

SMALL = ("bench", "--shape", "tiny", "--tp", "2", "--dp", "4", "-w", "1", "-n", "2", "-q")


def test_a_jobs_groups_on_fewer_ranks(cli: Any) -> None:
    done = cli(*SMALL, "--ranks", "4", "-o", "json")
    run = done.json
    validated(Run, run, source="stdout")
    assert done.code == 0, done.err
    assert run == cli.run()
    assert (run["shape"]["job_ranks"], run["shape"]["ranks"], run["world"]["size"]) == (8, 4, 4)
    told = [(m["op"], m["groups"], m["ranks"], m["wrong"]) for m in run["measurements"]]
    assert told == [
        ("all_gather", "of-2", 2, 0),
        ("reduce_scatter", "of-2", 2, 0),
        ("reduce_scatter", "every-2", 2, 0),
        ("all_gather", "every-2", 2, 0),
    ]
    apart = [one for one in run["findings"] if "never ran beside" in one["because"]]
    assert len(run["under_load"]) == 6 - 2 * len(apart), "three comparisons of two"
    assert all(one["gain"]["low"] <= one["gain"]["high"] for one in run["under_load"])
    assert "SHAPE-001" in [one["id"] for one in run["findings"]]
    assert "groups" in {one["name"] for one in run["choices"]}


@pytest.mark.slow
def test_wrong_data_fail_a_shape(cli: Any) -> None:
    done = cli(*SMALL, "--ranks", "2", "--inject", "flip:rank=1")
    assert done.code == 1
    assert "FAILED" in done.out
    assert "left out" not in done.out, "of that -v tells"


def test_what_has_no_shape(cli: Any) -> None:
    for words, said in (
        (("--shape", "nosuch", "--dp", "2"), "no shape is called 'nosuch'"),
        (("--shape", "tiny"), "a shape of one rank"),
        (("--shape", "tiny", "--ep", "2", "--dp", "2"), "tiny has no experts"),
        (("--shape", "tiny", "--dp", "2", "all_reduce"), "--shape with operations"),
        (("--shape", "tiny", "--dp", "2", "-b", "1M"), "--min-bytes with --shape"),
        (("--shape", "tiny", "--dp", "2", "-o", "max"), "--shape with -o max"),
        (("--shape", "tiny", "--dp", "2", "-d", "int32"), "-d int32 with --shape"),
        (("--shape", "tiny", "--dp", "2", "-e", "16"), "no call above 16 B"),
        (("--shape", "tiny", "--dp", "2", "--ranks", "1"), "one rank sends nothing"),
        (("--shape", "tiny", "--dp", "2", "--engine", "mpi4py"), "--engine mpi4py"),
        (("--shape", "tiny", "--tp", "4", "--tokens", "3"), "--tokens 3 with --tp 4"),
        (("--tp", "2", "all_reduce"), "--tp without --shape"),
    ):
        done = cli.here("bench", *words)
        assert (done.code, done.out) == (2, ""), words
        assert said in done.err, done.err
