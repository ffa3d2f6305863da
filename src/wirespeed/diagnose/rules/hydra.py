"""hydra, the launcher of MPICH, MVAPICH2 and Intel MPI."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = (
    "https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Using_the_Hydra_Process_Manager.md",
)
_OOM = (
    "whether the kernel killed it because host memory (RAM) ran out: dmesg -T | grep -i 'out of "
    "memory' (in a container: memory.events, kubectl describe pod): use less host memory or raise "
    "the limit"
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="HYD-001",
        category="host-oom-kill",
        role="symptom",
        stage="machine",
        anchors=("EXIT CODE: 9", "EXIT CODE: 137", "KILLED BY SIGNAL: 9", "EXIT STRING: Killed"),
        pattern=r"=\s+exit code: (?:9|137)\s*$|killed by signal: 9\b|exit string: killed",
        sentence="a process was killed with SIGKILL (signal 9): most often host memory ran out "
        "(OOM)",
        checks=(
            _OOM,
            "whether the scheduler ended the job (time or memory limit: sacct -j JOB): ask for "
            "more",
            "whether somebody or a script killed it (kill -9): start it again",
        ),
        explains=("launcher-exit", "exit-code"),
        links=_LINKS,
        positive=(
            "=   EXIT CODE: 9",
            "=   KILLED BY SIGNAL: 9 (Killed)",
            "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)",
        ),
        negative=("=   EXIT CODE: 11", "=   EXIT CODE: 99"),
    ),
    Rule(
        id="HYD-002",
        category="crash",
        role="symptom",
        stage="program",
        anchors=("EXIT CODE: ", "KILLED BY SIGNAL: ", "EXIT STRING: "),
        pattern=r"=\s+exit code: (?:11|139|4|8)\s*$|killed by signal: (?:11|4|8)\b"
        r"|exit string: segmentation fault",
        sentence="a process crashed (segmentation fault or illegal instruction)",
        checks=(
            "the crashed rank's last lines above: its own error message or stack names the "
            "function",
            "whether libraries fit together (ldd PROGRAM: one MPI, one NCCL, one CUDA): rebuild or "
            "set LD_LIBRARY_PATH",
            "a core file: ulimit -c unlimited, then gdb PROGRAM core",
        ),
        explains=("launcher-exit",),
        links=_LINKS,
        positive=(
            "=   EXIT CODE: 11",
            "=   EXIT CODE: 139",
            "=   KILLED BY SIGNAL: 11 (Segmentation fault)",
            "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault (signal 11)",
        ),
        negative=("=   EXIT CODE: 1", "=   EXIT CODE: 9"),
    ),
    Rule(
        id="HYD-003",
        category="shm-too-small",
        role="symptom",
        anchors=("EXIT CODE: 7", "EXIT CODE: 135", "KILLED BY SIGNAL: 7", "EXIT STRING: Bus error"),
        pattern=r"=\s+exit code: (?:7|135)\s*$|killed by signal: 7\b|exit string: bus error",
        sentence="a process ended with a bus error (SIGBUS, signal 7): most often /dev/shm is full",
        checks=(
            "whether /dev/shm, the shared memory, is too small (df -h /dev/shm): docker run "
            "--shm-size=1g or --ipc=host; in Kubernetes an emptyDir with medium: Memory",
            "whether a file that is mapped was cut short or its file system is full: free space",
        ),
        explains=("launcher-exit",),
        links=_LINKS,
        positive=("=   EXIT CODE: 7", "=   KILLED BY SIGNAL: 7 (Bus error)"),
        negative=("=   EXIT CODE: 77",),
    ),
    Rule(
        id="HYD-004",
        category="launcher-exit",
        role="symptom",
        stage="aftermath",
        anchors=("BAD TERMINATION OF ONE", "Abort("),
        pattern=r"bad termination of one of your application processes"
        r"|abort\(-?\d+\) on node \d+ \(rank (?P<rank>\d+) in comm",
        sentence="one process ended badly and hydra ended all others",
        checks=(
            "the EXIT CODE or SIGNAL in the lines below: 9 is a kill (memory), 11 a crash",
            "the first error message above, in the log of the rank or host it names",
        ),
        links=_LINKS,
        positive=(
            "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
            "Abort(7) on node 1 (rank 1 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, "
            "7)",
        ),
        negative=("Aborted (core dumped)",),
    ),
    Rule(
        id="HYD-005",
        category="mpi-executable",
        role="cause",
        confidence="certain",
        anchors=("execvp error on file",),
        pattern=r"execvp error on file (?P<file>[^(]{1,300}?) \((?P<why>[^)]+)\)",
        sentence="hydra cannot start {file}: {why}",
        because="the program must exist at the same path on every node, be executable, and be "
        "built "
        "for it; a word that is no option is taken for the program",
        costs="no process runs",
        fix="give the full path, install or mount the program on all nodes, chmod +x; look at the "
        "launcher's options before it",
        next="on each node: ls -l {file}",
        explains=("launcher-exit",),
        links=_LINKS,
        positive=(
            "HYDU_create_process (utils/launch/launch.c:73): execvp error on file ./nonexistent "
            "(No such file or directory)",
            "HYD_spawn (libhydra/spawn/intel/hydra_spawn.c:177): execvp error on file ./a.out "
            "(Permission denied)",
        ),
        negative=("[mpiexec@vm] main (ui/mpich/mpiexec.c:127): error parsing parameters",),
    ),
    Rule(
        id="HYD-006",
        category="mpi-daemon",
        role="symptom",
        anchors=(
            "Unable to run bstrap_proxy",
            "bootstrap proxies",
            "unable to write data to proxy",
        ),
        pattern=r"unable to run bstrap_proxy on|setting up the bootstrap proxies"
        r"|unable to write data to proxy",
        sentence="hydra could not start its proxy on another node",
        checks=(
            "whether ssh to that host works without a password: ssh -o BatchMode=yes HOST true",
            "whether its name resolves (getent hosts HOST) and the node is up",
            "whether MPI is installed there at the same path: ssh HOST command -v hydra_pmi_proxy",
            "whether a firewall blocks the way back to mpiexec: open a range (MPIEXEC_PORT_RANGE, "
            "Intel MPI: I_MPI_PORT_RANGE), and choose the interface with -iface eth0",
        ),
        links=_LINKS,
        positive=(
            "[mpiexec@vm] Error: Unable to run bstrap_proxy on nohost (pid 22751, exit code 65280)",
            "HYD_pmcd_pmiserv_send_signal (pm/pmiserv/pmiserv_cb.c:176): unable to write data to "
            "proxy",
        ),
        negative=("[mpiexec@vm] main (ui/mpich/mpiexec.c:325): process manager error",),
    ),
    Rule(
        id="HYD-007",
        category="mpi-wrong-interface",
        role="cause",
        stage="network",
        anchors=("HYDU_sock_connect", "unable to connect from", "unable to connect to server"),
        pattern=r"unable to connect from \"?(?P<source>[^\"\s]+)\"? to \"?(?P<target>[^\"\s]+)\"?"
        r"|unable to connect to server (?P<server>\S+)|HYDU_sock_connect.{1,200}connect error",
        sentence="a proxy on another node cannot connect back to mpiexec",
        because="mpiexec told the proxies a name or address that they cannot reach: a host name "
        "that "
        "means 127.0.0.1, an interface of another network, or a firewall in the way",
        costs="the job does not start",
        fix="mpiexec -iface eth0 (the network that all nodes share), correct /etc/hosts, and "
        "open the "
        "ports between the nodes (MPIEXEC_PORT_RANGE; Intel MPI: I_MPI_PORT_RANGE)",
        next="on that node: getent hosts LAUNCHER; nc -vz LAUNCHER PORT",
        explains=("mpi-daemon", "launcher-exit"),
        links=_LINKS,
        positive=(
            "[proxy:0:1@n2] HYDU_sock_connect (utils/sock/sock.c:145): unable to connect from "
            '"n2" to '
            '"n1" (Connection refused)',
            "[proxy:0:1@n2] main (pm/pmiserv/pmip.c:183): unable to connect to server n1 at port "
            "4379"
            " (check for firewalls!)",
        ),
        negative=("[mpiexec@vm] HYDU_sock_write (utils/sock/sock.c:254): write error (Bad file",),
    ),
    Rule(
        id="HYD-008",
        category="mpi-hostfile",
        role="cause",
        confidence="certain",
        anchors=("unable to open host file", "error parsing hostfile", "error parsing parameters"),
        pattern=r"unable to open host file: (?P<file>\S+)",
        sentence="the host file {file} cannot be opened",
        because="hydra says so",
        costs="nothing starts",
        fix="give the right path after -f (or -hosts n1,n2)",
        next="ls -l {file}",
        links=_LINKS,
        positive=(
            "HYDU_parse_hostfile (utils/args/args.c:319): unable to open host file: /nofile",
        ),
        negative=("mfile_fn (ui/mpich/utils.c:333): error parsing hostfile",),
    ),
    Rule(
        id="HYD-009",
        category="mpi-not-on-node",
        role="cause",
        confidence="certain",
        anchors=("hydra_pmi_proxy", "hydra_bstrap_proxy"),
        pattern=r"(?P<file>hydra_(?:pmi|bstrap)_proxy):? (?:command not found|not found|no such "
        r"file)",
        sentence="{file} is missing on a node: MPI is not installed there at this path",
        because="hydra starts its proxy from the same path as on the launcher",
        costs="no process is started on that node",
        fix="install the same MPI at the same path on every node (or share it), or put it into "
        "PATH "
        "for shells without a login (~/.bashrc)",
        next="ssh HOST command -v {file}",
        explains=("mpi-daemon", "launcher-exit"),
        links=_LINKS,
        positive=(
            "bash: /opt/mpich/bin/hydra_pmi_proxy: No such file or directory",
            "bash: line 1: hydra_bstrap_proxy: command not found",
        ),
        negative=("Make sure hydra_bstrap_proxy is available on all hosts and it has right",),
    ),
    Rule(
        id="HYD-010",
        category="launcher-exit",
        role="consequence",
        stage="aftermath",
        anchors=("HYDT_dmx", "HYD_dmx", "HYD_pmci_wait_for", "HYDT_bscu_wait", "HYD_pmcd_pmi"),
        pattern=r"HYDT?_dmxu?_poll_wait_for_\w*event|HYD_pmci_wait_for_completion"
        r"|HYDT_bscu_wait_for_completion|control_cb \(.{1,80}assert \(!closed\)",
        sentence="hydra ends because a process or proxy has ended",
        positive=(
            "HYDT_dmxu_poll_wait_for_event (tools/demux/demux_poll.c:76): callback returned error",
            "HYD_pmci_wait_for_completion (pm/pmiserv/pmiserv_pmci.c:160): error waiting for event",
        ),
        negative=("HYDU_parse_array (utils/args/args.c:178): argument matching returned error",),
    ),
    Rule(
        id="HYD-011",
        category="mpi-transport",
        role="cause",
        anchors=("OFI addrinfo", "OFI fi_getinfo", "OFI call ep", "OFI endpoint", "ofi_init"),
        pattern=r"OFI (?:addrinfo|fi_getinfo|call ep enable|endpoint open)\S* ?\S* failed"
        r"|OFI addrinfo\(\) failed",
        unless=r"NCCL|NET/OFI",
        sentence="MPICH or Intel MPI cannot use its libfabric (OFI) provider on a node",
        because="the provider asked for (FI_PROVIDER) is not there or its device cannot be opened",
        costs="MPI_Init fails on every rank",
        fix="choose one that works: FI_PROVIDER=tcp (Intel MPI: I_MPI_OFI_PROVIDER=tcp), or give the "
        "container its devices and ulimit -l unlimited",
        next="fi_info -l",
        explains=("launcher-exit", "mpi-init"),
        links=("https://ofiwg.github.io/libfabric/",),
        positive=(
            "MPIDI_OFI_mpi_init_hook(1113)...: OFI addrinfo() failed (ofi_init.c:1113:",
            "MPIDI_OFI_mpi_init_hook(667): OFI fi_getinfo() failed (ofi_init.c:667:open:No data)",
        ),
        negative=(
            "NET/OFI Using aws-ofi-nccl 1.7.4aws",
            "nccl_net_ofi_rdma_init:7978 NCCL WARN NET/OFI OFI fi_getinfo() call failed: No data "
            "available",
        ),
    ),
    Rule(
        id="HYD-012",
        category="mpi-wrong-interface",
        role="cause",
        confidence="certain",
        anchors=("get_iface_ip",),
        pattern=r"get_iface_ip .{1,200}: unable to find interface (?P<name>\S+)",
        sentence="hydra was told to use the interface {name}, which does not exist where mpirun runs",
        because="-iface names an interface of the launching node; names differ between machines",
        costs="no process runs",
        fix="give one that exists there and leads to the other nodes (-iface eth0; wirespeed "
        "launch: --interface eth0), or none",
        next="ip -br address",
        explains=("mpi-daemon", "launcher-exit"),
        links=_LINKS,
        positive=(
            "[mpiexec@node-0] HYDU_sock_get_iface_ip (lib/utils/sock.c:447): unable to find "
            "interface ib7",
            "[mpiexec@node-0] HYD_sock_get_iface_ip (hydra_sock_intel.c:421): unable to find "
            "interface ib7",
        ),
        negative=(
            "[mpiexec@node-0] get_local_host (i_hydra_bstrap.c:260): unable to get iface ip",
        ),
    ),
)
