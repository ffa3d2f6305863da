"""Ray: clusters without room, that nobody reaches or that refuse, ranks and nodes that are lost.

Lines that begin with `ray: ` are those of `wirespeed launch --on ray`; others are Ray's own.
"""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_GROUPS = "https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html"
_CONNECT = "https://docs.ray.io/en/latest/ray-core/starting-ray.html"
_TOKENS = "https://docs.ray.io/en/latest/ray-security/token-auth.html"
_DEATHS = "https://docs.ray.io/en/latest/ray-core/fault_tolerance/actors.html"

RULES: tuple[Rule, ...] = (
    Rule(
        id="RAY-001",
        category="ray-no-room",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("ray: no room for",),
        pattern=r"ray: no room for (?P<ranks>\d+) ranks: asked (?P<asked>.{1,300}); the cluster has "
        r"(?P<has>.{1,600})",
        sentence="the Ray cluster has no room for {ranks} ranks: asked {asked}",
        because="the cluster has {has}",
        fix="ask for less (--ranks-per-node, --with cpus-per-rank=0, --with strategy=PACK), end what "
        "holds the rest, or add nodes",
        next="ray status",
        links=(_GROUPS,),
        positive=(
            "wirespeed: ray: no room for 3 ranks: asked 3 × (1 CPU) on nodes of their own, "
            "STRICT_SPREAD; the cluster has 2 node(s) (head: 2 CPU; other: 2 CPU), free: 4 CPU",
        ),
        negative=(
            "wirespeed: ray: waiting for nodes: asked 3 × (1 CPU), SPREAD; the cluster has 1 "
            "node(s) (head: 2 CPU), free: 2 CPU",
        ),
    ),
    Rule(
        id="RAY-002",
        category="ray-unreachable",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=(
            "ray: no connection to the",
            "Could not find any running Ray",
            "connect to GCS",
            "connect to Ray cluster",
        ),
        pattern=r"ray: no connection to the cluster at (?P<address>\S{1,200}): "
        r"(?!version mismatch|.{0,80}authentication)"
        r"|could not find any running ray instance|failed to connect to (?:gcs|ray cluster)",
        sentence="no Ray cluster answers at the address that was given",
        because="nothing listens there, a firewall is between, or the address is another cluster's; "
        "RAY_ADDRESS in the environment names one too",
        fix="start it (ray start --head; ray start --address=HEAD:6379 on the other nodes), or give "
        "its address: HOST:6379, ray://HOST:10001 from outside",
        next="ray status --address HOST:6379",
        links=(_CONNECT,),
        positive=(
            "wirespeed: ray: no connection to the cluster at 10.0.0.7:6379: [Errno 111] Connection "
            "refused",
            "ConnectionError: Could not find any running Ray instance. Please specify the one to "
            "connect to by setting `--address` flag or `RAY_ADDRESS` environment variable.",
            "RuntimeError: Failed to connect to GCS at address 10.0.0.7:6379 within 5 seconds.",
        ),
        negative=("Connecting to existing Ray cluster at address: 10.0.0.7:6379...",),
    ),
    Rule(
        id="RAY-003",
        category="ray-version",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("Version mismatch: The cluster was started",),
        pattern=r"version mismatch: the cluster was started with:?\s{0,40}(?P<there>.{0,120})",
        sentence="this process has another version of Ray or Python than the cluster",
        because="Ray sends pickled functions between processes: both must be the same on every node "
        "and here; the message names both sides",
        fix="install the cluster's versions here: pip install ray==VERSION, under the same Python",
        next="ray --version; python --version",
        explains=("RAY-002",),
        links=(_CONNECT,),
        positive=(
            "RuntimeError: Version mismatch: The cluster was started with: Ray: 2.59.0 Python: "
            "3.12.1 This process on node 10.0.0.8 was started with: Ray: 2.60.0 Python: 3.11.7",
        ),
        negative=("Version mismatch: torch 2.12.0 and 2.13.0",),
    ),
    Rule(
        id="RAY-004",
        category="ray-token",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("authentication token", "InvalidAuthToken", "token authentication is enabled"),
        pattern=r"token authentication is enabled but no authentication token was found"
        r"|invalidauthtoken|invalid auth(?:entication)? token",
        sentence="the Ray cluster asks for a token, and this process has none or another one",
        because="from Ray 2.52 on a cluster may ask every process for its token (RAY_AUTH_MODE=token)",
        fix="give the cluster's token: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token, and "
        "RAY_AUTH_MODE=token",
        next="on the head node: ray get-auth-token",
        explains=("RAY-002",),
        links=(_TOKENS,),
        positive=(
            "ray.exceptions.AuthenticationError: Token authentication is enabled but no "
            "authentication token was found",
            "[2026-11-21 18:07:53,511 W 15083 15083] gcs_client.cc:210: Failed to get cluster ID from "
            "GCS server: Unauthenticated: RPC error: InvalidAuthToken: Authentication token is missing "
            "or incorrect",
        ),
        negative=("Token authentication is enabled for this Ray cluster.",),
    ),
    Rule(
        id="RAY-005",
        category="ray-no-wirespeed",
        role="cause",
        stage="setup",
        confidence="certain",
        anchors=("has no wirespeed in", "has no Python at"),
        pattern=r"ray: node (?P<host>\S{1,200}) has no (?P<what>wirespeed in|python at) "
        r"(?P<python>.{1,300})",
        sentence="{host} has no {what} {python}",
        because="each rank runs inside wirespeed's wrapper, which the node's Python must find",
        fix="pip install wirespeed there, in the Python that runs Ray, or name another interpreter "
        "that is the same on every node: --python PATH",
        links=(_CONNECT,),
        positive=(
            "wirespeed: ray: node n-1 has no wirespeed in /opt/ray/bin/python",
            "wirespeed: ray: node n-1 has no Python at /opt/venv/bin/python",
        ),
        negative=("wirespeed: ray: node n-1 has wirespeed 0.0.9, here is 0.1.0",),
    ),
    Rule(
        id="RAY-006",
        category="ray-rank-lost",
        role="symptom",
        stage="machine",
        anchors=("is lost: its actor is gone", "is lost: the process around it"),
        pattern=r"ray: rank (?P<rank>\d+) on node (?P<host>\S{1,200}) is lost: (?P<why>.{1,400})",
        sentence="rank {rank} on {host} was lost, and not by an error of its own: {why}",
        checks=(
            "dmesg -T on that node: the kernel's OOM killer (it takes Ray's workers first: their "
            "oom_score_adj is 1000)",
            "Ray's memory monitor, which ends workers when the node's memory is 95 % used: ray "
            "memory, RAY_memory_usage_threshold",
            "whether the node is still there (ray list nodes), or an autoscaler or the cloud took it",
            "whether somebody ended the actor: ray stop, ray kill, or the job was stopped",
        ),
        links=(_DEATHS,),
        positive=(
            "wirespeed: ray: rank 3 on node n-1 is lost: its actor is gone: The actor died",
            "wirespeed: ray: rank 0 on node n-0 is lost: the process around it ended (exit code 137) "
            "and told no end of it",
        ),
        negative=("rank 3 on n-1 ended with exit code 1",),
    ),
)
