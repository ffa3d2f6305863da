"""Ranks that wait for others at the store: late or missing nodes, closed rendezvous, wrong settings."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = ("https://docs.pytorch.org/docs/stable/elastic/rendezvous.html",)
_MISSING = (
    "whether all nodes were started, with the same MASTER_ADDR, MASTER_PORT, WORLD_SIZE (--nnodes, "
    "--rdzv-id, --rdzv-endpoint) and each with its own rank: start the missing ones",
    "whether a missing node's log tells why it ended or cannot connect: name resolution, firewall, "
    "its own exception",
    "whether nodes start at very different times (image pulls, queues): raise the timeout "
    "(init_process_group(timeout=…), --rdzv-conf join_timeout=1800)",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="STORE-030",
        category="missing-ranks",
        role="cause",
        stage="wait",
        confidence="certain",
        anchors=("waiting for clients", "clients joined"),
        pattern=r"timed out after (?P<seconds>\d+) seconds waiting for clients\. "
        r"(?P<joined>\d+)/(?P<world>\d+) clients joined",
        sentence="only {joined} of {world} ranks joined the master within {seconds} s: the others "
        "did not start or cannot reach it",
        because="the master's store listened and counted who connected",
        costs="the job cannot start",
        fix="start all ranks with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE; read the log of "
        "a missing rank for name resolution or connection errors; open the port in the firewall",
        next="from a missing node: nc -vz $MASTER_ADDR $MASTER_PORT",
        explains=("launcher-exit", "exit-code", "store-peer", "rendezvous"),
        links=_LINKS,
        positive=(
            "torch.distributed.DistStoreError: Timed out after 11 seconds waiting for clients. 1/2 "
            "clients joined.",
            "RuntimeError: Timed out after 901 seconds waiting for clients. 7/16 clients joined.",
        ),
        negative=("Timed out waiting 3000ms for recv operation to complete",),
    ),
    Rule(
        id="STORE-031",
        category="rendezvous",
        role="symptom",
        stage="wait",
        anchors=("RendezvousConnectionError", "RendezvousTimeoutError", "RendezvousClosedError"),
        pattern=r"(?P<kind>rendezvous(?:connection|timeout|closed|state|gracefulexit)error)",
        unless=r"rendezvousgracefulexit",
        sentence="torchrun's rendezvous failed ({kind})",
        checks=(
            "whether the endpoint is reachable from every node: getent ahosts HOST; nc -vz HOST "
            "PORT: "
            "correct --rdzv-endpoint (one host, the same on all nodes), DNS or the firewall",
            *_MISSING,
            "whether another group already ended this rendezvous: use a fresh --rdzv-id a run",
        ),
        explains=("launcher-exit", "exit-code", "store-peer"),
        links=_LINKS,
        positive=(
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to "
            "the C10d store has failed. See inner exception for details.",
            "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
            "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        ),
        negative=("RendezvousGracefulExitError: exits",),
    ),
    Rule(
        id="STORE-032",
        category="store-timeout",
        role="symptom",
        stage="wait",
        anchors=("Socket Timeout", "wait timeout after", "Wait timeout", "Timed out initializing"),
        pattern=r"(?:runtimeerror|diststoreerror)[^:]*: .{0,40}socket timeout\b"
        r"|wait timeout after (?P<ms>\d+)ms, keys: (?P<keys>\S+)"
        r"|timed out initializing process group",
        sentence="a rank waited for another rank's key in the store, in vain",
        checks=(
            "whether a rank ended or never came so far: the earliest error of all ranks' logs "
            "(exception, OOM kill, network error) names it",
            *_MISSING,
            "whether a long step runs on one rank (data preparation, checkpoint, download): raise "
            "the timeout, or do it before init_process_group",
        ),
        explains=("launcher-exit", "exit-code", "store-peer"),
        links=_LINKS,
        positive=(
            "RuntimeError: Socket Timeout",
            "torch.distributed.DistStoreError: Socket Timeout",
            "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: "
            "/default_pg/0//cuda//ncclUniqueId:1:0:0",
        ),
        negative=("requests.exceptions.ReadTimeout: HTTPSConnectionPool: Read timed out.",),
    ),
    Rule(
        id="STORE-033",
        category="store-peer",
        role="consequence",
        stage="aftermath",
        anchors=(
            "recvValueWithTimeout failed",
            "TCPStore server has shut down",
            "Failed to recv, got 0 bytes",
            "sendBytes failed",
            "recvValue failed",
            "c10d store has failed",
            "Failed to check the",
        ),
        pattern=r"recvvalue(?:withtimeout)? failed|store server has shut down too early"
        r"|failed to recv, got 0 bytes|sendbytes failed|failed to check the [\"']should dump"
        r"|could not join the rendezvous.{0,40}store|failed to get exception dump flag",
        sentence="the store went away with the process that held it (rank 0 or its agent ended)",
        positive=(
            "[W TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3, "
            "addr=[node-0]:4123, remote=[node-0]:29500): failed to recv, got 0 bytes",
            "[W ProcessGroupNCCL.cpp:1662] [PG ID 0 PG GUID 0 Rank 1] Failed to check the "
            '"should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with '
            "error: Failed to recv, got 0 bytes. Connection was likely closed.",
        ),
        negative=("[c10d] The client socket has timed out after 60s",),
    ),
    Rule(
        id="STORE-034",
        category="world-settings",
        role="cause",
        confidence="certain",
        anchors=("environment variable",),
        pattern=r"environment variable (?P<name>RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|LOCAL_RANK)"
        r" expected, but not set",
        sentence="the environment variable {name} is not set: the program was started without a "
        "launcher",
        because="init_process_group reads rank, world size and the master from the environment, "
        "which torchrun and other launchers set",
        costs="the process group is not made",
        fix="start with torchrun (torchrun --nproc-per-node=8 train.py), or export RANK, "
        "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT from the launcher's own variables "
        "(SLURM_PROCID, OMPI_COMM_WORLD_RANK)",
        next="env | grep -E 'RANK|WORLD_SIZE|MASTER'",
        explains=("launcher-exit", "exit-code", "python-error"),
        links=(
            "https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-"
            "initialization",
        ),
        positive=(
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
            "variable RANK expected, but not set",
        ),
        negative=("NCCL_SOCKET_IFNAME set by environment to eth0",),
    ),
    Rule(
        id="STORE-035",
        category="world-settings",
        role="cause",
        confidence="certain",
        anchors=("rank < size", "rank >= 0"),
        pattern=r"enforce fail at.{0,120}rank < size\. (?P<number>\d+) vs (?P<world>\d+)",
        sentence="a process was given rank {number} in a world of {world} ranks",
        because="ranks count from 0 to the world size minus 1",
        costs="the process group is not made",
        fix="give each process its own rank from 0 to WORLD_SIZE - 1 (each node its own "
        "--node-rank), and the same WORLD_SIZE and --nnodes on all",
        next="on each node: env | grep -E 'RANK|WORLD_SIZE|NNODES'",
        explains=("launcher-exit", "exit-code", "missing-ranks"),
        links=_LINKS,
        positive=(
            "RuntimeError: [enforce fail at ../third_party/gloo/gloo/context.cc:27] rank < size. "
            "2 vs 2",
        ),
        negative=("world_size: 16", "Rank 3 out of 16"),
    ),
)
