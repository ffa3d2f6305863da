"""Nodes, GPUs a node and what lies between nodes, as far as a log of nccl-tests tells them."""

import re
from collections.abc import Sequence

from wirespeed.records import Choice, ToldShape
from wirespeed.runs.importers.table import Device, Table

__all__ = ["Fabric", "fabric_in", "layout_of"]

Fabric = tuple[ToldShape, Choice]
"""The interconnect, and how it is known."""

_BOARD = 8
"""GPUs of the larger of the two boards that SXM modules come on; the other has 4."""
_SXM = re.compile(r"\bSXM\d?\b|\bH[12]00\b(?!.*(?:PCIe|NVL))|\bHBM3e?\b")
_PORT = re.compile(r"\[\d+\]\s*[\w.-]+:\d+/(IB|RoCE)\b")
_IB_LINE = re.compile(r"NET/IB : Using (.*)")
_NETWORK = re.compile(r"NCCL INFO Using network (\S[^\r\n]{0,40})")
_NETWORKS = {
    "socket": "tcp",
    "aws libfabric": "efa",
    "fastrak": "tcpxo",
}
"""By what NCCL prints as its network, in small letters."""


def layout_of(table: Table, ranks: int) -> ToldShape | None:
    """Of a table whose list of devices was shortened; None where the list is whole or tells nothing."""
    devices = sorted(table.devices, key=lambda one: one.rank)
    if table.all_devices or not devices or len({one.group for one in devices}) > 1:
        return None
    per_node, why, guessed = _per_node(devices)
    if not per_node or not ranks or ranks % per_node:
        return None
    nodes = ranks // per_node
    return ToldShape(gpus_per_node=per_node, nodes=nodes, why=why, guessed=guessed)


def _per_node(devices: Sequence[Device]) -> tuple[int, str, bool]:
    """(GPUs of the first node, how that is known, whether it is only likely); 0: not known."""
    first = devices[0].host
    listed = [one for one in devices if one.host == first]
    whole = [one.rank for one in devices] == list(range(len(devices)))
    if whole and len(listed) < len(devices):
        why = f"{first} is listed with ranks 0 to {len(listed) - 1}, then another node"
        return len(listed), why, False
    most = max(one.index for one in listed) + 1
    if _BOARD // 2 < most <= _BOARD and all(_SXM.search(one.name) for one in listed):
        why = f"device {most - 1} is listed, and SXM modules mostly come on boards of 4 or 8"
        return _BOARD, why, True
    return 0, "", False


def fabric_in(text: str) -> Fabric | None:
    """What NCCL's own lines say that it uses between nodes; None where they are absent or differ."""
    networks = {found.strip().lower() for found in _NETWORK.findall(text)}
    kinds = {next((v for k, v in _NETWORKS.items() if one.startswith(k)), one) for one in networks}
    if len(kinds) > 1:
        return None
    network = kinds.pop() if kinds else ""
    cards = {tuple(_PORT.findall(line)) for line in _IB_LINE.findall(text)} - {()}
    if network in _NETWORKS.values():
        told, why = ToldShape(interconnect=network), "NCCL's line `Using network`"
    elif network in ("", "ib") and len(cards) == 1:
        (ports,) = cards
        kind = {"IB": "ib", "RoCE": "roce"}[ports[0]] if len(set(ports)) == 1 else "rdma"
        # Their number is not told: the line lists storage cards, too.
        told, why = ToldShape(interconnect=kind), "NCCL's line `NET/IB : Using`"
    else:
        return None
    return told, Choice("interconnect", told.interconnect, why)
