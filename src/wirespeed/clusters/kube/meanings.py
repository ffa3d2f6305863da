"""The table of kubectl's words and their meanings.

The words are those of kubectl 1.20 to 1.32 and of the API servers behind them; the first row that fits
counts, so a row that is more exact stands above one that is less.
"""

import re
from dataclasses import dataclass

__all__ = ["SILENT", "TABLE", "UNKNOWN", "Meaning"]


@dataclass(frozen=True, slots=True)
class Meaning:
    """One row: `title`, `because`, `fix` and `next` are filled from the pattern's groups."""

    id: str
    pattern: re.Pattern[str]
    title: str
    expected: str = ""
    because: str = ""
    fix: str = ""
    next: str = ""
    passing: bool = False
    """Worth another try: servers restart, leaders change."""


def _row(
    ident: str, pattern: str, title: str, *, expected: str = "", because: str = "", fix: str = "",
    next: str = "", passing: bool = False,
) -> Meaning:  # fmt: skip
    compiled = re.compile(pattern)
    return Meaning(ident, compiled, title, expected, because, fix, next, passing)


_CONTEXTS = "kubectl config get-contexts"
_LOGIN = (
    "log in again as this cluster wants it: oc login, aws eks update-kubeconfig, gcloud container "
    "clusters get-credentials, az aks get-credentials, or a new kubeconfig from its administrator"
)
_ASK_ADMIN = "ask the cluster's administrator"

_KUBECONFIG = (
    _row(
        "CLUSTER-019",
        r"stat (?P<path>.+): no such file or directory",
        "there is no kubeconfig {path}",
        expected="the file that cluster.kubeconfig or KUBECONFIG names",
        next=_CONTEXTS,
    ),
    _row(
        "CLUSTER-019",
        r"context was not found for specified context: (?P<context>.+)"
        r"|context \"(?P<context2>[^\"]+)\" does not exist",
        "the kubeconfig has no context {context}",
        expected="the one that cluster.context names",
        next=_CONTEXTS,
    ),
    _row(
        "CLUSTER-019",
        r"error loading config file \"(?P<path>[^\"]+)\": (?P<why>.+)",
        "the kubeconfig {path} cannot be read",
        because="{why}",
        next=_CONTEXTS,
    ),
    _row(
        "CLUSTER-019",
        r"(?:auth info|cluster) \"(?P<part>[^\"]+)\" does not exist",
        "the kubeconfig's context names {part}, which the kubeconfig does not hold",
        next=_CONTEXTS,
    ),
    _row(
        "CLUSTER-019",
        r"connection to the server localhost:8080 was refused|no configuration has been provided"
        r"|Missing or incomplete configuration info",
        "kubectl knows no cluster: there is no kubeconfig, or it names no current context",
        expected="a kubeconfig with a context (KUBECONFIG, ~/.kube/config, or cluster.kubeconfig)",
        fix=_LOGIN,
        next=_CONTEXTS,
    ),
)

_LOGINS = (
    _row(
        "CLUSTER-020",
        r"getting credentials: exec: executable (?P<program>\S+) not found",
        "{program}, by which the kubeconfig logs in, is not on the PATH",
        fix="install {program}, or use a kubeconfig that needs no such program",
    ),
    _row(
        "CLUSTER-020",
        r"getting credentials: (?P<why>.+)|(?:failed|unable) to refresh (?:the )?token(?P<why2>.*)"
        r"|No Auth Provider found(?P<why3>.*)",
        "the program by which the kubeconfig logs in failed",
        because="{why}",
        fix=_LOGIN,
    ),
    _row(
        "CLUSTER-020",
        r"You must be logged in to the server|\bUnauthorized\b"
        r"|asked for the client to provide credentials",
        "the cluster does not know this user: the login has expired, or it is another cluster's",
        expected="a login that the API server takes",
        fix=_LOGIN,
        next="kubectl auth whoami",
    ),
)

_CERTIFICATES = (
    _row(
        "CLUSTER-021",
        r"remote error: tls: (?P<why>.*certificate.*)",
        "the API server does not take this user's certificate: {why}",
        fix=_LOGIN,
    ),
    _row(
        "CLUSTER-021",
        r"x509: (?P<why>.+)|tls: (?P<why2>failed to verify certificate.*)",
        "the API server's certificate is not accepted: {why}",
        expected="a certificate of the authority in the kubeconfig, valid now and for this name",
        because="the cluster was made anew, its certificates have expired, this machine's clock is "
        "wrong, or something stands between",
        fix=_LOGIN,
    ),
    _row(
        "CLUSTER-021",
        r"server gave HTTP response to HTTPS client|malformed HTTP response",
        "what answers at the cluster's address does not speak HTTPS as an API server does",
        next="kubectl config view --minify",
    ),
)

_REACHING = (
    _row(
        "CLUSTER-011",
        r"lookup (?P<host>\S+?)(?: on \S+)?: no such host",
        "the API server's name {host} does not resolve",
        because="a VPN or a proxy is not up, or the cluster is gone",
        next="kubectl config view --minify",
    ),
    _row(
        "CLUSTER-011",
        r"proxyconnect tcp: (?P<why>.+)",
        "the proxy before the API server cannot be reached: {why}",
        because="HTTPS_PROXY, or proxy-url of the kubeconfig",
        passing=True,
    ),
    _row(
        "CLUSTER-011",
        r"connection to the server (?P<host>\S+) was refused|connect: connection refused",
        "nothing listens at the API server's address {host}",
        because="the API server is down or restarts, or the address is an old one",
        next="kubectl cluster-info",
        passing=True,
    ),
    _row(
        "CLUSTER-011",
        r"(?P<why>no route to host|network is unreachable|i/o timeout|context deadline exceeded"
        r"|Client\.Timeout exceeded|TLS handshake timeout)",
        "the API server cannot be reached: {why}",
        because="a VPN, a firewall, or the API server is down",
        next="kubectl cluster-info",
        passing=True,
    ),
    _row(
        "CLUSTER-011",
        r"(?P<why>etcdserver: [^\"]+|raft proposal dropped|leader changed|connection reset by peer"
        r"|broken pipe|http2: \w[^\"]*|GOAWAY|unexpected EOF|\bEOF\b)"
        r"|\((?P<why2>ServiceUnavailable|TooManyRequests|Timeout|ServerTimeout|GatewayTimeout)\)"
        r"|(?P<why3>the server is currently unable to handle the request"
        r"|the server has received too many requests|the object has been modified)",
        "the API server was interrupted: {why}",
        because="it restarts, its store changes its leader, or it has too much to do",
        next="kubectl get --raw /readyz?verbose",
        passing=True,
    ),
)

_PLACES = (
    _row(
        "CLUSTER-005",
        r"namespace (?P<namespace>\S+) because it is being terminated",
        "the namespace {namespace} is being deleted",
        fix="wait until it is gone, or take another one",
        next="kubectl get namespace {namespace}",
    ),
    _row(
        "CLUSTER-005",
        r"namespaces \"(?P<namespace>[^\"]+)\" not found",
        "the namespace {namespace} does not exist",
        expected="the namespace of the cluster file (cluster.namespace)",
        fix="make it, or let deploy make it with cluster.create_namespace: true",
        next="kubectl create namespace {namespace}",
    ),
)

_ADMISSION = (
    _row(
        "CLUSTER-007",
        r"exceeded quota: (?P<quota>[^,]+), requested: (?P<asked>\S+), used: (?P<used>\S+), "
        r"limited: (?P<limit>\S+)",
        "the quota {quota} does not allow it: {asked} asked, {used} used, {limit} allowed",
        fix="ask for less, end what uses it, or " + _ASK_ADMIN,
        next="kubectl describe resourcequota {quota}",
    ),
    _row(
        "CLUSTER-007",
        r"failed quota: (?P<quota>[^:]+): must specify (?P<what>.+)",
        "the quota {quota} of the namespace wants every pod to say {what}",
        fix="say it in `resources` of the cluster file",
        next="kubectl describe resourcequota {quota}",
    ),
    _row(
        "CLUSTER-007",
        r"(?P<why>(?:maximum|minimum) \S+ (?:usage|.*request.*) per (?:Container|Pod)[^\"]*)",
        "a LimitRange of the namespace does not allow it: {why}",
        fix="change `resources` of the cluster file",
        next="kubectl describe limitrange",
    ),
    _row(
        "CLUSTER-025",
        r"no PriorityClass with name (?P<name>\S+) was found",
        "there is no priority class {name}",
        expected="workload.priority_class names one that exists",
        next="kubectl get priorityclasses",
    ),
    _row(
        "CLUSTER-025",
        r"RuntimeClass \"(?P<name>[^\"]+)\" not found",
        "there is no runtime class {name}",
        expected="workload.runtime_class names one that exists",
        next="kubectl get runtimeclasses",
    ),
    _row(
        "CLUSTER-025",
        r"error looking up service account (?P<space>[^/\s]+)/\S+: "
        r"serviceaccount \"(?P<name>[^\"]+)\" not found",
        "there is no service account {name} in the namespace",
        expected="security.service_account names one that exists, or is empty",
        fix="make it, or leave security.service_account empty: one is made then",
        next="kubectl create serviceaccount {name} --namespace {space}",
    ),
    _row(
        "CLUSTER-008",
        r"violates PodSecurity \"(?P<level>[^\"]+)\": (?P<why>.+)",
        "the namespace's Pod Security level {level} does not allow these pods",
        because="{why}",
        fix="leave out what it does not allow, or take a namespace with another level",
        next="kubectl get namespace --show-labels",
    ),
    _row(
        "CLUSTER-008",
        r"unable to validate against any security context constraint: (?P<why>.+)",
        "no security context constraint (SCC) allows these pods",
        because="{why}",
        fix="leave out what it does not allow, or security.requires_privileged_scc: true",
        next="oc get scc",
    ),
    _row(
        "CLUSTER-023",
        r"denied the request: .*immutable",
        "what the file now says cannot be changed in what is there",
    ),
    _row(
        "CLUSTER-008",
        r"failed calling webhook \"(?P<hook>[^\"]+)\": (?P<why>.+)",
        "the admission webhook {hook} cannot be asked",
        because="{why}",
        fix=_ASK_ADMIN + ": the service behind it is down",
        passing=True,
    ),
    _row(
        "CLUSTER-008",
        r"admission webhook \"(?P<hook>[^\"]+)\" denied the request: (?P<why>.+)"
        r"|ValidatingAdmissionPolicy '(?P<hook2>[^']+)'.* denied request: (?P<why2>.+)",
        "the admission policy {hook} denied it",
        because="{why}",
        fix=_ASK_ADMIN + ", or change what it names",
    ),
)

_OBJECTS = (
    _row(
        "CLUSTER-016",
        r"no matches for kind \"(?P<kind>[^\"]+)\" in version \"(?P<version>[^\"]+)\"",
        "the cluster does not know {kind} ({version}): its operator is not installed",
        expected="the operator of workload.engine",
        fix="install the operator, or take --engine statefulset, which needs none",
        next="kubectl get crds",
    ),
    _row(
        "CLUSTER-018",
        r"UnsupportedMediaType|does not support apply patch|server-side apply is not supported",
        "the API server is too old for server-side apply",
        expected="Kubernetes 1.20 or newer",
        next="kubectl version",
    ),
    _row(
        "CLUSTER-023",
        r"The (?P<kind>\w+) \"(?P<name>[^\"]+)\" is invalid:.*(?:to statefulset spec|immutable)",
        "what the file now says cannot be changed in the {kind} {name} that is there",
    ),
    _row(
        "CLUSTER-006",
        r"User \"(?P<user>[^\"]*)\" cannot (?P<verb>\w+) resource \"(?P<resource>[^\"]+)\"",
        "{user} may not {verb} {resource}",
        expected="the rights of the role `edit` in the namespace; the administrator gives them",
        next="kubectl auth can-i --list",
    ),
    _row(
        "CLUSTER-006",
        r"attempting to grant RBAC permissions not currently held",
        "this user may not give the pods' account the rights that the file asks",
        fix=_ASK_ADMIN,
    ),
    _row(
        "CLUSTER-024",
        r"is invalid: (?P<why>.+)|error validating data: (?P<why2>.+)"
        r"|strict decoding error: (?P<why3>.+)|\(BadRequest\): (?P<why4>.+)|unknown field (?P<why5>.+)",
        "the API server does not take an object: {why}",
        next="wirespeed cluster render NAME",
    ),
    _row(
        "CLUSTER-008",
        r"\(Forbidden\): (?P<why>.+)|is forbidden: (?P<why2>.+)",
        "the cluster forbids it",
        because="{why}",
        fix=_ASK_ADMIN,
    ),
    _row(
        "CLUSTER-008",
        r"Internal error occurred: (?P<why>.+)|\(InternalError\): (?P<why2>.+)",
        "the API server failed inside: {why}",
        passing=True,
    ),
)

TABLE = (*_KUBECONFIG, *_ADMISSION, *_LOGINS, *_CERTIFICATES, *_REACHING, *_PLACES, *_OBJECTS)
UNKNOWN = _row("CLUSTER-026", r"(?P<why>(?s:.*))", "kubectl could not do it: {why}")
SILENT = _row(
    "CLUSTER-011",
    r"",
    "the API server gave no answer in time",
    because="a VPN, a firewall, or the API server is down or has too much to do",
    next="kubectl cluster-info",
    passing=True,
)
