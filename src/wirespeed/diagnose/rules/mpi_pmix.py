"""Processes and their launcher that do not find each other: PMIx, PMI2, prterun, two MPIs mixed."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_SLURM = ("https://slurm.schedmd.com/mpi_guide.html",)
_OMPI = ("https://docs.open-mpi.org/en/main/launching-apps/slurm.html",)
_DOWN = ("mpi-init", "mpi-daemon", "launcher-exit", "exit-code")
_ALONE = (
    "each process initialises MPI by itself: rank 0 of 1, as many separate jobs as processes, "
    "which "
    "do the same work and write the same files"
)
_PMIX = (
    "srun --mpi=pmix (srun --mpi=list shows what this Slurm has), or start with mpirun inside the "
    "allocation; where Slurm has no PMIx plugin, only mpirun works with Open MPI 5"
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="PMI-001",
        category="mpi-separate-jobs",
        role="cause",
        confidence="certain",
        anchors=("No PMIx server was reachable", "singletons will be started"),
        pattern=r"no PMIx server was reachable|(?P<count>\d+) singletons will be started",
        sentence="MPI found no PMIx server and starts every process as its own separate job "
        "(singleton, rank 0 of 1)",
        because="Open MPI 5 speaks only PMIx; the launcher (srun --mpi=pmi2, or an mpiexec of "
        "MPICH or "
        "Intel MPI) offers PMI-1 or PMI-2",
        costs=_ALONE,
        fix=_PMIX + "; never start an Open MPI program with another MPI's mpiexec",
        next="srun --mpi=list; mpirun --version; ldd PROGRAM | grep -i mpi",
        explains=("PMI-002", "host-oom-kill", *_DOWN),
        links=_SLURM + _OMPI,
        positive=(
            "No PMIx server was reachable, but a PMI1/2 was detected.",
            "If srun is being used to launch application,  4 singletons will be started.",
        ),
        negative=("PMIx server is running on n1",),
    ),
    Rule(
        id="PMI-002",
        category="mpi-separate-jobs",
        role="cause",
        least=2,
        anchors=("0 of 1", "0 out of 1", "rank 0/1", "process 0/1"),
        pattern=r"(?:hello|i am|i'm|from).{0,60}(?:\brank|\bproc(?:ess(?:or)?)?|\btask) 0"
        r"(?: of | out of |/)1\b(?! ?[.,]?\d)",
        sentence="several processes each say that they are rank 0 of 1: the launcher started "
        "separate, "
        "independent jobs instead of one",
        because="the program's MPI and the launcher do not belong together, or the launcher has no "
        "PMIx for it, so each process is a singleton",
        costs=_ALONE,
        fix="use the mpirun of the MPI that the program was built with; under Slurm srun "
        "--mpi=pmix "
        "(Open MPI) or --mpi=pmi2 (MPICH, Intel MPI)",
        next="ldd PROGRAM | grep -i mpi; command -v mpirun; srun --mpi=list",
        explains=_DOWN,
        links=_SLURM,
        positive=(
            "Hello from proc 0 of 1",
            "Hello world from processor n1, rank 0 out of 1 processors",
        ),
        negative=("Hello from proc 0 of 16", "rank 0 of 1 is loading the model"),
    ),
    Rule(
        id="PMI-003",
        category="mpi-slurm-pmi",
        role="cause",
        anchors=("OPAL ERROR: Unreachable", "OPAL ERROR: Not initialized"),
        pattern=r"OPAL ERROR: (?:unreachable|not initialized) in file .{0,80}(?:pmix|ext\d+x|s[12])"
        r"\w*_client\.c",
        sentence="MPI_Init cannot reach a PMIx server: srun or another launcher started the "
        "program "
        "without the PMIx that its Open MPI needs",
        because="srun was called without --mpi=pmix, Slurm's PMIx is of another version than the "
        "program's, or the program was started with another MPI's launcher",
        costs="MPI_Init fails on every process",
        fix=_PMIX + "; use the same PMIx on host and in the container",
        next="srun --mpi=list; ompi_info | grep -i pmix",
        explains=_DOWN,
        links=_SLURM,
        positive=(
            "[n1:3565779] OPAL ERROR: Unreachable in file pmix3x_client.c at line 111",
            "[n1:9] OPAL ERROR: Unreachable in file ext3x_client.c at line 112",
            "[n1:9] OPAL ERROR: Not initialized in file pmix2x_client.c at line 109",
        ),
        negative=("[n1:9] OPAL ERROR: Timeout in file base/pmix_base_fns.c at line 195",),
    ),
    Rule(
        id="PMI-004",
        category="mpi-not-on-node",
        role="cause",
        confidence="certain",
        anchors=(
            "failed to exec its actual executable",
            "prterun executable could not be found",
            "prte: ",
        ),
        pattern=r"The mpirun \(\"(?P<file>[^\"]+)\"\) cmd failed to exec its actual "
        r"executable.{0,80}"
        r"error: (?P<why>.{1,80})|prterun executable could not be found|(?:^|[\s/])prte: "
        r"(?:command not found|not found|no such file)",
        sentence="mpirun of Open MPI 5 cannot start prterun (PRRTE), which does the launching: it "
        "is "
        "missing or cannot be executed",
        because="mpirun is only a wrapper; prterun is missing beside it or not executable: Open "
        "MPI "
        "was moved after it was installed, copied into an image without PRRTE, or built for an "
        "external PRRTE that is not there (No such file or directory)",
        costs="nothing starts",
        fix="install or reinstall Open MPI with its PRRTE (or the package prrte) at that path; "
        "where "
        "it was moved, set OPAL_PREFIX and PRTE_PREFIX to the new place, and put its bin in PATH",
        next="ls -l $(dirname $(command -v mpirun)); command -v prterun; ompi_info | grep -i -E "
        "'prefix|prrte'",
        explains=_DOWN,
        links=("https://docs.open-mpi.org/en/main/launching-apps/prerequisites.html",),
        positive=(
            'The mpirun ("/opt/amazon/openmpi/bin/prterun") cmd failed to exec its actual executable '
            "- your application will NOT execute. Error: No such file or directory",
            "prterun executable could not be found - unable to run",
            "/bin/bash: prte: command not found",
        ),
        negative=("prterun noticed that process rank 3 exited on signal 9",),
    ),
    Rule(
        id="PMI-005",
        category="mpi-not-on-node",
        role="cause",
        confidence="certain",
        anchors=(
            "opal_init:startup:internal-failure",
            "You were supposed to get help about",
            "unable to open the help file",
            "no help file was found",
        ),
        pattern=r"(?P<what>opal_init:startup:internal-failure|you were supposed to get help "
        r"about.{0,80}|(?:no help file was found|unable to open the help file)\S*)",
        sentence="Open MPI does not find its own files: it was moved, or parts of two "
        "installations "
        "are mixed",
        because="the paths of help files and plugins are set when Open MPI is built; OPAL_PREFIX, "
        "PATH and LD_LIBRARY_PATH now lead to another installation",
        costs="nothing starts, and errors cannot be explained",
        fix="call mpirun by its full path, with PATH and LD_LIBRARY_PATH of the same "
        "installation; set "
        "OPAL_PREFIX only where it was moved, else unset it",
        next="command -v mpirun; ldd PROGRAM | grep -i mpi; env | grep -E 'OPAL_PREFIX|OMPI|PRTE'",
        explains=_DOWN,
        positive=(
            "Sorry!  You were supposed to get help about:",
            "opal_init:startup:internal-failure",
        ),
        negative=("sorry, no help for this option",),
    ),
    Rule(
        id="PMI-006",
        category="mpi-version-mismatch",
        role="cause",
        anchors=("PMIX_ERR_", "PMIX ERROR: ", "mpi/pmix"),
        pattern=r"PMIX ERROR: (?:PMIX_)?(?P<error>ERR_(?:NOT_SUPPORTED|PACK_MISMATCH|"
        r"UNKNOWN_DATA_TYPE|INVALID_CRED|HANDSHAKE_FAILED)|INVALID-CREDENTIAL|HANDSHAKE-FAILED"
        r"|PMIX_ERR_PACK\w*)",
        sentence="PMIx of the program and of its launcher do not understand each other ({error})",
        because="they are of different versions or use different security (munge or native), as "
        "between a container and its host",
        costs="MPI_Init fails",
        fix="the same PMIx release series on both sides; PMIX_MCA_psec=native (or munge) on both; "
        "PMIX_MCA_gds=hash for a try",
        next="ompi_info | grep -i pmix; srun --mpi=list",
        explains=_DOWN,
        links=("https://openpmix.github.io/support/how-to/",),
        positive=(
            "[n1:811] PMIX ERROR: PMIX_ERR_PACK_MISMATCH in file client.c at line 10",
            "[n1:811] PMIX ERROR: INVALID-CREDENTIAL in file ptl_tcp.c at line 685",
        ),
        negative=(
            "[n1:811] PMIX ERROR: NO-PERMISSIONS in file gds_dstore.c at line 711",
            "[cn007.24154] PMIX ERROR: UNREACHABLE in file server/pmix_server.c at line 2147",
        ),
    ),
    Rule(
        id="PMI-007",
        category="mpi-daemon",
        role="symptom",
        stage="aftermath",
        anchors=("PMIX ERROR: ", "PMIX_ERR_"),
        pattern=r"PMIX ERROR: "
        r"(?:PMIX_ERR_)?(?P<error>UNREACH(?:ABLE)?|LOST[_-]CONNECTION\S*|TIMEOUT)",
        sentence="PMIx lost or could not reach a process ({error})",
        checks=(
            "whether a process or daemon ended first (MPI_ABORT, OOM kill, a signal): its own "
            "lines",
            "whether the program was started by the launcher of its own MPI: command -v mpirun; "
            "ldd "
            "PROGRAM | grep -i mpi",
        ),
        positive=(
            "[cn007:24154] PMIX ERROR: UNREACHABLE in file server/pmix_server.c at line 2147",
        ),
        negative=("[n1:811] PMIX ERROR: PMIX_ERR_PACK_MISMATCH in file client.c at line 10",),
    ),
    Rule(
        id="PMI-008",
        category="mpi-slurm-pmi",
        role="cause",
        confidence="certain",
        anchors=("Can't find address for host", "libpmi2.so", "libpmi.so", "libpmix.so"),
        pattern=r"mpi/pmix\w*: .{0,120}can't find address for host (?P<node>[\w.-]+)|(?P<library>"
        r"libpmi[2x]?\.so[.\d]*): cannot open shared object file",
        sentence="srun's PMI cannot start: a node's name has no address, or a PMI library is "
        "missing",
        because="Slurm's PMIx plugin takes nodes by the names in slurm.conf, and MPI programs load "
        "libpmi, libpmi2 or libpmix at their start",
        costs="MPI_Init fails or waits for ever",
        fix="give every node's name an address (slurm.conf NodeAddr, DNS, /etc/hosts); install "
        "slurm-libpmi or libpmix on all nodes and mount it into the container",
        next="getent hosts NODE; ldconfig -p | grep pmi",
        explains=_DOWN,
        links=_SLURM,
        positive=(
            "slurmstepd: error:  mpi/pmix_v5: _pmix_p2p_send_core: node4 [0]: pmixp_utils.c:408: "
            "Can't find address for host node5, check slurm.conf",
            "./a.out: error while loading shared libraries: libpmi2.so.0: cannot open shared "
            "object "
            "file: No such file or directory",
        ),
        negative=("slurmstepd: error: mpi/pmix_v4: init: pmix plugin loaded",),
    ),
    Rule(
        id="PMI-009",
        category="mpi-slurm-pmi",
        role="cause",
        anchors=("PMI_Init", "PMI2_Init", "PMI_Get_", "PMI2_Job_GetId"),
        pattern=r"(?P<call>PMI2?_(?:Init|Get_\w+|Job_GetId)) (?:failed|returned -?[1-9])",
        sentence="MPICH or Intel MPI cannot talk to its launcher: {call} failed",
        because="the program was started by a launcher of another MPI, or by srun without the PMI "
        "library that it needs (I_MPI_PMI_LIBRARY)",
        costs="MPI_Init fails",
        fix="mpiexec of the same MPI; under Slurm srun --mpi=pmi2 with "
        "I_MPI_PMI_LIBRARY=/usr/lib64/"
        "libpmi2.so (Intel MPI), or mpiexec.hydra -bootstrap slurm",
        next="ldd PROGRAM | grep -i mpi; command -v mpiexec; srun --mpi=list",
        explains=_DOWN,
        links=_SLURM,
        positive=(
            "MPIR_pmi_init(133)...: PMI_Init returned -1",
            "MPIDI_PG_Init: PMI2_Job_GetId returned 14",
        ),
        negative=("PMI_Init returned 0",),
    ),
    Rule(
        id="PMI-010",
        category="mpi-slurm-pmi",
        role="cause",
        anchors=("PMK_KVS_Barrier", "pmixp_", "_dconn_ucx_init"),
        pattern=r"PMK_KVS_Barrier duplicate request|pmixp?_\w+.{0,80}(?P<what>cannot establish "
        r"connection|"
        r"fail(?:ed)? to init UCX|timeout waiting)|_dconn_ucx_init.{0,60}fail|mpi/pmix\w*:? "
        r"ERROR:? .{0,60}"
        r"(?:collective timeout|error handler invoked)",
        sentence="Slurm's PMI could not join the tasks of the step",
        because="tasks of PMI-1 called it in the wrong order (a program started within a "
        "program), or "
        "Slurm's PMIx plugins on the nodes cannot connect with each other, over TCP or UCX",
        costs="MPI_Init fails or waits for ever",
        fix="one srun per MPI program; SLURM_PMIX_DIRECT_CONN_UCX=false (or "
        "SLURM_PMIX_DIRECT_CONN=false) and "
        "UCX_NET_DEVICES for the network that the nodes share; open Slurm's ports between the "
        "nodes",
        next="srun --mpi=pmix -N2 hostname; the node's slurmd.log",
        explains=_DOWN,
        links=_SLURM,
        positive=(
            "srun: error: PMK_KVS_Barrier duplicate request from task 0",
            "slurmstepd: error: mpi/pmix_v3: pmixp_dconn_connect: Cannot establish connection",
            "slurmstepd: error: mpi/pmix_v4: _dconn_ucx_init: Fail to init UCX: Unsupported "
            "operation",
        ),
        negative=("slurmstepd: mpi/pmix_v4: pmixp_coll_init: ok",),
    ),
    Rule(
        id="PMI-011",
        category="open-files",
        role="cause",
        anchors=("OUT-OF-RESOURCE", "OUT_OF_RESOURCE"),
        pattern=r"PMIX ERROR: (?:PMIX_ERR_)?OUT[-_]OF[-_]RESOURCE in file \S*(?:listener|ptl_\w*)\.c",
        sentence="PMIx cannot accept more connections (OUT-OF-RESOURCE): mostly the limit of open "
        "files (ulimit -n) is reached",
        because="each process that starts takes a file of the launcher, and a program that calls "
        "MPI_Comm_spawn or mpirun again and again may not give them back",
        costs="further processes cannot start",
        fix="ulimit -n 65536 where mpirun starts (limits.conf, LimitNOFILE=, docker --ulimit "
        "nofile=65536:65536); start fewer processes from one launcher; a new Open MPI",
        next="ulimit -n; ls /proc/PID-OF-MPIRUN/fd | wc -l",
        explains=("PMI-013", *_DOWN),
        links=("https://github.com/openpmix/openpmix/issues/1513",),
        positive=(
            "PMIX ERROR: OUT-OF-RESOURCE in file src/server/pmix_server_listener.c at line 273",
        ),
        negative=("PMIX ERROR: OUT-OF-RESOURCE in file base/bfrop_base_unpack.c at line 750",),
    ),
    Rule(
        id="PMI-012",
        category="tmp-not-writable",
        role="cause",
        anchors=("OUT-OF-RESOURCE", "OUT_OF_RESOURCE"),
        pattern=r"PMIX ERROR: (?:PMIX_ERR_)?OUT[-_]OF[-_]RESOURCE in file \S*(?:dstore|gds_ds|pshmem|"
        r"shmem)\w*\.c",
        sentence="PMIx cannot make its shared file (OUT-OF-RESOURCE): mostly /tmp or TMPDIR of the "
        "node is full or not writable",
        because="PMIx keeps what the processes of a node share in a mapped file of its session folder",
        costs="MPI_Init fails",
        fix="free space (df -h /tmp), or TMPDIR at a local disk; PMIX_MCA_gds=hash goes without the "
        "file",
        next="on that node: df -h /tmp $TMPDIR; ls -ld /tmp",
        explains=("PMI-013", *_DOWN),
        links=("https://github.com/open-mpi/ompi/issues/6742",),
        positive=(
            "[n1:63956] PMIX ERROR: OUT-OF-RESOURCE in file gds_ds21_lock_pthread.c at line 176",
            "[n1:9] PMIX ERROR: OUT-OF-RESOURCE in file gds_dstore.c at line 1178",
        ),
        negative=("[n1:9] PMIX ERROR: OUT-OF-RESOURCE in file client/pmix_client.c at line 228",),
    ),
    Rule(
        id="PMI-013",
        category="mpi-daemon",
        role="symptom",
        anchors=("OUT-OF-RESOURCE", "OUT_OF_RESOURCE"),
        pattern=r"PMIX ERROR: (?:PMIX_ERR_)?OUT[-_]OF[-_]RESOURCE\b",
        sentence="PMIx ran out of a resource, or could not read what another part of it wrote "
        "(OUT-OF-RESOURCE)",
        checks=(
            "whether PMIx of the program (container) and of the launcher (Slurm, mpirun of the host) "
            "are of different versions: the same on both sides; PMIX_MCA_gds=hash on both for a try",
            "whether /tmp or TMPDIR is full or not writable on a node: df -h /tmp",
            "whether memory or open files are at their limit: ulimit -a, free -g",
            "whether it is Open MPI 5.0.0 before its release (bfrop_base_unpack.c): upgrade",
        ),
        explains=_DOWN,
        links=("https://github.com/openpmix/openpmix/issues/2948",),
        positive=(
            "[squid2:3975416] PMIX ERROR: OUT-OF-RESOURCE in file "
            "../../3rd-party/openpmix/src/mca/bfrops/base/bfrop_base_unpack.c at line 750",
            "[dgj318:64919] PMIX ERROR: OUT-OF-RESOURCE in file client/pmix_client.c at line 228",
            "[node01:25301] PMIX ERROR: PMIX_ERR_OUT_OF_RESOURCE in file client/pmix_client.c at "
            "line 278",
        ),
        negative=("[n1:811] PMIX ERROR: NO-PERMISSIONS in file gds_dstore.c at line 711",),
    ),
)
