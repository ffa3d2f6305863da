"""What a real Slurm's accounting tells of jobs and nodes; slurmdbd keeps it in a MariaDB of the test."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import processes
from slurm_lab import SlurmLab, made

pytestmark = pytest.mark.system
until = partial(processes.until, bound_s=40.0, every_s=0.2)
NEEDED = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacct", "sacctmgr")
_SLURM = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=node-0
AccountingStoragePass={folder}/munge.socket
"""
_DBD = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=node-0
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StorageUser=slurm
StorageLoc=accounting
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""


class AccountedLab(SlurmLab):
    """One that keeps accounts: its controller does not start before they are there."""

    def _daemon(self, node: str, *words: str) -> None:
        if words[0] == "slurmctld":
            self._keep_accounts()
        super()._daemon(node, *words)

    def _keep_accounts(self) -> None:
        folder = self.folder
        words = ("--no-defaults", f"--datadir={folder}/data", "--user=root")
        made_new = subprocess.run(
            ["mariadb-install-db", *words, "--skip-test-db"], capture_output=True, text=True
        )
        assert made_new.returncode == 0, made_new.stderr
        more = ("--skip-grant-tables", f"--socket={folder}/sql", "--innodb-buffer-pool-size=64M")
        super()._daemon("node-0", "mariadbd", *words, *more, "--bind-address=127.0.0.1")
        until((folder / "sql").exists, "MariaDB")
        file = folder / "slurmdbd.conf"
        file.write_text(_DBD.format(folder=folder))
        file.chmod(0o600)
        super()._daemon("node-0", "slurmdbd", "-D")
        until(lambda: "Cluster" in self.slurm("sacctmgr", "list", "cluster"), "slurmdbd")
        self.slurm("sacctmgr", "-i", "add", "cluster", "lab")


@pytest.fixture
def accounted(cli: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmLab]:
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        pytest.skip(f"Requires: slurmdbd and MariaDB (missing: {missing})")
    yield from made(cli, tmp_path_factory.mktemp("accounts"), kind=AccountedLab, more=_SLURM)


def test_jobs_and_the_node_that_ended_one_are_imported(accounted: SlurmLab) -> None:
    assert accounted.run(["srun", "-J", "good", "-N2", "true"]).code == 0
    assert accounted.run(["srun", "-J", "bad|name", "false"]).code == 1
    batch = ("sbatch", "--no-requeue", "-J", "lost", "-w", "node-2,node-3", "-o", "/dev/null")
    accounted.slurm(*batch, "--wrap", "sleep 600")
    again = ("sbatch", "--requeue", "-J", "again", "-w", "node-1,node-3", "-o", "/dev/null")
    accounted.slurm(*again, "--wrap", "sleep 600")
    until(lambda: sum("RUNNING" in job for job in accounted.jobs()) == 2, "the jobs to run")
    accounted.cut("node-3")
    ended = ("sacct", "-X", "-P", "-n", "--duplicates", "-o", "State")
    until(lambda: accounted.slurm(*ended).count("NODE_FAIL") == 2, "the jobs to be given up")
    until(lambda: any("PENDING" in job for job in accounted.jobs()), "one to wait again")
    elsewhere = ("reqnodelist=node-0,node-1", "starttime=now")
    accounted.slurm("scontrol", "update", "jobname=again", *elsewhere)
    until(lambda: any("RUNNING" in job for job in accounted.jobs()), "it to run elsewhere")
    accounted.slurm("scancel", "--name=again")
    until(lambda: "CANCELLED" in accounted.slurm(*ended), "its end")
    events = ("sacctmgr", "-P", "list", "event")
    until(lambda: "node-3" in accounted.slurm(*events), "the event")
    words = ("python", "-m", "wirespeed", "nodes")
    done = accounted.run([*words, "import-jobs", "--since", "now-1hours"])
    assert done.code == 0, done.err
    assert "5 jobs that ended" in done.out, done.out
    assert "1 failed, 2 by a node, which is known of 2" in done.out
    shown = accounted.run([*words, "show", "node-3", "-o", "json"])
    events_of_node = json.loads(shown.out)["events"]
    assert [one["status"] for one in events_of_node] == ["fail", "fail"]
    said = [one["text"].partition("/")[2] for one in events_of_node]
    assert sorted(said) == [f"{job}) on 2 nodes failed, by this node" for job in ("again", "lost")]
