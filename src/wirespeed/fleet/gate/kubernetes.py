"""Kubernetes' side of a gate: the node's condition WirespeedHealthy, an Event when it changes, a taint.

Asked from a pod, by the API and with its ServiceAccount's token. The condition takes nothing away; the
taint `wirespeed/gate:NoSchedule` keeps new pods off the node, and goes with a label by which nodes that
are out can be counted without reading every node.
"""

import json
import os
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

from wirespeed.errors import CannotMeasure, harmless
from wirespeed.fleet.gate.decision import Decision, Fleet, Memory, Standing
from wirespeed.node.reading import read_whole

CONDITION, KEY = "WirespeedHealthy", "wirespeed/gate"
_SINCE = "wirespeed/gate-since"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CALL_S = 2.0
_LARGEST = 64 << 20
_TRIES = 3
_CONFLICT = 409
_MERGE, _STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
"""Without the objects: a line of some 200 bytes a node."""
_STATUS = {"good": "True", "bad": "False", "unknown": "Unknown"}
_MOST_LETTERS = 400


class Kubernetes:
    """One node, as the API server knows it. All calls are bounded and raise CannotMeasure."""

    def __init__(self, node: str, address: tuple[str, int], token: str, *, taint: bool) -> None:
        self.node, self._taint = node, taint
        self._address, self._token = address, token
        self._path = f"/api/v1/nodes/{quote(node, safe='')}"
        self._trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    @classmethod
    def here(cls, node: str, *, taint: bool) -> "Kubernetes":
        """The cluster that this pod runs in."""
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{one}", "") for one in ("HOST", "PORT"))
        try:
            token = read_whole(_ACCOUNT / "token", 1 << 20).decode().strip()
            made = cls(node, (host, int(port)), token, taint=taint)
            made._trust.load_verify_locations(_ACCOUNT / "ca.crt")
        except (OSError, ValueError) as error:
            raise CannotMeasure(
                f"this is no pod with an account of its own: {error}",
                expected="a pod of `wirespeed cluster gate`",
                next="wirespeed cluster gate NAME",
            ) from error
        return made

    def standing(self, memory: Memory) -> Standing:
        """Out by our taint, or where none is asked for by our condition: nobody else sets these."""
        node = self._ask("GET", self._path)
        condition = _condition(node)
        out = condition.get("status") == "False"
        if self._taint:
            out = any(one.get("key") == KEY for one in _taints(node))
        return Standing(out=out, ours=out, reason=condition.get("message", ""))

    def fleet(self) -> Fleet:
        """Only a taint takes nodes away; without it none is counted."""
        if not self._taint:
            return Fleet(nodes=1)
        told = self._ask("GET", "/api/v1/nodes?includeObject=None", accept=_TABLE)
        nodes = len(told.get("rows") or ())
        taken = tuple(name for _, name in self._taken() if name != self.node)
        return Fleet(nodes=nodes, taken=taken)

    def place(self) -> int:
        """How many others were tainted before this node."""
        names = [name for _, name in self._taken()] if self._taint else []
        return names.index(self.node) if self.node in names else 0

    def _taken(self) -> list[tuple[str, str]]:
        query = f"/api/v1/nodes?labelSelector={quote(f'{KEY}=bad', safe='')}"
        told = self._ask("GET", query, accept=_METADATA)
        found = (one["metadata"] for one in (told.get("items") or ()))
        return sorted((one.get("annotations", {}).get(_SINCE, ""), one["name"]) for one in found)

    def take(self, why: str) -> None:
        if self._taint:
            self._mark({"key": KEY, "value": "bad", "effect": "NoSchedule"})

    def give_back(self) -> None:
        if self._taint:
            self._mark(None)

    def told(self, decision: Decision) -> None:
        """The condition, whatever it is; where it has changed, an Event beside it."""
        status = "False" if decision.refuses else _STATUS[decision.health]
        node, now = self._ask("GET", self._path), _now()
        before = _condition(node)
        changed = before.get("status") != status
        message = harmless(decision.why)[:_MOST_LETTERS] or "nothing is wrong with it"
        condition = {
            "type": CONDITION,
            "status": status,
            "reason": f"Gate{decision.act.title()}",
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now if changed else before.get("lastTransitionTime", now),
        }
        body = {"status": {"conditions": [condition]}}
        self._ask("PATCH", f"{self._path}/status", body, kind=_STRATEGIC)
        if changed and not (status == "True" and not before):
            self._ask("POST", "/api/v1/namespaces/default/events", self._event(condition))

    def _event(self, condition: Mapping[str, str]) -> dict[str, Any]:
        now = condition["lastTransitionTime"]
        return {
            "metadata": {"generateName": "wirespeed-gate-", "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": self.node, "uid": self.node},
            "type": "Normal" if condition["status"] == "True" else "Warning",
            "reason": condition["reason"],
            "message": condition["message"],
            "source": {"component": "wirespeed-gate", "host": self.node},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }

    def _mark(self, taint: dict[str, str] | None) -> None:
        """Set our taint, or none of ours; the others stay, also those that come meanwhile."""
        for attempt in range(_TRIES):
            node = self._ask("GET", self._path)
            others = [one for one in _taints(node) if one["key"] != KEY]
            body = {
                "metadata": {
                    "resourceVersion": node["metadata"]["resourceVersion"],
                    "labels": {KEY: "bad" if taint else None},
                    "annotations": {_SINCE: _now() if taint else None},
                },
                "spec": {"taints": [*others, *([taint] if taint else [])]},
            }
            last = attempt + 1 == _TRIES
            if self._ask("PATCH", self._path, body, kind=_MERGE, again=not last):
                return

    def _ask(
        self,
        verb: str,
        path: str,
        body: object = None,
        *,
        kind: str = "application/json",
        accept: str = "application/json",
        again: bool = False,
    ) -> dict[str, Any]:
        """What the server answers. again: for a conflict nothing, so that it is tried again."""
        connection = HTTPSConnection(*self._address, timeout=_CALL_S, context=self._trust)
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Accept": accept,
            "Content-Type": kind,
        }
        try:
            connection.request(verb, path, json.dumps(body) if body else None, headers)
            with connection.getresponse() as answer:
                told = json.loads(answer.read(_LARGEST))
        except (OSError, HTTPException, ValueError) as error:
            raise CannotMeasure(
                f"the API server gives no answer: {error}", expected="an answer in 2 s"
            ) from error
        finally:
            connection.close()
        if answer.status == _CONFLICT and again:
            return {}
        if answer.status >= 400 or not isinstance(told, dict):
            said = told.get("message", "") if isinstance(told, dict) else ""
            raise CannotMeasure(
                f"the API server refuses ({answer.status}): {harmless(str(said))[:300]}",
                expected="the rights that `wirespeed cluster gate` gives",
                next=f"kubectl auth can-i patch nodes/status --as system:serviceaccount:{_who()}",
            )
        return told


def _condition(node: Mapping[str, Any]) -> dict[str, str]:
    found = node.get("status", {}).get("conditions", ())
    return next((dict(one) for one in found if one.get("type") == CONDITION), {})


def _taints(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Go writes an empty list as null."""
    return list(node.get("spec", {}).get("taints") or ())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _who() -> str:
    try:
        return f"{(_ACCOUNT / 'namespace').read_text().strip()}:NAME-gate"
    except OSError:
        return "NAMESPACE:NAME-gate"
