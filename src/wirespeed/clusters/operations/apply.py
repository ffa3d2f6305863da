"""Dry run and server-side apply of objects, what they change, and which rights are missing.

Differences: one side is the server's own dry run, so that its defaults and what webhooks add are on
both, and no `diff` program is needed as `kubectl diff` does. Rights: one call makes
SelfSubjectAccessReviews, as `auth can-i` does for one; every user who is logged in may make them
(https://kubernetes.io/docs/reference/access-authn-authz/authorization/).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any, Literal

from wirespeed.clusters.file.kinds import quantity
from wirespeed.clusters.kube import (
    Answer,
    Kubectl,
    Refused,
    document,
    findings_of,
    is_about,
    items_of,
)
from wirespeed.model.records import Finding
from wirespeed.node.redact import is_secret, redact_value


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
    reviews = [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"namespace": kubectl.namespace, **asdict(one)}},
        }
        for one in rights
    ]
    answer = kubectl.ask("create", "-f", "-", "-o", "json", stdin=_list(reviews))
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


_SERVERS = frozenset(
    {"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink"}
)
"""Metadata that only the server writes."""
_LONGEST = 60
_ABSENT = object()
Action = Literal["create", "change", "remove", "keep"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One value; `None` where there is none."""

    path: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        return f"{self.path}: {self.old or 'nothing'} -> {self.new or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one object."""

    action: Action
    kind: str
    name: str
    differences: tuple[Difference, ...] = ()

    def __str__(self) -> str:
        """`change StatefulSet demo: spec.replicas: 2 -> 3, and 2 more`."""
        head = f"{self.action} {self.kind} {self.name}"
        if not self.differences:
            return head
        more = f", and {len(self.differences) - 1} more" if self.differences[1:] else ""
        return f"{head}: {self.differences[0]}{more}"


def changes(
    live: Sequence[Mapping[str, Any]], tried: Sequence[Mapping[str, Any]]
) -> tuple[Change, ...]:
    """By object of the dry run, in its order."""
    there = {_key(one): one for one in live}
    return tuple(_change(there.get(_key(one)), one) for one in tried)


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], *, only_of_new: bool = False
) -> tuple[Difference, ...]:
    """All values that differ. only_of_new: where `new` says nothing, nothing differs."""
    return tuple(_walk(old, new, "", only_of_new))


def frozen_part(told: Mapping[str, Any]) -> dict[str, Any]:
    """What Kubernetes does not let change: of a StatefulSet most of its spec, of others all of it."""
    spec = told.get("spec") or {}
    if told["kind"] != "StatefulSet":
        return {"spec": spec}
    free = ("replicas", "template", "updateStrategy")
    return {"spec": {key: part for key, part in spec.items() if key not in free}}


def _key(told: Mapping[str, Any]) -> tuple[str, str]:
    return told["kind"], told["metadata"]["name"]


def _change(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Change:
    kind, name = _key(new)
    if old is None:
        return Change("create", kind, name)
    found = differences(_own(old), _own(new))
    return Change("change" if found else "keep", kind, name, found)


def _own(told: Mapping[str, Any]) -> dict[str, Any]:
    meta = {key: part for key, part in told["metadata"].items() if key not in _SERVERS}
    return {**{k: part for k, part in told.items() if k != "status"}, "metadata": meta}


def _walk(old: Any, new: Any, path: str, only: bool) -> Iterator[Difference]:
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        yield from _walk_mapping(old, new, path, only)
    elif isinstance(new, list) and isinstance(old, list):
        left, right = _by_name(old), _by_name(new)
        yield from _walk_mapping(left, right, path, only, listed=True)
    elif isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        yield from _walk_lines(old, new, path)
    elif not _same(old, new, path):
        yield Difference(path, _shown(old, path), _shown(new, path))


def _walk_lines(old: str, new: str, path: str) -> Iterator[Difference]:
    """The first line of a text that differs; of a script the rest says little more."""
    pairs = zip_longest(old.splitlines(), new.splitlines(), fillvalue=_ABSENT)
    for number, (left, right) in enumerate(pairs, 1):
        if left != right:
            yield Difference(f"{path} line {number}", _shown(left, path), _shown(right, path))
            return


def _walk_mapping(
    old: Mapping[str, Any], new: Mapping[str, Any], path: str, only: bool, listed: bool = False
) -> Iterator[Difference]:
    keys = list(new) if only else list(dict.fromkeys([*old, *new]))
    for key in keys:
        below = f"{path}[{key}]" if listed else f"{path}.{key}" if path else key
        yield from _walk(old.get(key, _ABSENT), new.get(key, _ABSENT), below, only)


def _by_name(items: Sequence[Any]) -> dict[str, Any]:
    """A list's elements by their name, as Kubernetes merges them; else by their place."""
    found: dict[str, Any] = {}
    for index, one in enumerate(items):
        name = None
        if isinstance(one, Mapping):
            name = one.get("name") or (one.get("metadata") or {}).get("name")
        found[str(name) if name and str(name) not in found else str(index)] = one
    return found


def _same(old: Any, new: Any, path: str) -> bool:
    if old == new:
        return True
    amounts = ".requests." in path or ".limits." in path or ".resources." in path
    return amounts and isinstance(new, str) and quantity(old) == quantity(new) != 0


def _shown(value: Any, path: str) -> str | None:
    """Short, on one line; what a variable with a telling name holds is not shown."""
    if value is _ABSENT:
        return None
    variable = path.rpartition(".env[")[2].partition("]")[0] if ".env[" in path else ""
    if variable and is_secret(variable):
        return "***"
    text = " ".join(redact_value(value if isinstance(value, str) else _brief(value)).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _brief(value: Any) -> str:
    if isinstance(value, Mapping):
        keys = ", ".join(str(key) for key in list(value)[:4])
        return f"{{{keys}{', …' if len(value) > 4 else ''}}}"
    if isinstance(value, list):
        return f"{len(value)} items"
    return str(value)


_APPLY = ("apply", "--server-side", "--force-conflicts", "--field-manager=wirespeed", "-f", "-")
"""Only objects with our labels are applied; of those the cluster file is the truth, so that a replica
count that somebody has changed by `kubectl scale` is put back (and shown)."""
_APPLY_S = 60.0
_PROBE = "wirespeed-try"


@dataclass(frozen=True, slots=True)
class Trial:
    """What the server says of objects without keeping them."""

    objects: tuple[dict[str, Any], ...] = ()
    """As they would be kept, without the probe; empty where any was refused."""
    refusals: tuple[Finding, ...] = ()
    probe: tuple[Finding, ...] = ()
    """Of the probe pod: what would stop the pods themselves."""


def probe_pod(template: Mapping[str, Any], account: str) -> dict[str, Any]:
    """A pod that is only tried out: quotas and policies look at pods, not at what makes them.

    account: one that is there already, since ours may not be made yet.
    """
    spec = {**template["spec"], "serviceAccountName": account}
    mounted = {"workspace", "datasets"}
    have = {one["name"] for one in spec.get("volumes", ())}
    # A StatefulSet adds the volumes of its claims itself.
    lacking = [{"name": name, "emptyDir": {}} for name in sorted(mounted - have)]
    spec["volumes"] = [*spec.get("volumes", ()), *lacking]
    metadata = {**template["metadata"], "name": _PROBE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def try_out(
    kubectl: Kubectl, objects: Sequence[Mapping[str, Any]], probe: Mapping[str, Any] | None
) -> Trial:
    """Server-side dry run of all in one call; nothing is kept. Never raises for a refusal."""
    wanted = [*objects, probe] if probe else list(objects)
    answer = kubectl.ask(
        *_APPLY, "--dry-run=server", "-o", "json", stdin=_list(wanted), within_s=_APPLY_S
    )
    if answer.code == 0:
        return Trial(tuple(one for one in items_of(answer) if one["metadata"]["name"] != _PROBE))
    found = findings_of(answer)
    of_probe = tuple(one for one in found if f'"{_PROBE}"' in one.saw)
    refusals = tuple(one for one in found if one not in of_probe)
    # A user who may not make pods directly may still make what makes them.
    probed = tuple(one for one in of_probe if not is_about(one, "006"))
    if refusals or probed or not of_probe or probe is None:
        return Trial((), refusals, probed)
    return try_out(kubectl, objects, None)


def apply(kubectl: Kubectl, objects: Sequence[Mapping[str, Any]]) -> None:
    """Make them so. Raises Refused."""
    answer = kubectl.ask(*_APPLY, stdin=_list(objects), within_s=_APPLY_S)
    if answer.code != 0:
        raise Refused(answer)


def explained(
    finding: Finding, objects: Sequence[Mapping[str, Any]], live: Sequence[Mapping[str, Any]]
) -> Finding:
    """With what only we can add: which fields cannot be changed, and the way out without data loss."""
    if not is_about(finding, "023"):
        return finding
    there = {_key(one): one for one in live}
    pairs = [
        (there[key], one)
        for one in objects
        if (key := _key(one)) in there and f'{key[0]} "{key[1]}"' in finding.saw
    ]
    found = [
        one
        for old, new in pairs
        for one in differences(frozen_part(old), frozen_part(new), only_of_new=True)
    ]
    fix = "deploy again with --recreate: pods are made anew, claims and their data stay"
    if pairs and pairs[-1][1]["kind"] == "PersistentVolumeClaim":
        fix = "set it back; or `clean --claims`, which deletes the data, and deploy again"
    told = tuple(str(one) for one in found)
    because = f"Kubernetes does not change {told[0]}" if told else finding.because
    return replace(finding, because=because, fix=fix, evidence=(*told, *finding.evidence))


def with_rights(
    kubectl: Kubectl, found: Sequence[Finding], objects: Sequence[Mapping[str, Any]]
) -> list[Finding]:
    """One finding for all rights that are missing, in place of one for each object refused."""
    refused = [one for one in found if is_about(one, "006")]
    if not refused:
        return list(found)
    listed = ", ".join(str(one) for one in missing_rights(kubectl, _rights(objects)))
    whole = replace(
        refused[0],
        because=f"missing in namespace {kubectl.namespace}: {listed}" if listed else "",
        next=f"kubectl auth can-i --list --namespace {kubectl.namespace}",
        evidence=tuple(one.saw for one in refused[1:]),
    )
    return [whole, *(one for one in found if one not in refused)]


def _rights(objects: Sequence[Mapping[str, Any]]) -> list[Right]:
    """To deploy and look after it: each kind's, and those for pods."""
    groups = {one["kind"]: one["apiVersion"].rpartition("/")[0] for one in objects}
    verbs = ("get", "list", "create", "patch", "delete")
    found = [Right(v, _plural(kind), group) for kind, group in groups.items() for v in verbs]
    return [*found, *(Right(*words.split()) for words in _LOOKING)]


_LOOKING = ("list pods", "list events", "get pods", "get pods/log", "create pods/exec")


def _plural(kind: str) -> str:
    """Of the kinds that we make."""
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


def _list(objects: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
