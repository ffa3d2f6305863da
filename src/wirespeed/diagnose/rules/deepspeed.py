"""DeepSpeed's launcher, configuration and compiled operators."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_LINKS = ("https://www.deepspeed.ai/getting-started/",)
_CONFIG = ("https://www.deepspeed.ai/docs/config-json/",)
_GONE = ("launcher-exit", "exit-code", "python-error", "sigterm")

RULES: tuple[Rule, ...] = (
    Rule(
        id="DS-001",
        category="launcher-exit",
        role="consequence",
        stage="aftermath",
        anchors=("Killing subprocess", "sigkill_handler"),
        pattern=r"killing subprocess (?P<pid>\d+)",
        sentence="DeepSpeed's launcher ended the remaining ranks",
        positive=(
            "[2023-07-20 08:02:13,980] [INFO] [launch.py:315:sigkill_handler] Killing "
            "subprocess 1966",
        ),
        negative=("subprocess 811 started",),
    ),
    Rule(
        id="DS-002",
        category="batch-size",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("Check batch related parameters",),
        pattern=r"check batch related parameters.{0,160}?(?P<batch>\d+) != (?P<micro>\d+) \* "
        r"(?P<steps>\d+) \* (?P<world>\d+)",
        sentence="DeepSpeed: train_batch_size {batch} is not micro batch {micro} x accumulation "
        "{steps} x {world} ranks",
        because="the three settings and the world size must fit; a world size other than planned "
        "(ranks that run alone, missing nodes) breaks it too",
        costs="training does not start",
        fix="set train_batch_size to the product or leave one of the three out ('auto'); if the "
        "world size {world} is not the one wanted, correct the launch (hostfile, --num_nodes, "
        "mpirun)",
        next="env | grep WORLD_SIZE in a rank",
        explains=_GONE,
        links=_CONFIG,
        positive=(
            "AssertionError: Check batch related parameters. train_batch_size is not equal to "
            "micro_batch_per_gpu * gradient_acc_step * world_size 32 != 2 * 1 * 8",
        ),
        negative=("[INFO] train_batch_size ............. 32",),
    ),
    Rule(
        id="DS-003",
        category="hostfile",
        role="cause",
        confidence="certain",
        anchors=("hostfile", "specified on host", "specificied on host", "not found in hostfile"),
        pattern=r"hostfile (?:contains (?:a bad entry|multiple entries)|is (?:empty|not formatted))"
        r"(?::? (?P<line>[^,]+))?|no slot '?(?P<slot>\d+)'? speci(?:f|fic)ied on host"
        r"|hostname '(?P<name>[^']+)' not found in hostfile",
        sentence="DeepSpeed cannot use its hostfile or the chosen hosts",
        because="each line must read NAME slots=N, and --include and --exclude may name only hosts "
        "and slots (from 0) that it holds",
        costs="nothing starts",
        fix="write one 'host slots=8' a line, and choose slots below that number",
        next="cat HOSTFILE",
        explains=_GONE,
        links=_LINKS,
        positive=(
            "ValueError: Hostfile contains a bad entry: node-0 lots=8, unable to proceed with "
            "launching",
            "ValueError: No slot '2' specified on host 'work1'",
            "ValueError: Hostname 'work3' not found in hostfile",
        ),
        negative=(
            "[WARNING] [runner.py:196:fetch_hostfile] Unable to find hostfile, will proceed with "
            "training with local resources only.",
        ),
    ),
    Rule(
        id="DS-004",
        category="launcher-ssh",
        role="cause",
        confidence="certain",
        anchors=("Using hostfile at", "PasswordAuthentication=no"),
        pattern=r"using hostfile at \S+ but host=(?P<name>\S+) was not reachable via ssh"
        r"|command 'ssh -o passwordauthentication=no (?P<other>\S+) hostname' returned non-zero",
        sentence="DeepSpeed's launcher cannot ssh to a host of its hostfile without a password",
        because="it tries 'ssh -o PasswordAuthentication=no HOST hostname' before it starts",
        costs="nothing starts",
        fix="set up keys (ssh-copy-id HOST) and names for all hosts, itself too; or start with "
        "--no_ssh and --node_rank on each node, or with torchrun",
        next="ssh -o PasswordAuthentication=no HOST hostname",
        explains=_GONE,
        links=_LINKS,
        positive=(
            "RuntimeError: Using hostfile at hostfile but host=10.0.0.3 was not reachable via ssh. "
            "If you are running with a single node please remove hostfile",
            "subprocess.CalledProcessError: Command 'ssh -o PasswordAuthentication=no 10.0.0.3 "
            "hostname' returned non-zero exit status 255.",
        ),
        negative=("[INFO] [runner.py:555:main] cmd = ssh node-0",),
    ),
    Rule(
        id="DS-005",
        category="cuda-mismatch",
        role="cause",
        confidence="certain",
        anchors=("does not match the version torch was compiled with",),
        pattern=r"installed cuda version (?P<cuda>[\d.]+) does not match the version torch was "
        r"compiled with (?P<torch>[\d.]*\d)",
        unless=r"accepting this combination",
        sentence="DeepSpeed cannot compile its operators: CUDA {cuda} is installed, torch was built "
        "for CUDA {torch}",
        because="the compiler (nvcc) and torch must agree in their major version",
        costs="the optimizer or operator is missing: training does not start",
        fix="install the CUDA toolkit {torch} (or torch for CUDA {cuda}) and set CUDA_HOME; "
        "DS_SKIP_CUDA_CHECK=1 at your own risk; or use torch's own optimizer",
        next="nvcc --version; python -c 'import torch; print(torch.version.cuda)'; ds_report",
        explains=("op-build", *_GONE),
        links=("https://www.deepspeed.ai/tutorials/advanced-install/",),
        positive=(
            "deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: "
            "Installed CUDA version 12.2 does not match the version torch was compiled with 11.7, "
            "unable to compile cuda/cpp extensions without a matching cuda version.",
        ),
        negative=(
            "Installed CUDA version 11.5 does not match the version torch was compiled with 11.8 "
            "but since the APIs are compatible, accepting this combination",
        ),
    ),
    Rule(
        id="DS-006",
        category="op-build",
        role="cause",
        anchors=("Error building extension", "CUDA_HOME does not exist", "JIT load the"),
        pattern=r"error building extension '(?P<name>\w+)'|(?P<home>CUDA_HOME) does not exist, unable"
        r"|unable to jit load the (?P<op>\w+) op",
        sentence="a compiled operator of DeepSpeed or torch could not be built on this node",
        because="it is compiled at first use and needs nvcc, a C++ compiler, ninja and Python's "
        "headers, or a library such as libaio",
        costs="training does not start",
        fix="install the CUDA toolkit (set CUDA_HOME), g++, ninja, python3-dev and libaio-dev, or "
        "build it in the image (DS_BUILD_OPS=1); remove a half-built cache in "
        "~/.cache/torch_extensions; the compiler's own error stands some lines above",
        next="ds_report",
        explains=_GONE,
        links=("https://www.deepspeed.ai/tutorials/advanced-install/",),
        positive=(
            "RuntimeError: Error building extension 'cpu_adam'",
            "deepspeed.ops.op_builder.builder.MissingCUDAException: CUDA_HOME does not exist, "
            "unable to compile CUDA op(s)",
        ),
        negative=("Building extension module cpu_adam...", "async_io ... [NO] ....... [OKAY]"),
    ),
    Rule(
        id="DS-007",
        category="loss-scale",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("Current loss scale already at minimum",),
        pattern=r"current loss scale already at minimum",
        sentence="DeepSpeed: gradients overflowed fp16 until the loss scale reached its minimum",
        because="the loss diverged, or holds inf or NaN; this is no fault of the network",
        costs="training ends",
        fix="use bf16, a lower learning rate or gradient clipping; look for bad data or weights",
        next="print the loss and the gradient norm of the last steps",
        explains=_GONE,
        links=_CONFIG,
        positive=(
            "Exception: Current loss scale already at minimum - cannot decrease scale anymore. "
            "Exiting run.",
        ),
        negative=("[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536",),
    ),
    Rule(
        id="DS-008",
        category="hostfile",
        role="fact",
        anchors=("Unable to find hostfile",),
        pattern=r"unable to find hostfile",
        sentence="DeepSpeed found no hostfile and used this node alone",
        positive=(
            "[WARNING] [runner.py:196:fetch_hostfile] Unable to find hostfile, will proceed with "
            "training with local resources only.",
        ),
        negative=("ValueError: Hostfile contains a bad entry: x",),
    ),
)
