"""What all ranks do with a folder at once, in rounds; each goes the same way by what all answered."""

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from wirespeed.collectives.stopping import StopRule
from wirespeed.model.codec import to_json
from wirespeed.model.records import Choice
from wirespeed.model.storage_records import Access, Storage, StorageNode, StorageTrouble
from wirespeed.model.units import format_size
from wirespeed.plan import Plan, StoragePlan
from wirespeed.rank.place import Place
from wirespeed.rank.steps import Reporter, teller
from wirespeed.rank.storage.answer import Answer
from wirespeed.rank.storage.figures import Round, figure_of
from wirespeed.rank.storage.files import BLOCK, LATE_S
from wirespeed.rank.storage.hand import Hand
from wirespeed.statistics import LEAST_SAMPLES

_SHARE = 0.05
"""Of what is free, all files of all ranks together; in a quota, too."""
_LEAST_BYTES = 4 * BLOCK
"""Of a rank's file: less tells nothing, and a folder without room for it is left alone."""
_PROBE = 8 * BLOCK
_PIECES = 256
_ROUNDS = 8
"""In the time of a kind of access, at least as aimed at."""
_ROUNDS_PER_S = 16
"""At most, of the time of a kind of access: starting fio takes longer than its short rounds."""
_MOST_S = 45.0
"""Of one kind of access, starting programs and waiting for each other included."""
_SLACK_S = 60.0
"""For a worker that is given up to end, and for ranks to hear of it."""
_START_S = 50.0
"""For a worker to start, or to import torch, beside the bound of an operation; ranks wait for each
other 60 s longer than that."""
_AGAIN_S = 5.0
"""For storage that had hung, to remove files."""


class _Stopped(Exception):
    """Something went wrong on a rank: what comes next would tell nothing."""


def run_storage(place: Place, plan: Plan, storage: StoragePlan, heartbeat: Reporter) -> None:
    """Look at the folder, and measure it where there is room. Collective; bounded."""
    study = _Study(place, plan, storage, heartbeat)
    place.busy(plan.op_timeout_s + _START_S + _SLACK_S)
    try:
        study.run()
    finally:
        study.hand.close()
    place.control.barrier()  # every worker has ended, and left nothing
    place.busy(None)


def _missing(slowest: Sequence[float], *, late: bool) -> int:
    """Rounds that an interval still needs, also where they take longer than was meant."""
    return 0 if late else max(0, LEAST_SAMPLES - len(slowest))


class _Study:
    def __init__(self, place: Place, plan: Plan, storage: StoragePlan, heartbeat: Reporter) -> None:
        self._place, self._storage, self._heartbeat = place, storage, heartbeat
        self.hand, self._quiet_s = Hand(place.tick), plan.op_timeout_s
        token = place.control.objects(secrets.token_hex(8), str)[0]
        self._work: dict[str, Any] = {
            "rank": place.rank,
            "directory": storage.folder,
            "token": token,
        }
        self._tell = teller(place, heartbeat)
        self._first = [place.hosts.index(host) for host in dict.fromkeys(place.hosts)]
        self._engine = "own"
        self._size = 0
        self.found = Storage(
            folder=storage.folder,
            model=storage.model,
            checkpoint=storage.checkpoint_bytes,
            sample=storage.sample_bytes,
            needed_per_s=storage.needed_per_s,
            needed_from=storage.needed_from,
        )

    @property
    def _leads(self) -> bool:
        return self._place.rank in self._first

    def run(self) -> None:
        whole = True
        try:
            self._measure()
        except _Stopped:
            whole = False
        self._clean()
        self._keep(complete=whole)

    def _measure(self) -> None:
        self._all("start", "work", self._quiet_s + _START_S, **self._work)
        self._look()
        if not self._has_room():
            return
        begun = self._all("begin", "begin", first=self._leads)
        done = [json.loads(one.said) for one in begun]
        direct = all(one["direct"] for one in done)
        if not direct:
            self._all("begin", "use_page_cache")
        nodes = tuple(replace(one, direct=direct) for one in self.found.nodes)
        self._keep(nodes=nodes, removed=sum(one["removed"] for one in done))
        parts = (
            ("what nodes see of each other", self._see_each_other),
            ("large files", self._large_files),
            ("small files", self._small_files),
            ("checkpoints", self._checkpoints),
        )
        for number, (name, part) in enumerate(parts):
            told = {"index": number, "of": len(parts), "label": f"storage: {name}"}
            self._tell("progress", told)
            part()

    # Looking.

    def _look(self) -> None:
        looked = [json.loads(one.said) for one in self._all("look", "look")]
        hosts, fio = self._place.hosts, [one.pop("fio") for one in looked]
        nodes = [StorageNode(host=hosts[r], direct=False, **looked[r]) for r in self._first]
        self._keep(nodes=tuple(nodes))
        missing = [host for host, version in zip(hosts, fio, strict=True) if not version]
        if not missing:
            self._engine = "fio"
        why = f"not installed on {missing[0]}" if missing else f"{fio[0]} is on every node"
        choice = Choice("storage engine", self._engine, f"fio: {why}")
        self._tell("choices", {"choices": [asdict(choice)]})

    def _has_room(self) -> bool:
        """Whether a small share of what is free is enough; else the record says why it is not."""
        ranks, files = self._place.world_size, 2 * self._storage.small_files + 16
        for node in self.found.nodes:
            free = node.free if node.quota is None else min(node.free, node.quota)
            if node.inodes and node.free_inodes < 4 * files * ranks:
                need = f"{node.free_inodes} files can still be made, and {files * ranks} would be"
                self._keep(refused=f"{need} ({node.host})")
                return False
            share = int(free * _SHARE) // ranks // BLOCK * BLOCK
            if share < _LEAST_BYTES:
                least = format_size(_LEAST_BYTES * ranks)
                self._keep(
                    refused=f"{format_size(free)} may still be written, and more than {_SHARE:.0%} of "
                    f"that, {least}, would be ({node.host})"
                )
                return False
            self._size = min(self._size or share, share, self._storage.most_bytes)
        return True

    def _see_each_other(self) -> None:
        """Each node's first rank looks at files of rank 0, which looks at those of one that sees it."""
        here, alone = self._place.rank, len(self._first) == 1
        put = partial(self._of_leaders, "put")
        put(name="token", text=f"old {here}")
        same = [one.seconds >= 0 for one in self._see("old", [0] if here else [])]
        partner = [rank for rank in self._first[1:] if same[rank]][:1]
        of = [0] if here else partner
        for what in ("old", "late"):
            self._see(what, of, within_s=0.0)  # from now on its client may remember them
        put(name="token", text=f"new {here}")
        anew = self._see("new", of)
        put(name="late", text=f"late {here}")
        late = self._see("late", of)
        nodes = []
        for node, rank in zip(self.found.nodes, self._first, strict=True):
            seconds = [one[rank].seconds for one in (anew, late)]
            told = [one if one >= 0 and same[rank] and not alone else None for one in seconds]
            is_same = None if alone else same[rank]
            nodes.append(replace(node, same=is_same, change_seen=told[0], name_seen=told[1]))
        self._keep(nodes=tuple(nodes))

    def _see(self, what: str, of: list[int], within_s: float = LATE_S) -> list[Answer]:
        """Whether files of those ranks show it: `late` has a name of its own."""
        name, texts = "late" if what == "late" else "token", {one: f"{what} {one}" for one in of}
        return self._of_leaders("see", name=name, texts=texts, within_s=within_s)

    def _of_leaders(self, do: str, **told: Any) -> list[Answer]:
        return self._all("what nodes see of each other", do if self._leads else "", **told)

    # Measuring.

    @property
    def _reads_of(self) -> int:
        """The rank whose files this one reads: another node's, where nodes see each other's."""
        place = self._place
        if len(self._first) == 1 or not all(one.same for one in self.found.nodes):
            return place.rank
        by_node = sorted(
            range(place.world_size), key=lambda rank: place.hosts.index(place.hosts[rank])
        )
        step = max(place.hosts.count(host) for host in set(place.hosts))
        return by_node[(by_node.index(place.rank) + step) % place.world_size]

    def _large_files(self) -> None:
        """A first file, whose data are compared, tells how large the others are to be."""
        bound_s, size = 2 * self._storage.max_time_s, min(self._size, _PROBE)
        written = self._all("a first file", "write", size=size, seconds=bound_s, engine="own")
        read = partial(self._all, of=self._reads_of, seconds=bound_s)
        back = read("comparing it", "read", engine="own", compare=True)
        self._keep(compared=sum(one.size_bytes for one in back))
        for rank, one in enumerate(back):
            if one.wrong:
                sizes = f"{format_size(one.wrong)} of {format_size(one.size_bytes)}"
                text = f"{sizes} are not what was written"
                self._note(self._trouble(rank, "read", one, kind="wrong", text=text))
        if self.found.troubles:
            raise _Stopped
        per_s = min(one.size_bytes / max(one.seconds, 1e-6) for one in written)
        aimed = int(per_s * self._storage.max_time_s / 2 / _ROUNDS) // BLOCK * BLOCK
        self._size = max(_LEAST_BYTES, min(self._size, aimed))
        told: dict[str, Any] = {"engine": self._engine}
        if self._engine == "fio":  # which tells of no progress
            told["quiet_s"] = self._quiet_s + bound_s
        write = partial(self._all, "write", "write", size=self._size, seconds=bound_s, **told)
        self._rounds(
            self._engine, ("write", write), ("read", partial(read, "read", "read", **told))
        )
        told |= {"size": self._storage.sample_bytes, "calls": _PIECES}
        pieces = partial(read, "random read", "read_pieces", **told)
        self._rounds(self._engine, ("random read", pieces))

    def _small_files(self) -> None:
        """As many as the slowest rank makes in a time, so that storage that is slow has rounds, too."""
        of, bound_s = self._reads_of, self._storage.max_time_s
        told = {"size": self._storage.sample_bytes, "count": self._storage.small_files}
        made = self._all("first small files", "create", **told, seconds=bound_s)
        self._all("removing them", "remove", count=made[self._place.rank].calls)
        told["count"] = count = min(one.calls for one in made)
        ask = partial(self._all, count=count)
        self._rounds(
            "own",
            ("create", partial(self._all, "create", "create", **told)),
            ("stat", partial(ask, "stat", "stat", of=of)),
            ("open", partial(ask, "open", "open", of=of)),
            ("remove", partial(ask, "remove", "remove")),
        )

    def _checkpoints(self) -> None:
        """Of the large file's size; where torch is not there in time, storage is not to blame."""
        answers = self._answers("torch", "prepare", self._quiet_s + _START_S, size=self._size)
        if late := [rank for rank, one in enumerate(answers) if one.kind]:
            one = answers[late[0]]
            self._note(self._trouble(late[0], "torch", one, kind="skipped"))
            return
        load = partial(self._all, "load", "load", of=self._reads_of)
        save = partial(self._all, "save", "save")
        self._rounds("torch.distributed.checkpoint", ("save", save), ("load", load))

    def _rounds(self, engine: str, *accesses: tuple[Access, Any]) -> None:
        """Rounds of these, one after the other, until the interval is narrow or the time is over."""
        storage, begin = self._storage, time.monotonic()
        rule = StopRule(
            precision=storage.precision,
            max_time_s=storage.max_time_s,
            max_iterations=max(_ROUNDS, round(_ROUNDS_PER_S * storage.max_time_s)),
        )
        rounds: dict[Access, list[Round]] = {access: [] for access, _ in accesses}
        slowest: list[float] = []
        elapsed = 0.0
        late = False
        while chunk := rule.next_chunk(slowest, elapsed) or _missing(slowest, late=late):
            for _ in range(chunk):
                if late:
                    break
                for access, ask in accesses:
                    rounds[access].append(ask())
                slowest.append(
                    sum(max(one.seconds for one in told[-1]) for told in rounds.values()) or 1e-9
                )
                wall = self._place.control.matrix([time.monotonic() - begin]).max()
                late = float(wall) > _MOST_S
            # In the calls: starting fio takes longer than some of its rounds.
            elapsed = max(sum(slowest), 2 * storage.max_time_s * late)
        hosts = self._place.hosts
        figures = [figure_of(access, engine, told, hosts) for access, told in rounds.items()]
        self._keep(figures=(*self.found.figures, *figures))

    # Asking.

    def _all(self, label: str, do: str, quiet_s: float = 0.0, **told: Any) -> list[Answer]:
        """Every rank's worker does it at once (empty: this one nothing); all answers, by rank.

        _Stopped on every rank where one of them could not.
        """
        answers = self._answers(label, do, quiet_s or self._quiet_s, **told)
        if bad := [rank for rank, one in enumerate(answers) if one.kind]:
            self._note(*(self._trouble(rank, label, answers[rank]) for rank in bad))
            raise _Stopped
        return answers

    def _answers(self, label: str, do: str, quiet_s: float, **told: Any) -> list[Answer]:
        self._heartbeat.enter(f"storage: {label}")
        answer = self.hand.ask(do, quiet_s, **told) if do else Answer()
        return self._place.control.objects(answer, Answer)

    def _trouble(self, rank: int, doing: str, one: Answer, **other: Any) -> StorageTrouble:
        told = {"kind": one.kind, "text": one.text, **other}
        return StorageTrouble(
            rank=rank,
            host=self._place.hosts[rank],
            doing=doing,
            error=one.error,
            waited=one.waited,
            where=one.where,
            **told,
        )

    def _clean(self) -> None:
        """Everybody's files, then the folders; for a worker that was given up another one tries."""
        quiet_s = self._quiet_s
        if self.hand.gone:
            self.hand.close()
            self.hand = Hand(self._place.tick)
            quiet_s = min(quiet_s, _AGAIN_S)
            self.hand.ask("work", quiet_s, begun=True, **self._work)
        for last in (False, True):
            doing = "removing its files"
            answers = self._answers(doing, "clean", quiet_s, last=last and self._leads)
            left = [
                self._trouble(rank, doing, one, kind="left", text=text)
                for rank, one in enumerate(answers)
                for text in ([f"not removed: {one.text}"] if one.kind else json.loads(one.said))
            ]
            if left:
                self._note(*left)
                return

    def _note(self, *troubles: StorageTrouble) -> None:
        self._keep(troubles=(*self.found.troubles, *troubles))

    def _keep(self, **told: Any) -> None:
        """Known from now on, also to a session whose ranks come to no end."""
        self.found = replace(self.found, **told)
        self._tell("storage", to_json(self.found))
