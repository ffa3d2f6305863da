"""More of Slurm's ends: whose memory ran out, requeued jobs, clocks, bindings, missing folders."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_DOWN = ("launcher-exit", "slurm-aborted", "sigterm", "exit-code", "mpi-lost-node", "crash")
_LINKS = ("https://slurm.schedmd.com/srun.html",)

RULES: tuple[Rule, ...] = (
    Rule(
        id="SLURM-020",
        category="host-oom-kill",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=(": Out Of Memory",),
        pattern=r"error: (?P<host>[\w.-]+): tasks? (?P<tasks>[\d,-]+): out of memory",
        sentence="tasks {tasks} on {host} used more memory (RAM) than Slurm's limit and were "
        "killed "
        "(SIGKILL, OOM kill)",
        because="the cgroup of the step passed --mem, --mem-per-cpu or --mem-per-gpu, and the "
        "kernel's "
        "OOM killer ended them; Slurm then ended the other tasks",
        costs="the killed ranks are gone; all others wait for them or are ended",
        fix="ask for more memory (--mem=0 takes all of the node, --exclusive), start fewer tasks "
        "a node, "
        "or use less: fewer loader workers, less offload to CPU",
        next="sacct -j JOB -o JobID,State,MaxRSS,ReqMem,NodeList; on {host}: dmesg -T | grep -i "
        "oom",
        explains=("SLURM-001", "host-oom-kill", "watchdog-timeout", *_DOWN),
        links=("https://slurm.schedmd.com/cgroups.html",),
        positive=(
            "srun: error: nid001277: tasks 1-3: Out Of Memory",
            "srun: error: gpu-7: task 12: Out Of Memory",
        ),
        negative=("srun: error: nid001310: tasks 4-7: Terminated",),
    ),
    Rule(
        id="SLURM-021",
        category="preempted",
        role="cause",
        stage="machine",
        anchors=(
            "JOB_REQUEUED",
            "has been requeued",
            "job requeued",
            "REQUEUED",
            "requeued in held",
        ),
        pattern=r"job_?requeued|\bjob (?P<job>\d+) has been requeued|requeued in held state|"
        r"jobstate=requeue\w*|reason=job ?requeued",
        sentence="Slurm put the job back in the queue (requeue)",
        because="an administrator, a preemption, or a node that failed made it start again later; "
        "jobs of "
        "which a prolog failed are held",
        costs="all ranks were ended; what was not saved is lost",
        fix="write checkpoints and start from the newest; see scontrol show job for the reason; "
        "release a "
        "held job with scontrol release JOB; --no-requeue forbids it",
        next="scontrol show job JOB; sacct -D -j JOB -o JobID,State,Reason,NodeList",
        explains=_DOWN,
        links=_LINKS,
        positive=(
            "slurmctld: Job 811 has been requeued",
            "JobState=REQUEUED Reason=JobRequeued",
        ),
        negative=("requeue is allowed: Requeue=1",),
    ),
    Rule(
        id="SLURM-022",
        category="clock-skew",
        role="cause",
        confidence="certain",
        anchors=(
            "Rewound credential",
            "Expired credential",
            "credential expired",
            "clock skew",
            "Check for out of sync clocks",
        ),
        pattern=r"(?:munge|credential).{0,80}(?P<what>rewound|expired)|check for out of sync "
        r"clocks",
        sentence="the clocks of two nodes differ by minutes: munge refuses the other's credential",
        because="a credential of munge is good for 5 minutes; one from the future is 'rewound', "
        "one too "
        "old is 'expired' (a node that hung so long gives the same)",
        costs="Slurm's daemons and srun do not trust this node: nothing starts on it",
        fix="set the clocks by NTP on all nodes (chronyc makestep; systemctl enable --now chronyd)",
        next="on each node: date -u; chronyc tracking",
        explains=("slurm-controller", "slurm-launch", *_DOWN),
        links=("https://slurm.schedmd.com/troubleshoot.html",),
        positive=(
            "slurmd: error: Munge decode failed: Rewound credential",
            "slurmctld: error: Munge decode failed: Expired credential",
            "error: Check for out of sync clocks",
        ),
        negative=("munged: starting munge-0.5.15 daemon",),
    ),
    Rule(
        id="SLURM-023",
        category="mpi-binding",
        role="cause",
        anchors=(
            "CPU binding outside",
            "Unable to satisfy cpu bind",
            "task/affinity",
            "binding outside of job step",
        ),
        pattern=r"(?:cpu|gpu|mem) binding outside of job step allocation|unable to satisfy cpu "
        r"bind "
        r"request|sched_setaffinity\(.{0,80}failed",
        sentence="Slurm cannot bind the tasks to the CPUs or GPUs asked for",
        because="--cpu-bind or --gpu-bind names ones that the step was not given; from Slurm "
        "22.05 srun no "
        "longer takes --cpus-per-task from sbatch",
        costs="the step does not start, or ranks share CPUs",
        fix="srun --cpus-per-task=$SLURM_CPUS_PER_TASK (or export SRUN_CPUS_PER_TASK), "
        "--cpu-bind=none for "
        "a try; leave --gpu-bind out and let the program choose by LOCAL_RANK",
        next="srun --cpu-bind=verbose,none true; scontrol show job -d JOB",
        explains=_DOWN,
        links=_LINKS,
        positive=(
            "slurmstepd: error: CPU binding outside of job step allocation, allocated CPUs are: "
            "0x3",
            "srun: error: Unable to satisfy cpu bind request",
        ),
        negative=("cpu-bind=MASK - n1, task  0  0 [811]: mask 0x1 set",),
    ),
    Rule(
        id="SLURM-024",
        category="mpi-workdir",
        role="cause",
        confidence="certain",
        anchors=("couldn't chdir to", "could not open stdout file", "could not open stderr file"),
        pattern=r"slurm\w*: error:.{0,80}(?:couldn't chdir to `?|could not open std(?:out|err) "
        r"file )"
        r"(?P<path>[^':]+)(?:'|: )",
        sentence="a node does not have the job's folder or cannot write its output file: {path}",
        because="the file system is not mounted there, or this user may not write to it; Slurm "
        "goes on in "
        "/tmp, or ends the job at once without any output",
        costs="programs and data are not found, or the output is lost",
        fix="submit from a file system that all nodes share, create the output's folder before "
        "(Slurm does "
        "not), and have missing mounts repaired",
        next="srun -w NODE ls -ld FOLDER",
        explains=("mpi-executable", "program-missing", *_DOWN),
        links=("https://slurm.schedmd.com/faq.html",),
        positive=(
            "slurmstepd: error: couldn't chdir to `/data/run7': No such file or directory: going "
            "to "
            "/tmp instead",
            "slurmstepd: error: Could not open stdout file /scratch/logs/j-8.out: No such file or "
            "directory",
        ),
        negative=("slurmstepd: error: execve(): ./a.out: No such file or directory",),
    ),
    Rule(
        id="SLURM-025",
        category="gpu-visible",
        role="cause",
        anchors=("gres/gpu", "Invalid generic resource"),
        pattern=r"(?P<what>gres/gpu.{0,60}(?:count reported lower than "
        r"configured|missing|unavailable)"
        r"[^\n]{0,60}|invalid generic resource \(gres\) specification)",
        sentence="Slurm does not have the GPUs asked for: {what}",
        because="the type or number of GPUs does not exist in this partition, or a node lost a "
        "GPU and was "
        "drained",
        costs="the job does not start",
        fix="ask for what is there (sinfo -o '%N %G'), such as --gres=gpu:h100:8 or "
        "--gpus-per-node=8; "
        "for a node with fewer GPUs than configured look at nvidia-smi -L and dmesg there",
        next="sinfo -N -o '%N %T %G %E'",
        explains=("slurm-request", "slurm-step", *_DOWN),
        links=("https://slurm.schedmd.com/gres.html",),
        positive=(
            "error: _foreach_sync_gres: gres/gpu: count reported lower than configured (7 < 8)",
            "srun: error: Unable to allocate resources: Invalid generic resource (gres) "
            "specification",
        ),
        negative=("scontrol: TresPerNode=gres/gpu:8",),
    ),
    Rule(
        id="SLURM-026",
        category="slurm-launch",
        role="cause",
        anchors=("Kill task failed", "not responding", "Epilog error", "drained by slurmctld"),
        pattern=r"(?:reason=)?kill task failed|(?:node|nodes) (?P<node>[\w.,\[\]-]+) not responding"
        r"(?:, setting down)?|epilog error",
        sentence="a node stopped answering Slurm, or its last job could not be ended",
        because="processes that wait for a driver or a file system (state D) do not die; a node "
        "without "
        "memory, or with a dead GPU or mount, stops answering",
        costs="the node is set down or drained; the job ends or does not start",
        fix="look at that node's dmesg (Xid, NFS, Lustre, OOM), reboot it, then scontrol update "
        "nodename=NODE state=resume",
        next="sinfo -R; on that node: ps -eo pid,stat,wchan,cmd | grep ' D'",
        explains=("node-failure", *_DOWN),
        links=("https://slurm.schedmd.com/troubleshoot.html",),
        positive=(
            "slurmctld: error: Nodes gpu-[07-08] not responding",
            "update_node: node gpu-07 reason set to: Kill task failed",
        ),
        negative=("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",),
    ),
    Rule(
        id="SLURM-027",
        category="slurm-aborted",
        role="symptom",
        stage="aftermath",
        anchors=("Abandoning IO ",),
        pattern=r"abandoning IO (?P<seconds>\d+) secs after job shutdown",
        sentence="a step was ended, and {seconds} s later a process still held its output (Slurm gave "
        "the output up)",
        checks=(
            "what ended the step before: the earliest error of all ranks' logs, scancel, the time "
            "limit or memory (sacct -j JOB -o JobID,State,ExitCode,Elapsed,MaxRSS)",
            "whether processes hang that cannot be ended: on the node, ps -eo pid,stat,wchan,cmd | "
            "grep ' D' (GPU driver, NFS, Lustre): dmesg -T; reboot the node where they stay",
            "whether the program leaves children that keep its output open (data loaders, "
            "debuggers): end them with the program",
        ),
        links=("https://slurm.schedmd.com/troubleshoot.html",),
        positive=(
            "slurmstepd: error: eio_handle_mainloop: Abandoning IO 60 secs after job shutdown "
            "initiated",
            "Abandoning IO 300 secs after job shutdown initiated",
        ),
        negative=("slurmstepd: debug: eio_handle_mainloop: handling events for 3 objects",),
    ),
)
