"""A node's facts for those who ask for nothing else: also installed versions and distances."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wirespeed.records import NodeFacts
from wirespeed.world.facts import gather_node
from wirespeed.world.installed import note_installed
from wirespeed.world.reading import Notes
from wirespeed.world.topology import note_topology

__all__ = ["survey_node"]

_ROOT = Path("/")


def survey_node(
    ranks: Sequence[int],
    *,
    root: Path = _ROOT,
    environ: Mapping[str, str] | None = None,
    nvml: Any = None,
) -> NodeFacts:
    """As `gather_node`, which it extends, in a process that has not imported torch. Nothing raises."""
    node = gather_node(ranks, root=root, environ=environ, nvml=nvml)
    notes = Notes(root)
    note_installed(notes)
    note_topology(notes, node.gpus, node.nics, node.rdma)
    _note_addresses(notes)
    unknown = {name: why for name, why in node.unknown.items() if name not in notes.facts}
    return replace(node, facts=node.facts | notes.facts, unknown=unknown | notes.unknown)


def _note_addresses(notes: Notes) -> None:
    """Note `topo.addresses`: IPv4 and IPv6 addresses by interface, link-local ones left out."""
    import psutil

    try:
        found = psutil.net_if_addrs()
    except OSError as error:
        notes.unknown["topo.addresses"] = f"the interfaces cannot be listed: {error.strerror}"
        return
    notes.facts["topo.addresses"] = {
        name: [one.address for one in addresses if _is_told(one)]
        for name, addresses in found.items()
        if any(map(_is_told, addresses))
    }


def _is_told(one: Any) -> bool:
    return one.family in (socket.AF_INET, socket.AF_INET6) and not one.address.startswith("fe80:")
