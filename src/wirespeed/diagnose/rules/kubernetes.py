"""Kubernetes: events and what kubectl shows of pods and nodes."""

from wirespeed.diagnose.rule import Rule

__all__ = ["RULES"]

_DOWN = ("k8s-restarting", "launcher-exit", "exit-code", "sigterm", "mpi-lost-node", "launcher-dns")
_DESCRIBE = "kubectl describe pod POD; kubectl get events --sort-by=.lastTimestamp"
_POD = "https://kubernetes.io/docs/tasks/debug/debug-application/debug-pods/"
_SCHEDULING = ("https://kubernetes.io/docs/concepts/scheduling-eviction/",)

RULES: tuple[Rule, ...] = (
    Rule(
        id="K8S-001",
        category="k8s-no-gpu",
        role="cause",
        until=("K8S-020", "K8S-021"),
        confidence="certain",
        anchors=("Insufficient ",),
        pattern=r"insufficient "
        r"(?P<resource>(?:nvidia|amd|habana|gpu\.intel)\.\S+?|\S*/gpu\S*?)[.,;]?(?:\s|$)",
        sentence="no node has enough free GPUs for the pod: Insufficient {resource}",
        because="the scheduler found no node whose free {resource} covers the request; all are "
        "in use, or "
        "the device plugin does not offer them",
        costs="the pod stays Pending, and the job waits for it",
        fix="free GPUs, ask for fewer a pod, or add nodes; where nodes have free GPUs that "
        "Kubernetes "
        "does not see, look at the device plugin (GPU operator) on them",
        next="kubectl describe nodes | grep -A8 'Allocated resources'",
        explains=_DOWN,
        links=(
            "https://kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/",
            *_SCHEDULING,
        ),
        positive=(
            "Warning  FailedScheduling  40s (x2 over 40s)  default-scheduler  0/2 nodes are "
            "available: 1 "
            "Insufficient nvidia.com/gpu, 1 node(s) were unschedulable.",
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are "
            "available",
        ),
        negative=("0/2 nodes are available: 2 Insufficient cpu.", "Insufficient memory"),
    ),
    Rule(
        id="K8S-002",
        category="k8s-no-rdma",
        role="cause",
        until=("K8S-020", "K8S-021"),
        confidence="certain",
        anchors=("Insufficient ",),
        pattern=r"insufficient (?P<resource>\S*(?:rdma|hca|efa|mellanox|openshift\.io|intel\.com/|"
        r"sriov)\S*?)[.,;]?(?:\s|$)",
        sentence="no node offers the RDMA or network resource that the pod asks for: {resource}",
        because="its device plugin (RDMA shared, SR-IOV, EFA) does not run on the nodes, offers "
        "another "
        "name, or all are in use",
        costs="the pod stays Pending",
        fix="use the name that nodes offer under Allocatable; install or mend the device plugin "
        "(network "
        "operator, aws-efa-k8s-device-plugin)",
        next="kubectl get nodes -o json | grep -E 'rdma|hca|efa'",
        explains=_DOWN,
        links=_SCHEDULING,
        positive=(
            "0/4 nodes are available: 4 Insufficient rdma/hca_shared_devices_a.",
            "0/2 nodes are available: 2 Insufficient vpc.amazonaws.com/efa.",
        ),
        negative=("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",),
    ),
    Rule(
        id="K8S-003",
        category="k8s-unschedulable",
        role="cause",
        until=("K8S-020", "K8S-021"),
        anchors=("nodes are available", "FailedScheduling", "Unschedulable"),
        pattern=r"\d+/\d+ nodes are available: (?P<why>.{1,200})",
        unless=r"insufficient \S*(?:gpu|rdma|hca|efa|mellanox|openshift\.io|intel\.com/|sriov)",
        sentence="the scheduler finds no node for the pod: {why}",
        because="every node lacks what the pod asks for, or has a taint that it does not "
        "tolerate, or "
        "does not match its selector or affinity",
        costs="the pod stays Pending, and the job waits for it",
        fix="by the reason given: add a toleration for the taint (tolerations: - key: "
        "nvidia.com/gpu, "
        "operator: Exists), mend nodeSelector or affinity, ask for less CPU or memory, uncordon "
        "nodes",
        next="kubectl describe nodes | grep -iE '^name:|taints|unschedulable'",
        explains=_DOWN,
        links=_SCHEDULING,
        positive=(
            "Warning  FailedScheduling  default-scheduler  0/4 nodes are available: 4 node(s) had "
            "untolerated taint {nvidia.com/gpu: present}.",
            "0/3 nodes are available: 3 Insufficient memory.",
        ),
        negative=("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",),
    ),
    Rule(
        id="K8S-004",
        category="container-image",
        role="cause",
        until=("K8S-021", "K8S-022"),
        confidence="certain",
        anchors=(
            "ErrImagePull",
            "ImagePullBackOff",
            "Failed to pull image",
            "InvalidImageName",
            "ErrImageNever",
        ),
        pattern=r"ErrImagePull|ImagePullBackOff|failed to pull "
        r"image|InvalidImageName|ErrImageNeverPull",
        sentence="the container image cannot be pulled",
        because="its name or tag does not exist, the registry wants credentials, or the node "
        "does not "
        "reach the registry",
        costs="the pod does not start",
        fix="check the image's name and tag, give imagePullSecrets, and the node's way to the "
        "registry",
        next=_DESCRIBE,
        explains=_DOWN,
        links=("https://kubernetes.io/docs/concepts/containers/images/",),
        positive=(
            'Warning  Failed  kubelet  Failed to pull image "a/b:c": rpc error: code = NotFound',
            "trainer-worker-0   0/1   ImagePullBackOff   0   3m",
        ),
        negative=('Normal  Pulled  kubelet  Successfully pulled image "a/b:c" in 3s',),
    ),
    Rule(
        id="K8S-005",
        category="host-oom-kill",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=("OOMKilled", "OOMKilling", "SystemOOM", "OOM encountered"),
        pattern=r"\bOOMKilled\b|\bOOMKilling\b|\bSystemOOM\b|system oom encountered",
        sentence="a container was killed (SIGKILL, exit code 137) because memory ran out: "
        "OOMKilled",
        because="its processes passed the container's memory limit, or the node's memory (RAM) "
        "ran out",
        costs="the rank is gone; the others wait for it or are ended",
        fix="raise resources.limits.memory, or use less host memory (fewer loader workers, less "
        "offload); "
        "files in an emptyDir of medium Memory (/dev/shm) count as well",
        next="kubectl describe pod POD | grep -A6 'Last State'; kubectl top pod POD",
        explains=("host-oom-kill", "watchdog-timeout", *_DOWN),
        links=("https://kubernetes.io/docs/tasks/configure-pod-container/assign-memory-resource/",),
        positive=(
            "      Reason:       OOMKilled",
            "worker-1   0/1   OOMKilled   0   12m",
            "Warning  OOMKilling  kernel-monitor  Memory cgroup out of memory: Killed process 811",
        ),
        negative=("      Reason:       Completed",),
    ),
    Rule(
        id="K8S-006",
        category="evicted",
        role="cause",
        stage="machine",
        confidence="certain",
        anchors=(
            "Evicted",
            "was low on resource",
            "ephemeral local storage usage",
            "Usage of EmptyDir",
        ),
        pattern=r"\bEvicted\b|node was low on resource: (?P<resource>[\w-]+)|ephemeral local "
        r"storage usage "
        r"exceeds|usage of emptydir volume .{1,80}exceeds",
        sentence="Kubernetes evicted a pod of the job",
        because="the node ran low on memory or disk (ephemeral storage), or the pod passed its "
        "own limit "
        "for local files; the event's message says which",
        costs="the pod's ranks are gone",
        fix="set requests and limits for memory and ephemeral-storage to what the job uses; write "
        "checkpoints and caches to a volume; raise the emptyDir's sizeLimit",
        next=_DESCRIBE,
        explains=("watchdog-timeout", *_DOWN),
        links=("https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/",),
        positive=(
            "Warning  Evicted  kubelet  The node was low on resource: ephemeral-storage. Threshold",
            "Pod ephemeral local storage usage exceeds the total limit of containers 10Gi.",
        ),
        negative=("NodeHasNoDiskPressure",),
    ),
    Rule(
        id="K8S-007",
        category="preempted",
        role="cause",
        stage="machine",
        anchors=("Preempted", "PreemptionByScheduler", "TaintManagerEviction", "DisruptionTarget"),
        pattern=r"\bPreempted (?:by|in order)|Warning\s+Preempted\b|\bPreemptionByScheduler\b"
        r"|\bTaintManagerEviction\b.{0,60}marking for deletion|DeletionByTaintManager"
        r"|Normal\s+Preempted\b",
        sentence="Kubernetes removed a pod of the job: preempted, or its node was tainted",
        because="a pod of higher priority (or Kueue) took its place, or its node is going away",
        costs="the pod's ranks are gone",
        fix="write checkpoints, give the job a higher priorityClass, or run it on nodes that are "
        "not "
        "reclaimed (spot)",
        next=_DESCRIBE,
        explains=("watchdog-timeout", *_DOWN),
        links=("https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/",),
        positive=(
            "Normal  Preempted  default-scheduler  Preempted by pod 811 on node n1",
            "Normal  TaintManagerEviction  taint-eviction  Marking for deletion Pod ns/w-1",
        ),
        negative=("preemption: 0/1 nodes are available: 1 No preemption victims found",),
    ),
    Rule(
        id="K8S-008",
        category="node-failure",
        role="cause",
        stage="machine",
        anchors=("NodeNotReady", "NotReady", "Node is not ready", "NodeLost", "Kubelet stopped"),
        pattern=r"\bNodeNotReady\b|node is not ready|\bNodeLost\b|kubelet stopped posting node "
        r"status"
        r"|^\S+\s+NotReady\b|status is now: NotReady",
        sentence="a node of the cluster is not ready",
        because="its kubelet no longer reports: the node is down, out of memory, or cut off",
        costs="pods on it are lost or do not start",
        fix="look at the node (kubelet, disk, network) or replace it: kubectl cordon NODE; "
        "delete its "
        "pods so that they start elsewhere",
        next="kubectl describe node NODE; kubectl get nodes",
        explains=("watchdog-timeout", *_DOWN),
        links=("https://kubernetes.io/docs/tasks/debug/debug-cluster/",),
        positive=(
            "Warning  NodeNotReady  node-controller  Node is not ready",
            "node-2   NotReady   <none>   3d   v1.30.1",
        ),
        negative=("node-2   Ready   <none>   3d   v1.30.1", "ContainersNotReady"),
    ),
    Rule(
        id="K8S-009",
        category="k8s-mount",
        role="cause",
        until=("K8S-021", "K8S-022"),
        anchors=(
            "FailedMount",
            "FailedAttachVolume",
            "MountVolume.SetUp failed",
            "unbound immediate",
        ),
        pattern=r"\bFailedMount\b|\bFailedAttachVolume\b|MountVolume\.SetUp failed|unbound "
        r"immediate "
        r"persistentvolumeclaims|persistentvolumeclaim \"[^\"]+\" not found",
        sentence="a volume of the pod cannot be mounted",
        because="the claim, secret or config map does not exist or is not bound, or the storage "
        "is not "
        "reached from the node; the event names it",
        costs="the pod does not start",
        fix="create what is missing (kubectl get pvc,secret,configmap), or wait for the storage; "
        "ReadWriteOnce volumes can be used on one node only: use ReadWriteMany",
        next=_DESCRIBE,
        explains=_DOWN,
        links=("https://kubernetes.io/docs/concepts/storage/persistent-volumes/",),
        positive=(
            'Warning  FailedMount  kubelet  MountVolume.SetUp failed for volume "d" : secret "s" '
            "not found",
        ),
        negative=(
            "Normal  SuccessfulAttachVolume  attachdetach-controller  AttachVolume.Attach "
            "succeeded",
        ),
    ),
    Rule(
        id="K8S-010",
        category="k8s-network",
        role="cause",
        until=("K8S-021", "K8S-022"),
        anchors=("network is not ready", "FailedCreatePodSandBox", "cni plugin not initialized"),
        pattern=r"network is not ready|FailedCreatePodSandBox|failed to create pod sandbox"
        r"|cni plugin not initialized",
        sentence="the node cannot give the pod a network (CNI)",
        because="the CNI plugin is not installed or not running there, has no addresses left, or "
        "an extra "
        "network (Multus) is not defined",
        costs="the pod does not start",
        fix="look at the CNI's pods on that node (kubectl get pods -n kube-system -o wide), free "
        "addresses, and the NetworkAttachmentDefinition that the pod names",
        next=_DESCRIBE,
        explains=_DOWN,
        links=(
            "https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/network-plugins/",
        ),
        positive=(
            "Warning  NetworkNotReady  kubelet  network is not ready: container runtime network "
            "not ready",
            "Warning  FailedCreatePodSandBox  kubelet  Failed to create pod sandbox: rpc error",
        ),
        negative=("RuntimeError: network is unreachable",),
    ),
    Rule(
        id="K8S-011",
        category="k8s-forbidden",
        role="cause",
        confidence="certain",
        anchors=("violates PodSecurity", "security context constraint", "is forbidden: "),
        pattern=r"violates podsecurity|unable to validate against any security context constraint"
        r"|\bpods? \"[^\"]*\" is forbidden|\bis forbidden: (?:user|exceeded quota)",
        sentence="the cluster forbids the pod: security policy, rights or quota",
        because="RDMA, hostNetwork, IPC_LOCK, hostPath or privileged need a namespace or security "
        "context constraint that allows them; a quota limits GPUs; the message says which",
        costs="the pod is not created",
        fix="label the namespace (pod-security.kubernetes.io/enforce=privileged), give the service "
        "account an SCC (OpenShift: oc adm policy add-scc-to-user privileged -z NAME) or the "
        "role, ask "
        "for a larger quota, or leave out what is forbidden",
        next="kubectl get events; kubectl describe quota; kubectl auth can-i create pods",
        explains=_DOWN,
        links=("https://kubernetes.io/docs/concepts/security/pod-security-standards/",),
        positive=(
            'pods "w-0" is forbidden: violates PodSecurity "baseline:latest": host namespaces',
            'Error creating: pods "w-" is forbidden: unable to validate against any security '
            "context "
            "constraint",
            'pods "w-3" is forbidden: exceeded quota: gpu, requested: requests.nvidia.com/gpu=8',
        ),
        negative=("HTTP Error 403: Forbidden",),
    ),
    Rule(
        id="K8S-012",
        category="k8s-container-start",
        role="cause",
        until=("K8S-021", "K8S-022"),
        anchors=(
            "CreateContainerConfigError",
            "RunContainerError",
            "CreateContainerError",
            "UnexpectedAdmission",
            "StartError",
        ),
        pattern=r"CreateContainerConfigError|RunContainerError|CreateContainerError"
        r"|UnexpectedAdmissionError|StartError",
        sentence="the container cannot be created or started",
        because="a secret or config map is missing, the command is not in the image, or the GPU "
        "runtime "
        "or device plugin refused; the event's message names it",
        costs="the pod does not start",
        fix="mend what the message names; for GPUs check the NVIDIA runtime class and device "
        "plugin",
        next=_DESCRIBE,
        explains=_DOWN,
        links=(_POD,),
        positive=(
            "w-0   0/1   CreateContainerConfigError   0   1m",
            "      Reason:       StartError",
        ),
        negative=("Normal  Created  kubelet  Created container trainer",),
    ),
    Rule(
        id="K8S-014",
        category="k8s-restarting",
        role="symptom",
        stage="aftermath",
        anchors=(
            "CrashLoopBackOff",
            "Back-off restarting",
            "BackoffLimitExceeded",
            "FailedJobs",
            "MPIJobFailed",
        ),
        pattern=r"CrashLoopBackOff|back-off restarting failed|BackoffLimitExceeded|FailedJobs"
        r"|MPIJobFailed",
        sentence="a container of the job ends again and again, or the job was given up",
        checks=(
            "the container's own error: kubectl logs POD --previous",
            "its exit code: kubectl describe pod POD | grep -A6 'Last State' (137 with "
            "OOMKilled: raise "
            "the memory limit)",
            "whether a worker failed before the launcher: kubectl get pods -o wide, events in time",
        ),
        links=(_POD,),
        positive=(
            "worker-0   0/1   CrashLoopBackOff   5   10m",
            "Warning  BackOff  kubelet  Back-off restarting failed container trainer in pod w-0",
            "Warning  BackoffLimitExceeded  job-controller  Job has reached the specified "
            "backoff limit",
        ),
        negative=("worker-0   1/1   Running   0   10m",),
    ),
)
