"""Open MPI and PRTE: a job that does not start. (openmpi_run: one that started.)"""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = ("https://docs.open-mpi.org/en/v5.0.x/launching-apps/index.html",)
_DOWN = ("mpi-daemon", "mpi-lost-node", "launcher-exit")
_NO_START = "no process of the job runs"

RULES: tuple[Rule, ...] = (
    Rule(
        id="MPI-001",
        category="mpi-root",
        role="cause",
        confidence="certain",
        anchors=("attempt to run as root", "running mpiexec as root"),
        pattern=r"has detected an attempt to run as root",
        sentence="mpirun refuses to run as root",
        because="Open MPI runs as root only where told to; in containers one often is root",
        costs=_NO_START,
        fix="add --allow-run-as-root to mpirun (wirespeed launch: --with allow-root), or set "
        "OMPI_ALLOW_RUN_AS_ROOT=1 and "
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 (PRTE: PRTE_ALLOW_RUN_AS_ROOT and _CONFIRM); or run as "
        "a user",
        next="mpirun --allow-run-as-root -np 1 hostname",
        explains=_DOWN,
        links=_LINKS,
        positive=(
            "mpirun has detected an attempt to run as root.",
            "prterun has detected an attempt to run as root.",
            "mpiexec.openmpi has detected an attempt to run as root.",
        ),
        negative=("Running as root is *strongly* discouraged as any mistake (e.g., in",),
    ),
    Rule(
        id="MPI-002",
        category="mpi-slots",
        role="cause",
        confidence="certain",
        anchors=("not enough slots available", "prte-rmaps-base:alloc-error", "already filled"),
        pattern=r"there are not enough slots available|prte-rmaps-base:alloc-error"
        r"|nodes which are allocated for this job are already filled",
        sentence="mpirun was asked for more processes than the nodes have slots",
        because="a node has as many slots as its hostfile line (slots=N) or -H host:N says, "
        "without "
        "them as many as it has cores (with -H: 1), or what the scheduler gave",
        costs=_NO_START,
        fix="fewer processes (-np), or more slots: -H node1:8,node2:8, slots=8 in the hostfile, "
        "more tasks per node from the scheduler; --oversubscribe (Open MPI 5: --map-by "
        ":OVERSUBSCRIBE; wirespeed launch: --with oversubscribe) only to run more processes than cores",
        next="mpirun --display-allocation -np 1 hostname",
        explains=_DOWN,
        links=_LINKS,
        positive=(
            "There are not enough slots available in the system to satisfy the 64",
            "    prte-rmaps-base:alloc-error",
            "All nodes which are allocated for this job are already filled.",
        ),
        negative=(
            'A "slot" is the Open MPI term for an allocatable unit where we can',
            "not enough slots available in the KV cache",
        ),
    ),
    Rule(
        id="MPI-003",
        category="mpi-executable",
        role="cause",
        confidence="certain",
        anchors=("specified application as it could not", "not find an executable", "prun:exe-not"),
        pattern=r"unable to launch the specified application as it could not (?:access|find)"
        r"|could not find an executable|prun:exe-not-(?:accessible|found)",
        sentence="mpirun cannot find or execute the program on a node",
        because="the program must exist at the same path on every node and be executable; a word "
        "that mpirun takes for no option is taken for the program",
        costs=_NO_START,
        fix="give the full path, install or mount the program on all nodes (the lines below name "
        "Executable and Node), chmod +x",
        next="on that node: ls -l PROGRAM",
        explains=_DOWN,
        links=_LINKS,
        positive=(
            "mpirun.openmpi was unable to launch the specified application as it could not access",
            "mpirun was unable to launch the specified application as it could not find an "
            "executable:",
            "    prun:exe-not-accessible",
        ),
        negative=(
            "mpirun was unable to launch the specified application as it could not",
            "2 total processes failed to start",
        ),
    ),
    Rule(
        id="MPI-004",
        category="mpi-workdir",
        role="cause",
        confidence="certain",
        anchors=("change to the specified working directory", "prun:wdir-not"),
        pattern=r"change to the specified working directory|prun:wdir-not",
        sentence="mpirun cannot change to the working directory on a node",
        because="processes start in the directory where mpirun was called (or --wdir), which must "
        "exist on every node",
        costs=_NO_START,
        fix="use a directory that all nodes share, or --wdir /tmp",
        next="on that node: ls -ld DIRECTORY",
        explains=_DOWN,
        links=_LINKS,
        positive=("change to the specified working directory:",),
        negative=("Working directory: /nope",),
    ),
    Rule(
        id="MPI-005",
        category="mpi-daemon",
        role="symptom",
        anchors=(
            "unable to reliably start",
            "daemon failed to report back",
            "daemon has unexpectedly failed",
            "died unexpectedly",
        ),
        pattern=r"was unable to reliably start one or more daemons"
        r"|a daemon failed to report back after being spawned"
        r"|(?:orte|prte) daemon has unexpectedly failed|a daemon .{0,40}died unexpectedly",
        sentence="mpirun could not start its daemon (orted, prted) on another node",
        checks=(
            "whether ssh to each node works without a password: ssh -o BatchMode=yes HOST true; "
            "else "
            "distribute keys and accept host keys",
            "whether the nodes' names resolve on every node (getent hosts HOST): mend DNS or "
            "/etc/hosts",
            "whether the same Open MPI is found there: ssh HOST command -v orted (prted); else "
            "mpirun --prefix DIRECTORY, or PATH and LD_LIBRARY_PATH in ~/.bashrc",
            "whether the node can connect back: firewall open, and --mca oob_tcp_if_include eth0 "
            "(PRTE: --prtemca prte_if_include eth0)",
            "whether /tmp is writable and has space on every node (df -h /tmp)",
        ),
        explains=("launcher-exit",),
        links=_LINKS,
        positive=(
            "ORTE was unable to reliably start one or more daemons.",
            "A daemon failed to report back after being spawned. This could",
            "An ORTE daemon has unexpectedly failed after launch and before",
            "A daemon (pid 11209) died unexpectedly with status 127 while attempting",
        ),
        negative=("* not finding the required libraries and/or binaries on",),
    ),
    Rule(
        id="MPI-006",
        category="mpi-daemon",
        role="symptom",
        stage="aftermath",
        anchors=("how to route a message",),
        pattern=r"(?:orte|prte) does not know how to route a message",
        sentence="mpirun lost the way to a daemon of another node",
        checks=(
            "whether every node can resolve and ssh to every other (nodes start further nodes): "
            "mend "
            "it, or --mca plm_rsh_no_tree_spawn 1 so that only mpirun's node does",
            "whether the daemon's network is right: --mca oob_tcp_if_include eth0",
        ),
        links=_LINKS,
        positive=(
            "ORTE does not know how to route a message to the specified daemon",
            "PRTE does not know how to route a message to the specified daemon located on",
        ),
        negative=("ORTE has lost communication with a remote daemon.",),
    ),
    Rule(
        id="MPI-007",
        category="mpi-old-openmpi",
        role="cause",
        anchors=("Could not resolve hostname",),
        pattern=r"could not resolve hostname (?P<target>[^\s:]+):(?P<slots>\d+)\s?: ",
        sentence="ssh was given the literal name {target}:{slots}: this Open MPI is too old to "
        "know "
        "host:slots in -H",
        because="Open MPI before 1.10/2.0 takes {target}:{slots} for a host name; a newer one "
        "reads "
        "{slots} slots on {target}",
        costs=_NO_START,
        fix="upgrade Open MPI (version 4 or later) and see that this mpirun is found first in "
        "PATH, or "
        "give slots in a hostfile ({target} slots={slots})",
        next="mpirun --version; command -v mpirun",
        explains=(*_DOWN, "launcher-dns"),
        links=_LINKS,
        positive=("ssh: Could not resolve hostname localhost:4: Name or service not known",),
        negative=("ssh: Could not resolve hostname node-4: Name or service not known",),
    ),
    Rule(
        id="MPI-008",
        category="mpi-not-on-node",
        role="cause",
        confidence="certain",
        anchors=("orted: ", "prted: ", "orted: command", "/orted", "/prted"),
        pattern=r"(?:^|[\s/])(?P<file>orted|prted): (?:command not found|not found|no such file)",
        sentence="{file} is not found on a node: Open MPI is not installed or not in PATH there",
        because="mpirun starts {file} over ssh in a shell without a login, which does not read "
        "~/.bash_profile",
        costs=_NO_START,
        fix="install the same Open MPI on every node and call mpirun with its full path or "
        "--prefix "
        "DIRECTORY (or set PATH at the top of ~/.bashrc)",
        next="ssh HOST command -v {file}",
        explains=_DOWN,
        links=_LINKS,
        positive=(
            "/bin/bash: line 1: orted: command not found",
            "bash: /opt/openmpi/bin/prted: No such file or directory",
        ),
        negative=("an inability to start orted: see above",),
    ),
    Rule(
        id="MPI-009",
        category="mpi-library",
        role="cause",
        confidence="certain",
        anchors=("while loading shared libraries",),
        pattern=r"while loading shared libraries: "
        r"(?P<file>lib(?:mpi|open-rte|open-pal|orte|pmix|prrte"
        r"|oshmem|mpich|mca_)[\w.+-]*)",
        sentence="{file} is missing on a node: the MPI library is not installed or not found there",
        because="the loader looks in LD_LIBRARY_PATH and the system's folders only",
        costs="the processes of that node do not start",
        fix="install the same MPI on every node; mpirun -x LD_LIBRARY_PATH (or --prefix "
        "DIRECTORY), "
        "or ldconfig with its lib folder",
        next="on that node: ldd PROGRAM | grep 'not found'",
        explains=_DOWN,
        links=_LINKS,
        positive=(
            "./all_reduce_perf: error while loading shared libraries: libmpi.so.40: cannot open "
            "shared "
            "object file: No such file or directory",
            "orted: error while loading shared libraries: libopen-rte.so.40: cannot open shared "
            "object",
        ),
        negative=(
            "error while loading shared libraries: libcudart.so.12: cannot open shared object",
        ),
    ),
    Rule(
        id="MPI-010",
        category="mpi-version-mismatch",
        role="cause",
        anchors=("received different version from", "Data unpack", "UNPACK-", "version mismatch"),
        pattern=r"received different version from|ORTE_ERROR_LOG: data unpack (?:would|failed|had)"
        r"|(?:PMIX|PRTE) ERROR: (?:UNPACK-\S+|pack data mismatch)|pmix\S* version mismatch",
        unless=r"show_help\.c",
        sentence="the nodes run different versions of Open MPI or PMIx: they do not understand "
        "each "
        "other",
        because="a message of one could not be unpacked by another",
        costs=_NO_START,
        fix="the same Open MPI on all nodes and in the container: compare mpirun --version on "
        "each, "
        "and call it by its full path",
        next="on each node: mpirun --version; ompi_info | grep -i pmix",
        explains=_DOWN,
        links=_LINKS,
        positive=(
            "[n1:811] [[14184,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in "
            "file "
            "base/plm_base_launch_support.c at line 1297",
            "[n2:9] [[3,0],1] tcp_peer_recv_connect_ack: received different version from "
            "[[3,0],0]: "
            "4.0.5 instead of 3.1.3",
        ),
        negative=(
            "[vm:1] [[14184,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in "
            "file "
            "../../../orte/util/show_help.c at line 501",
        ),
    ),
    Rule(
        id="MPI-011",
        category="mpi-hostfile",
        role="cause",
        confidence="certain",
        anchors=("to open the hostfile", "error in the hostfile", "parse error in", "no-hostfile"),
        pattern=r"unable to open the hostfile|detected a (?:bad|parse error).{0,40}hostfile"
        r"|^no-hostfile|was not found in the specified hostfile",
        sentence="the hostfile cannot be read",
        because="mpirun says that the file cannot be opened or a line of it is not understood",
        costs="nothing starts",
        fix="give the right path (--hostfile FILE); one line a node: NAME slots=8",
        next="cat FILE",
        explains=_DOWN,
        links=_LINKS,
        positive=("Open RTE was unable to open the hostfile:", "    no-hostfile"),
        negative=(
            "Unable to find hostfile, will proceed with training with local resources only.",
        ),
    ),
    Rule(
        id="MPI-012",
        category="mpi-binding",
        role="cause",
        confidence="certain",
        anchors=(
            "result in binding more",
            "binding policy is not recognized",
            "something went wrong",
            "allocation-overload",
            "mapping policy is not recognized",
        ),
        pattern=r"would result in binding more|(?:binding|mapping) policy is not recognized"
        r"|tried to bind a (?:new )?process, but something went wrong|^allocation-overload"
        r"|the request to bind processes could not be completed",
        sentence="mpirun cannot bind the processes to cores as asked",
        because="there are more processes than cores that they may use (a container or cgroup "
        "often "
        "gives fewer), or the policy is misspelt",
        costs="nothing starts",
        fix="--bind-to none (best where one process drives a GPU with several threads), or fewer "
        "processes a node; --bind-to core:overload-allowed to insist",
        next="mpirun --bind-to none -np 1 nproc",
        explains=_DOWN,
        links=_LINKS,
        positive=(
            "A request was made to bind to that would result in binding more",
            "The specified binding policy is not recognized:",
            "Open MPI tried to bind a new process, but something went wrong.  The",
        ),
        negative=("WARNING: a request was made to bind a process. While the system",),
    ),
    Rule(
        id="MPI-013",
        category="mpi-option",
        role="cause",
        confidence="certain",
        anchors=("unknown option ", "unrecognized option"),
        pattern=r"(?:mpirun|mpiexec|orterun|prterun)\S*: error: unknown option (?P<option>\S+)",
        sentence="mpirun does not know the option {option}",
        because="options differ between versions and makes of MPI",
        costs="nothing starts",
        fix="see mpirun --help of this version; options of the program come after its name",
        next="mpirun --version",
        links=_LINKS,
        positive=('mpirun.openmpi: Error: unknown option "-foo"',),
        negative=("nvcc fatal: Unknown option '-foo'",),
    ),
    Rule(
        id="MPI-014",
        category="mpi-slurm-pmi",
        role="cause",
        confidence="certain",
        anchors=("OMPI was not built with SLURM", "direct launched using", "built with SLURM"),
        pattern=r"application appears to have been direct launched using|not built with slurm",
        sentence="srun started a program whose Open MPI was built without Slurm's PMI support",
        because="without PMI or PMIx the processes that srun starts do not find each other",
        costs="MPI_Init fails",
        fix="srun --mpi=pmix (see srun --mpi=list) with an Open MPI built --with-pmix and "
        "--with-slurm, "
        "or start it with mpirun inside the allocation",
        next="srun --mpi=list; ompi_info | grep -i pmix",
        explains=("mpi-init", "launcher-exit"),
        links=("https://slurm.schedmd.com/mpi_guide.html",),
        positive=(
            'The application appears to have been direct launched using "srun",',
            "but OMPI was not built with SLURM's PMI support and therefore cannot",
        ),
        negative=("srun: launching StepId=811.0 on host n1, 8 tasks: [0-7]",),
    ),
    Rule(
        id="MPI-015",
        category="tmp-not-writable",
        role="cause",
        anchors=("session directory", "create the desired directory", "session dir"),
        pattern=r"unable to create the session dir|a call to mkdir was unable to create the "
        r"desired "
        r"directory|error creating the session directory",
        sentence="Open MPI cannot make its session directory in /tmp",
        because="the node's /tmp (or TMPDIR) is full, read-only or belongs to somebody else",
        costs=_NO_START,
        fix="free space, or another place: export TMPDIR=/dev/shm (or --mca orte_tmpdir_base "
        "DIRECTORY)",
        next="on that node: df -h /tmp; ls -ld /tmp",
        explains=_DOWN,
        links=_LINKS,
        positive=("A call to mkdir was unable to create the desired directory:",),
        negative=("mkdir: created directory '/tmp/run'",),
    ),
)
