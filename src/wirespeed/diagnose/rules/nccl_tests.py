"""nccl-tests: its headers, tables, summaries and failures."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = ("https://github.com/NVIDIA/nccl-tests",)
_TYPE = r"(?:u?int(?:8|32|64)?|half|float|double|bfloat16|fp8_e\dm\d|f8e\dm\d|char)"
_TYPES = (
    "float  ",
    "   half  ",
    "  char  ",
    "   int   ",
    " bfloat16 ",
    " double  ",
    " int8  ",
    " int32  ",
    " int64  ",
    " uint8  ",
    " uint32 ",
    " uint64 ",
    " fp8_e",
    "f8e4m3",
    "f8e5m2",
)
_ROW = rf"^\s*\d+\s+\d+\s+{_TYPE}\s+(?:[a-z]\w*\s+)?(?:-?\d+\s+)?"
_RATE = r"\d+\.\d+\s+"
_THREE = rf"\d+(?:\.\d+)?\s+{_RATE}{_RATE}(?:{_RATE})?"
"""Time, algbw and busbw, in 2024 and 2025 a fourth figure; only a time may be without decimals, so that
it is not taken for a root."""
_BAD = r"(?:[1-9]\d*|[1-9](?:\.\d+)?e\+\d+|[1-9](?:\.\d+)?e-01|nan|inf)(?!\S)"
_MPI = (
    "make clean, then make MPI=1 MPI_HOME=/path/to/mpi (old objects stay without MPI otherwise); "
    "then mpirun -np 2 -H host0:1,host1:1 … starts one job of all ranks"
)
_FAILURES = tuple(f"NT-02{number}" for number in range(8))
"""Rules that tell how nccl-tests itself failed: nccl_tests_failures.py."""

RULES: tuple[Rule, ...] = (
    Rule(
        id="NT-001",
        category="nccl-tests",
        role="fact",
        last=True,
        anchors=("minBytes ",),
        pattern=r"nThread (?P<threads>\d+) nGpus (?P<gpus>\d+) minBytes (?P<least>\d+) maxBytes "
        r"(?P<most>\d+)",
        sentence="nccl-tests with {threads} threads of {gpus} GPUs a process, {least} to {most} "
        "bytes",
        positive=("# nThread 1 nGpus 6 minBytes 262144 maxBytes 536870912 step: 2(factor) warmup",),
        negative=("Reducing maxBytes to 27951912277 due to memory limitation",),
    ),
    Rule(
        id="NT-002",
        category="version",
        role="fact",
        anchors=("nccl-tests version", "nccl-library="),
        pattern=r"nccl-tests version (?P<version>\S+)(?:.*nccl-library=(?P<nccl>\d+))?",
        sentence="nccl-tests {version}",
        positive=("# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809",),
        negative=("NCCL version 2.21.5+cuda12.4",),
    ),
    Rule(
        id="NT-003",
        category="gpus",
        role="fact",
        anchors=(" device ",),
        pattern=r"#?\s*Rank\s+(?P<rank>\d+)\s+(?:Group\s+\d+\s+)?(?:Pid\s+(?P<pid>\d+)\s+)?on\s+"
        r"(?P<host>\S+)\s+"
        r"device\s+(?P<gpu>\d+)\s+\[\S+\]\s+(?P<model>\S.*)",
        sentence="rank {rank} on {host}: GPU {gpu}, {model}",
        positive=(
            "#   Rank  0 Pid   1115 on host0 device  0 [0x3b] Tesla V100-PCIE-32GB",
            "#  Rank  0 Group  0 Pid  89 on n1 device  0 [0000:16:00] NVIDIA H100 80GB HBM3",
            "#   Rank  0 on     noder3 device  0 [0x00] Tesla P100-PCIE-16GB",
        ),
        negative=("rank 0 and rank 1 both on CUDA device 1000",),
    ),
    Rule(
        id="NT-004",
        category="table",
        role="fact",
        ends=True,
        anchors=_TYPES,
        pattern=_ROW + _THREE,
        sentence="results of nccl-tests",
        positive=(
            "        4096          1024     float     sum    95.70    0.04    0.09  1e-06    "
            "95.11    0.04",
            "   8388608   2097152   float   sum   -1   160.6   52.23   97.93   0   159.9   52.46 "
            "  98.36",
        ),
        negative=("#        (B)    (elements)                       (us)  (GB/s)  (GB/s)",),
    ),
    Rule(
        id="NT-005",
        category="busbw",
        role="fact",
        last=True,
        anchors=("Avg bus bandwidth",),
        pattern=r"avg bus bandwidth\s*:\s*(?P<busbw>[\d.]+)",
        sentence="average bus bandwidth {busbw} GB/s",
        positive=("# Avg bus bandwidth    : 3.89817", "# Avg bus bandwidth    : 0"),
        negative=("# Out of bounds values : 0 OK",),
    ),
    Rule(
        id="NT-010",
        category="mpi-separate-jobs",
        role="cause",
        anchors=("Avg bus bandwidth",),
        pattern=r"avg bus bandwidth\s*:",
        absent=("NT-001", "NT-003", "NT-004"),
        least=2,
        sentence="two or more summaries of nccl-tests: the launcher ran separate, independent "
        "copies "
        "instead of one job (nccl-tests was built without MPI support)",
        because="one job prints one summary, by rank 0; without MPI=1 every process is a rank 0 "
        "of its "
        "own with the GPUs of one host. (Tests run one after another print several, too)",
        costs="nothing was measured between the processes",
        fix=_MPI,
        next="ldd build/all_reduce_perf | grep mpi",
        links=_LINKS,
        positive=("# Avg bus bandwidth    : 3.89817",),
        negative=("# Out of bounds values : 0 OK",),
    ),
    Rule(
        id="NT-011",
        category="mpi-separate-jobs",
        role="cause",
        anchors=("minBytes ",),
        pattern=r"nThread \d+ nGpus \d+ minBytes",
        absent=("NT-005", "NT-004", "NT-020", "NT-021", "NT-022", "NT-023"),
        least=2,
        sentence="two or more headers of nccl-tests before any result: the launcher started "
        "separate, "
        "independent copies (nccl-tests was built without MPI support)",
        because="one job prints one header, by rank 0; without MPI=1 every process is a rank 0 "
        "of its "
        "own and uses the GPUs of its host only",
        costs="nothing is measured between the processes; copies on one host share its GPUs",
        fix=_MPI,
        next="ldd build/all_reduce_perf | grep mpi",
        explains=("NT-030",),
        links=_LINKS,
        positive=("# nThread 1 nGpus 6 minBytes 262144 maxBytes 536870912 step: 2(factor)",),
        negative=("# Using devices",),
    ),
    Rule(
        id="NT-012",
        category="nccl-too-old",
        role="cause",
        confidence="certain",
        anchors=("compiled with NCCL 1.", "compiled with NCCL 0."),
        pattern=r"nccl tests compiled with nccl (?P<version>[01]\.\d+)",
        sentence="nccl-tests was built against NCCL {version}, an obsolete version: NCCL 1 is "
        "too old",
        because="NCCL 1 knows one node and GPUs of its time only; nccl-tests needs NCCL 2",
        costs="NCCL fails, often with 'unhandled cuda error'",
        fix="install NCCL 2 (libnccl2 and libnccl-dev for this CUDA) and build nccl-tests anew: "
        "make "
        "clean; make NCCL_HOME=/path/to/nccl2",
        next="ldd build/all_reduce_perf | grep nccl",
        explains=("NT-020",),
        links=("https://docs.nvidia.com/deeplearning/nccl/install-guide/index.html", *_LINKS),
        positive=("# NCCL Tests compiled with NCCL 1.0",),
        negative=("# NCCL Tests compiled with NCCL 2.4",),
    ),
    Rule(
        id="NT-013",
        category="data-corruption",
        role="symptom",
        stage="network",
        anchors=("Out of bounds values",),
        pattern=r"out of bounds values\s*:\s*(?P<count>[1-9]\d*)",
        sentence="nccl-tests found wrong results: {count} out-of-bounds values (FAILED), data were "
        "corrupted",
        checks=(
            "whether NCCL itself has the bug (sizes of 4 GiB and more in old versions): upgrade "
            "to a "
            "newer NCCL that has the fix and run again",
            "whether peer-to-peer copies are wrong (IOMMU or PCIe ACS on, consumer GPUs): run with "
            "NCCL_P2P_DISABLE=1; if it is right then, disable ACS/IOMMU",
            "whether the network path is wrong: run with NCCL_NET_GDR_LEVEL=LOC, "
            "NCCL_IB_DISABLE=1, and "
            "pairs of nodes, to find the bad node or NIC",
            "whether a GPU's memory is bad: nvidia-smi -q -d ECC; dcgmi diag -r 3",
        ),
        links=_LINKS,
        positive=(
            " Out of bounds values : 2 FAILED",
            "# Out of bounds values : 12 FAILED",
        ),
        negative=("# Out of bounds values : 0 OK",),
    ),
    Rule(
        id="NT-014",
        category="data-corruption",
        role="symptom",
        stage="network",
        anchors=_TYPES,
        pattern=_ROW + _THREE + rf"(?:{_BAD}|\S+\s+{_THREE}{_BAD})",
        unless=r"\bhalf\b.*\de-0|\bbfloat16\b.*\de-0",
        sentence="a row of nccl-tests has wrong values (#wrong or error column): data were "
        "corrupted",
        checks=(
            "whether a newer NCCL has a fix: upgrade NCCL, run again",
            "whether peer-to-peer copies are wrong (IOMMU or ACS): NCCL_P2P_DISABLE=1 for a try",
            "whether one node, NIC or GPU is at fault: run on pairs of nodes; nvidia-smi -q -d ECC",
        ),
        links=_LINKS,
        positive=(
            "   8388608   2097152   float   sum   -1   160.6   52.23   97.93   17   159.9   52.4 "
            "  98.3   0",
            "   8388608   2097152   float   sum   -1   160.6   52.23   97.93    0   159.9   52.4 "
            "  98.3   4",
            "  4294967296     134217728   float    29442  127.65  127.65  1e+00    29490  127.44 "
            " 127.44",
        ),
        negative=(
            "  4096  1024  float  sum  95.70  0.04  0.09  1e-06  95.11  0.04  0.09  1e-06",
            "   8388608   2097152   float   sum   -1   160.6   52.23   97.93   0   159.9   52.4  "
            " 98.3   0",
            "  4096  1024  float  none  0  95.70  0.04  0.09  N/A  95.11  0.04  0.09  N/A",
            "  4096  1024  float     95.70  0.04  0.09    0  95.11  0.04  0.09  0",
            "  4096  1024  half  sum  95.70  0.04  0.09  4e-03  95.11  0.04  0.09  4e-03",
        ),
    ),
    Rule(
        id="NT-031",
        category="table-cut",
        role="symptom",
        stage="wait",
        needs=("NT-001", "NT-004"),
        absent=("NT-005", *_FAILURES),
        sentence="the table of nccl-tests breaks off: no closing lines follow its rows (a hang, a job "
        "that was ended, or the log was cut)",
        checks=(
            "whether the log is whole: the last lines of nccl-tests are `# Out of bounds values` and "
            "`# Avg bus bandwidth`",
            "whether it hangs at the next size: py-spy or gdb on its processes, NCCL_DEBUG=INFO",
            "whether its launcher ended it: a time limit, a signal, memory (dmesg, sacct)",
        ),
        links=_LINKS,
    ),
    Rule(
        id="NT-030",
        category="p2p-hang",
        role="symptom",
        stage="wait",
        needs=("NT-001",),
        absent=("NT-004", "NT-005", *_FAILURES),
        sentence="nccl-tests stops after its header: no result row follows (a hang, or the log "
        "was cut)",
        checks=(
            "whether GPU peer-to-peer (P2P) copies hang: PCIe ACS or the IOMMU redirects or blocks "
            "them. Run with NCCL_P2P_DISABLE=1; if it goes on then, disable ACS (setpci) and IOMMU "
            "(iommu=pt or off in BIOS or kernel command line)",
            "whether two nodes cannot reach each other: NCCL_SOCKET_IFNAME, firewall; try one node "
            "alone first",
            "whether RDMA hangs: run with NCCL_IB_DISABLE=1; check GID index and link",
            "where it waits: NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH and py-spy or gdb",
        ),
        links=(
            "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
            "#pci-access-control-services-acs",
        ),
    ),
)
