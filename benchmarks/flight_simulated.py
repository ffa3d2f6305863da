"""How right `diagnose` is on flight recorder dumps of simulated NCCL jobs with several culprits or none.

    python benchmarks/flight_simulated.py --jobs 240
    python benchmarks/flight_simulated.py --jobs 50 --fault "device error" --show

Real NCCL jobs need GPUs; `flight_worlds.py` takes real gloo jobs, which record neither transfers nor
who is in a group. Here each rank has a program (it issues calls ahead of its device and at times waits
for it) and a device that runs the calls in order, in tensor, expert, data and pipeline parallel groups.
A fault stops programs or devices, or none; then each rank's dump is made as torch 2.9 writes it.
Exit code 1 where a rank is named that is not to blame, or fewer than nine of ten are found that the
dumps hold. Jobs that run on and whose ranks are dumped at the same moment are counted apart: there, who
is last at that moment looks like one that is stuck.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wirespeed.diagnose.diagnose import diagnose
from wirespeed.diagnose.sources import find_sources
from wirespeed.model.records import Finding

FAULTS = {
    "stopped": 1,
    "two stopped": 2,
    "device error": 1,
    "two device errors": 2,
    "device stuck": 1,
    "left early": 1,
    "stopped, another dump missing": 1,
    "mismatch": 1,
    "network": 0,
    "none, dumped in turn": 0,
    "none, dumped at once": 0,
}
"""And how many ranks are to blame."""
UNDECIDED = ("device stuck", "left early")
"""Whose dumps show the group or the missing rank at most, so that nobody need be found."""
MOMENTARY = "none, dumped at once"
"""A job that runs on; whoever is last at that very moment is named, and told to be dumped again."""
STEPS, MICROBATCHES = 5, 2
QUIET = 60
"""Rounds without a change after which a job hangs."""
RUNNING = 300
"""Rounds of a healthy job before its first dump, at most."""


@dataclass(frozen=True)
class Job:
    """One random job and what goes wrong in it."""

    tp: int
    dp: int
    pp: int
    layers: int
    ahead: int
    """Calls that a program may be ahead of its device."""
    ring: int
    only_open: bool
    """Whether the dumps leave out what is over."""
    timed: bool
    """Whether the recorder knows when a call was started."""
    fault: str
    culprits: tuple[int, ...]
    seed: int
    batched: bool
    """Whether stages hand over in batches, of which the recorder leaves out the peers."""

    @property
    def ranks(self) -> int:
        return self.tp * self.dp * self.pp


def random_job(dice: random.Random, fault: str) -> Job:
    while True:
        tp, dp, pp = (dice.choice((1, 2, 2, 4)) for _ in range(3))
        if 4 <= tp * dp * pp <= 32 and tp * dp > (2 if fault == "mismatch" else 1):
            break
    count = FAULTS[fault]
    return Job(
        tp,
        dp,
        pp,
        layers=dice.randrange(1, 4),
        ahead=dice.choice((4, 12, 40)),
        ring=dice.choice((40, 200)),
        only_open=dice.random() < 0.5,
        timed=dice.random() < 0.3,
        fault=fault,
        culprits=tuple(sorted(dice.sample(range(tp * dp * pp), count))),
        seed=dice.randrange(1 << 30),
        batched=dice.random() < 0.3,
    )


@dataclass(frozen=True)
class Group:
    name: str
    desc: str
    ranks: tuple[int, ...]


def groups_of(job: Job) -> list[Group]:
    """Numbered as torch does, as every rank makes all of them in one order."""
    stage = job.tp * job.dp
    sets = [("default_pg", [range(job.ranks)])]
    sets.append(("TP", [range(at, at + job.tp) for at in range(0, job.ranks, job.tp)]))
    sets.append(("EP", [range(at, at + stage) for at in range(0, job.ranks, stage)]))
    across = [
        range(at + one, at + stage, job.tp)
        for at in range(0, job.ranks, stage)
        for one in range(job.tp)
    ]
    sets.append(("DP", across))
    sets.append(("PP", [range(at, job.ranks, stage) for at in range(stage)]))
    found: list[Group] = []
    for desc, every in sets:
        for ranks in every:
            found.append(Group(str(len(found)), desc, tuple(ranks)))
    return found


@dataclass
class Op:
    """A call of one rank's program."""

    group: Group
    op: str
    seq: int
    peer: int = -1
    waits: bool = False
    """Whether the program waits for all before it first, as for sizes that the device counts."""
    size: int = 64

    @property
    def transfer(self) -> bool:
        return self.op in ("send", "recv")


class Program:
    """All calls of one rank, in order."""

    def __init__(self, job: Job, rank: int, groups: list[Group]) -> None:
        self.job, self.rank = job, rank
        self.groups = {one.desc: one for one in groups if rank in one.ranks}
        self.seqs: Counter[str] = Counter()
        self.transfers: Counter[str] = Counter()
        self.ops: list[Op] = []
        line = self.groups["PP"].ranks
        at = line.index(rank)
        for step in range(STEPS):
            for forward in (True, False):
                before, after = (at - 1, at + 1) if forward else (at + 1, at - 1)
                for _ in range(MICROBATCHES):
                    if 0 <= before < len(line):
                        self.hand_over("recv", line[before])
                    for _ in range(job.layers):
                        self.layer()
                    if 0 <= after < len(line):
                        self.hand_over("send", line[after])
            self.call("DP", "_reduce_scatter_base")
            self.call("DP", "_allgather_base")
            if step % 2:
                self.call("default_pg", "all_reduce", waits=True)

    def layer(self) -> None:
        self.call("TP", "_allgather_base")
        self.call("EP", "all_to_all", waits=True)
        self.call("TP", "all_reduce")
        self.call("EP", "all_to_all")
        self.call("TP", "_reduce_scatter_base")

    def call(self, desc: str, op: str, waits: bool = False) -> None:
        group = self.groups[desc]
        if len(group.ranks) > 1:
            self.seqs[desc] += 1
            self.ops.append(Op(group, op, self.seqs[desc], waits=waits))

    def hand_over(self, op: str, peer: int) -> None:
        self.transfers["PP"] += 1
        self.ops.append(Op(self.groups["PP"], op, self.transfers["PP"], peer))


@dataclass
class Rank:
    ops: list[Op]
    issued: int = 0
    done: set[int] = field(default_factory=set)
    """Places of calls that its device came through."""
    recorded: set[int] = field(default_factory=set)
    """And that its recorder knows to be over."""
    times: list[int] = field(default_factory=list)
    stops_at: int = 1 << 30
    """The place that its program never comes to."""
    breaks_at: int = 1 << 30
    """The place from which on its device ends nothing."""
    blind_from: int = 1 << 30
    """The place from which on its recorder learns of no end."""
    dump: dict[str, Any] | None = None

    def head(self) -> int:
        """The first place that holds up what comes after it."""
        for place in range(self.issued):
            if place not in self.done and self.ops[place].op != "send":
                return place
        return self.issued


class Simulator:
    """The job, round by round."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.dice = random.Random(job.seed)
        self.groups = groups_of(job)
        self.ranks = [Rank(Program(job, rank, self.groups).ops) for rank in range(job.ranks)]
        self.speed = [self.dice.uniform(0.4, 1) for _ in self.ranks]
        self.round = 0
        self.cut: set[tuple[str, int]] = set()
        """Group and number of collectives whose data never arrive."""
        self.missing: set[int] = set()
        self.break_something()
        self.places = self.index()

    def break_something(self) -> None:
        job, dice = self.job, self.dice
        least = min(len(one.ops) for one in self.ranks)
        near = dice.randrange(least // 4, least // 2)
        for rank in job.culprits:
            one = self.ranks[rank]
            place = min(near + dice.randrange(6), len(one.ops) - 10)
            if "stopped" in job.fault:
                one.stops_at = place
            elif job.fault == "left early":
                one.stops_at = place
                self.missing.add(rank)
            elif job.fault == "device stuck":
                one.breaks_at = place
            elif "device error" in job.fault:
                one.blind_from = place
                one.breaks_at = place + dice.randrange(8, 30)
                one.stops_at = one.breaks_at + dice.randrange(3)
            elif job.fault == "mismatch":
                self.swap(one, place)
        if "another dump missing" in job.fault:
            self.missing.add(dice.choice([at for at in range(job.ranks) if at not in job.culprits]))
        if job.fault == "network":
            calls = [op for op in self.ranks[0].ops[near:] if not op.transfer]
            self.cut.add((calls[0].group.name, calls[0].seq))

    def swap(self, one: Rank, place: int) -> None:
        """Another collective than its peers at the next place at which it calls one of three or more."""
        for op in one.ops[place:]:
            if op.op in ("all_reduce", "all_to_all") and len(op.group.ranks) > 2:
                op.op = "broadcast"
                return
        op = next(op for op in one.ops[place:] if not op.transfer)
        op.op = "broadcast"

    def culprits(self) -> set[int]:
        """Ranks whose fault shows: a program that others hold up before it would stop is no culprit."""
        return {rank for rank in self.job.culprits if not self.is_held_up(self.ranks[rank])}

    def is_held_up(self, one: Rank) -> bool:
        if one.blind_from < one.issued or one.breaks_at < one.issued:
            return False
        if one.issued >= len(one.ops):
            return True
        if one.issued < one.stops_at < 1 << 30:
            return True
        head = one.head()
        waits = one.ops[one.issued].waits and head < one.issued
        return one.stops_at < 1 << 30 and (waits or one.issued - head >= self.job.ahead)

    def index(self) -> dict[tuple[str, int, int], int]:
        """Places of collectives by group, number and rank."""
        return {
            (op.group.name, op.seq, rank): place
            for rank, one in enumerate(self.ranks)
            for place, op in enumerate(one.ops)
            if not op.transfer
        }

    def run(self) -> None:
        quiet = 0
        begin = self.dice.randrange(100, RUNNING)
        skew = self.dice.choice((0, 1, 3) if self.job.fault == MOMENTARY else (20, 50, 200))
        when = {rank: begin + self.dice.randrange(skew + 1) for rank in range(self.job.ranks)}
        while quiet < QUIET:
            self.round += 1
            quiet = 0 if self.go_on() else quiet + 1
            if self.job.fault.startswith("none"):
                for rank, moment in when.items():
                    if moment == self.round:
                        self.ranks[rank].dump = self.dump(rank)
                if self.round > max(when.values()):
                    return

    def go_on(self) -> bool:
        """One round; whether anything moved."""
        moved = False
        order = list(range(self.job.ranks))
        self.dice.shuffle(order)
        heads = [one.head() for one in self.ranks]
        for rank in order:
            if self.dice.random() < self.speed[rank]:
                moved |= self.issue(rank, heads[rank])
        for rank in order:
            if self.dice.random() < 0.7:
                moved |= self.end_first(rank)
        return moved

    def issue(self, rank: int, head: int) -> bool:
        one = self.ranks[rank]
        place = one.issued
        if place >= min(len(one.ops), one.stops_at) or place - head >= self.job.ahead:
            return False
        if one.ops[place].waits and head < place:
            return False
        one.issued += 1
        one.times.append(self.round)
        return True

    def end_first(self, rank: int) -> bool:
        """The rank's first call, if all that are in it have come to it."""
        one = self.ranks[rank]
        place = one.head()
        if place >= one.issued:
            return False
        op = one.ops[place]
        if op.transfer:
            return self.end_transfer(rank, place, op)
        if (op.group.name, op.seq) in self.cut:
            return False
        parts = [(other, self.places[op.group.name, op.seq, other]) for other in op.group.ranks]
        if not all(self.is_there(self.ranks[other], at, op.op) for other, at in parts):
            return False
        for other, at in parts:
            self.end(other, at)
        return True

    def is_there(self, one: Rank, place: int, op: str) -> bool:
        """Whether the rank's device is in that call."""
        if one.ops[place].op != op or place >= min(one.issued, one.breaks_at):
            return False
        return one.head() == place

    def end_transfer(self, rank: int, place: int, op: Op) -> bool:
        """A receive, with the send that belongs to it."""
        own = [
            at
            for at, one in enumerate(self.ranks[rank].ops)
            if one.op == "recv" and one.peer == op.peer
        ]
        number = own.index(place)
        peer = self.ranks[op.peer]
        sends = [at for at, one in enumerate(peer.ops) if one.op == "send" and one.peer == rank]
        at = sends[number]
        if at >= peer.issued or peer.head() < at or at >= peer.breaks_at:
            return False
        if place >= self.ranks[rank].breaks_at:
            return False
        self.end(rank, place)
        self.end(op.peer, at)
        return True

    def end(self, rank: int, place: int) -> None:
        one = self.ranks[rank]
        one.done.add(place)
        if place < one.blind_from:
            one.recorded.add(place)

    def dump(self, rank: int) -> dict[str, Any]:
        """As torch's flight recorder writes it."""
        one = self.ranks[rank]
        mine = [group for group in self.groups if rank in group.ranks]
        numbers = {group.name: str(number) for number, group in enumerate(mine)}
        config = {
            group.name: {
                "name": group.name,
                "desc": group.desc,
                "ranks": json.dumps(list(group.ranks)),
            }
            for group in mine
        }
        entries = [self.entry(rank, place, numbers) for place in range(one.issued)][
            -self.job.ring :
        ]
        if self.job.only_open:
            entries = [entry for entry in entries if entry["state"] != "completed"]
        status: dict[str, Any] = {
            number: {"last_enqueued_collective": 0, "last_completed_collective": 0}
            for number in numbers.values()
        }
        for place in range(one.issued):
            op = one.ops[place]
            counts = status[numbers[op.group.name]]
            counts["last_enqueued_collective"] = op.seq
            if place in one.recorded:
                counts["last_completed_collective"] = op.seq
        return {
            "version": "2.9",
            "nccl_version": "2.27.3",
            "pg_config": config,
            "pg_status": status,
            "entries": entries,
        }

    def entry(self, rank: int, place: int, numbers: dict[str, str]) -> dict[str, Any]:
        one = self.ranks[rank]
        op = one.ops[place]
        over = place in one.recorded
        began = self.job.timed and place == one.head() and place < one.breaks_at
        name = op.op
        if op.transfer:
            at, peer = op.group.ranks.index(rank), op.group.ranks.index(op.peer)
            name = f"send {at}->{peer}" if op.op == "send" else f"recv {at}<-{peer}"
            name = "coalesced" if self.job.batched else name
        return {
            "record_id": place,
            "pg_id": int(numbers[op.group.name]),
            "process_group": [op.group.name, op.group.desc],
            "collective_seq_id": 0 if op.transfer else op.seq,
            "p2p_seq_id": op.seq if op.transfer else 0,
            "profiling_name": f"nccl:{name}",
            "time_created_ns": 10**18 + one.times[place] * 10**6,
            "input_sizes": [[op.size]],
            "input_dtypes": ["Float"],
            "state": "completed" if over else "started" if began else "scheduled",
            "retired": over,
            "is_p2p": op.transfer,
        }

    def write(self, folder: Path) -> None:
        for rank in range(self.job.ranks):
            if rank not in self.missing:
                dump = self.ranks[rank].dump or self.dump(rank)
                (folder / f"_dump_{rank}").write_text(json.dumps(dump))


def run_job(job: Job) -> tuple[set[int], list[Finding]]:
    """Return the ranks that are to blame, and what `diagnose` says of the job's dumps."""
    simulator = Simulator(job)
    simulator.run()
    with tempfile.TemporaryDirectory(prefix="wirespeed-flight-") as name:
        simulator.write(Path(name))
        return simulator.culprits(), list(diagnose(find_sources([name])).findings)


def named(findings: list[Finding]) -> set[int]:
    """Ranks that a failing finding is about."""
    failing = [finding for finding in findings if finding.status == "fail"]
    return {int(one.subject.name.split()[1]) for one in failing if one.subject.kind == "rank"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", choices=tuple(FAULTS), help="this one in all jobs")
    parser.add_argument("--show", action="store_true", help="jobs that came out wrong")
    given = parser.parse_args()
    tally: dict[str, Counter[str]] = defaultdict(Counter)
    faults = (given.fault,) if given.fault else tuple(FAULTS)
    for number in range(given.jobs):
        fault = faults[number % len(faults)]
        job = random_job(random.Random(given.seed * 100_003 + number), fault)
        culprits, findings = run_job(job)
        ranks = named(findings)
        counts = tally[fault]
        counts["jobs"] += 1
        counts["culprits"] += len(culprits)
        counts["right"] += len(ranks & culprits)
        counts["wrong"] += len(ranks - culprits)
        counts["named"] += bool(ranks)
        sure = {
            finding.subject.name
            for finding in findings
            if finding.status == "fail" and finding.confidence == "certain"
        }
        wrong = {f"rank {rank}" for rank in ranks - culprits}
        counts["wrong and certain"] += len(sure & wrong)
        if given.show and ranks != culprits:
            ids = [finding.id for finding in findings]
            print(f"{number}: {job}: {sorted(culprits)}, named {sorted(ranks)} {ids}")
    print(f"{'fault':<32}{'jobs':>6}{'culprits':>10}{'found':>7}{'wrong':>7}{'certain':>9}")
    for fault, counts in tally.items():
        line = f"{fault:<32}{counts['jobs']:>6}{counts['culprits']:>10}{counts['right']:>7}"
        print(f"{line}{counts['wrong']:>7}{counts['wrong and certain']:>9}")
    moment = tally.pop(MOMENTARY, Counter())
    decided = [counts for fault, counts in tally.items() if fault not in UNDECIDED]
    right, wrong_ones, every = (
        sum(counts[name] for counts in tally.values()) for name in ("right", "wrong", "culprits")
    )
    shown = sum(counts["right"] for counts in decided)
    most = sum(counts["culprits"] for counts in decided)
    precision = right / max(right + wrong_ones, 1)
    print(f"precision {precision:.3f}, recall {right / max(every, 1):.3f}")
    print(f"recall where the dumps hold the culprit: {shown / max(most, 1):.3f}")
    if moment:
        print(f"jobs that ran on, dumped at once, with somebody named: {moment['named']}")
    return 0 if wrong_ones == 0 and shown >= 0.9 * most else 1


if __name__ == "__main__":
    sys.exit(main())
