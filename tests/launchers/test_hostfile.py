"""Hosts in the notations of DeepSpeed, Open MPI and MPICH; all else is refused with its line."""

import os
from pathlib import Path

import pytest

from wirespeed.errors import InputError, UsageError
from wirespeed.launchers.base import Host, Job
from wirespeed.launchers.request import parse_hosts, read_hostfile
from wirespeed.node import reading


def test_hosts_on_the_command_line() -> None:
    assert parse_hosts("node-0,user@node-1:4, 10.0.0.7:2") == (
        Host("node-0"),
        Host("user@node-1", 4),
        Host("10.0.0.7", 2),
    )


def test_every_notation_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(
        "# cluster\nnode-0 slots=8\n\nnode-1:4  # MPICH\nnode-2\nnode-3 slots=2 max_slots=4\n"
    )
    assert read_hostfile(path) == (
        Host("node-0", 8),
        Host("node-1", 4),
        Host("node-2"),
        Host("node-3", 2),
    )


def test_a_line_per_slot_as_pbs_and_lsf_write_it(tmp_path: Path) -> None:
    path = tmp_path / "nodefile"
    path.write_text("gpu-1\ngpu-1\ngpu-1\ngpu-2\ngpu-2\ngpu-3\n")
    assert read_hostfile(path) == (Host("gpu-1", 3), Host("gpu-2", 2), Host("gpu-3", 1))
    path.write_text("gpu-2\ngpu-1\n")  # one line each says nothing of slots
    assert read_hostfile(path) == (Host("gpu-2"), Host("gpu-1"))
    assert parse_hosts("a,a,b") == (Host("a", 2), Host("b", 1))


def test_addresses_in_brackets(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("[fd00::1]:8\nfd00::2 slots=4\nfd00::3\n[fd00::4]\n")
    expected = (Host("fd00::1", 8), Host("fd00::2", 4), Host("fd00::3"), Host("fd00::4"))
    assert read_hostfile(path) == expected
    assert parse_hosts("[fd00::1]:8,[fd00::2]") == (Host("fd00::1", 8), Host("fd00::2"))


def test_ranges_as_slurm_writes_them(tmp_path: Path) -> None:
    names = ("node01", "node02", "node03", "node07")
    assert parse_hosts("node[01-03,07]") == tuple(map(Host, names))
    path = tmp_path / "hosts"
    path.write_text("node[01-03,07]:4\nrack[1-2]-n[1-2] slots=8\n")
    racks = ("rack1-n1", "rack1-n2", "rack2-n1", "rack2-n2")
    assert read_hostfile(path) == (
        *(Host(name, 4) for name in names),
        *(Host(name, 8) for name in racks),
    )


HOSTILE = [
    pytest.param("a:" + "9" * 5001, id="digits"),
    "-oProxyCommand=id",
    "a;id",
    "$(id)",
    "a b",
    "`id`",
    "a\nb",
    "",
    "a:0",
    "a:x",
    "a:99999",
    "'",
    "n[1-",
    "n[3-1]",
    "n[1-999999999]",
    "n[1-99999][1-99999]",
    "n[a-b]",
    "[fd00::1]:0",
    "[fd00::1]x",
    "[]",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_host_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        parse_hosts(name)
    if name and "\n" not in name:
        path = tmp_path / "hosts"
        path.write_text(f"node-0\n{name}\n")
        with pytest.raises(UsageError, match=r"hosts:2"):
            read_hostfile(path)


def test_a_host_twice_is_refused_with_the_line_that_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("node-0 slots=2\nnode-0 slots=6\n")
    with pytest.raises(UsageError, match="node-0 twice") as caught:
        read_hostfile(path)
    assert "node-0 slots=8" in caught.value.expected


@pytest.mark.parametrize("content", ["", "# nothing\n", None])
def test_a_file_without_hosts(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match="hosts"):
        read_hostfile(path)


@pytest.mark.parametrize(
    ("job", "size"),
    [
        (Job(command=()), 1),
        (Job(command=(), ranks=6, nodes=2), 6),
        (Job(command=(), nodes=2, ranks_per_node=4), 8),
        (Job(command=(), hosts=(Host("a", 3), Host("b")), ranks_per_node=2), 5),
    ],
)
def test_world_size(job: Job, size: int) -> None:
    assert job.size == size


def test_what_has_no_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIPE_S", 0.1)
    os.mkfifo(tmp_path / "fifo")
    for path, told in ((Path("/dev/zero"), "a device"), (tmp_path / "fifo", "its writer took")):
        with pytest.raises(InputError, match=told):
            read_hostfile(path)


def test_a_pipe_of_the_shell_is_a_hostfile(tmp_path: Path) -> None:
    """`--hostfile <(scontrol show hostnames)`"""
    ends = os.pipe()
    os.write(ends[1], b"node-0\nnode-1\n")
    os.close(ends[1])
    assert read_hostfile(Path(f"/dev/fd/{ends[0]}")) == (Host("node-0"), Host("node-1"))
    os.close(ends[0])
