"""MPI's RDMA and libfabric back ends that cannot start."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_DOWN = ("mpi-init", "mpi-transport", "launcher-exit", "exit-code")

RULES: tuple[Rule, ...] = (
    Rule(
        id="MPI-050",
        category="ib-memlock",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("allocate some locked memory", "locked memory"),
        pattern=r"failed to initialize while trying to allocate some locked memory",
        sentence="the limit of locked memory (memlock, ulimit -l) is too small for MPI's RDMA",
        because="the openib BTL registers its buffers with the NIC, which locks them in memory",
        costs="MPI goes without RDMA or stops",
        fix="ulimit -l unlimited for processes started over ssh and by Slurm (limits.conf, "
        "PropagateResourceLimitsExcept=MEMLOCK, LimitMEMLOCK=infinity); docker --ulimit memlock=-1",
        next="ssh HOST ulimit -l; srun -N1 bash -c 'ulimit -l'",
        explains=_DOWN,
        links=("https://docs.open-mpi.org/en/main/tuning-apps/networking/index.html",),
        positive=(
            "The OpenFabrics (openib) BTL failed to initialize while trying to allocate some "
            "locked "
            "memory.",
        ),
        negative=("WARNING: There was an error initializing an OpenFabrics device.",),
    ),
    Rule(
        id="MPI-051",
        category="mpi-transport",
        role="cause",
        stage="setup",
        anchors=(
            "OFI get address vector",
            "OFI endpoint open",
            "OFI domain",
            "provider not found",
            "OFI call tsend",
            "OFI call ",
        ),
        pattern=r"OFI (?:get address vector map|get universe size|domain open|create "
        r"provider|endpoint|ep enable"
        r"|call \w+) failed.{0,120}|no suitable provider|fi_getinfo.{0,60}provider not found",
        sentence="MPICH or Intel MPI cannot reach the other ranks over libfabric (OFI)",
        because="the provider that libfabric chose does not work between these nodes: wrong "
        "interface or NIC, "
        "processes that were started as separate jobs, or a provider that is not installed",
        costs="MPI_Init fails",
        fix="choose a provider that all nodes have: FI_PROVIDER=tcp (Intel MPI: "
        "I_MPI_OFI_PROVIDER=tcp) for a "
        "try, FI_TCP_IFACE=eth0 for the interface; then verbs, psm3, efa or cxi; use the mpiexec "
        "of this MPI",
        next="fi_info -l; fi_pingpong between the two nodes",
        explains=_DOWN,
        links=("https://ofiwg.github.io/libfabric/main/man/fabric.7.html",),
        positive=(
            "MPIDI_OFI_mpi_init_hook(1557): OFI get address vector map failed",
            "MPIDI_OFI_send_handler(704)............: OFI call tsend failed (ofi_impl.h:704: No "
            "route)",
        ),
        negative=("MPI startup(): libfabric provider: tcp",),
    ),
    Rule(
        id="MPI-052",
        category="mpi-transport",
        role="fact",
        anchors=(
            "initializing an OpenFabrics device",
            "No preset parameters were found",
            "Open MPI 4.0 and later, infiniband",
        ),
        pattern=r"error initializing an OpenFabrics device|no preset parameters were found for "
        r"the device|for "
        r"Open MPI 4\.0 and later, infiniband ports",
        sentence="Open MPI's old openib BTL is not used (harmless; --mca btl ^openib hides it)",
        positive=(
            "WARNING: There was an error initializing an OpenFabrics device.",
            "By default, for Open MPI 4.0 and later, infiniband ports on a device",
        ),
        negative=("The OpenFabrics (openib) BTL failed to initialize while trying",),
    ),
    Rule(
        id="MPI-053",
        category="mpi-version-mismatch",
        role="cause",
        stage="setup",
        anchors=(
            "undefined symbol: ompi_",
            "undefined symbol: opal_",
            "undefined symbol: MPI",
            "undefined symbol: orte_",
            "undefined symbol: mca_",
            "undefined symbol: PMIx",
            "undefined symbol: pmix",
        ),
        pattern=r"undefined symbol: (?P<symbol>(?:ompi|opal|orte|mca|prte|pmix|MPI[RXD]?)_?\w*)",
        sentence="libraries of two MPI installations are mixed: {symbol} is in neither",
        because="the program was built with another MPI (or version) than the one that "
        "LD_LIBRARY_PATH or the "
        "module leads to",
        costs="the process does not start",
        fix="one MPI only: the same module at build and run time, mpi4py and Horovod built "
        "against it; clean "
        "LD_LIBRARY_PATH; conda's MPI and the system's do not mix",
        next="ldd PROGRAM | grep -i mpi; command -v mpirun mpicc",
        explains=("library-missing", *_DOWN),
        positive=(
            "mpirun: symbol lookup error: mpirun: undefined symbol: "
            "opal_libevent2022_event_base_loop",
            "ImportError: /opt/mpi4py/MPI.so: undefined symbol: ompi_mpi_logical8",
        ),
        negative=("undefined symbol: ncclCommWindowRegister",),
    ),
)
