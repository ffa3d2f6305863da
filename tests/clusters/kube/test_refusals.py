"""kubectl's own words, as it said them (1.32 against servers of 1.20 and newer), and what they mean."""

import pytest

from wirespeed.checks.registry import EXPLAINED
from wirespeed.clusters.kube import Answer, finding_of, findings_of, may_pass, said

KLOG = (
    'E1121 21:05:28.292388   25849 memcache.go:265] "Unhandled Error" err="couldn\'t get current '
    'server API group list: Get \\"https://10.88.0.1:6444/api?timeout=32s\\": dial tcp"\n'
)
WORDS = {
    "error: stat /nonexist: no such file or directory": ("019", "/nonexist"),
    "Error in configuration: context was not found for specified context: nope": ("019", "nope"),
    'error: context "nope" does not exist': ("019", ""),
    'error: error loading config file "b.yaml": yaml: line 1: did not find expected node content': (
        "019",
        "b.yaml",
    ),
    "The connection to the server localhost:8080 was refused - did you specify the right host "
    "or port?": ("019", "no cluster"),
    "The connection to the server 10.88.0.1:6444 was refused - did you specify the right host "
    "or port?": ("011", "10.88.0.1:6444"),
    "Unable to connect to the server: dial tcp: lookup nope.invalid on 10.0.0.2:53: no such host": (
        "011",
        "nope.invalid",
    ),
    "Unable to connect to the server: dial tcp 10.1.2.3:6443: i/o timeout": ("011", "i/o timeout"),
    "Unable to connect to the server: net/http: TLS handshake timeout": ("011", "TLS handshake"),
    "Error from server: etcdserver: request timed out": ("011", "etcdserver"),
    "Error from server (Timeout): the server was unable to return a response in the time": (
        "011",
        "Timeout",
    ),
    "Error from server (TooManyRequests): the server has received too many requests": ("011", ""),
    "error: You must be logged in to the server (Unauthorized)": ("020", "login"),
    "Unable to connect to the server: getting credentials: exec: executable aws not found": (
        "020",
        "aws",
    ),
    "Unable to connect to the server: getting credentials: exec: executable gke failed with exit "
    "code 1": ("020", "failed"),
    "Unable to connect to the server: tls: failed to verify certificate: x509: certificate signed "
    "by unknown authority": ("021", "unknown authority"),
    'Error from server (NotFound): namespaces "life" not found': ("005", "life"),
    'Error from server (Forbidden): services "x" is forbidden: User '
    '"system:serviceaccount:a:few" cannot patch resource "services" in API group "" in the '
    'namespace "a"': ("006", "system:serviceaccount:a:few may not patch services"),
    'Error from server (Forbidden): pods "x-9" is forbidden: exceeded quota: q, requested: '
    "pods=1,requests.cpu=2, used: pods=2,requests.cpu=0, limited: pods=2,requests.cpu=1": (
        "007",
        "quota q",
    ),
    'Error from server (Forbidden): pods "x-9" is forbidden: failed quota: q: must specify '
    "requests.cpu": ("007", "requests.cpu"),
    'Error from server (Forbidden): pods "x" is forbidden: no PriorityClass with name nope was '
    "found": ("025", "nope"),
    'Error from server (Forbidden): pods "x" is forbidden: error looking up service account '
    'a/nope: serviceaccount "nope" not found': ("025", "nope"),
    'Error from server (Forbidden): pods "x" is forbidden: violates PodSecurity '
    '"restricted:latest": unrestricted capabilities': ("008", "restricted:latest"),
    'Error from server (Forbidden): pods "x-0" is forbidden: unable to validate against any '
    "security context constraint: [provider restricted]": ("008", "SCC"),
    'Error from server: admission webhook "no.example.com" denied the request: not here': (
        "008",
        "no.example.com",
    ),
    'The StatefulSet "x" is invalid: spec: Forbidden: updates to statefulset spec for fields '
    "other than 'replicas', 'template', and 'updateStrategy' are forbidden": (
        "023",
        "StatefulSet x",
    ),
    'The Pod "x-9" is invalid: spec.containers[0].name: Invalid value: "Ranks_"': ("024", "Ranks_"),
    'error: resource mapping not found for name: "x" namespace: "" from "STDIN": no matches for '
    'kind "MPIJob" in version "kubeflow.org/v2beta1"\nensure CRDs are installed first': (
        "016",
        "MPIJob",
    ),
    "error: something that nobody has heard of": ("026", "nobody has heard of"),
}
PASSING = {"10.88.0.1:6444", "i/o timeout", "TLS handshake", "etcdserver", "Timeout"}


def refused(text: str) -> Answer:
    return Answer(("kubectl", "get", "pods"), 1, "", text)


@pytest.mark.parametrize("text", WORDS)
def test_each_refusal_has_its_finding(text: str) -> None:
    number, part = WORDS[text]
    found = finding_of(refused(KLOG + text + "\n"))
    assert found.id == f"CLUSTER-{number}"
    assert part in found.title
    assert found.status == "fail"
    assert found.saw == text.splitlines()[0], "kubectl's words, without its logging"
    assert "{" not in found.title + found.because + found.fix + found.next
    assert found.id in EXPLAINED


@pytest.mark.parametrize("text", WORDS)
def test_only_what_may_pass_is_asked_again(text: str) -> None:
    busy = "TooManyRequests" in text
    assert may_pass(refused(text)) is (busy or WORDS[text][1] in PASSING)


def test_no_answer_in_time_may_pass_and_is_a_finding() -> None:
    silent = Answer(("kubectl", "get"), None, "", "")
    assert may_pass(silent)
    assert finding_of(silent).id == "CLUSTER-011"
    assert not may_pass(Answer(("kubectl",), 0, "fine", "Warning: connection reset by peer"))


def test_a_call_for_several_objects_tells_each_error_once() -> None:
    forbidden = 'Error from server (Forbidden): pods "a" is forbidden: must specify'
    text = (
        'The Service "x" is invalid: \n* spec.ports: Required value\n* spec.type: Unsupported\n'
        f"{forbidden}\n{forbidden}\n"
    )
    first, second = findings_of(refused(text))
    assert first.title.endswith("spec.ports: Required value spec.type: Unsupported")
    assert (first.id, second.id) == ("CLUSTER-024", "CLUSTER-008")


def test_what_the_cluster_says_is_no_template_and_no_secret() -> None:
    found = finding_of(refused('namespaces "{title}{0}" not found'))
    assert "{title}{0}" in found.title
    (line,) = said(refused("error: https://user:word@host/?token=abc failed"))
    assert "word" not in line
    assert "abc" not in line


def test_a_missing_account_comes_with_the_command_that_makes_it() -> None:
    text = (
        'Error from server (Forbidden): pods "x" is forbidden: error looking up service account '
        'team/nope: serviceaccount "nope" not found'
    )
    found = finding_of(Answer(("kubectl",), 1, "", text))
    assert found.id == "CLUSTER-025"
    assert found.next == "kubectl create serviceaccount nope --namespace team"
