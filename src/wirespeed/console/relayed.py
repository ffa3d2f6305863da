"""`python -m wirespeed.console.relayed`: one rank of a plan that `wirespeed … --on ENGINE` started.

The plan comes in the variable WIRESPEED_JOB, as compressed JSON: it needs no file on the node and
no shell reads it.
"""

import base64
import json
import os
import sys
import zlib
from collections.abc import Mapping, MutableMapping
from typing import Any

from wirespeed.errors import UsageError, WirespeedError
from wirespeed.plan import Plan

__all__ = ["VARIABLE", "apply_settings", "main", "order", "read_order"]

VARIABLE = "WIRESPEED_JOB"


def order(plan: Plan, backend: str, settings: Mapping[str, str | None] | None = None) -> str:
    """What a rank must know, as one word of letters, digits, `-`, `_` and `=`.

    settings: variables to set, or (None) to take away, before any library reads them.
    """
    told = {"plan": plan.to_json(), "backend": backend, "settings": dict(settings or {})}
    text = json.dumps(told)
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode()


def read_order(text: str) -> tuple[Plan, str]:
    """Plan and backend; UsageError for anything else than `order` gave."""
    try:
        data = _parts(text)
        return Plan.from_json(data["plan"]), str(data["backend"])
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise UsageError(
            f"{VARIABLE} holds no plan: {error}",
            expected="to be started by `wirespeed check --on …` of the same version",
        ) from error


def _parts(text: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(zlib.decompress(base64.urlsafe_b64decode(text)))
    return data


def apply_settings(text: str, environ: MutableMapping[str, str]) -> None:
    """Put the order's settings into `environ`, whatever the engine and the node have made of it."""
    for name, value in _parts(text).get("settings", {}).items():
        if value is None:
            environ.pop(name, None)
        else:
            environ[name] = value


def main() -> int:
    """Run this rank; its exit code. Rank 0 hands on what all ranks say."""
    try:
        return _run()
    except WirespeedError as error:
        sys.stderr.write(f"wirespeed: {error}\n")
        return error.exit_code


def _run() -> int:
    from wirespeed.console.member import carry_rank_in_environment, run_member
    from wirespeed.console.relay import Relay
    from wirespeed.world.identity import detect
    from wirespeed.world.local import require_torch
    from wirespeed.world.mistaken import refuse_separate_worlds
    from wirespeed.world.secret import job_secret

    secret = job_secret(os.environ)
    plan, backend = read_order(os.environ.get(VARIABLE, ""))
    apply_settings(os.environ[VARIABLE], os.environ)
    identity = detect(os.environ)
    refuse_separate_worlds(os.environ, identity)
    if identity is None:
        raise UsageError("no launcher has given this process a rank", expected="RANK and such")
    if not plan.facts_only:
        require_torch()
    carry_rank_in_environment(identity, secret)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return run_member(identity, plan, backend, lambda: Relay(identity.reason), secret)


if __name__ == "__main__":
    sys.exit(main())
