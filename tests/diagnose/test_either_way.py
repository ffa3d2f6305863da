"""Rules that look like a failure's cause and may be none: each is tried both ways."""

from pathlib import Path

import pytest

from logs import read
from wirespeed.model.records import Finding


def wrong(folder: Path, *lines: str) -> list[Finding]:
    return [one for one in read(folder, *lines).findings if one.status in ("fail", "warn")]


def ids(found: list[Finding]) -> list[tuple[str, str]]:
    return [(one.id, one.status) for one in found]


# --- an exception and the network ------------------------------------------------------------

RAISED = "[rank3]: AttributeError: 'NoneType' object has no attribute 'close'"
NO_ROUTE = (
    "gpu-1:40:90 [3] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.3<42125> "
    "failed : No route to host"
)
FALLBACK = (
    "gpu-1:40:90 [3] NCCL INFO NET/IB : No device found.",
    "gpu-1:40:90 [3] NCCL INFO NCCL_IB_HCA set to mlx5_0",
    "gpu-1:40:90 [3] NCCL INFO Using network Socket",
)


def at(second: int, line: str) -> str:
    return f"2026-11-20 10:00:{second:02d} {line}"


def test_what_is_raised_after_the_network_failed_follows_from_it(tmp_path: Path) -> None:
    (found,) = wrong(tmp_path, at(1, NO_ROUTE), at(9, RAISED))
    assert (found.id, found.category) == ("NSOCK-015", "no-route-to-host")
    assert any("AttributeError" in line for line in found.evidence)
    assert wrong(tmp_path, NO_ROUTE, RAISED)[0].category == "no-route-to-host"  # no times: in order


def test_what_is_raised_before_the_network_failed_is_the_cause(tmp_path: Path) -> None:
    assert wrong(tmp_path, at(1, RAISED), at(9, NO_ROUTE))[0].id == "LOG-002"
    # An exception that no rule knows does not outweigh a known cause just before it.
    assert wrong(tmp_path, at(8, NO_ROUTE), at(9, RAISED))[0].id == "NSOCK-015"
    assert wrong(tmp_path, RAISED, NO_ROUTE)[0].id == "LOG-002"


def test_a_slow_network_ends_no_program(tmp_path: Path) -> None:
    found = wrong(tmp_path, *FALLBACK, RAISED)
    assert found[0].id == "LOG-002"


# --- an early barrier --------------------------------------------------------------------------


def barrier(rank: int) -> str:
    return (
        f"[rank{rank}]: [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, "
        "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800007 milliseconds "
        "before timing out."
    )


def test_an_early_barrier_without_rank_0_is_likely_its_work(tmp_path: Path) -> None:
    (found,) = wrong(tmp_path, *(barrier(rank) for rank in (1, 2, 3)))
    assert (found.id, found.status, found.confidence) == ("WD-002", "fail", "likely")


def test_rank_0_that_waits_itself_prepares_nothing(tmp_path: Path) -> None:
    (found,) = wrong(tmp_path, *(barrier(rank) for rank in (0, 2, 3)))
    assert (found.id, found.status) == ("WD-001", "warn")
    bare = [barrier(rank).partition(": ")[2] for rank in (0, 2, 3)]
    assert ids(wrong(tmp_path, *bare)) == [("WD-001", "warn")]


@pytest.mark.parametrize(
    "killed",
    ["[rank0]: Segmentation fault (core dumped)", "train.sh: line 8:  815 Killed    python t.py"],
)
def test_a_rank_that_was_killed_does_not_prepare_data(tmp_path: Path, killed: str) -> None:
    (found,) = wrong(tmp_path, killed, *(barrier(rank) for rank in (1, 2, 3)))
    assert found.id.startswith("END-") and found.status == "warn"


# --- gloo at a loopback address ------------------------------------------------------------------

REFUSED = (
    "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] timed out "
    "connecting: SO_ERROR: Connection refused, remote=[127.0.1.1]:41235"
)


def test_loopback_between_hosts_is_named(tmp_path: Path) -> None:
    lines = [f"[node-{node}] step {step}" for step in range(3) for node in range(2)]
    (found,) = wrong(tmp_path, *lines, f"[node-1] {REFUSED}", *lines)
    assert (found.id, found.confidence, found.category) == ("GLOO-007", "likely", "gloo-loopback")
    assert "job of 2 hosts" in found.title


def test_loopback_is_likely_where_hosts_are_not_known(tmp_path: Path) -> None:
    (found,) = wrong(tmp_path, REFUSED)
    assert (found.id, found.confidence) == ("GLOO-002", "likely")


def test_a_peer_that_ended_before_is_why_it_refuses(tmp_path: Path) -> None:
    raised = "[rank1]: ValueError: the batch is empty"
    assert wrong(tmp_path, f"[rank0]: {REFUSED}", raised)[0].id == "LOG-002"
    crashed = "[rank1]: Segmentation fault (core dumped)"
    assert wrong(tmp_path, crashed, f"[rank0]: {REFUSED}")[0].id == "END-003"


# --- names that resolve later, a master that answers later ------------------------------------------

GAI = (
    "[W socket.cpp:601] [c10d] The IPv4 network addresses of (w-0.job, 29500) cannot be retrieved "
    "(gai error: -2 - Name or service not known)."
)
MET = "gpu-0:40:90 [0] NCCL INFO Using network IB"
UNREACHED = (
    "[E socket.cpp:793] [c10d] The client socket has timed out after 60s while trying to connect to "
    "(10.0.0.1, 29500)."
)


def test_a_name_that_never_resolves_is_the_cause(tmp_path: Path) -> None:
    (found,) = wrong(tmp_path, *[GAI] * 5)
    assert (found.id, found.confidence) == ("STORE-012", "likely")
    (found, *_) = wrong(tmp_path, *[GAI] * 5, UNREACHED)
    assert (found.id, found.confidence) == ("STORE-010", "certain")


def test_a_name_that_resolves_in_the_end_is_nothing(tmp_path: Path) -> None:
    assert wrong(tmp_path, *[GAI] * 5, MET) == []
    assert wrong(tmp_path, *[GAI] * 5, "[Gloo] Rank 0 is connected to 1 peer ranks. Expected") == []


def test_a_master_that_nobody_reaches_is_a_likely_cause(tmp_path: Path) -> None:
    (found,) = wrong(tmp_path, UNREACHED)
    assert (found.id, found.status, found.confidence) == ("STORE-020", "fail", "likely")


def test_a_master_that_some_met_is_gone_since(tmp_path: Path) -> None:
    (found,) = wrong(tmp_path, MET, UNREACHED)
    assert (found.id, found.status) == ("STORE-023", "warn")
    raised = "[rank0]: ValueError: boom"
    assert wrong(tmp_path, MET, raised, UNREACHED)[0].id == "LOG-002"


# --- Kubernetes events that resolved themselves ------------------------------------------------------


def event(age: str, kind: str, reason: str, pod: str, text: str) -> str:
    return f"{age:<6} {kind:<8} {reason:<18} pod/{pod}   {text}"


def waits(age: str, pod: str) -> str:
    text = "0/4 nodes are available: 4 Insufficient nvidia.com/gpu."
    return event(age, "Warning", "FailedScheduling", pod, text)


def placed(age: str, pod: str) -> str:
    return event(age, "Normal", "Scheduled", pod, f"Successfully assigned ml/{pod} to gpu-7")


def test_a_pod_that_waits_for_gpus(tmp_path: Path) -> None:
    (found,) = wrong(tmp_path, waits("3m", "w-0"))
    assert (found.id, found.category) == ("K8S-001", "k8s-no-gpu")


def test_a_pod_that_found_a_node_later(tmp_path: Path) -> None:
    assert wrong(tmp_path, waits("3m12s", "w-0"), placed("40s", "w-0")) == []
    assert wrong(tmp_path, placed("40s", "w-0"), waits("3m12s", "w-0")) == []  # kubectl sorts not
    assert wrong(tmp_path, waits("3m", "w-0"), "w-0   1/1   Running   0   2m") == []


def test_a_pod_that_waits_again(tmp_path: Path) -> None:
    (found,) = wrong(tmp_path, placed("9m", "w-0"), waits("40s", "w-0"))
    assert found.id == "K8S-001"


def test_another_pod_that_still_waits(tmp_path: Path) -> None:
    (found,) = wrong(tmp_path, waits("3m", "w-0"), waits("3m", "w-1"), placed("1m", "w-0"))
    assert found.id == "K8S-001" and "w-1" in found.evidence[0]
    assert found.saw == "job.log:2"


def test_described_events_of_one_pod(tmp_path: Path) -> None:
    """`kubectl describe pod` names it once, at its beginning."""
    head = "  Type     Reason            Age   From               Message"
    why = "0/4 nodes are available: 4 Insufficient cpu."
    failed = f"  Warning  FailedScheduling  3m    default-scheduler  {why}"
    good = "  Normal   Scheduled         58s   default-scheduler  Successfully assigned ml/w-0 to gpu-7"
    assert wrong(tmp_path, head, failed, good) == []
    assert wrong(tmp_path, head, failed)[0].id == "K8S-003"


def test_an_image_that_was_pulled_in_the_end(tmp_path: Path) -> None:
    failed = event(
        "5m", "Warning", "Failed", "w-0", 'Failed to pull image "a/b:c": rpc error: timeout'
    )
    good = event("2m", "Normal", "Pulled", "w-0", 'Successfully pulled image "a/b:c" in 3s')
    assert wrong(tmp_path, failed)[0].category == "container-image"
    assert wrong(tmp_path, failed, good) == []


def test_a_probe_that_failed_at_the_start_only(tmp_path: Path) -> None:
    failed = event(
        "5m", "Warning", "Unhealthy", "w-0", "Readiness probe failed: connection refused"
    )
    assert wrong(tmp_path, failed)[0].id == "K8S-013"
    assert wrong(tmp_path, failed, "w-0   1/1   Running   0   6m") == []


# --- what a survivor was told --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "id", "status"),
    [
        ("died: killed by signal 9 (SIGKILL)", "END-001", "warn"),
        ("raised torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "PY-001", "fail"),
    ],
)
def test_it_is_the_story_of_the_rank_that_is_named(
    tmp_path: Path, end: str, id: str, status: str
) -> None:
    told = f"wirespeed: this rank is ended: rank 1 on n-1 {end}"
    (found,) = wrong(tmp_path, f"[rank0]: {told}", f"[rank2]: {told}")
    assert (found.id, found.status, found.subject.name) == (id, status, "rank 1")
    assert "rank 1 on n-1" in found.title
