"""Ranks that do not call the same collectives, or not with the same sizes; DDP's checks of this."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = (
    "https://docs.pytorch.org/docs/stable/distributed.html#debugging-torch-distributed-applications",
)
_DDP = (
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
)
_GONE = (
    "watchdog-timeout",
    "barrier-timeout-preprocessing",
    "watchdog-aftermath",
    "gloo-peer",
    "gloo-timeout",
    "store-peer",
    "nccl-remote-error",
    "nccl-trace",
    "launcher-exit",
    "exit-code",
    "sigterm",
)
_FIX = (
    "call the same collectives on all ranks: same place, order, sizes and types; look for a branch "
    "on the rank or on the data (if rank == 0, an uneven last batch, a skipped step, logging with "
    "sync_dist or all_gather on some ranks only)"
)
_DESYNC = "torch compared what each rank wrote to the store (desync report)"
_WAITING = "the other ranks wait until the watchdog's timeout"
_BEHIND = (
    "read that rank's log and Python stack: exception, kill, longer work, or a branch that skips "
    "the collective; all ranks must call the same ones"
)
_COSTS = "without the check the job hangs until the watchdog's timeout, or computes garbage"
_PRINT = (
    r"\(?(?:SequenceNumber=(?P<seq{n}>\d+),? ?)?OpType=(?P<op{n}>\w+)"
    r"(?:, TensorShape=\[(?P<shape{n}>[\d, ]*)\])?"
)
_FULL = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=0, OpType=BROADCAST, TensorShape=[4], "
    "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, "
    "layout=Strided (default), requires_grad=false (default), pinned_memory=false (default), "
    "memory_format=(nullopt))), but Rank 0 is running collective: CollectiveFingerPrint("
    "SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float).Collectives differ "
    "in the following aspects: \t Op type: BROADCASTvs ALLREDUCE"
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="MM-001",
        category="collective-mismatch",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("Detected mismatch between collectives",),
        pattern=r"rank (?P<one>\d+) is running (?:inconsistent )?collective: CollectiveFingerPrint"
        + _PRINT.format(n="1")
        + r".{0,400}?but rank (?P<other>\d+) is running collective: (?:CollectiveFingerPrint"
        + _PRINT.format(n="2")
        + r"|(?P<name>\w+))",
        sentence="ranks call different collectives at the same point (mismatch): rank {one} "
        "{op1} of shape [{shape1}], rank {other} {op2} of shape [{shape2}]",
        because="torch compared what the ranks call before running it: their control flow or their "
        "tensor shapes diverged",
        costs=_COSTS,
        fix=_FIX,
        next="in the Python stack above that line on each rank: the call that differs",
        explains=("MM-002", *_GONE),
        links=_LINKS,
        positive=(
            _FULL,
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running "
            "collective: CollectiveFingerPrint(OpType=ALLGATHER, TensorShape=[6], "
            "TensorDtypes=Double), but Rank 0 is running collective: "
            "CollectiveFingerPrint(OpType=_ALLGATHER_BASE).",
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running "
            "collective: CollectiveFingerPrint(OpType=ALLREDUCE, TensorShape=[20, 10]), but Rank "
            "1 is running collective: REDUCE.",
        ),
        negative=(
            "[I ProcessGroupWrapper.cpp:562] [Rank 0] Running collective: CollectiveFingerPrint("
            "SequenceNumber=1277, OpType=ALLREDUCE, TensorShape=[])",
        ),
    ),
    Rule(
        id="MM-002",
        category="collective-mismatch",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("Detected mismatch between collectives", "ranks differ in the following aspects"),
        pattern=r"detected mismatch between collectives on ranks"
        r"(?:\. rank (?P<one>\d+) is running (?:inconsistent )?collective: CollectiveFingerPrint"
        r"\((?:SequenceNumber=(?P<seq>\d+),? ?)?OpType=(?P<op>\w+))?",
        sentence="ranks call different collectives at the same point (mismatch); rank {one} is in "
        "{op}",
        because="torch compared what the ranks call before running it: their control flow or their "
        "tensor shapes diverged",
        costs=_COSTS,
        fix=_FIX,
        next="in the Python stack above that line on each rank: the call that differs",
        explains=_GONE,
        links=_LINKS,
        positive=(
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 3 is running "
            "inconsistent collective: CollectiveFingerPrint(OpType=BARRIER)",
            _FULL,
        ),
        negative=("[Rank 0] Running collective: CollectiveFingerPrint(OpType=ALLREDUCE",),
    ),
    Rule(
        id="MM-010",
        category="desync",
        role="cause",
        stage="wait",
        confidence="certain",
        anchors=("but didn't join collective",),
        # A lone "[1] " at the line's start reads like a launcher's rank prefix, and is one in effect.
        pattern=r"(?:^|\[(?P<rank>\d+)\] |- )finished collective #(?P<seq>\d+), but didn't join "
        r"collective #(?P<following>\d+)",
        sentence="a rank is behind: it finished collective {seq} and never joined {following}, for "
        "which the others wait",
        because=_DESYNC,
        costs=_WAITING,
        fix=_BEHIND,
        next="on that rank's node: py-spy dump --pid PID",
        explains=("MM-011", *_GONE),
        links=_LINKS,
        positive=(
            "  [1] finished collective #11, but didn't join collective #12 (count from 1)",
            "The ranks: [1] finished collective #11, but didn't join collective #12 (count from 1)",
        ),
        negative=("Rank 1 finished epoch 3",),
    ),
    Rule(
        id="MM-013",
        category="desync",
        role="cause",
        stage="wait",
        confidence="certain",
        anchors=("but didn't join collective",),
        pattern=r"\[(?P<missing>\d+, [\d, ]+)\] finished collective #(?P<seq>\d+), but didn't join "
        r"collective #(?P<following>\d+)",
        sentence="ranks {missing} are behind: they finished collective {seq} and never joined "
        "{following}, for which the others wait",
        because=_DESYNC,
        costs=_WAITING,
        fix=_BEHIND,
        next="on the nodes of ranks {missing}: py-spy dump --pid PID",
        explains=("MM-011", *_GONE),
        links=_LINKS,
        positive=(
            "  [1, 3] finished collective #11, but didn't join collective #12 (count from 1)",
        ),
        negative=("  [1] finished collective #11, but didn't join collective #12 (count from 1)",),
    ),
    Rule(
        id="MM-011",
        category="desync",
        role="cause",
        stage="wait",
        anchors=("joined but didn't finish collective",),
        pattern=r"\[(?P<waiting>[\d, ]+)\] joined but didn't finish collective #(?P<seq>\d+)",
        sentence="ranks {waiting} joined collective {seq} and did not finish it: the ranks are out "
        "of step (desync)",
        because="torch compared what each rank wrote to the store; in its snapshot the ranks that "
        "stand in another operation, or are not listed, are those to look at",
        costs="all ranks wait until the watchdog's timeout",
        fix=_FIX + "; where all ranks stand in the same one, look for a network or P2P error "
        "(NCCL_DEBUG=INFO)",
        next="run again with TORCH_DISTRIBUTED_DEBUG=DETAIL",
        explains=_GONE,
        links=_LINKS,
        positive=("  - [0, 2] joined but didn't finish collective #12 (count from 1)",),
        negative=("[rank0]: joined the rendezvous",),
    ),
    Rule(
        id="MM-012",
        category="collective-mismatch",
        role="cause",
        stage="program",
        anchors=("message truncated",),
        pattern=r"message truncated.{0,60}local size:? (?P<mine>\d+),? remote size:? (?P<theirs>\d+)",
        sentence="two ranks call a collective with different sizes (mismatch): local {mine}, "
        "remote {theirs} bytes",
        because="the sender's message is longer than the receiver expects: sizes, order of "
        "collectives or NCCL's settings differ between ranks",
        costs="the job ends, or computes garbage",
        fix="call the same collectives with the same sizes on all ranks, and give all the same "
        "NCCL version, environment (NCCL_*) and configuration",
        next="run again with TORCH_DISTRIBUTED_DEBUG=DETAIL and NCCL_DEBUG_SUBSYS=COLL",
        explains=_GONE,
        links=_LINKS,
        positive=("NCCL WARN NET/Socket : message truncated : local size 4096 remote size 65536",),
        negative=("message received: 1024 bytes",),
    ),
    Rule(
        id="MM-020",
        category="ddp-unused-parameters",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("Expected to have finished reduction in the prior iteration",),
        pattern=r"expected to have finished reduction in the prior iteration",
        sentence="DDP: some parameters took no part in the loss, so their gradients were never "
        "reduced (unused parameters)",
        because="DDP waits for a gradient of every parameter in each step; the line 'Parameter "
        "indices which did not receive grad' names those without",
        costs="this rank ends; where ranks differ, the others hang",
        fix="use all parameters in forward's result, freeze those unused (requires_grad=False) "
        "before DDP, or DistributedDataParallel(…, find_unused_parameters=True)",
        next="run again with TORCH_DISTRIBUTED_DEBUG=DETAIL: it names the parameters",
        explains=_GONE,
        links=_DDP,
        positive=(
            "RuntimeError: Expected to have finished reduction in the prior iteration before "
            "starting a new one. This error indicates that your module has parameters that were "
            "not used in producing loss.",
        ),
        negative=(
            "find_unused_parameters=True was specified in DDP constructor, but did not find "
            "any unused parameters in the forward pass.",
        ),
    ),
    Rule(
        id="MM-021",
        category="ddp-unused-parameters",
        role="fact",
        anchors=("which did not receive grad",),
        pattern=r"parameter indices which did not receive grad for rank (?P<rank>\d+): "
        r"(?P<indices>[\d .]+)",
        sentence="parameters without gradient: {indices}",
        positive=("Parameter indices which did not receive grad for rank 0: 2 3",),
        negative=("Parameter at index 65 has been marked as ready twice.",),
    ),
    Rule(
        id="MM-022",
        category="ddp-ready-twice",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("Expected to mark a variable ready only once",),
        pattern=r"expected to mark a variable ready only once",
        sentence="DDP: a parameter's gradient became ready twice in one step",
        because="a parameter is used in several reentrant backward passes (gradient checkpointing "
        "with use_reentrant=True) or outside of forward, which DDP does not support by default",
        costs="the rank ends",
        fix="gradient checkpointing with use_reentrant=False, or DDP(static_graph=True), and "
        "find_unused_parameters=False",
        next="run again with TORCH_DISTRIBUTED_DEBUG=DETAIL: it names the parameter",
        explains=_GONE,
        links=_DDP,
        positive=(
            "RuntimeError: Expected to mark a variable ready only once. This error is caused by "
            "one of the following reasons",
        ),
        negative=("Expected to have finished reduction in the prior iteration",),
    ),
    Rule(
        id="MM-023",
        category="model-mismatch",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("appears not to match", "expects same model across all ranks"),
        pattern=r"params\[(?P<index>\d+)\] in this process with sizes (?P<mine>\[[\d, ]*\]) appears "
        r"not to match (?:sizes|strides) of the same param in process (?P<other>\d+)"
        r"|expects same model across all ranks, but rank (?P<one>\d+) has (?P<has>\d+) params",
        sentence="the ranks hold different models: number or shapes of the parameters differ",
        because="DDP compares the parameters of all ranks with rank 0's at the start",
        costs="the job ends",
        fix="build the same model on all ranks: same configuration, code version, vocabulary and "
        "checkpoint; nothing that depends on the rank or on local data",
        next="print sum(p.numel() for p in model.parameters()) on each rank",
        explains=_GONE,
        links=_DDP,
        positive=(
            "RuntimeError: [1]: params[0] in this process with sizes [4, 5] appears not to match "
            "sizes of the same param in process 0.",
            "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 2 params, while "
            "rank 1 has inconsistent 4 params.",
        ),
        negative=("size mismatch for lm_head.weight: copying a param with shape",),
    ),
)
