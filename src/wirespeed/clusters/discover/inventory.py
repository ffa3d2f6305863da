"""Inventory of a live cluster: bounded reads only; what may not be read is noted, not fatal."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from wirespeed.clusters.kube import Answer, Kubectl, Refused, items_of, json_object
from wirespeed.clusters.kube.refusals import Progress
from wirespeed.clusters.operations.capabilities import ATTACHMENTS, Attachment, attachment
from wirespeed.clusters.operations.pod_lookup import Node, node_from

_DEFAULT_CLASS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass:
    """One class."""

    name: str
    provisioner: str
    default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All that could be read; `unread` says what could not, and why."""

    context: str
    server: str
    namespace: str
    version: str = ""
    namespace_missing: bool = False
    kinds: frozenset[str] = frozenset()
    """`mpijobs.kubeflow.org` and the like: what the API server serves."""
    nodes: tuple[Node, ...] = ()
    classes: tuple[StorageClass, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    queues: tuple[str, ...] = ()
    sccs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """OpenShift: capabilities that each security context constraint allows, by name."""
    unread: tuple[str, ...] = ()


def storage(told: Mapping[str, Any]) -> StorageClass:
    """From `kubectl get storageclasses -o json`."""
    notes = told["metadata"].get("annotations", {})
    return StorageClass(
        name=told["metadata"]["name"],
        provisioner=told.get("provisioner", ""),
        default=any(notes.get(key) == "true" for key in _DEFAULT_CLASS),
    )


ASK_S = 20.0
"""For one answer; lists of thousands of nodes take some seconds."""
_QUEUES = "localqueues.kueue.x-k8s.io"
_SCCS = "securitycontextconstraints.security.openshift.io"
_WHERE = (
    'jsonpath={.current-context}{"\\n"}{.clusters[0].cluster.server}'
    '{"\\n"}{.contexts[0].context.namespace}'
)
_T = TypeVar("_T")


def look(kubectl: Kubectl, namespace: str, progress: Progress) -> Found:
    """All that a cluster file is made of.

    namespace: empty for the one that the context names, else `default`.
    Raises Refused (CannotMeasure) where the API server does not answer or no login is there.
    """
    asking = _Asking(kubectl, progress)
    progress.phase("asking which cluster it is")
    # Without a kubeconfig, as inside a pod, kubectl may still know its cluster.
    told = kubectl.ask(*("config", "view", "--minify", "-o", _WHERE), within_s=ASK_S).out.split(
        "\n"
    )
    context, server, usual = (*told, "", "")[:3]
    asking.kubectl = replace(kubectl, namespace=namespace or usual or "default")
    version = asking.version()
    kinds = asking.kinds()
    return Found(
        context=context,
        server=server,
        namespace=asking.kubectl.namespace,
        version=version,
        namespace_missing=asking.namespace_missing(),
        kinds=kinds,
        nodes=tuple(asking.items("nodes", node_from)),
        classes=tuple(asking.items("storageclasses", storage)),
        attachments=tuple(asking.everywhere(ATTACHMENTS, attachment))
        if ATTACHMENTS in kinds
        else (),
        queues=tuple(asking.items(_QUEUES, _name)) if _QUEUES in kinds else (),
        sccs=dict(asking.items(_SCCS, _constraint)) if _SCCS in kinds else {},
        unread=tuple(asking.unread),
    )


class _Asking:
    """One round of questions, and what of it stayed without an answer."""

    def __init__(self, kubectl: Kubectl, progress: Progress) -> None:
        self.kubectl = kubectl
        self.unread: list[str] = []
        self._progress = progress

    def version(self) -> str:
        """Of the server; Refused where it does not answer at all, since nothing else would."""
        self._progress.phase("asking the API server's version")
        answer = self.kubectl.ask("version", "-o", "json", within_s=ASK_S)
        told = json_object(answer.out).get("serverVersion")
        if isinstance(told, dict):
            return str(told.get("gitVersion", ""))
        if not (answer.code is not None and "forbidden" in answer.err.lower()):
            raise Refused(answer)
        self._note("the server's version", answer)
        return ""

    def kinds(self) -> frozenset[str]:
        """What is served; a broken aggregated API leaves the others readable."""
        self._progress.phase("asking which operators are installed")
        answer = self.kubectl.ask("api-resources", "-o", "name", within_s=ASK_S)
        if answer.code != 0:
            self._note("some of the API groups", answer)
        return frozenset(answer.out.split())

    def namespace_missing(self) -> bool:
        answer = self.kubectl.ask("get", "namespace", self.kubectl.namespace, within_s=ASK_S)
        return answer.code != 0 and "NotFound" in answer.err

    def items(self, kind: str, read: Callable[[Mapping[str, Any]], _T], *words: str) -> list[_T]:
        """Every object of a kind; none, and a note, where they may not be read."""
        self._progress.phase(f"asking for {kind}")
        answer = self.kubectl.ask("get", kind, *words, "-o", "json", within_s=ASK_S)
        try:
            if answer.code == 0:
                return [read(one) for one in items_of(answer)]
        except Refused as refused:
            answer = refused.answer
        self._note(kind, answer)
        return []

    def everywhere(self, kind: str, read: Callable[[Mapping[str, Any]], _T]) -> list[_T]:
        """In all namespaces, or at least in this one."""
        before = len(self.unread)
        found = self.items(kind, read, "--all-namespaces")
        if len(self.unread) == before:
            return found
        return self.items(kind, read)

    def _note(self, what: str, answer: Answer) -> None:
        said = answer.err.strip() or f"no answer within {ASK_S:.0f} s"
        self.unread.append(f"{what}: {said.splitlines()[-1]}")


def _name(told: Mapping[str, Any]) -> str:
    return str(told["metadata"]["name"])


def _constraint(told: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    allowed = told.get("allowedCapabilities")
    return _name(told), tuple(str(one) for one in allowed) if isinstance(allowed, list) else ()
