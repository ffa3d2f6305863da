"""Why a pod is not ready: states and events as a real cluster (Kubernetes 1.20, 1.28) told them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from wirespeed.clusters.kube import exit_code
from wirespeed.clusters.operations.pod_failures import Cause, causes, finding_id, reasons
from wirespeed.clusters.operations.snapshot import Event, Seen

PULL = (
    'Failed to pull image "registry.invalid/x:1": rpc error: code = Unknown desc = failed to pull and '
    'unpack image "registry.invalid/x:1": failed to resolve reference: dial tcp: lookup '
    "registry.invalid on 10.0.0.2:53: no such host"
)


def pod(name: str, **more: Any) -> dict[str, Any]:
    status = {"phase": "Pending", "conditions": more.get("conditions", [])}
    if "waiting" in more or "ended" in more:
        state = {"waiting": more["waiting"]} if "waiting" in more else {"terminated": more["ended"]}
        one = {"name": "ranks", "image": "registry.invalid/x:1", "state": state}
        one["restartCount"] = more.get("restarts", 0)
        one["lastState"] = {"terminated": more["last"]} if "last" in more else {}
        status["containerStatuses"] = [one]
    spec = {"nodeName": more.get("node", "node-0"), "containers": []}
    return {"kind": "Pod", "metadata": {"name": name, "uid": name}, "spec": spec, "status": status}


def event(about: str, reason: str, message: str) -> Event:
    return Event(uid=about, kind="Any", name=about, reason=reason, message=message, stamp="1")


def why(*pods: dict[str, Any], events: tuple[Event, ...] = (), **more: Any) -> list[Cause]:
    return causes(Seen(pods=pods, events=events, **more), len(pods))


def test_pods_with_the_same_cause_make_one_finding() -> None:
    held = {
        "reason": "ImagePullBackOff",
        "message": 'Back-off pulling image "registry.invalid/x:1"',
    }
    events = tuple(event(name, "Failed", PULL) for name in ("a-0", "a-1"))
    (one,) = why(pod("a-0", waiting=held), pod("a-1", waiting=held), events=events)
    assert (one.finding.id, one.pods) == ("CLUSTER-003", ("a-0", "a-1"))
    assert one.finding.saw == PULL, "the words of the try, not of the pause after it"
    assert "cannot reach the registry" in one.finding.title


@pytest.mark.parametrize(
    ("message", "part", "patience_s"),
    [
        ("failed to resolve reference: x: not found", "no such image", 5),
        ("pull access denied, repository does not exist or may require authorization", "login", 5),
        ("unexpected status code 429 toomanyrequests: rate limit", "limits", 15),
    ],
)
def test_a_registrys_words_say_whether_waiting_helps(
    message: str, part: str, patience_s: float
) -> None:
    (one,) = why(pod("a-0", waiting={"reason": "ErrImagePull", "message": message}))
    assert part in one.finding.title
    assert one.patience_s == patience_s


def test_a_crash_tells_its_code_and_memory() -> None:
    back = {"reason": "CrashLoopBackOff", "message": "back-off 10s"}
    last = {"exitCode": 137, "reason": "OOMKilled"}
    (one,) = why(pod("a-0", waiting=back, last=last, restarts=1))
    assert (one.finding.id, one.patience_s, one.crashed) == ("CLUSTER-010", 0, "a-0")
    assert "exit code 137 (signal 9), killed for memory" in one.finding.title
    assert "limits.memory" in one.finding.because
    start = {
        "exitCode": 128,
        "reason": "StartError",
        "message": "runc create failed: unable to start container process: exec: "
        '"nonexe": executable file not found in $PATH: unknown',
    }
    (one,) = why(pod("a-0", waiting=back, last=start, restarts=1))
    assert one.finding.because.startswith('exec: "nonexe"')


@pytest.mark.parametrize(
    ("waiting", "reason", "message", "ident"),
    [
        ("CreateContainerConfigError", "", 'secret "nope" not found', "025"),
        (
            "CreateContainerConfigError",
            "",
            "container has runAsNonRoot and image will run as root",
            "010",
        ),
        ("ContainerCreating", "FailedMount", 'volume "v" : configmap "nope" not found', "025"),
        ("ContainerCreating", "FailedMount", "mount failed: exit status 32: timed out", "004"),
        (
            "ContainerCreating",
            "FailedCreatePodSandBox",
            'plugin type="multus" failed: no net1',
            "022",
        ),
        ("ContainerCreating", "FailedCreatePodSandBox", "OCI runtime create failed: memory", "010"),
        ("ContainerCreating", "FailedMount", "failed to sync secret cache: timed out", ""),
    ],
)
def test_what_holds_a_container_up(waiting: str, reason: str, message: str, ident: str) -> None:
    held = {"reason": waiting, "message": "" if reason else message}
    events = (event("a-0", reason, message),) if reason else ()
    found = why(pod("a-0", waiting=held), events=events)
    assert [one.finding.id for one in found] == ([f"CLUSTER-{ident}"] if ident else [])


def test_the_schedulers_words_are_told_cause_by_cause() -> None:
    message = (
        "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint "
        "{team: x}, 2 node(s) didn't match pod anti-affinity rules. preemption: 0/4 nodes are "
        "available: 4 No preemption victims found for incoming pod."
    )
    found = reasons(message)
    assert [one.nodes for one in found] == [1, 1, 2]
    assert "nvidia.com/gpu is not free" in str(found[0])
    assert finding_id(found) == "CLUSTER-001"
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    ]
    lonely = pod("a-0", node="", conditions=conditions)
    (one,) = why(lonely)
    assert (one.finding.id, len(one.finding.evidence)) == ("CLUSTER-001", 3)
    assert "preemption" not in one.finding.title
    assert why(lonely, events=(event("a-0", "TriggeredScaleUp", "adding a node"),)) == []


def test_a_claim_without_its_class_is_final_and_hides_what_follows_from_it() -> None:
    claim = {
        "metadata": {"name": "w", "uid": "w"},
        "spec": {"storageClassName": "nope"},
        "status": {"phase": "Pending"},
    }
    message = "0/3 nodes are available: 3 pod has unbound immediate PersistentVolumeClaims."
    conditions = [{"type": "PodScheduled", "status": "False", "message": message}]
    missing = event("w", "ProvisioningFailed", 'storageclass.storage.k8s.io "nope" not found')
    found = why(pod("a-0", node="", conditions=conditions), events=(missing,), claims=(claim,))
    assert [(one.finding.id, one.patience_s) for one in found] == [("CLUSTER-004", 0)]
    assert "no storage class nope" in found[0].finding.title
    waiting = event("w", "WaitForFirstConsumer", "waiting for first consumer to be created")
    assert causes(Seen(claims=(claim,), events=(waiting,)), 0) == []


@pytest.mark.parametrize(
    ("message", "ident"),
    [
        ('pods "a-1" is forbidden: exceeded quota: q, requested: a=1, used: a=1, limited: a=1', "007"),
        ('pods "a-1" is forbidden: violates PodSecurity "restricted:v1.28": hostPath volumes', "008"),
        ("something new", "008"),
    ],
)  # fmt: skip
def test_pods_that_are_not_made_are_told_in_the_admissions_words(message: str, ident: str) -> None:
    maker = {"kind": "StatefulSet", "metadata": {"name": "a", "uid": "set"}}
    failed = event(
        "set", "FailedCreate", f"create Pod a-1 in StatefulSet a failed error: {message}"
    )
    (one,) = causes(Seen(makers=(maker,), events=(failed,)), 2)
    assert one.finding.id == f"CLUSTER-{ident}"
    assert causes(Seen(makers=(maker,), events=(failed,)), 0) == []


def test_unknown_is_never_good_and_never_a_finding() -> None:
    from wirespeed.model.records import Finding

    def one(number: str, status: Any = "fail") -> Finding:
        return Finding(id=f"CLUSTER-{number}", status=status, title="x")

    assert exit_code([one("015", "pass"), one("014", "warn")]) == 0
    assert exit_code([one("011")]) == exit_code([one("017"), one("020")]) == 3
    assert exit_code([one("017"), one("003")]) == 1
    assert exit_code([one("019"), one("001")]) == 2


@pytest.mark.parametrize(
    ("past_s", "events", "patience_s"),
    [
        (45, (), None),
        (90, (), 120),
        (20, ("NodeNotReady",), None),
        (45, ("NodeNotReady",), 15),
    ],
)
def test_a_pod_that_goes_slowly_is_lost_at_once_only_where_its_node_is_silent(
    past_s: float, events: tuple[str, ...], patience_s: float | None
) -> None:
    end = datetime.now(UTC) - timedelta(seconds=past_s)
    going = pod("a-0")
    going["metadata"]["deletionTimestamp"] = end.strftime("%Y-%m-%dT%H:%M:%SZ")
    found = why(going, events=tuple(event("a-0", reason, "") for reason in events))
    assert [one.patience_s for one in found] == ([] if patience_s is None else [patience_s])
    assert {one.finding.id for one in found} <= {"CLUSTER-013"}
    assert ["went down" in one.finding.because for one in found] == [bool(events)] * len(found)
