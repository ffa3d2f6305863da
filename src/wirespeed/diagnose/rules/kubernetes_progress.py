"""Kubernetes events that tell of progress: a pod has a node, an image, runs, answers its probes."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    Rule(
        id="K8S-013",
        category="k8s-probe",
        role="symptom",
        until=("K8S-021",),
        stage="wait",
        anchors=("Unhealthy", "probe failed"),
        pattern=r"(?P<probe>liveness|readiness|startup) probe failed",
        sentence="a {probe} probe of a container failed",
        checks=(
            "whether the container answers only after its long start (loading a model): a "
            "startupProbe, "
            "or a larger initialDelaySeconds; a failing liveness probe restarts the container",
            "the container's own log: kubectl logs POD --previous",
        ),
        links=(
            "https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/",
        ),
        positive=(
            "Warning  Unhealthy  kubelet  Liveness probe failed: Get http://10.0.0.1:8080/health",
        ),
        negative=("Probe succeeded",),
    ),
    Rule(
        id="K8S-020",
        category="pods",
        role="fact",
        ends=True,
        anchors=("Successfully assigned ",),
        pattern=r"successfully assigned [\w.-]+/[\w.-]+ to (?P<node>\S+)",
        sentence="a pod on {node}",
        positive=(
            "Normal  Scheduled  12s  default-scheduler  Successfully assigned ml/w-0 to gpu-node-3",
        ),
        negative=("0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",),
    ),
    Rule(
        id="K8S-021",
        category="pods",
        role="fact",
        ends=True,
        anchors=("  Running ", " condition met", "Ready             True"),
        pattern=r"\b(?P<ready>[1-9]\d*)/(?P=ready)\s+Running\b|^pod/[\w.-]+ condition met"
        r"|^Ready\s+True\s*$",
        sentence="pods that run and are ready",
        positive=(
            "w-0   1/1   Running   0   10m",
            "pod/w-0 condition met",
            "  Ready             True",
        ),
        negative=(
            "w-0   0/1   Running   3   10m",
            "  Ready             False",
            "  Ready            True    Mon, 2 Nov 2026   KubeletReady   kubelet is ready",
        ),
    ),
    Rule(
        id="K8S-022",
        category="pods",
        role="fact",
        ends=True,
        anchors=("Started container", "Successfully pulled image"),
        pattern=r"\bstarted container \S+|\bsuccessfully pulled image\b",
        sentence="containers that were started",
        positive=(
            "Normal  Started  10s  kubelet  Started container trainer",
            'Normal  Pulled   12s  kubelet  Successfully pulled image "a/b:c" in 3s',
        ),
        negative=("Warning  Failed  kubelet  Error: ErrImagePull",),
    ),
)
