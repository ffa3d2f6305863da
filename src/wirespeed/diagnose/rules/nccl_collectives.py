"""NCCL's own words on ranks that do not call the same thing, and on calls that it refuses."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = ("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html",)
_FOLLOWS = (
    "nccl-invalid-usage",
    "nccl-system-error",
    "nccl-remote-error",
    "nccl-trace",
    "nccl-peer-lost",
    "watchdog-timeout",
    "launcher-exit",
    "exit-code",
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="COLL-001",
        category="collective-mismatch",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("Mismatched collective detected",),
        pattern=r"mismatched collective detected.{0,80}?at and around rank (?P<rank>\d+)",
        sentence="rank {rank} calls another collective than its neighbours (mismatch): another "
        "operation, size, type or order",
        because="NCCL compares what neighbouring ranks were asked to do, and they differ",
        costs="NCCL stops; without this check the ranks would hang",
        fix="make every rank call the same collectives in the same order with the same sizes; "
        "compare "
        "NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=COLL of rank {rank} and its neighbours, or "
        "TORCH_DISTRIBUTED_DEBUG=DETAIL",
        next="grep -n 'opCount' the logs of rank {rank} and the next one: the first difference",
        explains=_FOLLOWS,
        links=_LINKS,
        positive=(
            "init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective "
            "calls "
            "at and around rank 39. You can use NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=COLL to see",
        ),
        negative=("NCCL INFO AllReduce: opCount 5 sendbuff 0x7f count 4 datatype 7",),
    ),
    Rule(
        id="COLL-002",
        category="nccl-argument",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("is not a valid pointer", "with NCCL device"),
        pattern=r"CCL WARN (?P<call>\w+) ?: (?P<what>\w+ 0x[0-9a-f]+ (?:is not a valid pointer|"
        r"allocated on device \d+ mismatch.{0,60}))",
        sentence="{call} was given memory that it cannot use: {what}",
        because="the buffer is not GPU memory, was freed, or belongs to another GPU than the "
        "communicator",
        costs="the call fails and the job stops",
        fix="move the tensor to this rank's GPU (.cuda(LOCAL_RANK)) and call "
        "torch.cuda.set_device(LOCAL_RANK) before anything else; keep it alive until the "
        "operation ends",
        next="NCCL_CHECK_POINTERS=1 finds the call",
        explains=_FOLLOWS,
        links=_LINKS,
        positive=(
            "misc/argcheck.cc:15 NCCL WARN AllReduce : sendbuff 0x7f00 is not a valid pointer",
            "misc/argcheck.cc:23 NCCL WARN Reduce : sendbuff 0x7f00 allocated on device 1 "
            "mismatchs "
            "with NCCL device 0",
        ),
        negative=("NCCL INFO AllReduce: opCount 5 sendbuff 0x7f00 recvbuff 0x7f00 count 4",),
    ),
    Rule(
        id="COLL-003",
        category="nccl-cuda-graph",
        role="cause",
        stage="program",
        anchors=(
            "operation not permitted when stream is capturing",
            "operation would make the legacy stream",
            "mixing of graph",
            "CUDA graph capture",
            "dependent on uncaptured work",
        ),
        pattern=r"(?P<what>operation not permitted when stream is capturing|operation would make "
        r"the "
        r"legacy stream depend on a capturing|dependency created on uncaptured work|mixing of "
        r"graph "
        r"captured and (?:non-?captured|uncaptured)|CUDA graph capture.{0,80}(?:not "
        r"supported|failed))",
        sentence="a collective is used in a CUDA graph in a way that is not allowed: {what}",
        because="while a stream is captured no other stream may synchronise, and the watchdog's "
        "events of "
        "torch count too",
        costs="the program ends with a CUDA error",
        fix="warm up the collective before capture, capture on a side stream, and update torch "
        "and NCCL "
        "(TORCH_NCCL_ASYNC_ERROR_HANDLING=0 during capture on old ones); try without CUDA graphs",
        explains=("cuda-error", "nccl-cuda-error", *_FOLLOWS),
        links=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/cudagraph.html",),
        positive=(
            "RuntimeError: CUDA error: operation not permitted when stream is capturing",
            "enqueue.cc:99 NCCL WARN Cuda failure 'operation would make the legacy stream depend "
            "on a "
            "capturing blocking stream'",
        ),
        negative=("INFO: CUDA graph capture finished in 12 s",),
    ),
    Rule(
        id="COLL-004",
        category="nccl-library",
        role="cause",
        stage="setup",
        anchors=("Invalid config", "ncclConfig_t argument not initialized"),
        pattern=r"NCCL WARN .{0,40}(?P<what>invalid config \w+ attribute value \S+|ncclConfig_t "
        r"argument not "
        r"initialized\S*.{0,60}|invalid config argument.{0,60})",
        sentence="NCCL refuses the settings that torch or the program gives it: {what}",
        because="the program was compiled with the headers of another NCCL than the library that "
        "is loaded, or "
        "asks for something that this version does not know",
        costs="NCCL cannot be initialised",
        fix="load the NCCL that torch was built with (unset LD_PRELOAD and old paths in "
        "LD_LIBRARY_PATH; pip's "
        "nvidia-nccl package of torch's own version)",
        next="python -c 'import torch; print(torch.cuda.nccl.version())'; ldconfig -p | grep nccl",
        explains=("nccl-argument", *_FOLLOWS),
        links=_LINKS,
        positive=(
            "init.cc:1900 NCCL WARN Invalid config blocking attribute value -2147483648",
            "init.cc:1800 NCCL WARN ncclConfig_t argument not initialized via "
            "NCCL_CONFIG_INITIALIZER",
        ),
        negative=("NCCL INFO Comm config Blocking set to 1",),
    ),
)
