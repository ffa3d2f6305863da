"""Processes that ended with nothing but a status: what such a number usually means."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_GONE = ("launcher-exit", "exit-code", "mpi-peer")
_OOM = (
    "whether the host's memory (RAM) ran out and the kernel's OOM killer sent SIGKILL: dmesg -T | "
    "grep -i 'out of memory' on that node; less host memory then (fewer loader workers, less "
    "offload of optimizer or parameters to CPU, or offload to NVMe), or more RAM"
)
_LIMIT = (
    "whether the container or job ran into its own memory limit: memory.events (oom_kill), kubectl "
    "describe pod (OOMKilled), sacct -j JOB: raise the limit"
)
_CRASH = (
    "the last lines of the crashed process: its own message or stack names the function; "
    "PYTHONFAULTHANDLER=1 prints the Python stack",
    "whether libraries fit together (torch, CUDA, NCCL, flash-attention and others built for the "
    "same versions): install matching builds in a fresh environment",
    "a core file: ulimit -c unlimited, then gdb python core",
)


def _status(numbers: str) -> str:
    """A pattern for the ways in which launchers and shells print an exit status."""
    return (
        r"(?:return code\s?(?:=|:)|return(?:ed)? (?:non-zero )?exit status|exit(?:ed)?[ "
        r"_-]?(?:code|"
        r"status)?\s*(?:=|:|with code|with exit code|with status|is)?|exited with|died with)"
        rf"[\s:=(]*(?:{numbers})(?![\d.:])"
    )


_WAYS = ("return code", "exit status", "exitcode", "exit code", "exited with", "exit_code")

RULES: tuple[Rule, ...] = (
    Rule(
        id="END-001",
        category="host-oom-kill",
        role="symptom",
        stage="machine",
        anchors=(*_WAYS, "SIGKILL", "signal 9", "Killed"),
        pattern=_status("-9|137|signal 9|<signals.sigkill: 9>")
        + r"|signal 9 \(sigkill\) received|terminated by signal (?:9|sigkill)"
        r"|killed by signal:? (?:9\b|sigkill)|died from signal 9\b|died with <signals.sigkill"
        r"|^killed$|line \d+:\s+\d+ killed\s|^\d+ killed\s|exited on signal 9$|^signal 9 "
        r"\(killed\)",
        unless=r"killed by signal: 9 \(|oom_kill|out of memory|oomkilled",
        sentence="a process was killed with SIGKILL (-9, exit status 137): most often host "
        "memory ran "
        "out (OOM)",
        checks=(
            _OOM,
            _LIMIT,
            "whether the scheduler, a time limit or a person killed it (kill -9, scancel): start "
            "again",
        ),
        explains=(*_GONE, "sigterm"),
        positive=(
            "['/usr/bin/python3', '-u', 'run.py', '--local_rank=0'] exits with return code = -9",
            "failed (exitcode: -9) local_rank: 3 (pid: 811) of binary: /usr/bin/python",
            "  exitcode  : -9 (pid: 811)",
            "  traceback : Signal 9 (SIGKILL) received by PID 811",
            "subprocess.CalledProcessError: Command 'torchrun t.py' died with <Signals.SIGKILL: "
            "9>.",
            "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal "
            "SIGKILL: terminated by signal 9",
            "/var/spool/slurmd/job00191/slurm_script: line 28:  8156 Killed      python3 main.py",
            "Killed",
            "Command exited with non-zero status: exit status 137",
            "RuntimeError: DataLoader worker (pid 41) is killed by signal: Killed. exit code 137",
        ),
        negative=(
            "exits with return code = -7",
            "exits with return code = -91",
            "loss: 0.137, exit code 0",
            "srun: error: n1: task 3: Exited with exit code 1",
            "=   KILLED BY SIGNAL: 9 (Killed)",
        ),
    ),
    Rule(
        id="END-002",
        category="shm-too-small",
        role="symptom",
        stage="machine",
        anchors=(*_WAYS, "SIGBUS", "signal 7", "Bus error", "insufficient shared memory"),
        pattern=_status("-7|135|signal 7|<signals.sigbus: 7>")
        + r"|signal 7 \(sigbus\)|(?<!pcie )bus error|died with <signals.sigbus"
        r"|might be caused by insufficient "
        r"shared memory|terminated by signal (?:7|sigbus)|signal sigbus",
        unless=r"exit string: bus|killed by signal: 7 \(|exited on signal 7",
        sentence="a process ended with a bus error (SIGBUS, -7, exit status 135): most often "
        "shared "
        "memory, /dev/shm, is too small",
        checks=(
            "whether /dev/shm is too small (df -h /dev/shm; docker gives 64 MB): docker run "
            "--shm-size=16g or --ipc=host; in Kubernetes an emptyDir with medium: Memory mounted "
            "at "
            "/dev/shm",
            "whether the file system of a memory-mapped file (data set, cache) is full or the "
            "file was "
            "cut short: free space, write it again",
            "whether the machine has memory errors: dmesg -T | grep -iE 'mce|hardware error'",
        ),
        explains=_GONE,
        positive=(
            "['/opt/conda/bin/python', '-u', 'main.py', '--local_rank=3'] exits with return code "
            "= -7",
            "  exitcode  : -7 (pid: 1966)",
            "  traceback : Signal 7 (SIGBUS) received by PID 1966",
            "Bus error (core dumped)",
            "ERROR: Unexpected bus error encountered in worker. This might be caused by "
            "insufficient "
            "shared memory (shm).",
            "srun: error: Orion-18-69: task 289: Bus error",
        ),
        negative=("exits with return code = -9", "exit status 1", "GPU has fallen off the bus."),
    ),
    Rule(
        id="END-003",
        category="crash",
        role="symptom",
        stage="program",
        anchors=(*_WAYS, "SIGSEGV", "signal 11", "Segmentation fault", "SIGILL", "segfault at"),
        pattern=_status("-11|139|-4|132|-8|136|signal 11|<signals.sig(?:segv|ill|fpe)")
        + r"|signal 11 \(sigsegv\)|segmentation fault|died with <signals.sigsegv|\bsegfault at "
        r"|signal 4 \(sigill\)|illegal instruction \(core|terminated by signal (?:11|sigsegv)"
        r"|signal sigsegv|caught sigsegv",
        unless=r"exit string: seg|killed by signal: 11|exited on signal 11|such as sigsegv|due "
        r"to sigsegv"
        r"|no segmentation fault",
        sentence="a process crashed (segmentation fault or illegal instruction: -11, exit status "
        "139)",
        checks=_CRASH,
        explains=_GONE,
        positive=(
            "exits with return code = -11",
            "  traceback : Signal 11 (SIGSEGV) received by PID 811",
            "Segmentation fault (core dumped)",
            "!!!!!!! Segfault encountered !!!!!!! Signal: Segmentation fault (11)",
            "pt_main_thread[811]: segfault at 10 ip 00007f sp 00007f error 4 in libnccl.so.2",
        ),
        negative=("exits with return code = -9", "exit status 1"),
    ),
    Rule(
        id="END-004",
        category="crash",
        role="symptom",
        stage="aftermath",
        anchors=(*_WAYS, "SIGABRT", "signal 6", "Aborted (core", "Fatal Python error"),
        pattern=_status("-6|134|signal 6|<signals.sigabrt: 6>")
        + r"|signal 6 \(sigabrt\)|aborted \(core dumped\)|died with <signals.sigabrt"
        r"|terminated by signal (?:6|sigabrt)|signal sigabrt|fatal python error: aborted",
        unless=r"exited on signal 6|killed by signal: 6",
        sentence="a process aborted itself (SIGABRT, -6, exit status 134)",
        checks=(
            "the message before the abort, on the same rank: an uncaught C++ exception ('terminate "
            "called after throwing'), often the NCCL watchdog after a timeout: then find the "
            "rank that "
            "fell behind or died first",
            *_CRASH[1:],
        ),
        explains=_GONE,
        positive=(
            "exits with return code = -6",
            "  traceback : Signal 6 (SIGABRT) received by PID 811",
            "Aborted (core dumped)",
            "Fatal Python error: Aborted",
        ),
        negative=("exits with return code = -61", "exit status 2"),
    ),
    Rule(
        id="END-005",
        category="sigterm",
        role="symptom",
        stage="aftermath",
        anchors=(*_WAYS, "SIGTERM", "signal 15", "Terminated", "got signal", "death signal"),
        pattern=_status("-15|143|-2|130|signal 15|<signals.sigterm: 15>")
        + r"|signal 15 \(sigterm\) received|^terminated$|died with <signals.sigterm"
        r"|got signal: ?(?:15|2)\b|received (?:the )?signal (?:15|2|sigterm|sigint)\b"
        r"|death signal|terminated by signal (?:15|sigterm)",
        unless=r"sending process|closing signal",
        sentence="a process was ended from outside (SIGTERM, -15, exit status 143)",
        checks=(
            "whether another rank failed first, and the launcher ended this one: read the rank "
            "with "
            "the earliest error",
            "whether the scheduler ended the job: time limit (sacct -j JOB), preemption, eviction "
            "(kubectl get events); ask for more time, save checkpoints",
            "whether the login session ended (SIGHUP): start it under nohup, tmux or the scheduler",
        ),
        explains=("launcher-exit", "exit-code"),
        positive=(
            "  exitcode  : -15 (pid: 811)",
            "exit status 143",
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 8 got "
            "signal: 15",
            "Received 1 death signal, shutting down workers",
        ),
        negative=(
            "Sending process 811 closing signal SIGTERM",
            "exits with return code = -1",
        ),
    ),
    Rule(
        id="END-006",
        category="exit-code",
        role="symptom",
        stage="aftermath",
        anchors=(
            "exits with return code",
            "exitcode",
            "exit status",
            "exit code",
            "Exited with exit",
        ),
        pattern=r"exits with return code = (?P<code>[1-9]\d*)\b|exitcode\s*:\s*(?:[1-9]\d*)\b"
        r"|^exit status [1-9]\d*$|returned non-zero exit status [1-9]\d*"
        r"|exited with exit code [1-9]\d*|exited with code [1-9]\d*",
        unless=r"\b(?:13[0-9]|14[0-9])\b",
        sentence="a process ended with an error status",
        checks=(
            "that process's own last lines: its error or Python stack is in the log of its rank or "
            "host (torchrun: --log-dir LOGS --redirects 3, or TORCHELASTIC_ERROR_FILE)",
            "NCCL_DEBUG=WARN, if the log has nothing: NCCL then says what failed",
        ),
        positive=(
            "['/usr/bin/python3', '-u', 'run.py'] exits with return code = 1",
            "exit status 3",
            "  exitcode  : 1 (pid: 811)",
            "srun: error: n1: task 3: Exited with exit code 1",
        ),
        negative=("exits with return code = -9", "exit status 0", "exit status 137"),
    ),
    Rule(
        id="END-007",
        category="host-oom-kill",
        role="cause",
        # Not `machine`: Ray says the same where a worker ended by any error, which then comes first.
        stage="network",
        anchors=("worker process has died", "Worker unexpectedly exits", "OOM killer due to high"),
        pattern=r"worker unexpectedly exits with a connection error"
        r"|killed by sigkill by oom killer due to high memory",
        sentence="a Ray worker process died suddenly while the other ranks waited for it: most "
        "likely "
        "the OOM killer's SIGKILL, because host memory ran out",
        because="Ray lost the connection to the worker without an error of the program; it gives "
        "high "
        "memory usage (OOM) as the first reason, then ray stop --force, then a crash (SIGSEGV). "
        "Watchdogs of other ranks only report that this worker is gone",
        costs="the collective that waits for this rank never ends",
        fix="use less host memory (offload, sequence length, workers per node) or give the node "
        "more "
        "RAM; ray memory and the node's dmesg tell which",
        next="on the node named: dmesg -T | grep -i 'out of memory'",
        explains=("watchdog-timeout", *_GONE, "exit-code"),
        links=("https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html",),
        positive=(
            "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR "
            "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End "
            "of file.",
        ),
        negative=("The actor is dead because it was killed by `ray.kill`.",),
    ),
    Rule(
        id="END-008",
        category="host-oom-kill",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("due to memory pressure", "due to the node running low", "OutOfMemoryError"),
        pattern=r"killed due to (?:memory pressure|the node running low on memory)"
        r"|ray\.exceptions\.outofmemoryerror",
        sentence="Ray killed a worker because the host's memory (RAM) ran out (OOM)",
        because="Ray ends workers when the node's memory use passes its threshold (95 %)",
        costs="the job lost a rank; the others wait for it",
        fix="use less host memory (fewer workers a node, less offload), request memory for the "
        "actors, "
        "or raise RAY_memory_usage_threshold",
        next="ray memory; free -g on that node",
        explains=("watchdog-timeout", *_GONE, "exit-code"),
        links=("https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html",),
        positive=(
            "2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed",
            "Task was killed due to the node running low on memory.",
        ),
        negative=("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",),
    ),
    Rule(
        id="END-009",
        category="host-oom-kill",
        role="symptom",
        stage="machine",
        anchors=("is killed by signal", "exited unexpectedly"),
        pattern=r"dataloader worker \(pid\(?s?\)? [\d, ]+\) (?:is killed by signal: "
        r"(?:killed|9)|exited "
        r"unexpectedly)",
        sentence="a DataLoader worker process was killed: most often host memory ran out (OOM)",
        checks=(
            _OOM,
            "whether /dev/shm is too small (df -h /dev/shm): docker run --shm-size=16g or "
            "--ipc=host",
            _LIMIT,
        ),
        explains=("exit-code", *_GONE),
        positive=(
            "RuntimeError: DataLoader worker (pid 4121) is killed by signal: Killed.",
            "RuntimeError: DataLoader worker (pid(s) 4121, 4122) exited unexpectedly",
        ),
        negative=("RuntimeError: DataLoader worker (pid 4121) is killed by signal: Terminated.",),
    ),
    Rule(
        id="END-010",
        category="launcher-missing",
        role="cause",
        confidence="certain",
        anchors=("mpirun: ", "mpiexec: ", "prterun: ", "orterun: ", "horovodrun: ", "srun: "),
        pattern=r"(?:^|[\s/])(?P<program>mpirun|mpiexec|mpiexec\.hydra|prterun|orterun"
        r"|horovodrun|srun): (?:command not found|not found|no such file)",
        sentence="the launcher {program} is not installed here, or not in PATH",
        because="the shell does not find it",
        costs="nothing starts",
        fix="install it in the image (apt-get install openmpi-bin), load its module "
        "(module load openmpi), or call it by its full path; torchrun needs no MPI",
        next="command -v {program}",
        explains=("exit-code",),
        positive=(
            "bash: mpirun: command not found",
            "/bin/sh: 1: mpirun: not found",
            "run.sh: line 8: srun: command not found",
        ),
        negative=('mpirun: Error: unknown option "-foo"', "srun: job 811 queued"),
    ),
)
