"""What the findings of `diagnose` mean that no rule gives."""

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[str, str] = {
    "DIAG-000": "No line tells a trouble that is known here, and none tells that the job ended well: it "
    "may run still, hang, or have ended outside of these logs. Give the logs of all ranks and of the "
    "launcher to their end, or run the job again with NCCL_DEBUG=INFO.",
    "DIAG-001": "What the logs say of versions, networks, transports and settings; nothing wrong.",
    "DIAG-002": "Ranks of one job say different things where all should say the same: version of NCCL, "
    "or the network that it uses. One node that falls back to sockets slows the whole job.",
    "DIAG-003": "How NCCL connected the ranks: communicators, rings, and the transport of each pair, "
    "with or without GPUDirect RDMA, from the lines that NCCL_DEBUG=INFO prints. -v and -o json give "
    "each ring and pair, up to a bound.",
    "DIAG-004": "A ring of NCCL enters and leaves each node once: over k nodes it crosses k times. More "
    "crossings load the network with what could stay in a node; the ranks are numbered badly, or "
    "containers of one machine look like several machines.",
    "DIAG-005": "GPUs of one node are connected by P2P (NVLink, PCIe) or shared memory, not by the "
    "network. Only connections of collectives are judged; NCCL may use the network for point to point.",
    "DIAG-006": "All ranks reach other nodes over the same network. A ring is as slow as its "
    "slowest connection, so that one node on sockets slows all.",
    "DIAG-007": "All ranks use GPUDirect RDMA, or none. Sending and receiving are judged apart, "
    "since NCCL sends through host memory by design on GPUs without NVLink.",
    "DIAG-008": "The GPUs of each node are connected in the same ways (P2P, SHM). A node that "
    "differs has a broken link, blocked peer access or another setting.",
    "DIAG-009": "Lines at the end of the logs prove that the job ended well: nccl-tests' closing lines "
    "with 0 wrong, exit code 0 of torchrun's workers or of wirespeed, a training that says that it "
    "ended; and nothing in the logs is wrong. Of several logs each has such a line, or one stands for "
    "all ranks.",
    "DIAG-010": "A log's end is missing: a packed file breaks off or is damaged, a file ends in zero "
    "bytes, or a file of several could not be read. What stood there may be the cause.",
    "FLIGHT-000": "The flight recorder's dumps hold the same collectives on every rank, all completed.",
    "FLIGHT-001": "At one sequence number of a process group, ranks recorded different collectives or "
    "sizes. Ranks must issue the same collectives in the same order, so the program took different "
    "branches. The ranks that differ from most are named.",
    "FLIGHT-002": "A rank never issued a collective in which others wait, and waits for nobody itself: "
    "it is stuck or slow before that call, or left its loop. Everybody else waits for it, directly or "
    "behind others, and is not told one by one.",
    "FLIGHT-003": "Ranks wait, and the dumps single nobody out: all issued the collective and data do "
    "not arrive, or the rank that is behind wrote no dump that can be read.",
    "FLIGHT-004": "A file looks like a dump of the flight recorder and is damaged: it is left out.",
    "FLIGHT-005": "Ranks that are members of a group, or below the highest rank, without a dump. One "
    "that died or cannot dump may be the one that all others wait for.",
    "FLIGHT-006": "Ranks wait for each other in a circle, each in a collective of a group that the next "
    "has not called: the order of two groups' collectives differs between ranks.",
    "FLIGHT-007": "Dumps of several jobs, or of several moments of one: a rank has two of them, or "
    "hours or the size of the world lie between them. Each set is looked at alone, by folder.",
    "LOG-001": "No rule knows a cause, and this is the first line whose words look wrong (error, fatal, "
    "failed, refused, …), with whose it is and what came just before. What healthy jobs print, such as "
    "'0 errors' or names of settings, does not count.",
    "LOG-002": "As LOG-001, for an exception that nothing caught: its last line, and of a Python stack "
    "the innermost frame.",
    "INSP-000": "The lines of NCCL's Inspector plugin show no rank whose collectives last longer or "
    "shorter than the others'. Whether they are fast is another question.",
    "INSP-001": "A collective ends for all ranks at once. A rank that is in it for a much shorter time "
    "than the others came late, and they waited; one that is in it for longer is slow to end.",
    "INSP-002": "Lines of NCCL's Inspector that cannot be read, such as the last one of a killed job.",
    "RAS-100": "NCCL's RAS found nothing. It also says so where all ranks hang in one collective: the "
    "counts of two reports, 10 s apart, tell whether the job moves.",
    "RAS-101": "NCCL's RAS could not reach a process for a minute and calls it dead: it ended, or its "
    "node is cut off. All others wait for it.",
    "RAS-102": "NCCL's RAS got no data of a rank's process, which may be stopped, blocked or cut off.",
    "RAS-103": "Some ranks of a communicator aborted it, or report an error, and others still use it.",
    "RAS-104": "The ranks of a communicator have launched different numbers of one collective. By more "
    "than one, or with ranks that do not answer, somebody is stuck; by one, it may be a moment.",
}
