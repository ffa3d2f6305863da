"""Several complete copies of nccl-tests side by side: each rank was a job of its own."""

from collections.abc import Iterator

from wirespeed.diagnose.evidence import Evidence, host_of
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Hit

__all__ = ["RULES"]


def _copies(evidence: Evidence) -> Iterator[Hit]:
    """A second rank 0, listed before any copy had printed its summary, or by another process.

    Tests that run one after another list theirs after the summary of the one before, by the same
    rank of the launcher: they are no copies.
    """
    devices = evidence.seen["NT-003"].hits
    firsts = [hit for hit in devices if hit.groups.get("rank") == "0"]
    summary = evidence.seen.get("NT-005")
    end = summary.start.line if summary is not None else None
    first = firsts[0] if firsts else None
    together = [
        hit
        for hit in firsts
        if first is not None
        and hit.line.source == first.line.source
        and (end is None or end.source != hit.line.source or hit.line.order < end.order)
    ]
    writers = {hit.line.rank for hit in firsts if hit.line.rank is not None}
    hosts = sorted({host for hit in firsts if (host := host_of(hit))})
    largest = max((int(hit.groups["rank"]) for hit in devices), default=0) + 1
    # A pipe gives each copy's lines at its end: whole, one after another, each on a host of its own.
    apart = len(writers) > 1 or (largest == 1 and len(hosts) == len(firsts))
    copies = firsts if apart else together
    if len(copies) < 2:
        return
    ranks = "one rank" if largest == 1 else f"{largest} ranks"
    for hit in copies[1:]:
        told = {"copies": str(len(copies)), "ranks": ranks, "hosts": ", ".join(hosts[:6])}
        yield Hit(RULES[0], hit.line, told)


RULES: tuple[Rule, ...] = (
    Rule(
        id="NT-015",
        category="mpi-separate-jobs",
        role="cause",
        needs=("NT-003",),
        derive=_copies,
        sentence="{copies} separate, independent jobs of nccl-tests with {ranks} each ran side by side "
        "({hosts}), not one job: the launcher and nccl-tests do not share an MPI",
        because="one job prints one header, one list of devices with one rank 0, and one table; here "
        "several processes each call themselves rank 0. nccl-tests was built without MPI=1, or "
        "against another MPI (or PMI) than the launcher's, so that each copy finds itself alone",
        costs="nothing was measured between the processes: the figures are those of single GPUs or "
        "nodes, and a busbw of 0 is that of one rank",
        fix="make clean, then make MPI=1 MPI_HOME=/path/to/mpi (old objects stay without MPI "
        "otherwise), and start it with that MPI's own mpirun: mpirun -np 2 -H host0:1,host1:1 …; "
        "under Slurm srun --mpi=pmix (srun --mpi=list), or mpirun inside sbatch",
        next="ldd build/all_reduce_perf | grep -i libmpi; which mpirun",
        explains=("NT-030", "NT-010", "NT-011"),
        links=("https://github.com/NVIDIA/nccl-tests",),
    ),
)
