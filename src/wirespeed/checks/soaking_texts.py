"""What the findings of a soak mean, for `check --explain`."""

__all__ = ["EXPLANATIONS"]

EXPLANATIONS = {
    "SOAK-001": "Every result of the soak was exact. Each call's output is compared, element by "
    "element, with what it must be, on new data in each turn; one wrong element in hours is a "
    "failure, since training would have gone on with it. The finding names rank, time, "
    "operation and the seed, with the command that sends the same data again. Look at ECC "
    "counts, Xid errors and the cable of that rank's node, and soak it alone.",
    "SOAK-002": "No call stalled. A stall takes ten times the operation's median, three times "
    "what one call in a hundred takes, and 10 ms. The finding names the rank whose process "
    "stood still meanwhile (a hypervisor, a cgroup's limit, a signal), else the rank that was "
    "last, and the period where stalls are regular. Calls in which a rank only waited for a "
    "core are not counted here (SOAK-007).",
    "SOAK-003": "No operation became slower over the soak. For each operation and size the slope "
    "of the windows' medians (Theil and Sen, with its interval, corrected for the number of "
    "operations) is told where it is surely above 10 % over the soak, and so is that of the "
    "quickest tenth, which a busy machine leaves alone. Look at temperatures and clocks, link "
    "error counts, and what else was started.",
    "SOAK-004": "The ranks lived through the soak. A world of ranks that failed is told with its "
    "cause, its rank and what it cost; the next world went on. `docs/soak.md` tells how to read "
    "the list of incidents.",
    "SOAK-005": "The memory of the ranks did not grow. The slope of each process's memory is told "
    "where it is surely above 0, and 16 MiB and 5 % in the time observed, after the first "
    "third, in which libraries set up what they keep. A rank that grows ends by the "
    "out-of-memory killer after hours.",
    "SOAK-006": "Records could be written all the time. While the disk was full they waited in "
    "memory (16 MiB at most) and were written when there was room; the soak went on. Make room, "
    "or put the runs elsewhere: WIRESPEED_HOME.",
    "SOAK-007": "The nodes had cores for the ranks. Calls took long because a rank's threads were "
    "ready and had no core (the kernel's schedstat); that says something of the machine and "
    "nothing of a link or a rank. Soak without other jobs, or with fewer ranks on a node.",
}
