"""Exceptions of Python that end a rank: imports, files, checkpoints, and any other."""

from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.rules.torch_program import GONE

__all__ = ["RULES"]

_ENDS = "this rank ends, and the others wait for it until their timeouts"
_KINDS = (
    r"(?:[\w.]+\.)?(?:Value|Key|Type|Attribute|Index|Assertion|ZeroDivision|Name|UnboundLocal|"
    r"NotImplemented|Overflow|FloatingPoint|Recursion|Permission|UnicodeDecode|JSONDecode|Arithmetic|"
    r"EOF|Lookup|IsADirectory|NotADirectory|Unpickling|Safetensor|Misconfiguration)(?:Error|Exception)"
)

RULES: tuple[Rule, ...] = (
    Rule(
        id="PY-020",
        category="module-missing",
        role="cause",
        confidence="certain",
        anchors=("ModuleNotFoundError", "cannot import name", "No module named"),
        pattern=r"(?:modulenotfounderror|importerror): (?P<what>no module named \S+|cannot import name "
        r"\S+.{0,80})",
        sentence="Python cannot import what the program needs: {what}",
        because="it is not installed in this node's environment, or in another version",
        costs=_ENDS,
        fix="install it in the environment that runs the ranks, the same on all nodes (one image; "
        "PATH and PYTHONPATH passed by the launcher)",
        next="on that node, in the job: which python; python -m pip list",
        explains=("python-error", *GONE),
        positive=(
            "ModuleNotFoundError: No module named 'flash_attn'",
            "ImportError: cannot import name 'x' from 'torch' (/usr/lib/torch/__init__.py)",
        ),
        negative=("UserWarning: apex is not installed",),
    ),
    Rule(
        id="PY-021",
        category="library-missing",
        role="cause",
        confidence="certain",
        anchors=("cannot open shared object file", "undefined symbol"),
        pattern=r"(?:importerror|oserror): (?:\S+: )?(?P<what>\S+: (?:cannot open shared object file"
        r"|undefined symbol: \S+)|undefined symbol: \S+)",
        unless=r"nccl",
        sentence="a shared library is missing or of another version: {what}",
        because="the dynamic linker could not load it",
        costs=_ENDS,
        fix="install the library, or packages built for the same torch and CUDA versions; pass "
        "LD_LIBRARY_PATH to all nodes",
        next="on that node: ldd FILE.so | grep 'not found'",
        explains=("python-error", *GONE),
        positive=(
            "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or "
            "directory",
            "ImportError: /usr/lib/x.so: undefined symbol: _ZN3c105ErrorC2E",
        ),
        negative=("NCCL INFO NET/Plugin: Could not find: libnccl-net.so",),
    ),
    Rule(
        id="PY-022",
        category="file-missing",
        role="cause",
        stage="program",
        confidence="certain",
        anchors=("FileNotFoundError", "HFValidationError", "Can't load tokenizer"),
        pattern=r"filenotfounderror: (?:\[errno 2\] )?(?P<what>.{1,200})",
        sentence="the program does not find a file: {what}",
        because="the path does not exist on this rank's node",
        costs=_ENDS,
        fix="put the file where all nodes see it (a shared file system, the same mount in every "
        "pod) or correct the path",
        next="on that node: ls -l PATH; df PATH",
        explains=("python-error", *GONE),
        positive=("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.json'",),
        negative=("python3: can't open file '/w/train.py': [Errno 2] No such file or directory",),
    ),
    Rule(
        id="PY-023",
        category="disk-full",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("No space left on device", "Disk quota exceeded"),
        pattern=r"(?:\[errno (?:28|122)\] )(?P<what>no space left on device|disk quota exceeded)"
        r"(?:: '(?P<file>[^']+)')?",
        unless=r"/dev/shm|psm_|shm_open|torch_\d+_",
        sentence="a file system is full: {what}",
        because="writing a checkpoint, cache or log failed",
        costs=_ENDS,
        fix="free space or raise the quota; keep fewer checkpoints (save_total_limit); point "
        "TMPDIR, HF_HOME and checkpoints to a larger file system. If it is /dev/shm, give the "
        "container more shared memory (--shm-size)",
        next="df -h; df -i; quota -s",
        explains=("python-error", *GONE),
        positive=("OSError: [Errno 28] No space left on device: '/checkpoints/step_100.pt'",),
        negative=(
            "NCCL WARN Call to posix_fallocate failed : No space left on device",
            "OSError: [Errno 28] No space left on device: '/dev/shm/psm_81'",
        ),
    ),
    Rule(
        id="PY-024",
        category="shm-too-small",
        role="cause",
        confidence="certain",
        anchors=(
            "unable to open shared memory object",
            "unable to write to file </torch",
            "/dev/shm/",
        ),
        pattern=r"unable to (?:open shared memory object|write to file) <(?P<file>/torch_[^>]+)>.{0,80}"
        r"no space left|oserror: \[errno 28\].{0,60}/dev/shm",
        sentence="/dev/shm is full: a DataLoader worker could not put a batch into shared memory",
        because="docker and Kubernetes give a container 64 MB of /dev/shm unless told otherwise",
        costs=_ENDS,
        fix="give the container more shared memory: docker run --shm-size=16g (or --ipc=host); in "
        "Kubernetes an emptyDir with medium: Memory mounted at /dev/shm; or fewer loader workers",
        next="in the container: df -h /dev/shm",
        explains=("python-error", *GONE),
        links=("https://docs.pytorch.org/docs/stable/multiprocessing.html",),
        positive=(
            "RuntimeError: unable to write to file </torch_811_2938_0>: No space left on device "
            "(28)",
            "OSError: [Errno 28] No space left on device: '/dev/shm/psm_81'",
        ),
        negative=("OSError: [Errno 28] No space left on device: '/checkpoints/step_100.pt'",),
    ),
    Rule(
        id="PY-025",
        category="open-files",
        role="cause",
        confidence="certain",
        anchors=("Too many open files", "received 0 items of ancdata"),
        pattern=r"too many open files|received 0 items of ancdata",
        sentence="a process has too many open files (ulimit -n)",
        because="each connection, shared tensor and file takes one descriptor",
        costs=_ENDS,
        fix="raise the limit (ulimit -n 65535; LimitNOFILE of the daemon; docker --ulimit "
        "nofile=65535), or torch.multiprocessing.set_sharing_strategy('file_system')",
        next="in the job: ulimit -n",
        explains=("python-error", *GONE),
        positive=(
            "OSError: [Errno 24] Too many open files",
            "RuntimeError: received 0 items of ancdata",
        ),
        negative=("open files (-n) 65535",),
    ),
    Rule(
        id="PY-026",
        category="checkpoint",
        role="cause",
        stage="program",
        anchors=(
            "PytorchStreamReader failed",
            "Error(s) in loading state_dict",
            "MetadataIncompleteBuffer",
            "unexpected pos",
            "Missing key(s) in state_dict",
        ),
        pattern=r"(?P<what>pytorchstreamreader failed.{0,80}|error\(s\) in loading state_dict for \w+"
        r"|metadataincompletebuffer|unexpected pos \d+ vs \d+)",
        sentence="a checkpoint cannot be read or written: {what}",
        because="the file is cut short (an interrupted write, a full disk) or belongs to another "
        "model or sharding",
        costs=_ENDS,
        fix="use an earlier checkpoint, check free space, and load it with the same model and "
        "number of ranks",
        next="ls -l CHECKPOINT; python -c 'import torch; torch.load(PATH, map_location=\"cpu\")'",
        explains=("python-error", *GONE),
        positive=(
            "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central "
            "directory",
            "RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:",
            "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 192 vs 80",
        ),
        negative=("Loading checkpoint shards: 100%",),
    ),
    Rule(
        id="PY-030",
        category="python-error",
        role="cause",
        stage="program",
        anchors=("Error: ", "Exception: ", "AssertionError"),
        pattern=rf"^(?P<what>{_KINDS}(?:: .{{1,160}}|$))",
        unless=r"in job |nccl|gloo|c10d|socket|timed? ?out|connection|rank \d+ .*(?:dead|died)|env://"
        r"|default process group|hostfile|slot|processgroup",
        sentence="the program raised {what}",
        because="an exception of Python that nothing caught ended this rank; the stack above the "
        "line tells where",
        costs=_ENDS,
        fix="correct it in the program or its data; other ranks' timeouts and closed connections "
        "then end too",
        next="read the Python stack above that line",
        # A peer that ended refuses at loopback too; of several hosts GLOO-007 tells it for certain.
        explains=(*GONE, "GLOO-002"),
        positive=(
            "ValueError: boom",
            "[rank1]: KeyError: 'input_ids'",
            "AssertionError",
            "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        ),
        negative=(
            "RuntimeError: Gloo connectFullMesh failed",
            "ValueError: Default process group has not been initialized, please make sure",
            "UserWarning: ValueError: ignored",
        ),
    ),
    Rule(
        id="PY-031",
        category="python-runtime",
        role="symptom",
        stage="aftermath",
        anchors=("RuntimeError: ",),
        pattern=r"^RuntimeError: (?P<what>.{1,160})",
        unless=r"nccl|gloo|c10d|unbound_buffer|pair\.cc|monitoredbarrier|mismatch between|socket timeout"
        r"|out of memory|expected to |dataloader|already in use|getaddrinfo|clients joined|cuda error"
        r"|params|building extension|hostfile",
        sentence="the program raised RuntimeError: {what}",
        checks=(
            "the Python stack above that line, on the rank that raised it first: correct the call "
            "that it names",
            "the earliest error of all ranks' logs, if this rank only reports another's end",
        ),
        positive=("RuntimeError: Engine core initialization failed",),
        negative=("RuntimeError: Gloo connectFullMesh failed",),
    ),
    Rule(
        id="PY-032",
        category="python-aftermath",
        role="consequence",
        stage="aftermath",
        anchors=(
            "ActorHandleNotFoundError",
            "RayActorError",
            "ActorDiedError",
            "WorkerCrashedError",
            "Engine core initialization failed",
            "EngineCore failed",
            "terminated with the following error",
            "Forcefully terminating all other processes",
        ),
        pattern=r"ray\.exceptions\.\w+error|engine ?core (?:initialization )?failed"
        r"|process \d+ terminated with the following error|child process with pid \d+ terminated",
        sentence="the framework reports that a worker ended",
        positive=(
            "ray.exceptions.ActorHandleNotFoundError: ... created in job 01000000",
            "EngineCore failed to start.",
            "-- Process 1 terminated with the following error:",
            "[rank: 1] Child process with PID 811 terminated with code 1. Forcefully terminating "
            "all other processes to avoid zombies",
        ),
        negative=("ray.init() succeeded",),
    ),
)
