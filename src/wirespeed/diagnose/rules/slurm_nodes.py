"""Slurm: which node was lost, and why a job does not begin."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_DOWN = ("launcher-exit", "slurm-aborted", "sigterm", "exit-code", "mpi-lost-node", "mpi-peer")
_LINKS = ("https://slurm.schedmd.com/srun.html",)

RULES: tuple[Rule, ...] = (
    Rule(
        id="SLURM-030",
        category="node-failure",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("Node failure on",),
        pattern=r"node failure on (?P<host>[\w.-]+)",
        sentence="Slurm lost the node {host} while the job ran (node failure)",
        because="slurmctld heard nothing of {host} for SlurmdTimeout: it crashed, restarted, hangs, or "
        "its network is cut",
        costs="Slurm ends the job",
        fix="submit again without it (--exclude={host}), and find why it failed",
        next="sinfo -R; scontrol show node {host}; on it: dmesg -T, last -x",
        explains=("SLURM-003", "watchdog-timeout", "host-oom-kill", *_DOWN),
        links=_LINKS,
        positive=("srun: error: Node failure on node-3", "srun: error: Node failure on ccexe0091"),
        negative=("slurmctld: error: Nodes gpu-[07-08] not responding",),
    ),
    Rule(
        id="SLURM-031",
        category="slurm-pending",
        role="symptom",
        anchors=("still pending after", "Required node not available"),
        pattern=r"job (?P<job>\S+) still pending after \d+ s: (?P<why>[^\n]+)"
        r"|(?P<what>required node not available) \(down, drained or reserved\)",
        sentence="the job did not get its nodes: Slurm left it in the queue",
        checks=(
            "the reason: squeue -j JOB -o %r. Resources and Priority: others are before it; "
            "ReqNodeNotAvail: a node asked for is down, drained or reserved; PartitionNodeLimit, "
            "PartitionTimeLimit, QOS…, Assoc…: more was asked for than is allowed, and it never begins",
            "when it would begin: squeue --start -j JOB; what is free: sinfo -o '%P %D %T %G'",
            "whether fewer nodes, a shorter --time or another partition begin sooner: "
            "sbatch --test-only",
        ),
        explains=_DOWN,
        links=("https://slurm.schedmd.com/job_reason_codes.html",),
        positive=(
            "wirespeed: job 811 still pending after 3600 s: ReqNodeNotAvail, "
            "UnavailableNodes:node-3",
            "srun: Required node not available (down, drained or reserved)",
        ),
        negative=("wirespeed: job 811 is pending: Priority",),
    ),
)
