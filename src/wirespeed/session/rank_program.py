"""`python -m wirespeed.session.rank_program`: one rank of what `wirespeed … --on ENGINE` started."""

import os
import sys

from wirespeed.errors import UsageError, WirespeedError
from wirespeed.session.record_stream import VARIABLE, RecordStream, apply_settings, read_order


def main() -> int:
    """Run this rank; its exit code. Rank 0 hands on what all ranks say."""
    try:
        return _run()
    except WirespeedError as error:
        sys.stderr.write(f"wirespeed: {error}\n")
        return error.exit_code


def _run() -> int:
    from wirespeed.node.identity import detect
    from wirespeed.node.limits import require_torch
    from wirespeed.node.neighbours import refuse_separate_worlds
    from wirespeed.node.secret import job_secret
    from wirespeed.session.joined_world import carry_rank_in_environment, run_joined

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
    return run_joined(identity, plan, backend, lambda: RecordStream(identity.reason), secret)


if __name__ == "__main__":
    sys.exit(main())
