"""More or fewer processes than the world size says, counted by torch's barrier in the store."""

from collections.abc import Iterator

from wirespeed.diagnose.evidence import Evidence
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Hit

__all__ = ["RULES"]

_LINKS = ("https://docs.pytorch.org/docs/stable/distributed.html#initialization",)


def _with(evidence: Evidence, rule: Rule, more: bool) -> Iterator[Hit]:
    """The lines in which more (or fewer) have joined than the world size says."""
    for hit in evidence.seen["STORE-040"].hits:
        world, joined = int(hit.groups["world"]), int(hit.groups["joined"])
        if joined > world if more else joined < world:
            yield Hit(rule, hit.line, hit.groups)


def _too_many(evidence: Evidence) -> Iterator[Hit]:
    return _with(evidence, RULES[1], True)


def _too_few(evidence: Evidence) -> Iterator[Hit]:
    """Only what timed out: while it waits, fewer have joined in every healthy job too."""
    return _with(evidence, RULES[2], False)


def _too_many_clients(evidence: Evidence) -> Iterator[Hit]:
    for hit in evidence.seen["STORE-030"].hits:
        if int(hit.groups["joined"]) > int(hit.groups["world"]):
            yield Hit(RULES[-1], hit.line, hit.groups)


RULES: tuple[Rule, ...] = (
    Rule(
        id="STORE-040",
        category="world",
        role="fact",
        anchors=("worker_count=", "num_workers_joined="),
        pattern=r"world_size=(?P<world>\d+), (?:worker_count|num_workers_joined)=(?P<joined>\d+)",
        sentence="{joined} processes joined a world of {world}",
        positive=(
            "Waiting in store based barrier to initialize process group for rank: 0, key: "
            "store_based_barrier_key:1 (world_size=2, worker_count=4, timeout=0:30:00)",
            "key: store_based_barrier_key:1 (world_size=8, num_workers_joined=7, timeout=0:30:00)",
        ),
        negative=("Added key: store_based_barrier_key:1 to store for rank: 0",),
    ),
    Rule(
        id="STORE-041",
        category="world-mismatch",
        role="cause",
        stage="setup",
        needs=("STORE-040",),
        derive=_too_many,
        sentence="more processes joined than the world size says: {joined} workers (worker_count) "
        "in a "
        "world of {world} (world_size)",
        because="more processes were started than WORLD_SIZE counts (a launcher starts several "
        "and each "
        "spawns more), two jobs share one master address and port, or a file of an earlier run is "
        "used as the store",
        costs="the ranks wait for a number that never comes right, until the timeout",
        fix="make the number of started processes and the world size agree: one level starts "
        "processes "
        "(srun -n or torchrun or mp.spawn, not two of them); a fresh port and --rdzv-id each job; "
        "remove a stale store file (file:// init method)",
        next="echo $WORLD_SIZE $RANK in each process; ps aux | grep python",
        explains=("store-timeout", "missing-ranks", "rendezvous", "launcher-exit", "exit-code"),
        links=_LINKS,
    ),
    Rule(
        id="STORE-042",
        category="missing-ranks",
        role="cause",
        stage="wait",
        needs=("STORE-040", "STORE-043"),
        derive=_too_few,
        sentence="only {joined} of {world} ranks came to the store's barrier before its timeout: "
        "the "
        "others did not start, or do not reach the master",
        because="every rank counts itself in the store; the missing ones never came",
        costs="the job does not start",
        fix="look for the missing processes: nodes that did not start, a crash before init_process_"
        "group, another MASTER_ADDR or MASTER_PORT, a world size larger than the processes "
        "started, "
        "a firewall",
        next="on every node: ps aux | grep python; nc -vz MASTER_ADDR MASTER_PORT",
        explains=("store-timeout", "rendezvous", "launcher-exit", "exit-code"),
        links=_LINKS,
    ),
    Rule(
        id="STORE-043",
        category="world",
        role="fact",
        anchors=("in store based barrier on",),
        pattern=r"timed out initializing process group in store based barrier",
        sentence="the store's barrier timed out",
        positive=(
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 2, "
            "for key: store_based_barrier_key:1 (world_size=2, worker_count=4, timeout=0:30:00)",
        ),
        negative=("Waiting in store based barrier to initialize process group for rank: 0",),
    ),
    Rule(
        id="STORE-044",
        category="world-mismatch",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=(
            "node rank",
            "node_rank must",
            "is not divisible by",
            "exceeds world size",
            "not equal to",
            "than world",
        ),
        pattern=r"(?P<what>node[_ ]rank.{0,60}(?:must be|should be|less "
        r"than|exceeds).{0,40}(?:nnodes|nodes)|"
        r"rank (?P<number>\d+) (?:exceeds|is (?:greater|larger) than|must be "
        r"(?:less|"
        r"smaller) than) (?:the )?world[ _]size:? ?(?P<world>\d*)|node_rank=?(?P<node>\d+) .{0,40}"
        r"nnodes.{0,20}|(?:the )?world[ _]size \(?(?P<one>\d+)\)? (?:is not (?:equal to|divisible "
        r"by)|"
        r"does not match|!=).{0,60})",
        unless=r"batch",
        sentence="ranks and world size do not fit together: {what}",
        because="the settings of this process name another number of ranks or nodes than there are",
        costs="the job does not start",
        fix="the same --nnodes and --nproc-per-node on every node, --node-rank from 0 to nnodes - "
        "1; "
        "parallel sizes (tensor x pipeline x data) must multiply to the world size",
        next="echo $RANK $WORLD_SIZE $LOCAL_RANK in every process",
        explains=("python-error", "python-runtime", "launcher-exit", "exit-code"),
        links=_LINKS,
        positive=(
            "ValueError: The node rank is 2, but node_rank must be less than nnodes (2)",
            "RuntimeError: world size (12) is not divisible by total_model_size (8)",
            "ValueError: rank 8 exceeds world size 8",
            "AssertionError: world_size 6 is not divisible by tensor parallel size 4",
        ),
        negative=("world_size 8, rank 3", "IndexError: list index out of range"),
    ),
    Rule(
        id="STORE-045",
        category="world-mismatch",
        role="cause",
        stage="setup",
        needs=("STORE-030",),
        derive=_too_many_clients,
        sentence="more processes joined the master than the world size says: {joined} clients in "
        "a world of "
        "{world}",
        because="processes of another job, or left over from an earlier one, use the same master "
        "address and "
        "port, or more were started than WORLD_SIZE counts",
        costs="the ranks wait for a number that never comes right, until the timeout",
        fix="end left-over processes, give every job its own master port and --rdzv-id, and make "
        "the number of "
        "started processes and the world size agree",
        next="ps aux | grep python on all nodes; ss -tnp | grep MASTER_PORT on the master",
        explains=("missing-ranks", "store-timeout", "rendezvous", "launcher-exit", "exit-code"),
        links=_LINKS,
    ),
)
