"""How DeepSpeed's launcher fails before, between and beside the ranks: pdsh, nodes, options.

Texts from deepspeed/launcher/{runner,multinode_runner}.py of 0.19.8 and from pdsh 2.34.
"""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = ("https://www.deepspeed.ai/getting-started/#launching-deepspeed-training",)
_GONE = ("launcher-exit", "exit-code", "python-error", "sigterm")
_SSH = tuple(f"SSH-{number:03}" for number in range(1, 10))

RULES: tuple[Rule, ...] = (
    Rule(
        id="DS-009",
        category="launcher-missing",
        role="cause",
        confidence="certain",
        anchors=("not installed.", "No such rcmd module"),
        pattern=r"(?P<what>launcher '\w+' not installed|no such rcmd module \"\w+\")",
        sentence="DeepSpeed's launcher for several nodes is missing here: {what}",
        because="DeepSpeed starts the other nodes with pdsh over ssh unless --launcher names another",
        costs="nothing starts",
        fix="apt-get install pdsh (and pdsh's ssh module where that is a package of its own), or "
        "--launcher openmpi, mpich, slurm; or --no_ssh --node_rank on each node",
        next="pdsh -V",
        explains=_GONE,
        links=_LINKS,
        positive=(
            "RuntimeError: launcher 'pdsh' not installed.",
            'No such rcmd module "ssh"',
        ),
        negative=("RuntimeError: torch is not installed.",),
    ),
    Rule(
        id="DS-010",
        category="launcher-exit",
        role="cause",
        stage="network",
        anchors=("ssh exited with exit code 255",),
        pattern=r"(?P<host>\S+): ssh exited with exit code 255",
        absent=_SSH,
        sentence="pdsh lost its ssh connection to {host}, or never had one",
        because="255 is ssh's own exit code: what ran there would have had another",
        costs="the ranks of that node end, and the others wait for them",
        fix="see what ssh said before; look whether the node is up, and for a firewall that drops "
        "idle connections (ServerAliveInterval 30 in ~/.ssh/config)",
        next="ssh {host} uptime",
        explains=_GONE,
        links=_LINKS,
        positive=("pdsh@head: node-1: ssh exited with exit code 255",),
        negative=("pdsh@head: node-1: ssh exited with exit code 1",),
    ),
    Rule(
        id="DS-011",
        category="mpi-not-on-node",
        role="cause",
        confidence="certain",
        anchors=("ssh exited with exit code 127",),
        pattern=r"(?P<host>\S+): ssh exited with exit code 127",
        sentence="{host} has no Python at the path that DeepSpeed starts",
        because="DeepSpeed starts on every node the path of the Python that runs `deepspeed` here; "
        "127 is the shell's `not found`",
        costs="no rank starts on that node",
        fix="the same environment at the same path on all nodes (one image, a shared folder)",
        next="ssh {host} ls -l \"$(python -c 'import sys; print(sys.executable)')\"",
        explains=(*_GONE, "file-missing", "program-missing"),
        links=_LINKS,
        positive=("pdsh@head: node-1: ssh exited with exit code 127",),
        negative=("pdsh@head: node-1: ssh exited with exit code 1",),
    ),
    Rule(
        id="DS-012",
        category="gpu-missing",
        role="cause",
        confidence="certain",
        anchors=("no GPU resources available",),
        pattern=r"unable to proceed, no GPU resources available",
        sentence="DeepSpeed sees no GPU on this machine",
        because="without a hostfile it counts this machine's accelerators, and found none",
        costs="nothing starts",
        fix="nvidia-smi must list GPUs (in a container: --gpus all); on CPUs only: "
        "DS_ACCELERATOR=cpu and --num_accelerators N",
        next="python -c 'import torch; print(torch.cuda.device_count())'",
        explains=_GONE,
        links=_LINKS,
        positive=("RuntimeError: Unable to proceed, no GPU resources available",),
        negative=("[INFO] resources available: 8",),
    ),
    Rule(
        id="DS-013",
        category="hostfile",
        role="cause",
        confidence="certain",
        anchors=("--node_rank is not set correctly", "no extra nodes available via hostfile"),
        pattern=r"without ssh, but --node_rank is not set correctly"
        r"|num nodes is >1 but no extra nodes available via hostfile",
        sentence="DeepSpeed was told of several nodes, and not which",
        because="--no_ssh starts one node and needs its place in the hostfile; --num_nodes takes the "
        "first hosts of a hostfile",
        costs="nothing starts",
        fix="--hostfile FILE with a line a node; with --no_ssh also --node_rank 0, 1, … on each",
        next="cat HOSTFILE",
        explains=_GONE,
        links=_LINKS,
        positive=(
            "AssertionError: Launching training without ssh, but --node_rank is not set correctly.",
            "ValueError: Num nodes is >1 but no extra nodes available via hostfile",
        ),
        negative=("[INFO] nnodes=2, num_local_procs=8, node_rank=0",),
    ),
    Rule(
        id="DS-014",
        category="launcher-option",
        role="cause",
        confidence="certain",
        anchors=(
            "backend does not support worker include",
            "backend does not support limiting",
            "backend needs the same slot count",
            "requires same number of devices per node",
            "Cannot specify num_nodes/gpus with",
            "include_str and exclude_str are mutually",
        ),
        pattern=r"(?P<what>\w+ backend (?:does not support (?:worker include|limiting num nodes)"
        r"|needs the same slot count)|requires same number of devices per node"
        r"|cannot specify num_nodes/gpus with include"
        r"|include_str and exclude_str are mutually exclusive)",
        sentence="DeepSpeed refuses this choice of hosts and slots: {what}",
        because="filters and unequal nodes work with the launcher pdsh alone, and of --include, "
        "--exclude and --num_nodes/--num_gpus only one may be given",
        costs="nothing starts",
        fix="write a hostfile of just the hosts and slots wanted, or use --launcher pdsh",
        next="cat HOSTFILE",
        explains=_GONE,
        links=_LINKS,
        positive=(
            "ValueError: openmpi backend does not support worker include/exclusion",
            "ValueError: slurm backend needs the same slot count on every host, got {'a': 1}.",
            "ValueError: MPICH requires same number of devices per node",
            "ValueError: Cannot specify num_nodes/gpus with include/exclude",
        ),
        negative=("ValueError: the gloo backend does not support bfloat16",),
    ),
)
