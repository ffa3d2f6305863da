"""torch.distributed's watchdog over NCCL, in the spellings since torch 1.8, and named missing ranks."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = (
    "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html",
    "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",
)
_GONE = ("watchdog-aftermath", "launcher-exit", "exit-code", "END-004", "sigterm", "nccl-trace")
_CHECKS = (
    "which rank did not report this timeout, or has a lower last enqueued work: that rank is behind "
    "or dead; read its log for the first exception, OOM kill or Xid",
    "whether ranks stand in different operations (OpType, SeqNum, NumelIn): then they call different "
    "collectives, or collectives of several communicators (process groups) in a different order or "
    "from several threads; issue them in the same order on all ranks "
    "(TORCH_DISTRIBUTED_DEBUG=DETAIL shows it)",
    "whether one rank works longer than the timeout (data preparation, evaluation, a checkpoint, "
    "a slow file system): raise init_process_group(timeout=…) or ddp_timeout, or do it on all ranks",
    "whether the network between the nodes stands still: NCCL_DEBUG=INFO for errors of NET/IB or "
    "sockets, link state, then all_reduce_perf on the same nodes",
    "whether P2P between GPUs hangs, where it happens at the first collective: NCCL_P2P_DISABLE=1, "
    "ACS and IOMMU off",
)
_RECORDER = (
    "run again with TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1, then compare "
    "the dumps of all ranks; or py-spy dump --pid PID on every rank while it hangs"
)
_COUNTED = (
    "rank 0 counts who arrives; who does not is stopped, busy, dead, or elsewhere in the program"
)
_WAITING = "all ranks wait, then end"
_ABSENT = (
    "read that rank's log for an exception or a kill; if it only works longer (data preparation, "
    "checkpoint), raise the barrier's timeout"
)
_NAMED = ("watchdog-timeout", "gloo-timeout", "gloo-peer", *_GONE)
_MONITORED = (
    "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.monitored_barrier",
)
_WORK = r"(?:watchdog caught collective operation timeout|caught collective operation timeout)"
_FULL = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=216, "
    "OpType=ALLTOALL_BASE, NumelIn=1379328, NumelOut=1572864, Timeout(ms)=600000) ran for 600045 "
    "milliseconds before timing out."
)
_BARRIER = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800007 milliseconds before timing out."
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="WD-001",
        category="watchdog-timeout",
        role="symptom",
        stage="wait",
        anchors=("caught collective operation timeout",),
        pattern=rf"(?:\[rank (?P<group_rank>\d+)\] )?{_WORK}: Work[NRH]CCL\(SeqNum=(?P<seq>\d+), "
        r"OpType=(?P<op>\w+), (?:NumelIn=|TensorShape=\[)(?P<size>[\d, ]*\d)?"
        r".{0,80}?Timeout\(ms\)=(?P<limit>\d+)\) ran for (?P<ms>\d+) milliseconds",
        sentence="a collective timed out: {op} (sequence number {seq}, size {size}) waited {ms} ms "
        "for other ranks",
        because="the watchdog of a rank that waits reports; the cause is at the rank that did not "
        "come",
        costs="all ranks of the job end",
        checks=_CHECKS,
        next=_RECORDER,
        explains=_GONE,
        links=_LINKS,
        positive=(
            _FULL,
            _BARRIER,
            "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=94, "
            "OpType=_ALLGATHER_BASE, TensorShape=[1048576], Timeout(ms)=1800000) ran for 1800456 "
            "milliseconds before timing out.",
        ),
        negative=(
            "[Rank 0] Some NCCL operations have failed or timed out.",
            "NCCL watchdog thread started",
        ),
    ),
    Rule(
        id="WD-009",
        category="watchdog-timeout",
        role="symptom",
        stage="wait",
        anchors=("caught collective operation timeout",),
        pattern=rf"(?:\[rank (?P<group_rank>\d+)\] )?{_WORK}: Work[NRH]CCL\(OpType=(?P<op>\w+)"
        r".{0,80}?Timeout\(ms\)=(?P<limit>\d+)\) ran for (?P<ms>\d+) milliseconds",
        sentence="a collective timed out: {op} waited {ms} ms for other ranks",
        because="the watchdog of a rank that waits reports; the cause is at the rank that did not "
        "come",
        costs="all ranks of the job end",
        checks=_CHECKS,
        next=_RECORDER,
        explains=_GONE,
        links=_LINKS,
        positive=(
            "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, "
            "Timeout(ms)=1800000) ran for 1803294 milliseconds before timing out.",
            "RuntimeError: NCCL communicator was aborted on rank 3. Original reason for failure "
            "was: [Rank 3] Watchdog caught collective operation timeout: WorkNCCL("
            "OpType=BROADCAST, Timeout(ms)=1800000) ran for 1800116 milliseconds before timing "
            "out.",
        ),
        negative=(_FULL,),
    ),
    Rule(
        id="WD-011",
        category="watchdog-timeout",
        role="consequence",
        stage="wait",
        anchors=("caught collective operation timeout",),
        pattern=rf"{_WORK}: Work[NRH]CCL\(SeqNum=(?P<seq>\d{{1,2}}), OpType=(?P<op>ALLREDUCE|BARRIER), "
        r"(?:NumelIn=1, NumelOut=1|TensorShape=\[1\]), Timeout\(ms\)=(?P<limit>\d{6,})\)",
        sentence="ranks waited {limit} ms at an early barrier (a 1-element {op}, sequence number {seq})",
        links=_LINKS,
        positive=(
            _BARRIER,
            "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, "
            "OpType=BARRIER, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 "
            "milliseconds before timing out.",
            "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, "
            "OpType=ALLREDUCE, TensorShape=[1], Timeout(ms)=1800000) ran for 1800913 milliseconds "
            "before timing out.",
        ),
        negative=(
            _FULL,
            "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=460631, "
            "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600020 "
            "milliseconds before timing out.",
        ),
    ),
    Rule(
        id="WD-003",
        category="watchdog-aftermath",
        role="consequence",
        stage="aftermath",
        anchors=("last enqueued", "last completed"),
        pattern=r"(?:\[PG (?:ID )?(?P<group>\d+)[^\]]{0,80}Rank (?P<group_rank>\d+)\] .{0,300}?)?"
        r"last enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), last completed (?:NCCL )?work: "
        r"(?P<completed>-?\d+)",
        sentence="the watchdog stopped: last enqueued work {enqueued}, last completed {completed}",
        positive=(
            "[PG ID 11 PG GUID 119 Rank 1] Exception (either an error or timeout) detected by "
            "watchdog at work: 216, last enqueued NCCL work: 220, last completed NCCL work: 215.",
            "[PG 1 Rank 4] Timeout at NCCL work: 7753, last enqueued NCCL work: 7755, last "
            "completed NCCL work: 7752.",
            "[PG ID 0 PG GUID 0(default_pg) Rank 7]  failure detected by watchdog at work sequence "
            "id: 460631 PG status: last enqueued work: 460631, last completed work: 460630",
            "[PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump signal due to a collective "
            "timeout from this local rank and we will try our best to dump the debug info. Last "
            "enqueued NCCL work: 6, last completed NCCL work: 6.",
        ),
        negative=(_FULL,),
    ),
    Rule(
        id="WD-004",
        category="watchdog-aftermath",
        role="consequence",
        stage="aftermath",
        anchors=(
            "Some NCCL operations have failed",
            "watchdog thread terminated",
            "taking the entire process down",
            "preparing to dump debug info",
            "Stack trace of the failed collective",
            "NCCL communicator was aborted",
            "possible GIL induced hang",
        ),
        pattern=r"some nccl operations have failed|watchdog thread terminated with exception"
        r"|taking the entire process down|preparing to dump debug info"
        r"|stack trace of the failed collective|nccl communicator was aborted|gil induced hang",
        sentence="torch ends a process after a failed or timed-out collective",
        positive=(
            "[Rank 4] Some NCCL operations have failed or timed out. Due to the asynchronous "
            "nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete "
            "data.",
            "[Rank 0] NCCL watchdog thread terminated with exception: [Rank 0] Watchdog caught",
            "[PG 5 Rank 3] Process group watchdog thread terminated with exception: [Rank 3] "
            "Watchdog caught collective operation timeout",
            "[Rank 4] To avoid data inconsistency, we are taking the entire process down.",
            "[PG ID 0 PG GUID 0 Rank 2] ProcessGroupNCCL preparing to dump debug info. Include "
            "stack trace: 1",
        ),
        negative=(_FULL,),
    ),
    Rule(
        id="WD-005",
        category="missing-rank",
        role="cause",
        stage="wait",
        confidence="certain",
        anchors=("failed to pass monitoredBarrier",),
        pattern=r"\brank (?P<rank>\d+) failed to pass monitoredbarrier in (?P<ms>\d+) ms",
        sentence="rank {rank} did not come to the monitored barrier within {ms} ms",
        because=_COUNTED,
        costs=_WAITING,
        fix=_ABSENT,
        next="on the node of rank {rank}: py-spy dump --pid PID",
        explains=("WD-010", *_NAMED),
        links=_MONITORED,
        positive=(
            "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms",
            "[E ProcessGroupGloo.cpp:136] [Rank 0]: Rank 2 failed to pass monitoredBarrier in "
            "1800000 ms",
        ),
        negative=(
            "[Rank 1]: Rank 1 successfully reached monitoredBarrier, but received errors",
            "RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 3000 ms",
        ),
    ),
    Rule(
        id="WD-010",
        category="missing-rank",
        role="cause",
        stage="wait",
        confidence="certain",
        anchors=("failed to pass monitoredBarrier",),
        pattern=r"\branks (?P<missing>\d[\d, ]*?) failed to pass monitoredbarrier in (?P<ms>\d+) ms",
        sentence="ranks {missing} did not come to the monitored barrier within {ms} ms; rank 0 "
        "waited for them",
        because=_COUNTED,
        costs=_WAITING,
        fix=_ABSENT,
        next="on the nodes of ranks {missing}: py-spy dump --pid PID",
        explains=_NAMED,
        links=_MONITORED,
        positive=("RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 3000 ms",),
        negative=("RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms",),
    ),
    Rule(
        id="WD-006",
        category="watchdog-aftermath",
        role="consequence",
        stage="aftermath",
        anchors=("successfully reached monitoredBarrier",),
        pattern=r"rank (?P<rank>\d+) successfully reached monitoredbarrier",
        sentence="rank {rank} reached the monitored barrier, another did not",
        positive=(
            "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while "
            "waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.",
        ),
        negative=("[Rank 0]: Rank 1 failed to pass monitoredBarrier in 3000 ms",),
    ),
    Rule(
        id="WD-007",
        category="watchdog-stuck",
        role="symptom",
        stage="wait",
        anchors=("watchdog got stuck", "Heartbeat monitor timed out", "watchdog thread hang"),
        pattern=r"watchdog got stuck for (?P<seconds>\d+) seconds|heartbeat monitor timed out",
        sentence="torch's watchdog itself stood still: a CUDA call, NCCL or Python's GIL blocks it",
        checks=(
            "whether another rank ended or waited first: its error or the first watchdog timeout "
            "names the cause",
            "whether a thread holds Python's GIL or a CUDA call hangs: py-spy dump --native --pid "
            "PID, and the kernel log for Xid lines",
            "whether ending NCCL communicators takes long: destroy_process_group() on all ranks at "
            "the end; raise TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
        ),
        explains=_GONE,
        links=_LINKS,
        positive=(
            "[PG ID 0 PG GUID 0(default_pg) Rank 3] Heartbeat monitor timed out! Process will be "
            "terminated after dumping debug info. workMetaList_.size()=2",
            "[PG 0 Rank 1] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making "
            "progress in monitoring enqueued collectives.",
        ),
        negative=("logger: heartbeat of the monitor sent",),
    ),
    Rule(
        id="WD-008",
        category="missing-rank",
        role="cause",
        stage="wait",
        anchors=("are the lagging ranks that caused",),
        pattern=r"ranks? \[(?P<missing>[\d, ]+)\] are the lagging ranks that caused this timeout",
        sentence="rank {missing} never joined a collective: the others timed out waiting for it",
        because="torch compared what each rank wrote to the store (desync report)",
        costs="all ranks end",
        fix="read the log of rank {missing} from its start: exception, kill, or a long step before "
        "the first collective",
        next="on the node of rank {missing}: py-spy dump --pid PID",
        explains=("WD-001", "watchdog-timeout", "barrier-timeout-preprocessing", *_GONE),
        links=_LINKS,
        positive=(
            "- To our best knowledge, ranks [3] are the lagging ranks that caused this timeout. "
            "They never joined any collectives",
        ),
        negative=(
            "- To our best knowledge, the lagging/dead/mismatched ranks that caused the "
            "desync are:",
        ),
    ),
)
