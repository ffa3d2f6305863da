"""torchrun (torch.distributed.elastic): its failure summary and what its agents say of each other."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = (
    "https://docs.pytorch.org/docs/stable/elastic/run.html",
    "https://docs.pytorch.org/docs/stable/elastic/errors.html",
)
_LOGS = (
    "the log of that rank itself: its own error stands there (torchrun --log-dir LOGS --redirects 3 "
    "--tee 3; @record from torch.distributed.elastic.multiprocessing.errors keeps the traceback)"
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="TRUN-001",
        category="launcher-exit",
        role="consequence",
        stage="aftermath",
        anchors=("closing signal", "Closing process"),
        pattern=r"(?:sending process (?P<pid>\d+) closing signal|closing process \d+ via signal) "
        r"(?P<signal>\w+)",
        sentence="torchrun ended the remaining workers ({signal})",
        positive=(
            "W1121 12:45:19.075000 7359 torch/distributed/elastic/multiprocessing/api.py:1028] "
            "Sending process 7361 closing signal SIGTERM",
            "[WARNING] torch.distributed.elastic.multiprocessing.api: Sending process 7361 closing "
            "signal SIGTERM",
            "Closing process 811 via signal SIGTERM",
        ),
        negative=("traceback : Signal 15 (SIGTERM) received by PID 7361",),
    ),
    Rule(
        id="TRUN-002",
        category="launcher-exit",
        role="consequence",
        stage="aftermath",
        anchors=("ChildFailedError", "Root Cause (first observed", "of binary:"),
        pattern=r"childfailederror|root cause \(first observed failure\)"
        r"|failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local_rank>\d+)",
        sentence="torchrun's summary of failed workers",
        positive=(
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
            "Root Cause (first observed failure):",
            "E1121 12:45:19.092000 7359 torch/distributed/elastic/multiprocessing/api.py:1002] "
            "failed (exitcode: -9) local_rank: 1 (pid: 7362) of binary: /usr/bin/python3.11",
        ),
        negative=("train.py PASSED",),
    ),
    Rule(
        id="TRUN-011",
        category="launcher-exit",
        role="consequence",
        stage="aftermath",
        anchors=("Other failure: ",),
        pattern=r"^other failure: rank : (?P<rank>\d+) .{0,300}exitcode : (?P<code>-?\d+)",
        sentence="torchrun names another rank as the root cause; this one ended after it (exit code "
        "{code})",
        # The reader joins torchrun's block of a worker to one line (torchrun_blocks.py).
        positive=("Other failure: rank : 3 (local_rank: 1), host : n-1, exitcode : 1 (pid: 811)",),
        negative=("Root cause: rank : 1 (local_rank: 1), host : n-0, exitcode : -9 (pid: 7362)",),
    ),
    Rule(
        id="TRUN-003",
        category="launcher-exit",
        role="symptom",
        stage="aftermath",
        anchors=("worker group", "failed with exit code", "ChildFailedError"),
        pattern=r"worker group.{0,40}failed|worker \d+ failed with exit code|childfailederror:",
        sentence="torchrun reports a failed worker, and not why",
        checks=(
            _LOGS,
            "the rank under 'Root Cause (first observed failure)' and its exit code: -9 is a kill "
            "(host memory, OOM), -11 a crash, -7 a full /dev/shm, 1 a Python exception",
        ),
        links=_LINKS,
        positive=(
            "[default] Worker group FAILED. 3/3 attempts left; will restart worker group",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        ),
        negative=("[default] worker group successfully finished.",),
    ),
    Rule(
        id="TRUN-004",
        category="launcher-exit",
        role="consequence",
        stage="aftermath",
        anchors=("exit barrier", "_store_barrier", "Local worker group finished"),
        pattern=r"error waiting on exit barrier|in _?store_?barrier\b"
        r"|local worker group finished \(workerstate\.failed\)",
        sentence="torchrun's agents waited for each other at the end: another node had gone",
        positive=(
            "ERROR:torch.distributed.elastic.agent.server.api:Error waiting on exit barrier. "
            "Elapsed: 300.1 seconds",
        ),
        negative=("Done waiting for other agents. Elapsed: 0.2 seconds",),
    ),
    Rule(
        id="TRUN-005",
        category="stuck-process",
        role="symptom",
        stage="aftermath",
        anchors=("Unable to shutdown process", "did not exit after"),
        pattern=r"unable to shutdown process (?P<pid>\d+) via|process (?P<stuck>\d+) did not exit "
        r"after \w+ within",
        sentence="a worker did not end when torchrun asked it to",
        checks=(
            "whether the process hangs in the driver or a file system (ps -o pid,stat,wchan; D "
            "state): kernel log for Xid or storage errors, then reset the GPU or the node",
            "whether a handler of the program catches SIGTERM and waits: end it there",
        ),
        links=_LINKS,
        positive=(
            "Unable to shutdown process 811 via SIGTERM, forcefully exiting via SIGKILL",
            "Process 811 did not exit after SIGKILL within 30s; abandoning and continuing teardown.",
        ),
        negative=("Sending process 811 closing signal SIGTERM",),
    ),
    Rule(
        id="TRUN-006",
        category="torchrun-arguments",
        role="cause",
        confidence="certain",
        anchors=(
            "torchrun: error",
            "run.py: error",
            "Unsupported nproc_per_node",
            "launch.py: error",
        ),
        pattern=r"(?:torchrun|run\.py|launch\.py|accelerate|deepspeed)[^:]*: error: (?P<what>.+)"
        r"|(?P<nproc>unsupported nproc_per_node value: \S+)",
        sentence="the launcher refuses its arguments: {what}",
        because="the command line is read before anything starts",
        costs="nothing starts",
        fix="correct the option (torchrun --help); arguments of the script come after its name",
        next="torchrun --help",
        explains=("exit-code", "python-error"),
        links=_LINKS,
        positive=(
            "torchrun: error: the following arguments are required: training_script",
            "run.py: error: unrecognized arguments: --nproc",
        ),
        negative=("mpirun: Error: unknown option",),
    ),
    Rule(
        id="TRUN-007",
        category="local-rank-argument",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("unrecognized arguments: --local",),
        pattern=r"error: unrecognized arguments: (?P<what>--local[-_]rank=?\S*)",
        sentence="the program does not know the argument {what} that the launcher adds",
        because="torch.distributed.launch passes --local-rank (--local_rank before torch 2.0) to "
        "the script; torchrun sets the variable LOCAL_RANK instead",
        costs="every rank ends at its start",
        fix="start with torchrun and read os.environ['LOCAL_RANK'], or let argparse accept both "
        "--local-rank and --local_rank",
        next="torchrun --nproc-per-node=1 SCRIPT",
        explains=("exit-code", "launcher-exit", "TRUN-006"),
        links=_LINKS,
        positive=("train.py: error: unrecognized arguments: --local-rank=0",),
        negative=("train.py: error: unrecognized arguments: --lr=0.1",),
    ),
    Rule(
        id="TRUN-008",
        category="program-arguments",
        role="cause",
        stage="program",
        anchors=(".py: error: ",),
        pattern=r"\.py: error: (?P<what>(?:unrecognized arguments|the following arguments are "
        r"required|argument \S+: ).*)",
        unless=r"--local[-_]rank|(?:launch|run)\.py: error",
        sentence="the program refuses its arguments: {what}",
        because="argparse ended the program before training",
        costs="every rank ends at its start",
        fix="correct the command line after the script's name",
        next="python SCRIPT --help",
        explains=("exit-code", "launcher-exit"),
        links=_LINKS,
        positive=("train.py: error: unrecognized arguments: --lr=0.1",),
        negative=("train.py: error: unrecognized arguments: --local-rank=0",),
    ),
    Rule(
        id="TRUN-009",
        category="program-missing",
        role="cause",
        confidence="certain",
        anchors=("can't open file",),
        pattern=r"python\S*: can't open file '?(?P<file>[^':]+)'?: \[errno \d+\]",
        sentence="the program's file {file} does not exist on this node",
        because="Python could not open it",
        costs="every rank of the node ends at its start",
        fix="correct the path or the working directory, or copy the program to every node (a "
        "shared file system, the same image)",
        next="on that node: ls -l {file}",
        explains=("exit-code", "launcher-exit", "missing-ranks", "python-error"),
        links=_LINKS,
        positive=(
            "/usr/bin/python3.11: can't open file '/w/train.py': [Errno 2] No such file or "
            "directory",
        ),
        negative=("FileNotFoundError: [Errno 2] No such file or directory: 'data.json'",),
    ),
    Rule(
        id="TRUN-010",
        category="session-closed",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("got signal: 1", "SIGHUP", "death signal"),
        pattern=r"got signal: 1\b(?!\d)|received (?:1|signals\.sighup) death signal"
        r"|closing signal sighup",
        sentence="the session that started the job was closed (SIGHUP), and torchrun ended the workers",
        because="a process started from a terminal or an ssh login gets SIGHUP when that ends",
        costs="all ranks end",
        fix="start the job under the scheduler, tmux or screen, or with nohup … & (setsid)",
        next="last -5; journalctl -u ssh --since -1h",
        explains=("launcher-exit", "exit-code", "sigterm", "gloo-peer", "store-peer"),
        links=_LINKS,
        positive=(
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 8 got signal: "
            "1",
            "Received Signals.SIGHUP death signal, shutting down workers",
            "Sending process 811 closing signal SIGHUP",
        ),
        negative=(
            "SignalException: Process 8 got signal: 15",
            "Received Signals.SIGTERM death signal, shutting down workers",
        ),
    ),
)
