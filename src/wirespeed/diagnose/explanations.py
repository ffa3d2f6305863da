"""What the findings of `diagnose` mean that no rule gives."""

__all__ = ["EXPLANATIONS"]

EXPLANATIONS: dict[str, str] = {
    "DIAG-000": "No line of a library, launcher, kernel or orchestrator that is known here was found: "
    "nothing can be said. Run the job again with NCCL_DEBUG=INFO, and give the logs of all ranks.",
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
    "FLIGHT-000": "The flight recorder's dumps hold the same collectives on every rank, all completed.",
    "FLIGHT-001": "At one sequence number of a process group, ranks recorded different collectives or "
    "sizes. Ranks must issue the same collectives in the same order, so the program took different "
    "branches. The ranks that differ from most are named.",
    "FLIGHT-002": "Some ranks never issued a collective in which the others wait. The rank is stuck or "
    "slow before that call, or left its loop; its last collective is shown.",
    "FLIGHT-003": "Every rank that wrote a dump issued the collective, and it did not complete: data do "
    "not arrive, or the rank that is behind wrote no dump.",
    "FLIGHT-004": "A file looks like a dump of the flight recorder and is damaged: it is left out.",
    "LOG-001": "No rule knows a cause, and this is the first line whose words look wrong (error, fatal, "
    "failed, refused, …), with whose it is and what came just before. What healthy jobs print, such as "
    "'0 errors' or names of settings, does not count.",
    "LOG-002": "As LOG-001, for an exception that nothing caught: its last line, and of a Python stack "
    "the innermost frame.",
}
