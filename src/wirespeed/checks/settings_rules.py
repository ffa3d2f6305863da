"""Settings that hurt, as data: when each hurts, what it costs, and where that is documented.

A rule's `hurts` is a function of `settings_conditions.py`. Each rule carries an environment
that it finds and one that it lets pass.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wirespeed.checks.settings_conditions import (
    blocking,
    collnet,
    contradiction,
    deaf,
    debugging,
    forced,
    gdr_off,
    gid,
    logs,
    misspelt,
    nvls_off,
    obsolete,
    paths_off,
    rdma_off,
    sockets,
    starved,
    timeout,
    values,
)
from wirespeed.records import NodeFacts

__all__ = ["RULES", "Example", "Rule"]

Settings = Mapping[str, str]
Hurts = Callable[[NodeFacts, Settings], str]

_NCCL = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
_TORCH = "https://docs.pytorch.org/docs/stable/distributed.html"
_TORCH_NCCL = "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html"
_CUDA = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/"

_PORT = {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "link_layer": "InfiniBand", "gids": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A node for which a rule does or does not hold."""

    environment: dict[str, str]
    gpus: int = 0
    gpu: str = "NVIDIA H100 80GB HBM3"
    rdma: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    id: str
    good: str
    """What is so when nothing is found, as a sentence."""
    hurts: Hurts
    because: str
    costs: str
    fix: str
    link: str
    bad: Example
    fine: Example = field(default_factory=lambda: Example(environment={}))


_UNSET = "unset it for the job (container, unit, sbatch script, /etc/nccl.conf)"
_BEST = "NCCL chooses by message size, operation and topology, better than one value for all"

RULES: tuple[Rule, ...] = (
    Rule(
        id="ENV-001",
        good="RDMA is not switched off where its ports are ACTIVE.",
        hurts=rdma_off,
        because="with NCCL_IB_DISABLE=1 or NCCL_NET=Socket NCCL goes over TCP",
        costs="all traffic between nodes goes through the kernel: often ten times slower",
        fix=_UNSET,
        link=f"{_NCCL}#nccl-ib-disable",
        bad=Example(environment={"NCCL_IB_DISABLE": "1"}, rdma=(_PORT,)),
        fine=Example(environment={"NCCL_IB_DISABLE": "1"}),
    ),
    Rule(
        id="ENV-002",
        good="GPUs of one node may reach each other directly.",
        hurts=paths_off,
        because="peer-to-peer is what uses NVLink, and shared memory is the way where it cannot",
        costs="GPUs of one node exchange data through host memory, or through the network",
        fix=f"{_UNSET}; if it hid a hang, look at ACS and IOMMU settings (GPU to GPU troubleshooting)",
        link=f"{_NCCL}#nccl-p2p-disable",
        bad=Example(environment={"NCCL_P2P_DISABLE": "1"}, gpus=2),
        fine=Example(environment={"NCCL_P2P_DISABLE": "1"}, gpus=1),
    ),
    Rule(
        id="ENV-003",
        good="GPUDirect RDMA is not switched off where there are GPUs and RDMA.",
        hurts=gdr_off,
        because="at level LOC every message is copied through host memory",
        costs="a part of the bandwidth between nodes, and load on the CPUs' memory",
        fix=f"{_UNSET}; NCCL finds the level by itself",
        link=f"{_NCCL}#nccl-net-gdr-level-formerly-nccl-ib-gdr-level",
        bad=Example(environment={"NCCL_NET_GDR_LEVEL": "LOC"}, gpus=1, rdma=(_PORT,)),
        fine=Example(environment={"NCCL_NET_GDR_LEVEL": "PHB"}, gpus=1, rdma=(_PORT,)),
    ),
    Rule(
        id="ENV-004",
        good="Algorithms and protocols of NCCL are not forced.",
        hurts=forced,
        because=_BEST,
        costs="what is right for one size loses at others: LL and Tree at large sizes, Ring at small",
        fix=_UNSET,
        link=f"{_NCCL}#nccl-algo",
        bad=Example(environment={"NCCL_PROTO": "LL"}),
        fine=Example(environment={"NCCL_PROTO": "^LL128"}),
    ),
    Rule(
        id="ENV-005",
        good="NCCL does not log every call.",
        hurts=logs,
        because="lines are written for each collective, not only at the start",
        costs="latency of each call, and logs that fill disks",
        fix="NCCL_DEBUG=WARN, or INFO with the default NCCL_DEBUG_SUBSYS",
        link=f"{_NCCL}#nccl-debug",
        bad=Example(environment={"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "ALL"}),
        fine=Example(environment={"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}),
    ),
    Rule(
        id="ENV-006",
        good="NCCL may use the channels, threads and buffers that it needs.",
        hurts=starved,
        because="fewer CUDA blocks, threads or bytes in flight cannot fill NVLink or several NICs",
        costs="bandwidth at large sizes",
        fix=f"{_UNSET}; measure with wirespeed bench --env before setting it again",
        link=f"{_NCCL}#nccl-max-ctas",
        bad=Example(environment={"NCCL_MAX_NCHANNELS": "2"}),
        fine=Example(environment={"NCCL_MAX_NCHANNELS": "16", "NCCL_BUFFSIZE": "8388608"}),
    ),
    Rule(
        id="ENV-007",
        good="The GID index is one that the RDMA ports have.",
        hurts=gid,
        because="an index is right for one node's table only; NCCL 2.21 and later finds the GID",
        costs="queue pairs that do not connect, or traffic in another RoCE version or network",
        fix="unset it with NCCL 2.21 or later; else choose the index of RoCE v2 from show_gids",
        link=f"{_NCCL}#nccl-ib-gid-index",
        bad=Example(environment={"NCCL_IB_GID_INDEX": "3"}, rdma=(_PORT,)),
        fine=Example(
            environment={"NCCL_IB_GID_INDEX": "3"},
            rdma=({**_PORT, "link_layer": "Ethernet", "gids": 4},),
        ),
    ),
    Rule(
        id="ENV-008",
        good="RDMA gives up neither early nor never.",
        hurts=timeout,
        because="NCCL waits 4.096 µs x 2^NCCL_IB_TIMEOUT, 0 and 32 or more for ever, times the retries",
        costs="below 18 a moment of congestion ends the job; above 22 a dead link hangs for minutes",
        fix="unset them: NCCL 2.23 and later has 20 and 7, half a minute in all",
        link=f"{_NCCL}#nccl-ib-timeout",
        bad=Example(environment={"NCCL_IB_TIMEOUT": "14"}, rdma=(_PORT,)),
        fine=Example(environment={"NCCL_IB_TIMEOUT": "22"}, rdma=(_PORT,)),
    ),
    Rule(
        id="ENV-009",
        good="CollNet is asked for only where something can do it.",
        hurts=collnet,
        because="CollNet needs a network plugin such as SHARP's, and switches that reduce",
        costs="nothing is offloaded though the job counts on it",
        fix="unset it, or install the plugin (nccl-rdma-sharp-plugins) on all nodes",
        link=f"{_NCCL}#nccl-collnet-enable",
        bad=Example(environment={"NCCL_COLLNET_ENABLE": "1"}),
        fine=Example(environment={"NCCL_COLLNET_ENABLE": "1"}, rdma=(_PORT,)),
    ),
    Rule(
        id="ENV-010",
        good="NVLink SHARP is not switched off where NVSwitch has it.",
        hurts=nvls_off,
        because="since Hopper NVSwitch can reduce (NVLS), which takes load off the links",
        costs="bandwidth of all_reduce within a node at large sizes",
        fix=f"{_UNSET}; if NVLS failed to start, look at the fabric manager",
        link=f"{_NCCL}#nccl-nvls-enable",
        bad=Example(environment={"NCCL_NVLS_ENABLE": "0"}, gpus=8),
        fine=Example(environment={"NCCL_NVLS_ENABLE": "0"}, gpus=8, gpu="NVIDIA H100 PCIe"),
    ),
    Rule(
        id="ENV-011",
        good="Settings do not contradict each other.",
        hurts=contradiction,
        because="NVLink between nodes needs memory from cuMem",
        costs="NCCL does not start",
        fix="unset NCCL_CUMEM_ENABLE",
        link=f"{_NCCL}#nccl-mnnvl-enable",
        bad=Example(environment={"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "0"}),
        fine=Example(environment={"NCCL_CUMEM_ENABLE": "0"}),
    ),
    Rule(
        id="ENV-012",
        good="Sockets of one connection are at most 64.",
        hurts=sockets,
        because="NCCL_SOCKET_NTHREADS times NCCL_NSOCKS_PERTHREAD cannot exceed 64",
        costs="NCCL does not use what was asked for",
        fix="4 and 4 on 100 Gbit/s networks, as NCCL's user guide suggests",
        link=f"{_NCCL}#nccl-socket-nthreads",
        bad=Example(environment={"NCCL_SOCKET_NTHREADS": "16", "NCCL_NSOCKS_PERTHREAD": "8"}),
        fine=Example(environment={"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"}),
    ),
    Rule(
        id="ENV-013",
        good="Waiting for a collective does not block the CPU.",
        hurts=blocking,
        because="wait() then blocks the thread that should queue the next kernels",
        costs="computing and communication overlap less on every step",
        fix="unset it; the watchdog of torch ends hung collectives without it",
        link=_TORCH_NCCL,
        bad=Example(environment={"TORCH_NCCL_BLOCKING_WAIT": "1"}),
        fine=Example(environment={"TORCH_NCCL_BLOCKING_WAIT": "0"}),
    ),
    Rule(
        id="ENV-014",
        good="torch handles errors of NCCL.",
        hurts=deaf,
        because="with 0 the watchdog neither aborts the communicator nor ends the process",
        costs="after an error or a timeout the other ranks wait, and the GPUs stay taken",
        fix="unset it: torch's default tears the process down",
        link=_TORCH_NCCL,
        bad=Example(environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
        fine=Example(environment={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}),
    ),
    Rule(
        id="ENV-015",
        good="No debug mode is left on.",
        hurts=debugging,
        because="CUDA_LAUNCH_BLOCKING waits for every kernel; the others check every collective",
        costs="no overlap of kernels and communication, or one more exchange for every collective",
        fix="unset it outside of debugging",
        link=_TORCH,
        bad=Example(environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
        fine=Example(environment={"TORCH_DISTRIBUTED_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "0"}),
    ),
    Rule(
        id="ENV-016",
        good="No setting is obsolete.",
        hurts=obsolete,
        because="newer versions ignore the name, or read it with a warning until they do not",
        costs="what was meant does not happen",
        fix="use the new name, or unset it",
        link=_NCCL,
        bad=Example(environment={"NCCL_IB_CUDA_SUPPORT": "1"}),
        fine=Example(environment={"TORCH_NCCL_DESYNC_DEBUG": "1"}),
    ),
    Rule(
        id="ENV-017",
        good="Names of settings are spelt right.",
        hurts=misspelt,
        because="libraries do not look at names that they do not know",
        costs="the setting does nothing, and nothing says so",
        fix="correct the name",
        link=_NCCL,
        bad=Example(environment={"NCCL_SOCKET_IFNAMES": "eth0"}),
        fine=Example(environment={"NCCL_P2P_NVL_CHUNKSIZE": "524288", "NCCL_VERSION": "2.27.5"}),
    ),
    Rule(
        id="ENV-018",
        good="Values of settings are ones that are documented.",
        hurts=values,
        because="a value of another form is read as something else, or left out",
        costs="the setting does nothing, or something that nobody meant",
        fix="correct the value",
        link=_NCCL,
        bad=Example(environment={"NCCL_IB_RETRY_CNT": "seven"}),
        fine=Example(environment={"NCCL_IB_RETRY_CNT": "7", "NCCL_P2P_LEVEL": "NVL"}),
    ),
)
