"""`python -m wirespeed.console.relayed`: one rank of a plan that `wirespeed … --on ENGINE` started.

The plan comes in the variable WIRESPEED_JOB, as compressed JSON: it needs no file on the node and
no shell reads it.
"""

import base64
import json
import os
import sys
import zlib
from typing import Any

from wirespeed.errors import UsageError, WirespeedError
from wirespeed.plan import Plan

__all__ = ["VARIABLE", "main", "order", "read_order"]

VARIABLE = "WIRESPEED_JOB"


def order(plan: Plan, backend: str) -> str:
    """What a rank must know, as one word of letters, digits, `-`, `_` and `=`."""
    text = json.dumps({"plan": plan.to_json(), "backend": backend})
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode()


def read_order(text: str) -> tuple[Plan, str]:
    """Plan and backend; UsageError for anything else than `order` gave."""
    try:
        data: dict[str, Any] = json.loads(zlib.decompress(base64.urlsafe_b64decode(text)))
        return Plan.from_json(data["plan"]), str(data["backend"])
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise UsageError(
            f"{VARIABLE} holds no plan: {error}",
            expected="to be started by `wirespeed check --on …` of the same version",
        ) from error


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

    plan, backend = read_order(os.environ.get(VARIABLE, ""))
    identity = detect(os.environ)
    refuse_separate_worlds(os.environ, identity)
    if identity is None:
        raise UsageError("no launcher has given this process a rank", expected="RANK and such")
    if not plan.facts_only:
        require_torch()
    carry_rank_in_environment(identity)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return run_member(identity, plan, backend, lambda: Relay(identity.reason))


if __name__ == "__main__":
    sys.exit(main())
