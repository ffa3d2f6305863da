"""Words for each make of mpirun, where ranks meet, and mpirun's guard; no mpirun is started."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from processes import gone, until
from wirespeed.errors import CannotMeasure, UsageError
from wirespeed.launchers.base import Host, Job, as_sh
from wirespeed.launchers.engines.mpi import (
    ENGINE,
    FLAVOURS,
    MpiPrepared,
    first_of_allocation,
    flavour_of,
    mpirun_path,
    rendezvous_of,
    slots_of,
)
from wirespeed.launchers.mpi.command_line import Launch, passes
from wirespeed.launchers.mpi.guard import guarded
from wirespeed.launchers.node.probe import Facts

GOLDEN = Path(__file__).parents[1] / "golden"
BOUND_S = 20.0
HOSTS = (Host("node-0", 2), Host("node-1", 2))
SCRATCH = Path("wirespeed-launch")
VERSIONS = {
    "openmpi4": "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/",
    "openmpi5": "mpirun (Open MPI) 5.0.11\n",
    "mpich": "HYDRA build details:\n    Version:                                 5.0.2\n",
    "intel": "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n",
}


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("SLURM_", "PBS_", "LSB_", "OMPI_", "PRTE_", "HYDRA_", "I_MPI_")):
            monkeypatch.delenv(name)


@pytest.fixture
def no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user would run it, whoever runs the tests."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def job(flavour: str, **more: Any) -> Job:
    """A job as `prepare` leaves it."""
    options = {
        "flavour": flavour,
        "mpirun": f"/opt/{flavour}/bin/mpirun",
        **more.pop("options", {}),
    }
    given: dict[str, Any] = {
        "command": ("python", "train.py", "--lr", "0.1"),
        "hosts": HOSTS,
        "python": "/opt/py/bin/python",
        "environment": {"A": "1", "WIRESPEED_MASTER": "10.0.0.1:40123"},
        "options": options,
    }
    return Job(**{**given, **more})


def words(prepared: Job, *names: str) -> list[str]:
    """What follows the guard: mpirun and its words."""
    (piece,) = MpiPrepared(job=prepared, names=names).pieces(SCRATCH)
    return list(piece.command[piece.command.index("--") + 1 :])


def follows(line: list[str], *expected: str) -> bool:
    count = len(expected)
    return any(tuple(line[i : i + count]) == expected for i in range(len(line)))


# Words.


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_will_run(flavour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/py/bin/python")
    monkeypatch.setenv("PATH", "/usr/bin")
    more = {"map-by": "node", "oversubscribe": "yes", "ssh-config": "/etc/my_ssh"}
    prepared = job(flavour, interface="eth0", options=more)
    text = as_sh(MpiPrepared(job=prepared).pieces(SCRATCH), f"{flavour}: 4 ranks")
    assert text == (GOLDEN / f"launch.mpi-{flavour}.sh").read_text()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_values_are_on_no_command_line(flavour: str) -> None:
    prepared = job(flavour, environment={"TOKEN": "geheim 1", "WIRESPEED_FRAMES": "abc"})
    (piece,) = MpiPrepared(job=prepared).pieces(SCRATCH)
    assert "geheim" not in " ".join(piece.command) + "".join(piece.files.values())
    assert piece.environment["TOKEN"] == "geheim 1"
    assert piece.environment["WIRESPEED_FRAMES"] == "abc,pad"
    assert "TOKEN" in " ".join(piece.command).replace(",", " ").split()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_nothing_is_set_unasked(flavour: str) -> None:
    line = " ".join(words(job(flavour)))
    assert "root" not in line and "versubscribe" not in line.lower() and "-F" not in line


def test_root_and_more_ranks_than_slots_when_asked() -> None:
    asked = {"allow-root": "yes", "oversubscribe": "yes"}
    four, five = (words(job(name, options=asked)) for name in ("openmpi4", "openmpi5"))
    assert "--allow-run-as-root" in four and "--oversubscribe" in four
    assert "--allow-run-as-root" in five and follows(five, "--map-by", ":OVERSUBSCRIBE")
    assert "--allow-run-as-root" not in words(job("mpich", options=asked))


@pytest.mark.parametrize(
    ("map_by", "option"), [("node", ("-ppn", "1")), ("ppr:3:node", ("-ppn", "3"))]
)
def test_hydra_maps_by_ranks_a_node(map_by: str, option: tuple[str, str]) -> None:
    assert follows(words(job("mpich", options={"map-by": map_by})), *option)
    assert follows(words(job("openmpi4", options={"map-by": map_by})), "--map-by", map_by)


def test_words_that_mpirun_would_take_go_encoded() -> None:
    plain = words(job("openmpi5", command=("prog", "-n", "8", "a b", "$HOME", "")))
    assert plain[-6:] == ["prog", "-n", "8", "a b", "$HOME", ""]
    colon = words(job("openmpi5", command=("prog", ":", "-n", "8", "other")))
    assert ":" not in colon and colon[-2] == "--job"
    assert passes(["-configfile"], FLAVOURS["mpich"])
    assert not passes(["-configfile"], FLAVOURS["intel"])


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=x", "a b", "a;b", "$(id)", "a\nb slots=9", "", "fe80::1", "a,b", "a#"]
)
def test_hostile_host_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be told the host"):
        Launch(size=1, hosts=(Host(name, 1),))


@pytest.mark.parametrize(
    ("key", "value"),
    [("map-by", "slot:PE=2 x"), ("map-by", "ppr:0:node"), ("bind-to", "-x"), ("bind-to", "a b")],
)
def test_hostile_options_are_refused(key: str, value: str) -> None:
    with pytest.raises(UsageError):
        words(job("openmpi5", options={key: value}))


def test_an_ssh_configuration_with_a_blank_is_refused() -> None:
    with pytest.raises(UsageError, match="white space"):
        words(job("openmpi5", options={"ssh-config": "/my config"}))


def test_names_of_variables_are_checked() -> None:
    with pytest.raises(UsageError, match="no name of a variable"):
        words(job("mpich", environment={"A,B": "1"}))


def test_a_secret_is_named_where_it_is_not_held() -> None:
    """A written script lacks the value; whoever runs it sets it."""
    prepared = job("openmpi5", environment={"A": "1"})
    assert follows(words(prepared, "A", "HF_TOKEN"), "-x", "HF_TOKEN")


# Which mpirun.


@pytest.mark.parametrize("name", VERSIONS)
def test_a_version_is_of_one_flavour(name: str) -> None:
    assert [one for one, f in FLAVOURS.items() if f.recognises(VERSIONS[name])] == [name]


def test_the_flavour_is_asked_of_the_program(tmp_path: Path) -> None:
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.0.3'\n")
    program.chmod(0o755)
    assert flavour_of(str(program)).name == "openmpi4"
    program.write_text("#!/bin/sh\necho 'mpirun.openmpi (OpenRTE) 4.1.4'\n")
    assert flavour_of(str(program)).name == "openmpi4"
    program.write_text("#!/bin/sh\necho 'LAM 7.1'\n")
    with pytest.raises(CannotMeasure, match="LAM"):
        flavour_of(str(program))


def test_no_mpirun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(CannotMeasure, match="no mpirun"):
        mpirun_path("")
    with pytest.raises(UsageError, match="no such program"):
        mpirun_path("/nope/mpirun")


# Prepared.


@pytest.fixture
def mpirun(tmp_path: Path) -> dict[str, str]:
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    return {"mpirun": str(program), "flavour": "openmpi5"}


def test_root_is_refused_with_advice(
    mpirun: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(UsageError) as refused:
        ENGINE.prepare(Job(command=("true",), ranks=2, options=mpirun))
    assert refused.value.next == "wirespeed --with allow-root"
    for allowed in ({**mpirun, "allow-root": "yes"}, {**mpirun, "flavour": "mpich"}):
        ENGINE.prepare(Job(command=("true",), ranks=2, options=allowed))
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    ENGINE.prepare(Job(command=("true",), ranks=2, options=mpirun))


@pytest.mark.usefixtures("no_user")
def test_all_on_this_machine_meet_on_loopback(mpirun: dict[str, str]) -> None:
    for hosts in ((), (Host("localhost", 2),)):
        seen = ENGINE.prepare(Job(command=("true",), ranks=2, hosts=hosts, options=mpirun))
        host, _, port = seen.job.environment["WIRESPEED_MASTER"].partition(":")
        assert host == "127.0.0.1" and 10000 <= int(port) < 30000
        assert seen.findings == ()


@pytest.mark.usefixtures("no_user")
def test_nodes_that_nobody_names(mpirun: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Job(command=("true",), nodes=2, ranks_per_node=4, options=mpirun)
    with pytest.raises(UsageError, match="nobody says which"):
        ENGINE.prepare(asked)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node-[3-4,7]")
    seen = ENGINE.prepare(asked).job
    assert seen.environment["WIRESPEED_MASTER"].startswith("node-3:")
    assert seen.size == 8 and follows(words(seen), "--map-by", "ppr:4:node")


@pytest.mark.usefixtures("no_user")
def test_another_way_than_ssh_is_left_alone(
    mpirun: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes' MPI operator: nobody is asked through ssh."""
    monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh")
    monkeypatch.setenv("PATH", "/nonexistent")
    seen = ENGINE.prepare(Job(command=("true",), hosts=HOSTS, token="t", options=mpirun))
    again = ENGINE.prepare(Job(command=("true",), hosts=HOSTS, token="u", options=mpirun))
    masters = [one.job.environment["WIRESPEED_MASTER"] for one in (seen, again)]
    assert [one.partition(":")[0] for one in masters] == ["node-0", "node-0"]
    assert masters[0] != masters[1]


def test_too_few_slots_say_what_to_do() -> None:
    asked = Job(command=(), hosts=HOSTS, ranks=6)
    with pytest.raises(UsageError) as refused:
        slots_of(asked, {})
    assert "--hosts node-0:3,node-1:3" in refused.value.next
    assert "--with oversubscribe" in refused.value.expected
    over = replace(asked, options={"oversubscribe": "yes"})
    assert slots_of(over, {}) == HOSTS


def test_ranks_are_placed_in_turn_on_all_hosts() -> None:
    asked = Job(command=(), hosts=HOSTS, ranks=2, options={"map-by": "node"})
    assert slots_of(asked, {}) == HOSTS
    filled = slots_of(replace(asked, options={}), {})
    assert [(host.name, host.slots) for host in filled] == [("node-0", 2)]


# Where they meet.


def facts(*interfaces: tuple[str, str], reached: str = "", port: int = 40123) -> Facts:
    told = tuple((name, address, "255.255.255.0") for name, address in interfaces)
    given = (("lo", "127.0.0.1", "255.0.0.0"), *told)
    return Facts(
        python="3.11.2", executable="/p", port=port, host="n", interfaces=given, reached=reached
    )


def test_the_first_host_tells_address_and_port() -> None:
    known = {
        "node-0": facts(("docker0", "172.17.0.1"), ("eth0", "10.0.0.1"), reached="10.0.0.1"),
        "node-1": facts(("docker0", "172.17.0.1"), ("eth0", "10.0.0.2"), reached="10.0.0.2"),
    }
    at = rendezvous_of(Job(command=()), HOSTS, known)
    assert (at.address, at.port, at.interface) == ("10.0.0.1", 40123, "eth0")


def test_this_machine_takes_the_address_that_leads_to_the_others() -> None:
    """It was not reached by ssh, and its first address is that of a bridge."""
    known = {
        "node-0": facts(("docker0", "172.17.0.1"), ("eth0", "10.0.0.1")),
        "node-1": facts(("docker0", "172.17.0.1"), ("eth1", "10.0.0.2"), reached="10.0.0.2"),
    }
    at = rendezvous_of(Job(command=()), HOSTS, known)
    assert (at.address, at.interface) == ("10.0.0.1", "")


def test_an_interface_that_was_asked_for_wins() -> None:
    known = {"node-0": facts(("eth0", "10.0.0.1"), ("ib0", "10.1.0.1"), reached="10.0.0.1")}
    at = rendezvous_of(Job(command=(), interface="ib0"), HOSTS, known)
    assert (at.address, at.interface) == ("10.1.0.1", "ib0")


@pytest.mark.parametrize(
    ("environment", "first"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "gpu[007-012]"}, "gpu007"),
        ({"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "login,gpu[1-2]"}, "login"),
        ({"LSB_JOBID": "1"}, os.uname().nodename),
    ],
)
def test_the_first_node_of_an_allocation(environment: dict[str, str], first: str | None) -> None:
    assert first_of_allocation(environment) == first


def test_the_first_node_of_pbs(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("n-4\nn-4\nn-5\n")
    assert first_of_allocation({"PBS_NODEFILE": str(tmp_path / "nodes")}) == "n-4"


# The guard.

HOLD = "import os,time; print(os.getpid(), flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    ("script", "code"),
    [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137), ("pass", 0)],
)
def test_the_exit_code_passes_through_the_guard(script: str, code: int) -> None:
    done = subprocess.run(
        guarded(sys.executable, [sys.executable, "-c", script]), timeout=BOUND_S, check=False
    )
    assert done.returncode == code


def test_a_program_that_is_not_there() -> None:
    line = guarded(sys.executable, ["/nope/mpirun"])
    done = subprocess.run(line, timeout=BOUND_S, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "/nope/mpirun cannot be started" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_program_ends_with_its_guard(number: signal.Signals) -> None:
    """Also what a script has started, as Intel's mpirun does, which gets no signal of its own."""
    script = ["/bin/sh", "-c", f"'{sys.executable}' -c '{HOLD}'; true"]
    guard = subprocess.Popen(guarded(sys.executable, script), stdout=subprocess.PIPE, text=True)
    with guard:
        assert guard.stdout is not None
        pid = int(guard.stdout.readline())
        guard.send_signal(number)
        assert guard.wait(BOUND_S) != 0
        until(lambda: gone(pid))


def test_the_program_ends_when_who_started_the_guard_is_killed() -> None:
    line = guarded(sys.executable, [sys.executable, "-c", HOLD])
    outer = f"import subprocess; subprocess.run({line!r})"
    starter = subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True)
    with starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert not gone(pid)
        starter.kill()
        until(lambda: gone(pid))


def test_what_a_killed_script_leaves_is_ended() -> None:
    script = ["/bin/sh", "-c", f"echo $$; '{sys.executable}' -c '{HOLD}'; true"]
    guard = subprocess.Popen(guarded(sys.executable, script), stdout=subprocess.PIPE, text=True)
    with guard:
        assert guard.stdout is not None
        shell, pid = int(guard.stdout.readline()), int(guard.stdout.readline())
        os.kill(shell, signal.SIGKILL)
        assert guard.wait(BOUND_S) == 137
        until(lambda: gone(pid))


def test_the_last_variable_is_one_that_nobody_needs() -> None:
    """MPICH does not pass the last of its variables to ranks."""
    line = guarded(sys.executable, ["/usr/bin/env"])
    done = subprocess.run(line, timeout=BOUND_S, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "_=/usr/bin/env"
