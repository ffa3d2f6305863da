"""What PRRTE (mpirun of Open MPI 5), Open MPI 4's runtime and PMIx say before they end a job.

Their help texts span lines; each text is the beginning of a first line. Texts from PRRTE 7b9619b and
OpenPMIx 494e9d9.
"""

from functools import partial

from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.texts import GONE, rule_of

__all__ = ["RULES"]

_of = partial(
    rule_of,
    costs="nothing starts, or all ranks end",
    explains=(*GONE, "mpi-init"),
    links=("https://docs.open-mpi.org/en/v5.0.x/launching-apps/index.html",),
)

RULES: tuple[Rule, ...] = (
    _of(
        """
        The specified * policy is not recognized
        The specified * directive is not recognized
        The default CPU list contains an invalid modifier
        The binding request contains an unrecognized modifier
        Binding is performed to the first available specified object type
        The CPU list provided on your cmd line contains at least one entry
        The requested mapping policy cannot be performed
        The spawn request included a PMIX_MAPPER directive
        Your job failed to map
        There are no allocated resources for the application
        A request was made to bind to *, but an appropriate target
        A request was made to map by a hardware object
        A request was made to bind that would require binding
        A mapping directive was given that requires knowledge of
        While computing bindings, we found no available cpus
        A request was made to bind a process, but at least one node does NOT
        A request was made to bind a process. While the system
        A request for multiple cpus-per-proc was given
        Two qualifiers that contradict each other
        A qualifier that applies to the entire job was given more than once
        The mapping request contains
        A * modifier was given for a single application context
        A * modifier was provided that is not supported as a default
        A * policy was provided that is not supported
        A * was given that requires a value, but
        A * was given that defines a value multiple times
        The * directive contains an unrecognized qualifier
        The * option contains a directive that is missing a value
        Conflicting directives for * policy are causing
        A request was made to map a specified number of processes
        A process attempted to bind to resources already allocated
        An invalid value was given for the number of processes
        An unrecognized value was given for the number of processes
        Your job has requested more processes than the ppr
        The proc-per-resource request is not correct
        The PE=<list> mapping directive cannot be combined
        A process could not be mapped:
        PRTE tried to bind * process
        Open MPI tried to bind * process
        """,
        id="PRTE-001",
        category="mpi-binding",
        sentence="mpirun cannot place the ranks as it was told: {what}",
        because="--map-by, --bind-to and --rank-by must name what every node has, with as many "
        "CPUs and "
        "slots as ranks ask for; containers and Slurm often give fewer CPUs than the node has",
        fix="--bind-to none, or --map-by slot; ask Slurm for CPUs (--cpus-per-task) that fit; see "
        "what is "
        "there with lstopo inside the job",
        next="mpirun --display allocation,map,bind -n 1 hostname; nproc",
    ),
    _of(
        """
        There are not enough slots available in the system
        All nodes which are allocated for this job are already filled
        No nodes are available for this job
        We were unable to find an allocation for this job
        The system has exhausted its available ranks
        Although we were able to map your job, we are unable to launch
        A sequential map was requested, but not enough node entries
        The requested number of empty hosts was not available
        """,
        id="PRTE-002",
        category="mpi-slots",
        sentence="mpirun has fewer slots than ranks: {what}",
        because="slots come from the hostfile, from --host NAME:N, from Slurm, or else from the "
        "number of cores",
        fix="write slots=N in the hostfile or --host NAME:N, ask for more tasks, or --map-by "
        ":OVERSUBSCRIBE",
        next="mpirun --display allocation -n 1 hostname",
    ),
    _of(
        """
        *was unable to reliably start one or more daemons
        An PRTE daemon has unexpectedly failed after launch
        An ORTE daemon has unexpectedly failed after launch
        PRTE was unable to reliably start one or more daemons
        A daemon could not establish its identity
        srun returned non-zero exit status
        The LSF process starter (lsb_launch) failed
        process starter for * didn't find any hosts
        The SLURM process starter for * was unable to locate
        No available launching agents were found
        The value of the MCA parameter "plm_ssh_agent" was set to a path
        The value of the MCA parameter "plm_rsh_agent" was set to a path
        The ssh launcher has been given a number of
        The cmd line to launch remote daemons is too long
        flux_open returned with an error
        flux_kvs_lookup* returned with an error
        Bootstrap startup
        """,
        id="PRTE-003",
        category="mpi-daemon",
        role="symptom",
        stage="network",
        sentence="mpirun could not start its daemon on a node: {what}",
        checks=(
            "whether ssh HOST true works from the launch node without a question (or srun -N 2 "
            "hostname)",
            "whether every node has the same Open MPI at the same path: mpirun --prefix DIR, or "
            "its full path",
            "whether nodes reach the launch node on every port, over the interface that it names "
            "(--prtemca oob_tcp_if_include eth0; Open MPI 4: --mca oob_tcp_if_include)",
        ),
    ),
    _of(
        """
        PRTE has lost communication with a remote daemon
        ORTE has lost communication with a remote daemon
        A message being sent between two PRRTE daemons is too large
        """,
        id="PRTE-004",
        category="mpi-lost-node",
        role="symptom",
        stage="network",
        sentence="mpirun lost its daemon on a node: {what}",
        checks=(
            "whether that node is up, and the kernel's log there (memory, GPU, network)",
            "whether the network between it and the launch node was interrupted",
        ),
    ),
    _of(
        """
        No sockets were able to be opened on the available protocols
        No usable network interfaces were found on this host
        The specified network is not parseable
        Both TCP interface include and exclude lists
        Both static and dynamic port ranges were specified
        An attempt was made to initiate a TCP connection from an
        You requested support for * connections, but no
        A PMIx server was unable to bind its listening socket
        The PMIx server's listener thread failed to start
        PMIx has detected * malformed I
        """,
        id="PRTE-005",
        category="mpi-wrong-interface",
        sentence="mpirun or PMIx finds no network that it may use: {what}",
        because="oob_tcp_if_include, PMIX_MCA_ptl_tcp_if_include or a port range names nothing "
        "that this "
        "host has, or it is out of sockets",
        fix="unset those parameters, or name one network that all nodes have: --prtemca "
        "prte_if_include 10.0.0.0/16 (Open MPI 4: --mca oob_tcp_if_include)",
        next="ip -br addr; env | grep -E 'PRTE_MCA|PMIX_MCA|OMPI_MCA'",
    ),
    _of(
        """
        PRTE detected a mismatch in versions between two processes
        PRTE did not receive version information
        ORTE detected a mismatch in versions
        A compressed message was received that could not be decompressed
        *does not support multiple different
        *was given two conflicting directives regarding a prefix
        A PMIx tool cannot relay a request
        The * ID of the client process does not match the ID registered
        Collection strategy during a collective operation
        """,
        id="PRTE-006",
        category="mpi-version-mismatch",
        sentence="two versions or installations of MPI meet: {what}",
        because="mpirun, the daemons on the nodes and the program must come from one installation",
        fix="one image on all nodes; call mpirun by its full path; unset OPAL_PREFIX, PMIX_PREFIX and "
        "PRTE_PREFIX where they name another",
        next="which -a mpirun; ompi_info | head -3, on each node",
    ),
    _of(
        """
        The specified fork agent was not found
        PRTE tried to fork a new process via
        PMIx tried to fork a new process via
        PRTE tried to launch a child process but the
        PMIx was unable to set up the standard I/O
        PMIx was unable to change to the requested working directory
        A negative value was returned from the "open" system call
        A preloaded file cannot be placed
        Two different files requested for preloading
        Per request, PRTE attempted to set a system resource limit
        PRTE received a request to set a system resource limit
        """,
        id="PRTE-007",
        category="mpi-executable",
        sentence="mpirun's daemon cannot start the program on a node: {what}",
        because="the program, its folder or a limit that it asks for is not there on that node",
        fix="see that the path exists there and may be run (not a folder, the same architecture), "
        "with the "
        "working folder; give a full path",
        next="ssh NODE ls -l PROGRAM; ssh NODE ulimit -a",
    ),
    _of(
        """
        PRTE was unable to open the hostfile
        PRTE detected a bad parameter in the hostfile
        PRTE detected a parse error in the hostfile
        Open RTE was unable to open the hostfile
        Some of the requested hosts are not included in the current
        At least one of the requested hosts is not included
        A relative host was
        A hostfile was provided that contains
        A request was made to add hosts from a hostfile
        A host was provided in an add-hostfile
        Error, invalid syntax in the rankfile
        Error, rank * is already assigned to
        A rank is missing its location specification
        While parsing the rankfile
        The rankfile that was used claimed that a host
        Rankfile claimed host
        The request to map processes using a rankfile
        *was unable to open the rankfile
        The specified sequence file contained a node
        A sequence file entry named a set of CPUs
        The affinity file provided in LSB_AFFINITY_HOSTFILE
        The specified LSF affinity file contained a node
        The Grid Engine ras component is not able
        No slots were found in the Grid Engine
        The PBS_NODEFILE environmental variable was
        No nodes were found in the PBS_NODEFILE
        The SMP mode flag was given
        While trying to determine what resources are available
        """,
        id="PRTE-008",
        category="mpi-hostfile",
        sentence="mpirun cannot take its list of hosts: {what}",
        because="the hostfile, rankfile, --host or the scheduler's own list is missing, has a "
        "line that "
        "cannot be read, or names a host outside of the allocation",
        fix="give one line `HOST slots=N` a node, with the names that the scheduler uses; inside "
        "Slurm or "
        "PBS leave the hostfile out",
        next="cat HOSTFILE; scontrol show hostnames; cat $PBS_NODEFILE",
    ),
    _of(
        """
        Unable to locate the variable file
        Parsing error in variable file
        Error: an MCA parameter was listed more than once
        ERROR: The "*" command line option was listed more than once
        ERROR: * was unable to identify the proxy for your command
        The command line includes too many instances
        The provided command line option requires passing two
        The allocation upon which a job is to be executed
        The value provided for the following command line option
        A boolean directive was given a value
        The same directive was given twice
        The runtime option NOTIFYERRORS was set
        An unrecognized option was included on the
        An option was included on the * command line that requires
        A short option was provided to
        The xterm option was asked to display
        The following signal was included in the ess_base_forward_signals
        The system does not support trapping and forwarding
        Two mutually-exclusive MCA variables were specified
        An invalid value was supplied for an
        MCA framework parameters can only take a single negation
        The specified configuration file was not found
        """,
        id="PRTE-009",
        category="mpi-option",
        sentence="mpirun refuses an option: {what}",
        because="Open MPI 5 starts with PRRTE, whose options differ from those of Open MPI 4, or "
        "the same "
        "thing is given twice",
        fix="correct the option that it names (mpirun --help); look in OMPI_MCA_*, PRTE_MCA_*, "
        "PMIX_MCA_* and "
        "in ~/.openmpi/mca-params.conf for the other one",
        next="env | grep -E '(OMPI|PRTE|PMIX)_MCA'; cat ~/.openmpi/mca-params.conf",
    ),
    _of(
        """
        The specified location for the temporary directories
        PMIx was unable to create a shared memory backing file
        An attempt was made to open a shared memory backing file
        A PMIx server was unable to create the rendezvous file
        A PMIx server found a stale rendezvous file
        PMIx detected a call to mkdir
        A call to mkdir was unable to create
        There was an error when attempting to access the specified server
        We attempted to remove a file, but were unable
        """,
        id="PRTE-010",
        category="tmp-not-writable",
        sentence="mpirun or PMIx cannot write its session folder: {what}",
        because="the folder under /tmp (TMPDIR) is full, read-only, of another user, or left by "
        "an earlier job",
        fix="make room, remove old /tmp/ompi.* and /tmp/prte.*, or TMPDIR=/some/short/local/path",
        next="df -h /tmp; ls -ld /tmp/prte.* /tmp/ompi.*",
    ),
    _of(
        """
        It looks like "prte_init()" failed
        It looks like pmix_init failed
        It looks like orte_init failed
        It looks like MPI_INIT failed
        An internal error has occurred in PRTE
        An internal error has occurred during the startup of PMIx
        PRRTE has hit an internal problem
        We were unable to find any usable plugins for the
        A requested component was not found, or was unable to be opened
        PMIx was unable to find a usable compression library
        The pmix_mca_base_component_path MCA variable was used
        A received msg header indicates a size that is too large
        A data array is nested more deeply
        PMIx has found multiple possible servers
        A call was made to PMIx_tool_connect_to_server
        The PMIx server was given a
        The host environment answered a request with
        The fabric topology file
        A process was assigned specific Intel GPUs
        A PMIx tool asked to connect to its server
        A blocking call to * was made from the PMIx progress thread
        PMIx ERROR: *
        PRTE ERROR: *
        """,
        id="PRTE-011",
        category="mpi-init",
        role="symptom",
        sentence="MPI's runtime could not start: {what}",
        checks=(
            "the lines just before and after it, which name the call and the file",
            "whether mpirun, srun --mpi and the program's MPI use one PMIx (srun --mpi=list; "
            "ompi_info | grep -i "
            "pmix): start with mpirun, or srun --mpi=pmix",
            "whether components are missing in the image (OPAL_PREFIX, LD_LIBRARY_PATH), or /tmp "
            "is full",
        ),
    ),
)
