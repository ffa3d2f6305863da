"""What the ranks of a run tell, as it comes: who they are, what they measured, what went wrong.

It judges nothing. What must survive a session that is killed goes into the run folder at once.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol, TypeVar

from wirespeed.model.bench_records import Replay, Shape
from wirespeed.model.codec import from_json, to_json
from wirespeed.model.compute_records import Compute, ComputeProof, ComputeRate
from wirespeed.model.records import (
    Choice,
    Finding,
    Located,
    Measurement,
    NodeFacts,
    PairFigures,
    Verification,
    World,
)
from wirespeed.model.storage_records import Storage
from wirespeed.model.training_records import LoadFigures, Training
from wirespeed.model.units import format_size
from wirespeed.node.identity import distinct_names
from wirespeed.node.redact import allowed_environment
from wirespeed.runs.folder import RunFolder
from wirespeed.session.findings import make_finding


class ProgressView(Protocol):
    """Shows what is running; never on stdout."""

    def step(self, index: int, of: int, label: str) -> None: ...

    def phase(self, text: str) -> None: ...

    def say(self, text: str) -> None: ...

    def close(self) -> None: ...


class NodeRegistry:
    """Takes what nodes tell in any order; `nodes` is what is known by now."""

    def __init__(self) -> None:
        self._told: list[NodeFacts] = []
        self._peers: dict[int, tuple[dict[str, Any], ...]] = {}
        self._counted: dict[int, dict[str, Any]] = {}
        self._others: dict[int, list[dict[str, Any]]] = {}
        self._hosts: tuple[str, ...] = ()
        self._gpus: tuple[str, ...] = ()

    @property
    def joined(self) -> bool:
        """Whether it is settled which rank runs on which node."""
        return bool(self._hosts)

    def tell(self, node: Mapping[str, Any]) -> None:
        """A node's facts; until all have joined, its host and ranks are what it believes itself."""
        self._told.append(from_json(NodeFacts, node))

    def peers(self, data: Mapping[str, Any]) -> None:
        """What the node of `rank` saw when it knocked at others; the last word counts."""
        self._peers[data["rank"]] = tuple(data["peers"])

    def counted(self, data: Mapping[str, Any]) -> None:
        """What the counters of the node of `rank` did, since it told before or joined."""
        told, first = dict(data), int(data["rank"])
        del told["rank"]
        known = self._counted.get(first)
        if known:  # the readers of counters come with it
            from wirespeed.node.counters import added

            told = added(known, told)
        self._counted[first] = told

    def others(self, data: Mapping[str, Any]) -> None:
        """The other runs that the node of `rank` saw meanwhile; the last word counts."""
        self._others[data["rank"]] = list(data["others"])

    def seat(self, hosts: Sequence[str], gpus: Sequence[str] = ()) -> None:
        """The world is joined: host names by global rank, told apart where two are alike.

        gpus: UUIDs of what CUDA gave to each rank, empty where that is no GPU.
        """
        self._hosts = tuple(hosts)
        self._gpus = tuple(gpus)

    def nodes(self) -> tuple[NodeFacts, ...]:
        """By first rank; one for each host."""
        found: dict[str, NodeFacts] = {}
        for node in sorted(self._told, key=lambda one: one.ranks):
            seated = self._seated(node)
            found.setdefault(seated.host, seated)
        return tuple(found.values())

    def _seated(self, node: NodeFacts) -> NodeFacts:
        first = node.ranks[0]
        node = replace(
            node,
            peers=tuple(map(self._named, self._peers.get(first, ()))),
            counters=self._counted.get(first, {}),
        )
        if first in self._others:
            node = replace(node, facts=replace(node.facts, neighbours=self._others[first]))
        if not self._hosts:
            return node
        host = self._hosts[first]
        ranks = tuple(rank for rank, name in enumerate(self._hosts) if name == host)
        return replace(node, host=host, ranks=ranks, gpus=tuple(map(self._used, node.gpus)))

    def _used(self, gpu: dict[str, Any]) -> dict[str, Any]:
        """With the ranks that compute on it, joined by UUID: CUDA's numbers are not NVML's."""
        if not any(self._gpus) or "uuid" not in gpu:
            return gpu
        ranks = [rank for rank, uuid in enumerate(self._gpus) if uuid == gpu["uuid"]]
        return {**gpu, "ranks": ranks}

    def _named(self, peer: dict[str, Any]) -> dict[str, Any]:
        return {**peer, "host": self._hosts[peer["rank"]]} if self._hosts else peer


_STORED = (
    *("measurement", "verification", "pairs", "located", "training", "under_load", "replay"),
    *("shape", "compute_rate", "compute_proof", "storage"),
)
"""Kinds of records that the run folder keeps as they come."""

_LISTED: dict[str, tuple[type, str]] = {
    "measurement": (Measurement, "measurements"),
    "verification": (Verification, "verifications"),
    "under_load": (LoadFigures, "load"),
    "compute_rate": (ComputeRate, "rates"),
    "compute_proof": (ComputeProof, "device_proofs"),
}
"""Kinds that are kept one by one, and where."""

T = TypeVar("T", ComputeRate, ComputeProof)


def _by_rank(told: Sequence[T]) -> tuple[T, ...]:
    """They come from all ranks at once; the same run is always told in one order."""
    return tuple(sorted(told, key=lambda one: (one.rank, one.device)))


_WHOLE = ("versions", "environment")
"""Of rank 0's node; the environment only where that is not this one."""
_OF_NODES = ("joined", "node", "peers", "neighbours")
_MOST_ODD = 8

Take = Callable[[Mapping[str, Any]], None]


class RunBuilder:
    """`take` is called in the monitor's thread; the rest is read once the ranks have ended."""

    def __init__(
        self,
        folder: RunFolder,
        progress: ProgressView,
        *,
        launcher: str,
        world_size: int,
        choices: Sequence[Choice],
    ) -> None:
        self._folder, self._progress = folder, progress
        self._launcher, self.world_size = launcher, world_size
        self._backend = "unknown"
        self._seats: dict[int, tuple[str, int]] = {}
        self.choices = list(choices)
        self.nodes = NodeRegistry()
        self.versions: dict[str, str] = {}
        self.environment = allowed_environment(os.environ)
        self.measurements: list[Measurement] = []
        self.verifications: list[Verification] = []
        self.located: Located | None = None
        self.pairs: list[PairFigures] = []
        self.training: dict[tuple[object, ...], Training] = {}
        self.load: list[LoadFigures] = []
        self.proofs: list[Mapping[str, Any]] = []
        self.trace: list[str] = []
        self.replay: Replay | None = None
        self.shape: Shape | None = None
        self.rates: list[ComputeRate] = []
        self.device_proofs: list[ComputeProof] = []
        self.storage: Storage | None = None
        self.notes: list[Finding] = []
        self.is_out_of_time = False
        """Whether --max-time was over before all was measured."""
        self.refusal: Mapping[str, Any] | None = None
        self._takers: dict[str, Take] = {
            "progress": self._on_progress,
            "joined": self._on_joined,
            "node": self.nodes.tell,
            "seat": self._on_seat,
            "peers": self.nodes.peers,
            "counters": self.nodes.counted,
            "neighbours": self.nodes.others,
            "choices": self._on_choices,
            "memory": self._on_memory,
            "located": self._on_located,
            "pairs": self._on_pairs,
            "culprits": self._on_culprits,
            "training": self._on_training,
            "proof": self.proofs.append,
            "trouble": self._on_trouble,
            "not_measured": self._on_not_measured,
            "trace": self._on_trace,
            "replay": self._on_replay,
            "shape": self._on_shape,
            "shape_told": self._on_shape_told,
            "storage": self._on_storage,
            "refusal": self._on_refusal,
            "odd": self._on_odd,
            "identity": self._on_identity,
        }
        folder.append("environment", self.environment)
        self.store_choices()

    @property
    def measured(self) -> int:
        """Figures and comparisons of data, together: with none of them a run knows nothing."""
        figures = len(self.pairs) + len(self.measurements) + len(self.training)
        figures += sum(not one.reason for one in self.rates)
        if self.is_out_of_time and not figures:
            return 0  # what was asked for are figures: data that are right do not stand for them
        checked = sum(one.wrong is not None for one in self.verifications)
        checked += sum(not one.reason for one in self.device_proofs)
        return figures + checked

    @property
    def compute(self) -> Compute | None:
        """What devices were seen to do; None where none was asked."""
        if not self.rates and not self.device_proofs:
            return None
        return Compute(rates=_by_rank(self.rates), proofs=_by_rank(self.device_proofs))

    def take(self, kind: str, data: dict[str, Any]) -> bool:
        """One record of a rank; False where nobody here knows its kind, which is left alone."""
        if kind in _LISTED:
            record, name = _LISTED[kind]
            getattr(self, name).append(from_json(record, data))
        elif kind in _WHOLE:
            setattr(self, kind, dict(data))
            self._folder.append(kind, data)
        elif kind in self._takers:
            self._takers[kind](data)
        else:
            return False
        if kind in _STORED:
            self._folder.append(kind, data)
        elif kind in _OF_NODES:
            self._store_world()
        return True

    def world(self) -> World:
        return World(
            size=self.world_size,
            nodes=self.nodes.nodes(),
            backend=self._backend,
            launcher=self._launcher,
        )

    def _store_world(self) -> None:
        self._folder.append("world", to_json(self.world()))

    def _on_progress(self, data: Mapping[str, Any]) -> None:
        self._progress.step(data["index"], data["of"], data["label"])

    def _on_joined(self, data: Mapping[str, Any]) -> None:
        self._backend = data["backend"]
        self.nodes.seat(data["hosts"], data.get("gpus", ()))

    def _on_seat(self, data: Mapping[str, Any]) -> None:
        """Where a rank is that opens no process group; with the last of them the world is joined."""
        self._seats[data["rank"]] = data["host"], data["space"]
        if len(self._seats) == self.world_size:
            self._backend = ""
            ranks = range(self.world_size)
            self.nodes.seat(distinct_names([self._seats[rank] for rank in ranks]))
            self._store_world()

    def _on_choices(self, data: Mapping[str, Any]) -> None:
        self.choices += [Choice(**choice) for choice in data["choices"]]
        self.store_choices()

    def store_choices(self) -> None:
        self._folder.append("choices", [asdict(one) for one in self.choices])

    def _on_identity(self, data: Mapping[str, Any]) -> None:
        """Why rank 0 believes in its place, where an engine has started it elsewhere."""
        self.choices.append(Choice("launcher", self._launcher, data["reason"]))
        self.store_choices()

    def _on_located(self, data: Mapping[str, Any]) -> None:
        self.located = from_json(Located, data)

    def _on_pairs(self, data: Mapping[str, Any]) -> None:
        self.pairs += from_json(tuple[PairFigures, ...], data["pairs"])

    def _on_culprits(self, data: Mapping[str, Any]) -> None:
        if self.located is not None:
            from wirespeed.checks.locating import culprit_findings

            measured = replace(self.located, pairs=tuple(self.pairs))
            self.notes += culprit_findings(measured, data["culprits"])

    def _on_training(self, data: Mapping[str, Any]) -> None:
        """What was known after a round gives way to what is known after the next."""
        one = from_json(Training, data)
        self.training[one.key] = one

    def _on_not_measured(self, data: Mapping[str, Any]) -> None:
        from wirespeed.checks.time_limit import not_measured

        self.is_out_of_time = True
        self.notes.append(not_measured(data["labels"], data["seconds"]))

    def _on_trouble(self, data: Mapping[str, Any]) -> None:
        from wirespeed.checks.correctness import trouble_finding

        self.notes.append(trouble_finding(data))

    def _on_trace(self, data: Mapping[str, Any]) -> None:
        self.trace.append(data["text"])

    def _on_replay(self, data: Mapping[str, Any]) -> None:
        from wirespeed.checks.job_traffic import replay_findings

        self.replay = from_json(Replay, data)
        self.notes += replay_findings(self.replay, self.measurements)

    def _on_shape(self, data: Mapping[str, Any]) -> None:
        self.shape = from_json(Shape, data)

    def _on_shape_told(self, _: Mapping[str, Any]) -> None:
        """All that its groups cost each other has come."""
        from wirespeed.checks.job_traffic import shape_findings

        self.notes += shape_findings(self.load, self.world())

    def _on_storage(self, data: Mapping[str, Any]) -> None:
        """What was known before gives way to what is known now."""
        self.storage = from_json(Storage, data)

    def _on_refusal(self, data: Mapping[str, Any]) -> None:
        """A rank cannot do what was asked: the first to say so is shown, and it is no failure."""
        self.refusal = self.refusal or data

    def _on_odd(self, data: Mapping[str, Any]) -> None:
        """Something that no rank of this job has left where ranks leave word; each is told once."""
        known = [one.saw for one in self.notes if one.id == "WORLD-004"]
        if len(known) < _MOST_ODD and data["saw"] not in known:
            self.notes.append(make_finding("other_writer", saw=data["saw"]))

    def _on_memory(self, data: Mapping[str, Any]) -> None:
        need, free = (format_size(data[name]) for name in ("need_bytes", "free_bytes"))
        where = f"on {data['host']} it needs {need} of {free} that may be taken"
        saw = where if data["host"] else "no size fits"
        self.notes.append(make_finding("does_not_fit", label=data["label"], saw=saw))
