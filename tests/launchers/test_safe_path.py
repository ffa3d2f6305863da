"""No module of the working directory takes the place of one of ours or of Python's."""

import sys
from pathlib import Path
from typing import Any

import pytest

from wirespeed.launchers.base import Host, Job
from wirespeed.launchers.deepspeed import command_line as deepspeed
from wirespeed.launchers.deepspeed.guard import guarded as deepspeed_guarded
from wirespeed.launchers.mpi.guard import guarded
from wirespeed.launchers.node.torchrun import (
    Found,
    NodeFound,
    NodePlace,
    agent_words,
    probe_words,
    torchrun_words,
)
from wirespeed.launchers.rank_wrapper import wrapped
from wirespeed.launchers.ray.keeper import kept
from wirespeed.session.remote import COMMAND

pytestmark = pytest.mark.hostile("working directories")

JOB = Job(command=("x",), hosts=(Host("a", 2),))
FOUND = Found("m", 1, {"a": NodeFound("py", "", "")})
PLACE = NodePlace(index=0, slots=2, first_rank=0, node=FOUND.nodes["a"])
DEEPSPEED = Job(command=("x",), hosts=(Host("a"),), python="/py", options={"launcher": "pdsh"})
LAUNCH = deepspeed.Launch(job=DEEPSPEED, form="nodes", hostfile="h", master=("m", "1"))


@pytest.mark.parametrize(
    "words",
    [
        wrapped("py", ["x"]),
        wrapped("py", ["x"], encoded=True),
        kept("py", ["x"]),
        guarded("py", ["x"]),
        deepspeed_guarded("py", ["x"], 1.0),
        agent_words("py"),
        torchrun_words(JOB, FOUND, PLACE, ["x"]),
        deepspeed.runner(LAUNCH),
        ["py", *COMMAND],
    ],
    ids=lambda words: words[words.index("-m") + 1],
)
def test_each_module_that_we_start_is_found_without_the_working_directory(words: list[str]) -> None:
    places = [at for at, word in enumerate(words) if word == "-m"]
    assert places
    assert all(words[at - 1] == "-P" for at in places)


def test_so_is_the_probe_of_a_node() -> None:
    assert "PYTHONSAFEPATH=1" in probe_words(["py"])[2]


POISON = (
    "import sys\nopen({mark!r}, 'a').write(repr(sys.argv) + '\\n')\nraise ImportError('theirs')\n"
)


def poisoned(folder: Path) -> Path:
    """What every Python of ours imports, as files of the working directory."""
    for name in ("bisect", "random", "selectors", "json", "torch", "click", "subprocess", "shlex"):
        (folder / f"{name}.py").write_text(POISON.format(mark=str(folder / "mark")))
    return folder / "mark"


@pytest.mark.slow
def test_the_users_own_program_finds_its_folder_and_ours_does_not(cli: Any) -> None:
    mark = poisoned(cli.folder)
    code = "import os, sys; print('PYTHONSAFEPATH' in os.environ, sys.flags.safe_path, sys.path[0])"
    (cli.folder / "mine.py").write_text(f"{code}\n")
    words = ("launch", "--ranks", "1", "-q", "--", sys.executable, "-c", f"import mine; {code}")
    done = cli(*words)
    assert (done.code, done.err) == (0, "")
    assert done.out == "False False \n" * 2
    assert not mark.exists(), mark.read_text()


@pytest.mark.slow
def test_ranks_start_beside_a_torch_py(cli: Any) -> None:
    mark = poisoned(cli.folder)
    start = (sys.executable, "-P", "-m", "wirespeed", "bench", "barrier", "-n", "2", "-w", "1")
    done = cli.start_words([*start, "--ranks", "1", "-q"]).wait()
    assert done.code == 0, done.err
    assert not mark.exists(), mark.read_text()
