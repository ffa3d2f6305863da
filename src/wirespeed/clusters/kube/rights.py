"""Which rights are missing: `kubectl auth can-i` for many at once.

One call makes SelfSubjectAccessReviews, which is what `auth can-i` does for one; every user who is
logged in may make them (https://kubernetes.io/docs/reference/access-authn-authz/authorization/).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wirespeed.clusters.kube.kubectl import Answer, Kubectl, document

__all__ = ["Right", "missing_rights"]


@dataclass(frozen=True, slots=True)
class Right:
    """To do `verb` with a resource of a group in the namespace."""

    verb: str
    resource: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}"


def missing_rights(kubectl: Kubectl, rights: Sequence[Right]) -> tuple[Right, ...]:
    """Those that this user has not; none where the cluster does not tell."""
    items = [_review(kubectl.namespace, one) for one in rights]
    asked = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    answer = kubectl.ask("create", "-f", "-", "-o", "json", stdin=asked)
    if answer.code != 0:
        return ()
    return tuple(
        right
        for right, review in zip(rights, _documents(answer), strict=False)
        if not review.get("status", {}).get("allowed", True)
    )


def _documents(answer: Answer) -> list[dict[str, Any]]:
    """`create -o json` writes one document after the other; Refused where these are none."""
    decoder, found, text = json.JSONDecoder(), [], answer.out.strip()
    while text:
        try:
            end = decoder.raw_decode(text)[1]
        except (RecursionError, ValueError):
            end = len(text)
        found.append(document(replace(answer, out=text[:end])))
        text = text[end:].lstrip()
    return found


def _review(namespace: str, right: Right) -> dict[str, Any]:
    wanted = {
        "namespace": namespace,
        "verb": right.verb,
        "resource": right.resource,
        "group": right.group,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }
