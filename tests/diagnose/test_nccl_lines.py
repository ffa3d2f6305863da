"""Lines of NCCL 2.4 to 2.29 and RCCL on channels, rings and communicators."""

import pytest

from wirespeed.diagnose.nccl_fabric import Link, Member, Order, Part, Seat, Trees, read_line

WHO = "gpu-3:4015:4652 [1] NCCL INFO "


def said(line: str) -> object:
    found = read_line((WHO + line).encode())
    return None if found is None else found[1]


@pytest.mark.parametrize(
    ("line", "ends", "kind", "gdr", "side"),
    [
        # 2.4, 2.6
        ("Ring 00 : 26[2] -> 30[6] via P2P/IPC", (26, 30), "P2P/IPC", False, "send"),
        ("Ring 01 : 15 -> 0 [receive] via NET/Socket/0", (15, 0), "NET/Socket", False, "receive"),
        ("Ring 00 : 3 -> 10 [send] via NET/IB/0/GDRDMA", (3, 10), "NET/IB", True, "send"),
        # 2.7 to 2.11
        (
            "Channel 02 : 14[e1000] -> 13[a7000] via P2P/direct pointer/read",
            (14, 13),
            "P2P/direct pointer",
            False,
            "send",
        ),
        ("Channel 00 : 3[1c0] -> 2[1b0] via direct shared memory", (3, 2), "SHM", False, "send"),
        # 2.12 and later
        ("Channel 01 : 0[0] -> 1[1] via SHM/direct/direct", (0, 1), "SHM", False, "send"),
        ("Channel 07/0 : 0[0] -> 7[7] via P2P/CUMEM/read", (0, 7), "P2P/CUMEM", False, "send"),
        ("Channel 07/0 : 0[0] -> 7[7] via P2P/MNNVL", (0, 7), "P2P/MNNVL", False, "send"),
        (
            "Channel 06/1 : 0[0] -> 3[3] via P2P/indirect/1[1]",
            (0, 3),
            "P2P/indirect",
            False,
            "send",
        ),
        (
            "Channel 02/0 : 9[1] -> 0[0] [send] via NET/IBext_v8/0(8)/GDRDMA(PCI)/Shared",
            (9, 0),
            "NET/IBext_v8",
            True,
            "send",
        ),
        (
            "Channel 00/0 : 0[0] -> 8[0] [receive] via NET/AWS Libfabric/1/GDRDMA/Shared",
            (0, 8),
            "NET/AWS Libfabric",
            True,
            "receive",
        ),
        (
            "Channel 01/0 : 1[0] -> 0[0] [receive] via NET/Libfabric/0/GDRDMA/flush=None",
            (1, 0),
            "NET/Libfabric",
            True,
            "receive",
        ),
        (
            "CollNet 00/0 : 6 [receive] via COLLNET/SHARP/1/GDRDMA",
            (6, 6),
            "COLLNET/SHARP",
            True,
            "receive",
        ),
        ("Coll 00 : 6 [send] via COLLNET/SHARP/1", (6, 6), "COLLNET/SHARP", False, "send"),
    ],
)
def test_connections(line: str, ends: tuple[int, int], kind: str, gdr: bool, side: str) -> None:
    link = said(line)
    assert isinstance(link, Link)
    assert (link.sender, link.receiver) == ends
    assert (link.kind, link.gdr, link.side) == (kind, gdr, side)


def test_who_wrote_it_channel_and_device() -> None:
    line = WHO + "Channel 07/1 : 2[ab000] -> 5[3b] [receive] via NET/IB/3/GDRDMA"
    found = read_line(f"[1,5]<stdout>: {line}".encode())
    assert found is not None
    seat, link = found
    assert seat == Seat("gpu-3", 4015, 4652, 1)
    assert isinstance(link, Link)
    assert (link.channel, link.index, link.device, link.writer) == (7, 1, "3b", 5)


def test_another_launchers_prefix_tells_the_host() -> None:
    found = read_line(b"[node-2] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/IPC")
    assert found is not None and found[0].host == "node-2"


def test_rings() -> None:
    assert said("Ring 00 : 7 -> 0 -> 1") == Part(0, 0, 1)
    assert said("Channel 01/02 :    0   3   2   1") == Order(1, (0, 3, 2, 1), False)
    assert said("Ring 00 :    0   1") == Order(0, (0, 1), False)
    # before 2.18 at most 20 ranks are printed, later the end is marked
    many = " ".join(f"{rank:3d}" for rank in range(20))
    assert said(f"Channel 00/08 :  {many}") == Order(0, tuple(range(20)), True)
    cut = said("Channel 00/08 :  0  1  2  3  4  5  6  7  8  9 10 11...")
    assert isinstance(cut, Order) and cut.cut


def test_trees() -> None:
    assert said("Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1") == Trees(0, 2)
    old = said("Trees [0] -1->12->13/-1/-1 [1] -1->12->13/-1/-1")
    assert isinstance(old, Trees) and (old.rank, old.channels) == (12, 2)


@pytest.mark.parametrize(
    ("line", "member"),
    [
        (
            "comm 0x7f0000000dc0 rank 8 nranks 16 cudaDev 0 busId 101c0 - Init COMPLETE",
            Member(8, 16, ""),
        ),
        (
            "ncclCommInitRankConfig comm 0x36477e40 rank 3 nranks 4 cudaDev 0 nvmlDev 0 busId 1e0 "
            "commId 0x15c1c76db987339e - Init COMPLETE",
            Member(3, 4, "0x15c1c76db987339e"),
        ),
        (
            "ncclCommSplit comm 0x5 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 1000 parent 0x4 "
            "splitCount 1 color 3 key 1- Init START",
            Member(1, 2, "split 1 color 3"),
        ),
        (
            "comm 0x56 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0",
            Member(0, 16, "", 2),
        ),
    ],
)
def test_communicators(line: str, member: Member) -> None:
    assert said(line) == member


@pytest.mark.parametrize(
    "line",
    [
        "Connected all rings",
        "24 coll channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer",
        "Init timings - ncclCommInitRankConfig: rank 3 nranks 4 total 1.16 (kernels 0.18)",
        "Channel 00/0 : 0[0] -> 1[1] via something new",
        "Channel 00/0 : 0[0] -> ",
        "Ring 00 :",
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert said(line) is None
