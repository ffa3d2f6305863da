"""Asking a live cluster: reads only, each call bounded; what may not be read is noted, not fatal."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from wirespeed.clusters.discover.found import Found, attachment, node, storage
from wirespeed.clusters.kube.kubectl import Answer, Kubectl, Refused
from wirespeed.clusters.telling import Progress

__all__ = ["look"]

ASK_S = 20.0
"""For one answer; lists of thousands of nodes take some seconds."""
_NETWORKS = "network-attachment-definitions.k8s.cni.cncf.io"
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
    told = kubectl.ask(*_view(), within_s=ASK_S).out.split("\n")
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
        nodes=tuple(asking.items("nodes", node)),
        classes=tuple(asking.items("storageclasses", storage)),
        attachments=tuple(asking.everywhere(_NETWORKS, attachment)) if _NETWORKS in kinds else (),
        queues=tuple(asking.items(_QUEUES, _name)) if _QUEUES in kinds else (),
        sccs=dict(asking.items(_SCCS, _constraint)) if _SCCS in kinds else {},
        unread=tuple(asking.unread),
    )


def _view() -> tuple[str, ...]:
    """Only what names the cluster: nothing of the login is read."""
    return ("config", "view", "--minify", "-o", _WHERE)


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
        told = _mapping(answer.out).get("serverVersion")
        if isinstance(told, dict):
            return str(told.get("gitVersion", ""))
        if not _forbidden(answer):
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
        listed = _mapping(answer.out).get("items") if answer.code == 0 else None
        if not isinstance(listed, list):
            self._note(kind, answer)
            return []
        return [read(one) for one in listed if isinstance(one, dict)]

    def everywhere(self, kind: str, read: Callable[[Mapping[str, Any]], _T]) -> list[_T]:
        """In all namespaces, or at least in this one."""
        before = len(self.unread)
        found = self.items(kind, read, "--all-namespaces")
        if len(self.unread) == before:
            return found
        return self.items(kind, read)

    def _note(self, what: str, answer: Answer) -> None:
        said = answer.err.strip() or (
            f"no answer within {ASK_S:.0f} s" if answer.code is None else "no list in the answer"
        )
        self.unread.append(f"{what}: {said.splitlines()[-1]}")


def _forbidden(answer: Answer) -> bool:
    return answer.code is not None and "forbidden" in answer.err.lower()


def _mapping(text: str) -> Mapping[str, Any]:
    try:
        told = json.loads(text)
    except (RecursionError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _name(told: Mapping[str, Any]) -> str:
    metadata = told.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def _constraint(told: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    allowed = told.get("allowedCapabilities")
    return _name(told), tuple(str(one) for one in allowed) if isinstance(allowed, list) else ()
