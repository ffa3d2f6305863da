"""GPU memory that NICs cannot register: DMA-BUF, nvidia-peermem, GDRCopy."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = (
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-dmabuf-enable",
    "https://docs.nvidia.com/cuda/gpudirect-rdma/index.html",
)
_FOLLOWS = (
    "python-runtime",
    "gdr-registration",
    "nccl-system-error",
    "nccl-remote-error",
    "nccl-trace",
    "nccl-peer-lost",
    "watchdog-timeout",
    "launcher-exit",
    "exit-code",
)
_COSTS = "NCCL cannot connect the nodes, or sends through host memory"

RULES: tuple[Rule, ...] = (
    Rule(
        id="GDR-001",
        category="gdr-dmabuf",
        role="cause",
        stage="setup",
        anchors=("reg_dmabuf_mr",),
        pattern=r"(?:call to )?(?P<call>(?:ibv|mlx5dv)_reg_dmabuf_mr\w*) failed(?: with error|:)? "
        r"?(?:"
        r"errno=\d+ \()?(?P<error>(?!cannot allocate)[A-Za-z][A-Za-z ]+)",
        unless=r"NCCL INFO|cannot allocate memory",
        sentence="GPU memory could not be registered through DMA-BUF: {call} failed with '{error}'",
        because="DMA-BUF needs kernel 5.12 or newer, the open GPU kernel modules, rdma-core and an "
        "RDMA driver (OFED) that support it; where one of them does not, NCCL of some versions "
        "fails "
        "instead of falling back to nvidia-peermem",
        costs=_COSTS,
        fix="NCCL_DMABUF_ENABLE=0 with nvidia-peermem loaded (modprobe nvidia-peermem), or a newer "
        "OFED, kernel and NCCL (upgrade); 'Invalid argument' or 'Bad address': check ACS and "
        "IOMMU too",
        next="uname -r; modinfo nvidia | grep -i license; lsmod | grep peermem; ofed_info -s",
        explains=_FOLLOWS,
        links=_LINKS,
        positive=(
            "misc/ibvwrap.cc:288 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation "
            "not "
            "supported",
            "RuntimeError: ibv_reg_dmabuf_mr failed: Invalid argument",
        ),
        negative=(
            "misc/ibvwrap.cc:288 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Cannot "
            "allocate memory",
            "misc/ibvwrap.cc:245 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address",
        ),
    ),
    Rule(
        id="GDR-002",
        category="gdr-peermem",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("nvidia_peermem", "nvidia-peermem", "nv_peer_mem"),
        pattern=r"could not insert '(?P<module>nvidia[_-]peermem|nv_peer_mem)'(?:: "
        r"(?P<error>.{1,60}))?"
        r"|(?P<symbols>nvidia[_-]peermem|nv_peer_mem): (?:unknown symbol|disagrees about version)"
        r"|module (?P<missing>nvidia[_-]peermem|nv_peer_mem) not found",
        sentence="the module nvidia-peermem cannot be loaded",
        because="it must be built against the RDMA stack (OFED) that runs: the driver was "
        "installed "
        "before OFED, or either was updated without the other",
        costs="GPUDirect RDMA is off without it (unless DMA-BUF works): data go through host "
        "memory",
        fix="install the GPU driver again after OFED (dkms), then modprobe nvidia-peermem; or use "
        "DMA-BUF (open kernel modules, kernel 5.12+)",
        next="dmesg | grep -i peer; modinfo nvidia-peermem; ofed_info -s",
        explains=("gdr-disabled", *_FOLLOWS),
        links=_LINKS,
        positive=(
            "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument",
            "nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err 0)",
            "modprobe: FATAL: Module nvidia-peermem not found in directory /lib/modules/5.15.0",
        ),
        negative=(
            "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping",
        ),
    ),
    Rule(
        id="GDR-003",
        category="gdr-gdrcopy",
        role="cause",
        stage="setup",
        anchors=(
            "GDRCOPY failure",
            "gdr_pin_buffer",
            "GDRCopy registration failed",
            "nvidia_p2p_get_pages",
        ),
        pattern=r"GDRCOPY failure (?P<code>-?\d+)|gdr_(?:pin_buffer|map|open)\b.{0,60}failed"
        r"|GDRCopy registration failed|gdrdrv:.{0,40}nvidia_p2p_get_pages.{0,160}failed",
        sentence="GDRCopy failed to pin or map GPU memory",
        because="the module gdrdrv, the library libgdrapi and the GPU driver are of versions that "
        "do "
        "not fit, or BAR1 has no room left",
        costs="NCCL or UCX stops, or goes without GDRCopy",
        fix="NCCL_GDRCOPY_ENABLE=0 (UCX_TLS=^gdr_copy) for now; install gdrcopy again for this "
        "driver "
        "and load gdrdrv; look at nvidia-smi -q -d MEMORY (BAR1)",
        next="lsmod | grep gdrdrv; gdrcopy_sanity; dmesg | grep gdrdrv",
        explains=_FOLLOWS,
        links=("https://github.com/NVIDIA/gdrcopy",),
        positive=(
            "include/gdrwrap.h:120 NCCL WARN GDRCOPY failure 22",
            "gdrdrv:__gdrdrv_pin_buffer:nvidia_p2p_get_pages(va=fffd len=65544 p2p_token=0) failed "
            "[ret = -22]",
        ),
        negative=("NCCL INFO GDRCOPY enabled library 2.3 driver 2.3",),
    ),
    Rule(
        id="GDR-004",
        category="gdr-registration",
        role="cause",
        stage="setup",
        anchors=("Bad address",),
        pattern=r"(?:ibv_reg_mr\w*\(?\)?|fi_mr_reg\w*|register memory).{0,120}\bbad address\b",
        unless=r"NCCL INFO|dmabuf",
        sentence="the NIC could not register GPU memory (Bad address): GPUDirect RDMA does not "
        "work "
        "here",
        because="without nvidia-peermem (or DMA-BUF) the RDMA driver takes a GPU address for a "
        "host "
        "address that is not there; consumer GPUs do not support it at all",
        costs=_COSTS,
        fix="modprobe nvidia-peermem on every node (after a driver or OFED update build it anew), "
        "or "
        "NCCL_NET_GDR_LEVEL=LOC to go without GPUDirect RDMA",
        next="lsmod | grep peermem; dmesg | grep -i peer; ib_write_bw --use_cuda=0",
        explains=_FOLLOWS,
        links=_LINKS,
        positive=(
            "misc/ibvwrap.cc:245 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address",
            "Failed to register memory 0x2e1cbac200: Bad address [14]",
        ),
        negative=("connect: Bad address family",),
    ),
)
