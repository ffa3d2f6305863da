"""The words of `locate`: what each finding means, why it is so, what to do and what to run next."""

__all__ = ["BECAUSE", "EXPLANATIONS", "FIXES"]

EXPLANATIONS = {
    "LOC-001": "No node is slower than the others. Pairs of nodes talk in rounds of disjoint pairs; a "
    "node that is slow with every partner, both ways, is to blame, and its partners are not.",
    "LOC-002": "No node is slow in one direction only. A node that sends slowly but receives at full "
    "speed (or the reverse) has a damaged cable or transceiver, a shaper, or a full queue one"
    " way.",
    "LOC-003": "No rail is slower than the others. The same local rank is slow on every node: its "
    "switch, or its NICs' settings.",
    "LOC-004": "No NIC of a node is slower than its others. One rail of one node is slow with every "
    "partner: its NIC, cable, switch port or PCIe slot.",
    "LOC-005": "No group of nodes is cut off by a slow uplink. Nodes talk at full speed within the group"
    " and slowly with all others: the switch's uplink is degraded or carries too much.",
    "LOC-006": "No pair of nodes is slow by itself. Both are fast with everybody else: the path between "
    "them. Only pairs that were measured can show it: --exhaustive measures all.",
    "LOC-007": "No node is slow at work without traffic. All ranks do the same work at once and alone; "
    "who takes longer has fewer cores, a lower clock, a quota or a neighbour, and holds up "
    "every step.",
    "LOC-008": "Every node answers. Nothing at all came through from this node, to any partner.",
    "LOC-009": "All pairs are measured. A fault of one pair alone shows only where that pair was "
    "measured; --exhaustive does all of them.",
}

FIXES: dict[str, tuple[str, str]] = {
    "node": (
        "its NIC, cable and switch port: speed, duplex, errors, MTU, a shaper or another job on it",
        "on {host}: ethtool IFACE | grep Speed; ip -s link show; tc qdisc show",
    ),
    "direction": (
        "the cable or transceiver of that direction, a shaper (tc), the switch port's queue",
        "on {host}: tc -s qdisc show; ethtool -S IFACE | grep -i err",
    ),
    "rail": (
        "the switch of that rail, and what its NICs have in common",
        "NCCL_IB_HCA without that rail, then wirespeed locate --over rails",
    ),
    "nic": (
        "that NIC: its PCIe link, cable, switch port and firmware",
        "on {host}: lspci -vv | grep LnkSta; ibstat; ethtool IFACE",
    ),
    "uplink": (
        "the switch between that group and the rest: uplinks that are down, errors, oversubscription",
        "on the switch: the state and error counters of its uplinks",
    ),
    "link": (
        "the path between the two: routing, a firewall, one bad member of a bond or of an ECMP group",
        "on {host}: tracepath {other}; ip route get {other}",
    ),
    "straggler": (
        "what else runs there, a CPU quota (cgroup), the governor or clocks, thermal throttling",
        "on {host}: cat /sys/fs/cgroup/cpu.stat; top -b -n1 | head; nvidia-smi -q -d PERFORMANCE",
    ),
    "dead": (
        "the node's interface and address, a firewall, one MTU along the path (a black hole lets small "
        "packets pass)",
        "from another node: ping -M do -s 1472 {host}; nc -vz {host} PORT",
    ),
}
"""By kind: what to look at, and the command that would confirm it."""

BECAUSE = {
    "node": "slow with every partner, both ways, while those partners are fast with others",
    "direction": "slow one way only, with every partner",
    "rail": "this rail is slow on every node, the other rails are not",
    "nic": "this rail of the node is slow with every partner, its other rails are not",
    "uplink": "fast within the group, slow with every node outside of it",
    "link": "both are fast with everybody else",
    "straggler": "slow at work that needs no network",
    "dead": "nothing came through to or from any partner",
}
