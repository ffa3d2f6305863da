"""Slurm: srun, sbatch, slurmstepd."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_DOWN = ("launcher-exit", "exit-code", "sigterm", "slurm-aborted", "mpi-peer", "mpi-lost-node")
_LINKS = ("https://slurm.schedmd.com/srun.html",)
_NEXT = "sacct -j JOB -o JobID,State,ExitCode,MaxRSS,ReqMem,NodeList,Elapsed"

RULES: tuple[Rule, ...] = (
    Rule(
        id="SLURM-001",
        category="host-oom-kill",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=(
            "oom_kill event",
            "oom-kill event",
            ": Out Of Memory",
            "exceeded memory limit",
            "exceeded job memory limit",
            "exceeded step memory limit",
            "OUT_OF_MEMORY",
            "cgroup out-of-memory handler",
        ),
        pattern=r"detected \d+ oom[_-]kill event|tasks? [\d,-]+: out of memory"
        r"|exceeded (?:job |step )?memory limit|\bOUT_OF_MEMORY\b|cgroup out-of-memory handler",
        sentence="Slurm's memory limit of the job was passed: a task was killed (SIGKILL, OOM "
        "kill)",
        because="slurmstepd counted oom_kill events of the job's cgroup: its processes needed "
        "more host "
        "memory than --mem, --mem-per-cpu or --mem-per-gpu allow",
        costs="the killed rank is gone; all others wait for it or are ended",
        fix="ask for more memory (--mem=0 takes all of the node), or use less: fewer loader "
        "workers, "
        "less offload to CPU",
        next=_NEXT,
        explains=("END-001", "END-007", "END-009", "SLURM-006", "watchdog-timeout", *_DOWN),
        links=("https://slurm.schedmd.com/cgroups.html",),
        positive=(
            "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step "
            "tasks "
            "have been OOM Killed.",
            "slurmstepd: error: Detected 2 oom-kill event(s) in step 3756240.batch cgroup.",
            "srun: error: nid001277: tasks 1-3: Out Of Memory",
            "slurmstepd: error: Step 811.0 exceeded memory limit (9000000 > 8388608), being killed",
        ),
        negative=("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",),
    ),
    Rule(
        id="SLURM-002",
        category="slurm-time-limit",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("DUE TO TIME LIMIT", "TimeLimit", "DUE TO TIMELIMIT"),
        pattern=r"cancelled at \S+ due to time ?limit|reason=timelimit\b|jobstate=timeout",
        sentence="Slurm ended the job at its time limit",
        because="the job ran as long as --time (or the partition) allows",
        costs="all ranks were ended; what was not saved is lost",
        fix="ask for more (--time=24:00:00, up to the partition's maximum), write checkpoints, "
        "and let "
        "Slurm warn before (--signal=B:USR1@300)",
        next="sacct -j JOB -o JobID,State,Timelimit,Elapsed",
        explains=("watchdog-timeout", *_DOWN),
        links=_LINKS,
        positive=(
            "slurmstepd: error: *** JOB 811 ON n1 CANCELLED AT 2025-01-01T10:00:00 DUE TO TIME "
            "LIMIT ***",
            "slurmstepd: error: *** STEP 811.0 ON n1 CANCELLED AT 2025-01-01T10:00:00 DUE TO "
            "TIME LIMIT"
            " ***",
        ),
        negative=("slurmstepd: error: *** STEP 811.0 ON n1 CANCELLED AT 2025-01-01T10:00:00 ***",),
    ),
    Rule(
        id="SLURM-003",
        category="node-failure",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("NODE FAILURE", "Node failure on", "NODE_FAIL"),
        pattern=r"due to node failure|node failure on (?P<node>[^\s,]+)|\bNODE_FAIL\b",
        sentence="a node of the job failed (Slurm: node failure)",
        because="slurmctld no longer reached the node, or it was set DOWN",
        costs="Slurm ends the job",
        fix="submit again without it (--exclude=NODE), with --requeue and checkpoints; find why "
        "the node "
        "failed",
        next="sinfo -R; scontrol show node NODE; on it: dmesg -T, last -x",
        explains=("watchdog-timeout", "host-oom-kill", *_DOWN),
        links=_LINKS,
        positive=(
            "slurmstepd: error: *** JOB 31 ON n150 CANCELLED AT 2020-07-29T18:45:16 DUE TO NODE "
            "FAILURE,"
            " SEE SLURMCTLD LOG FOR DETAILS ***",
            "srun: error: Node failure on ccexe0091",
        ),
        negative=("srun: error: n1: task 3: Exited with exit code 1",),
    ),
    Rule(
        id="SLURM-004",
        category="preempted",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("DUE TO PREEMPTION", "DUE TO JOB REQUEUE", "PREEMPTED"),
        pattern=r"due to (?:preemption|job requeue)|jobstate=preempted",
        sentence="Slurm took the job's nodes for another job (preemption), or put it back in the "
        "queue",
        because="the job's partition or QOS may be preempted",
        costs="all ranks were ended",
        fix="write checkpoints and use --requeue, or a QOS that is not preempted",
        next="sacct -j JOB -o JobID,State,QOS; scontrol show job JOB",
        explains=("watchdog-timeout", *_DOWN),
        links=("https://slurm.schedmd.com/preempt.html",),
        positive=(
            "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2025-01-01T10:00:00 DUE TO "
            "PREEMPTION ***",
        ),
        negative=("slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2025-01-01T10:00:00 ***",),
    ),
    Rule(
        id="SLURM-005",
        category="cancelled",
        role="symptom",
        stage="wait",
        anchors=("CANCELLED AT", "CANCELLED by"),
        pattern=r"\*\*\* job \d+\S* .{0,80}cancelled at \S+(?: \*\*\*|$)|cancelled by \d+",
        sentence="the whole job was cancelled",
        checks=(
            "who cancelled it: sacct -j JOB -o State%30 (CANCELLED by UID): the user, an "
            "administrator "
            "or a workflow (scancel)",
            "whether a rank failed before: the first error in time; srun --kill-on-bad-exit ends "
            "all",
        ),
        links=_LINKS,
        positive=("slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2025-01-01T10:00:00 ***",),
        negative=(
            "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2025-01-01T10:00:00 ***",
            "slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2025-01-01T10:00:00 DUE TO TIME "
            "LIMIT ***",
        ),
    ),
    Rule(
        id="SLURM-006",
        category="host-oom-kill",
        role="symptom",
        stage="machine",
        anchors=(": Killed",),
        pattern=r"srun: error: (?P<host>\S+): tasks? (?P<tasks>[\d,-]+): killed",
        sentence="task {tasks} on {host} was killed with SIGKILL: most often host memory ran out "
        "(OOM)",
        checks=(
            "whether memory ran out: sacct -j JOB -o State,MaxRSS,ReqMem (OUT_OF_MEMORY), and on "
            "{host} "
            "dmesg -T | grep -i 'out of memory': ask for more (--mem), or use less",
            "whether another task failed first and srun killed the rest: the earliest error",
            "whether the job was cancelled or passed its time limit: sacct -j JOB -o State",
        ),
        explains=_DOWN,
        links=_LINKS,
        positive=(
            "srun: error: gpu-node-03: task 3: Killed",
            "srun: error: n1: tasks 0-3,5: Killed",
        ),
        negative=("srun: error: gpu-node-03: task 3: Terminated",),
    ),
    Rule(
        id="SLURM-007",
        category="slurm-request",
        role="cause",
        confidence="certain",
        anchors=("job submission failed", "Unable to allocate resources", "allocation failure"),
        pattern=r"(?:job submission failed|unable to allocate resources|allocation failure): "
        r"(?!socket timed|unable to contact)(?P<why>.+)",
        sentence="Slurm refuses the request: {why}",
        because="account, partition, QOS, --gres/--gpus, --mem, --time or node count is not one "
        "that the "
        "cluster has or allows",
        costs="the job does not start",
        fix="compare the request with sinfo -o '%P %G %m %l %D' and sacctmgr show assoc user=$USER",
        next="sinfo -o '%P %G %m %l %D'; sacctmgr show assoc user=$USER",
        links=("https://slurm.schedmd.com/sbatch.html",),
        positive=(
            "sbatch: error: Batch job submission failed: Invalid account or account/partition "
            "combination specified",
            "srun: error: Unable to allocate resources: Requested node configuration is not "
            "available",
            "sbatch: error: Batch job submission failed: Invalid generic resource (gres) "
            "specification",
        ),
        negative=("srun: job 811 queued and waiting for resources",),
    ),
    Rule(
        id="SLURM-008",
        category="slurm-step",
        role="cause",
        anchors=("Unable to create step", "Unable to create job step", "step creation temporarily"),
        pattern=r"unable to create (?:job )?step(?: for job \S+)?: (?P<why>.+)"
        r"|step creation temporarily disabled.{0,40}\((?P<busy>requested nodes are busy)",
        sentence="srun cannot start its step in the allocation",
        because="the step asks for more tasks, CPUs, GPUs or memory than the job has, or another "
        "srun "
        "of the same job (an interactive shell too) holds them",
        costs="no process is started, or only when the other step ends",
        fix="ask srun for no more than sbatch did (-n, -c, --gpus), add --overlap to share with a "
        "running step, --mem=0; end steps that run in the background",
        next="scontrol show job JOB; squeue -s -j JOB",
        links=_LINKS,
        positive=(
            "srun: error: Unable to create step for job 811: More processors requested than "
            "permitted",
            "srun: error: Unable to create job step: More processors requested than permitted",
            "srun: Job 811 step creation temporarily disabled, retrying (Requested nodes are busy)",
        ),
        negative=("srun: Step created for StepId=811.0",),
    ),
    Rule(
        id="SLURM-009",
        category="mpi-slurm-pmi",
        role="cause",
        confidence="certain",
        anchors=(
            "Invalid MPI type",
            "load PMIx library",
            "plugin name for mpi/",
            "Unable to load any plugin",
        ),
        pattern=r"invalid mpi type '(?P<type>[^']+)'|can not load pmix library"
        r"|plugin name for mpi/\S+|MPI: unable to load any plugin",
        sentence="this Slurm cannot serve the MPI type asked for: its PMIx plugin is missing or "
        "broken",
        because="srun --mpi=pmix needs Slurm built with PMIx, and libpmix on every node",
        costs="no process is started",
        fix="choose one of srun --mpi=list (pmi2, pmix_v4 …), install libpmix on the nodes, or "
        "start "
        "with mpirun; programs that use torchrun need --mpi=none",
        next="srun --mpi=list",
        explains=("mpi-init", *_DOWN),
        links=("https://slurm.schedmd.com/mpi_guide.html",),
        positive=(
            "srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types",
            "srun: error: Couldn't load specified plugin name for mpi/pmix: Plugin init() "
            "callback failed",
            "srun: error:  mpi/pmix_v5: init: (null) [0]: mpi_pmix.c:193: pmi/pmix: can not load "
            "PMIx "
            "library",
        ),
        negative=("MPI plugin types are...",),
    ),
    Rule(
        id="SLURM-010",
        category="slurm-launch",
        role="cause",
        stage="machine",
        anchors=(
            "Task launch for",
            "Prolog failed",
            "prolog failure",
            "launch failed",
            "PrologSlurmctld",
        ),
        pattern=r"task launch for \S+ failed on node (?P<node>\S+): (?P<why>.+)|(?:job )?prolog "
        r"fail"
        r"|job credential (?:expired|revoked)",
        sentence="Slurm could not start the job's tasks on a node",
        because="the node's prolog failed (often its health check of GPUs or mounts), its clock or "
        "credentials are wrong, or slurmd is not well",
        costs="the job does not start, or waits and is put back in the queue",
        fix="submit without that node (--exclude=NODE) and have it looked at: its slurmd.log "
        "names the "
        "script or error; check its clock (chronyc tracking)",
        next="scontrol show node NODE; journalctl -u slurmd on it",
        explains=_DOWN,
        links=("https://slurm.schedmd.com/prolog_epilog.html",),
        positive=(
            "srun: error: Task launch for StepId=811.0 failed on node n7: Job prolog failed",
            "srun: error: Task launch for 811.0 failed on node n7: Job credential expired",
            "slurmstepd: error: Prolog failed with rc=256",
        ),
        negative=("srun: launching StepId=811.0 on host n1, 8 tasks: [0-7]",),
    ),
    Rule(
        id="SLURM-011",
        category="slurm-controller",
        role="cause",
        anchors=("Socket timed out on send", "contact slurm controller", "Munge decode failed"),
        pattern=r"socket timed out on send/recv|unable to contact slurm controller|munge decode "
        r"failed"
        r"|zero bytes were transmitted or received|resolve_ctls_from_dns_srv",
        sentence="Slurm's commands do not reach or are not trusted by its controller",
        because="slurmctld is busy or down, the network to it is cut, or munge's keys or the "
        "clocks of "
        "the nodes differ",
        costs="jobs and steps cannot be started or asked for",
        fix="try again later; check slurmctld, the way to it, that munge runs with the same key, "
        "and the "
        "clocks",
        next="scontrol ping; munge -n | ssh NODE unmunge",
        links=("https://slurm.schedmd.com/troubleshoot.html",),
        positive=(
            "srun: error: Unable to allocate resources: Socket timed out on send/recv operation",
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller "
            "(connect "
            "failure)",
            "slurmd: error: Munge decode failed: Expired credential",
        ),
        negative=("RuntimeError: [c10d] Socket Timeout",),
    ),
    Rule(
        id="SLURM-012",
        category="mpi-executable",
        role="cause",
        confidence="certain",
        anchors=("execve(): ",),
        pattern=r"execve\(\): (?P<file>[^:]{1,200}): (?P<why>no such file or directory|permission "
        r"denied|exec "
        r"format error)",
        sentence="srun cannot start {file}: {why}",
        because="the program must exist at this path on every node of the job and be executable "
        "there",
        costs="no process of the job runs",
        fix="give the full path on a file system that all nodes share; load the same modules or "
        "container; chmod +x",
        next="srun -N NODES ls -l {file}",
        explains=_DOWN,
        links=_LINKS,
        positive=(
            "slurmstepd: error: execve(): python3: No such file or directory",
            "slurmstepd: error: execve(): /home/a/run.sh: Permission denied",
        ),
        negative=("FileNotFoundError: [Errno 2] No such file or directory: 'a'",),
    ),
    Rule(
        id="SLURM-013",
        category="container-image",
        role="cause",
        anchors=("pyxis: ", "enroot"),
        pattern=r"pyxis: (?:failed to import|couldn't start container|container start failed)"
        r"|enroot-aufs2ovlfs: .*fail|\[ERROR\].{0,60}enroot|pyxis: \s*\[ERROR\]",
        sentence="pyxis could not import or start the container image",
        because="the image's name or credentials are wrong, the registry is not reached, or the "
        "node has "
        "no space for it (ENROOT_DATA_PATH, /tmp)",
        costs="no process is started",
        fix="enroot import docker://REGISTRY#IMAGE:TAG once to a shared .sqsh file and give "
        "--container-image=FILE; free space on the node",
        next="on that node: enroot list; df -h /tmp",
        explains=_DOWN,
        links=("https://github.com/NVIDIA/pyxis",),
        positive=(
            "slurmstepd: error: pyxis: failed to import docker image",
            "slurmstepd: error: pyxis: couldn't start container",
        ),
        negative=("pyxis: importing docker image: nvcr.io/nvidia/pytorch:24.05-py3",),
    ),
    Rule(
        id="SLURM-014",
        category="slurm-aborted",
        role="consequence",
        stage="aftermath",
        anchors=(
            "Job step aborted",
            "Terminating StepId",
            "Terminating job step",
            "Force Terminated",
            "First task exited",
            ": Terminated",
            "*** STEP",
        ),
        pattern=r"job step aborted|terminating (?:stepid|job step)|force terminated|first task "
        r"exited"
        r"|tasks? [\d,-]+: terminated|\*\*\* step \S+ .{0,80}cancelled at \S+(?: \*\*\*|$)",
        sentence="srun ended the other tasks of the step",
        positive=(
            "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
            "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2025-01-01T10:00:00 ***",
            "srun: Terminating StepId=440575.0",
            "srun: error: n1: tasks 0-6: Terminated",
        ),
        negative=(
            "slurmstepd: error: *** STEP 811.0 ON n1 CANCELLED AT 2025-01-01T10:00:00 DUE TO "
            "TIME LIMIT"
            " ***",
        ),
    ),
)
