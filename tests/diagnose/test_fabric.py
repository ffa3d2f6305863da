"""What logs of whole jobs teach of rings and connections, and who stands out."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logs import read
from wirespeed.diagnose import nccl_fabric as fabric_module
from wirespeed.model.records import Finding

PER_NODE = 4
CHANNELS = 2
Via = Callable[[int, int, str], str]
Place = Callable[[int], str]


def node(rank: int) -> str:
    return f"gpu-{rank // PER_NODE}"


def usual(sender: int, receiver: int, side: str) -> str:
    """P2P within a node, InfiniBand with GPUDirect RDMA between nodes."""
    near = sender // PER_NODE == receiver // PER_NODE
    return "P2P/CUMEM" if near else f"NET/IB/{sender % PER_NODE}/GDRDMA"


def modern(
    order: list[int], via: Via = usual, place: Place = node, comm: str = "0xabc", pid: int = 100
) -> Iterator[str]:
    """NCCL 2.27: the communicator by name, connections from another thread after `Init COMPLETE`."""
    size = len(order)
    for rank in range(size):
        at = order.index(rank)
        before, after = order[at - 1], order[(at + 1) % size]
        gpu = rank % PER_NODE
        who = f"{place(rank)}:{pid + gpu}:{pid + 50} [{gpu}] NCCL INFO"
        later = f"{place(rank)}:{pid + gpu}:{pid + 90} [{gpu}] NCCL INFO"
        begin = (
            f"comm 0x7f rank {rank} nranks {size} cudaDev {gpu} nvmlDev {gpu} busId 1 commId {comm}"
        )
        yield f"{who} ncclCommInitRankConfig {begin} - Init START"
        nodes = len({place(one) for one in order})
        yield f"{who} comm 0x7f rank {rank} nRanks {size} nNodes {nodes} localRanks 4 localRank {gpu}"
        for channel in range(CHANNELS):
            if rank == 0:
                yield f"{who} Channel {channel:02d}/{CHANNELS:02d} : " + " ".join(map(str, order))
            yield f"{who} Ring {channel:02d} : {before} -> {rank} -> {after}"
        yield f"{who} Trees [0] 1/-1/-1->{rank}->-1 [1] -1/-1/-1->{rank}->1"
        yield f"{who} ncclCommInitRankConfig {begin} - Init COMPLETE"
        for channel in range(CHANNELS):
            yield from connected(later, channel, before, rank, after, via)


def connected(
    who: str, channel: int, before: int, rank: int, after: int, via: Via
) -> Iterator[str]:
    sends, gets = via(rank, after, "send"), via(before, rank, "receive")
    gpu, left, right = (one % PER_NODE for one in (rank, before, after))
    if gets.startswith("NET"):
        yield f"{who} Channel {channel:02d}/0 : {before}[{left}] -> {rank}[{gpu}] [receive] via {gets}"
    side = "[send] " if sends.startswith("NET") else ""
    yield f"{who} Channel {channel:02d}/0 : {rank}[{gpu}] -> {after}[{right}] {side}via {sends}"


def old(order: list[int]) -> Iterator[str]:
    """NCCL 2.4: no name of a communicator, `Ring`, ranks without devices on the network."""
    size = len(order)
    for rank in range(size):
        at = order.index(rank)
        before, after = order[at - 1], order[(at + 1) % size]
        who = f"{node(rank)}:{100 + rank}:{150 + rank} [{rank % PER_NODE}] NCCL INFO"
        if rank == 0:
            yield f"{who} Ring 00 : " + " ".join(f"{one:3d}" for one in order)
        if node(before) != node(rank):
            yield f"{who} Ring 00 : {before} -> {rank} [receive] via NET/IB/0/GDRDMA"
        if node(rank) != node(after):
            yield f"{who} Ring 00 : {rank} -> {after} [send] via NET/IB/0"
        else:
            gpus = f"{rank}[{rank % PER_NODE}] -> {after}[{after % PER_NODE}]"
            yield f"{who} Ring 00 : {gpus} via P2P/IPC"
        yield f"{who} comm 0x7f rank {rank} nranks {size} cudaDev {rank % PER_NODE} - Init COMPLETE"


def told(folder: Path, lines: Iterator[str] | list[str], shuffled: bool = True) -> list[Finding]:
    kept = list(lines)
    if shuffled:  # ranks interleave, each one's own lines stay in order
        writers = [line.partition(" ")[0].rsplit(":", 1)[0] for line in kept]
        turns = writers[:]
        random.Random(3).shuffle(turns)
        queues = {
            who: iter([x for x, w in zip(kept, writers, strict=True) if w == who]) for who in turns
        }
        kept = [next(queues[who]) for who in turns]
    return list(read(folder, *kept).findings)


def warned(found: list[Finding]) -> list[tuple[str, str]]:
    assert not [one.id for one in found if one.status == "fail"]
    return [(one.id, one.subject.name) for one in found if one.status == "warn"]


def summary(found: list[Finding]) -> Finding:
    (one,) = (one for one in found if one.id == "DIAG-003")
    assert one.status == "pass"
    return one


def test_a_healthy_job_says_how_it_is_connected(tmp_path: Path) -> None:
    found = told(tmp_path, modern(list(range(16))))
    assert warned(found) == []
    title = summary(found).title
    assert title.startswith("NCCL connected 16 ranks on 4 nodes, 2 rings and trees")
    assert "each crosses nodes 4 times" in title
    assert "P2P/CUMEM (24 connections), NET/IB with GPUDirect RDMA (16)" in title
    lines = summary(found).evidence
    assert "ring 00: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15, crosses nodes 4 times" in lines
    assert "3 -> 4 (gpu-0 -> gpu-1): NET/IB with GPUDirect RDMA, 2 channels" in lines
    assert "0 -> 1 (gpu-0): P2P/CUMEM, 2 channels" in lines
    assert "gpu-3: 12-15" in summary(found).saw


def test_old_versions_say_the_same(tmp_path: Path) -> None:
    found = told(tmp_path, old(list(range(8))))
    assert warned(found) == []
    assert "8 ranks on 2 nodes" in summary(found).title
    assert any(
        line.startswith("ring 00: 0 1 2 3 4 5 6 7, crosses nodes 2")
        for line in summary(found).evidence
    )


def test_a_ring_whose_line_is_cut_is_put_together(tmp_path: Path) -> None:
    lines = [line for line in modern(list(range(24))) if "Channel 00/02" not in line]
    found = told(tmp_path, [line for line in lines if "Channel 01/02" not in line])
    assert (
        "24 ranks on 6 nodes, 2 rings and trees (each crosses nodes 6 times)"
        in summary(found).title
    )


def test_ranks_in_a_bad_order_cross_too_often(tmp_path: Path) -> None:
    found = told(tmp_path, modern([0, 4, 1, 5, 2, 6, 3, 7]))
    assert warned(found) == [("DIAG-004", "job")]
    (one,) = (one for one in found if one.id == "DIAG-004")
    assert one.title == "ring 00 crosses nodes 8 times, where 2 nodes need 2"
    assert "0 4 1 5 2 6 3 7" in one.saw and "gpu-0 gpu-1" in one.saw


def test_gpus_joined_across_hosts_are_as_one_node(tmp_path: Path) -> None:
    found = told(tmp_path, modern([0, 4, 1, 5, 2, 6, 3, 7], via=lambda a, b, side: "P2P/MNNVL"))
    assert warned(found) == []


def test_pairs_of_one_node_on_the_network_are_named(tmp_path: Path) -> None:
    def via(a: int, b: int, side: str) -> str:
        return "NET/Socket/0" if (a, b) == (5, 6) else usual(a, b, side)

    found = told(tmp_path, modern(list(range(12)), via))
    assert ("DIAG-005", "gpu-1") in warned(found)
    (one,) = (one for one in found if one.id == "DIAG-005")
    assert one.title.startswith("1 pair of ranks of one node use") and "5 -> 6" in one.title
    assert "job.log:" in one.evidence[0] and "5[1] -> 6[2]" in one.evidence[0]


def test_point_to_point_may_use_the_network_within_a_node(tmp_path: Path) -> None:
    extra = "gpu-1:101:199 [1] NCCL INFO Channel 00/1 : 5[1] -> 6[2] [send] via NET/IB/0/GDRDMA"
    found = told(tmp_path, [*modern(list(range(12))), extra], shuffled=False)
    assert warned(found) == []


def test_a_node_that_uses_sockets_is_named(tmp_path: Path) -> None:
    def via(a: int, b: int, side: str) -> str:
        near = usual(a, b, side)
        mine = a if side == "send" else b
        return "NET/Socket/0" if node(mine) == "gpu-2" and near.startswith("NET") else near

    found = told(tmp_path, modern(list(range(16)), via))
    assert warned(found) == [("DIAG-006", "gpu-2")]
    (one,) = (one for one in found if one.id == "DIAG-006")
    assert one.title == "ranks 8, 11 on gpu-2 use sockets, 6 others NET/IB"


def test_the_only_node_with_rdma_is_the_odd_one(tmp_path: Path) -> None:
    def via(a: int, b: int, side: str) -> str:
        near = usual(a, b, side)
        mine = a if side == "send" else b
        return "NET/Socket/0" if node(mine) != "gpu-2" and near.startswith("NET") else near

    found = told(tmp_path, modern(list(range(16)), via))
    assert warned(found) == [("DIAG-006", "gpu-2")]


def test_of_two_nodes_the_one_without_gpudirect_is_named(tmp_path: Path) -> None:
    def via(a: int, b: int, side: str) -> str:
        mine = a if side == "send" else b
        return usual(a, b, side).replace("/GDRDMA", "" if node(mine) == "gpu-1" else "/GDRDMA")

    assert warned(told(tmp_path, modern(list(range(8)), via))) == [("DIAG-007", "gpu-1")]


def test_a_node_without_gpudirect_is_named(tmp_path: Path) -> None:
    def via(a: int, b: int, side: str) -> str:
        mine = a if side == "send" else b
        return usual(a, b, side).replace("/GDRDMA", "" if node(mine) == "gpu-3" else "/GDRDMA")

    found = told(tmp_path, modern(list(range(16)), via))
    assert warned(found) == [("DIAG-007", "gpu-3")]
    (one,) = (one for one in found if one.id == "DIAG-007")
    assert "ranks 12, 15 on gpu-3" in one.title


def test_nobody_sends_with_gpudirect_by_design(tmp_path: Path) -> None:
    """GPUs without NVLink: received straight, sent through host memory, on every rank."""

    def via(a: int, b: int, side: str) -> str:
        return usual(a, b, side).replace("/GDRDMA", "" if side == "send" else "/GDRDMA")

    assert warned(told(tmp_path, modern(list(range(16)), via))) == []


def test_a_node_without_peer_access_is_named(tmp_path: Path) -> None:
    def via(a: int, b: int, side: str) -> str:
        slow = node(a) == node(b) == "gpu-1"
        return "SHM/direct/direct" if slow else usual(a, b, side)

    found = told(tmp_path, modern(list(range(16)), via))
    assert warned(found) == [("DIAG-008", "gpu-1")]


def test_one_host_name_for_all_nodes_blames_nobody(tmp_path: Path) -> None:
    """Anonymised logs, or containers with one name: which pairs are near cannot be told."""
    lines = [
        line.replace("nNodes 1", "nNodes 2")
        for line in modern(list(range(8)), place=lambda _: "host")
    ]
    found = told(tmp_path, lines, shuffled=False)
    assert warned(found) == []
    assert "cannot be put on nodes" in summary(found).saw


def test_two_jobs_without_names_blame_nobody(tmp_path: Path) -> None:
    again = [line.replace("gpu-0", "gpu-9") for line in old(list(range(8)))]
    assert warned(told(tmp_path, [*old(list(range(8))), *again], shuffled=False)) == []


def test_communicators_are_kept_apart(tmp_path: Path) -> None:
    """A second group over the same processes, whose rank 1 is on another node."""
    pair = modern([0, 1], lambda a, b, side: "NET/IB/0/GDRDMA", lambda rank: f"gpu-{rank}", "0xdef")
    lines = [
        *modern(list(range(8))),
        *(line.replace(":101:", ":100:").replace("[1] NCCL", "[0] NCCL") for line in pair),
    ]
    found = told(tmp_path, lines, shuffled=False)
    assert warned(found) == []
    assert "1 more communicator" in summary(found).title


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric_module, "_PAIRS_KEPT", 5)
    found = told(tmp_path, modern(list(range(16))))
    assert any(line.startswith("not kept: 0 lines") for line in summary(found).evidence)
    monkeypatch.setattr(fabric_module, "_LINES_READ", 60)
    found = told(tmp_path, modern(list(range(16))))
    assert any("not kept: " in line and " lines" in line for line in summary(found).evidence)


@pytest.mark.parametrize(
    "damaged",
    [
        "Ring 999999999999 : 1 -> 2 -> 3",
        "Ring 00 : 1 -> 99999999999999 -> 2",
        "Ring 00 : 1 -> 2 -> 99999999999999",
        "Channel 00/01 : 0 99999999999999",
        "Channel 00/0 : 0[0] -> 99999999999999[0] via P2P/IPC",
        "Channel 99999999/0 : 0[0] -> 1[0] via P2P/IPC",
        "comm 0x1 rank 99999999999999 nranks 99999999999999 commId 0x1",
    ],
)
def test_damaged_numbers_do_no_harm(tmp_path: Path, damaged: str) -> None:
    line = f"gpu-0:1:2 [0] NCCL INFO {damaged}"
    assert warned(told(tmp_path, [*modern(list(range(8))), line], shuffled=False)) == []
