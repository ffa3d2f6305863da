"""The nodes as their first ranks tell them: before the world is joined, and seated after."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from wirespeed.records import NodeFacts
from wirespeed.records_json import node_from_json
from wirespeed.world.counters.snapshot import added

__all__ = ["NodeBook"]


class NodeBook:
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
        self._told.append(node_from_json(node))

    def peers(self, data: Mapping[str, Any]) -> None:
        """What the node of `rank` saw when it knocked at others; the last word counts."""
        self._peers[data["rank"]] = tuple(data["peers"])

    def counted(self, data: Mapping[str, Any]) -> None:
        """What the counters of the node of `rank` did, since it told before or joined."""
        told, first = dict(data), int(data["rank"])
        del told["rank"]
        known = self._counted.get(first)
        self._counted[first] = added(known, told) if known else told

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
            node = replace(node, facts={**node.facts, "neighbours": self._others[first]})
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
