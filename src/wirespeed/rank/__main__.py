"""`python -m wirespeed.rank`: all local ranks of a world, or one where RANK is set; not for hands."""

import os
import sys

from wirespeed.rank.program import leave_at_once, run_local_rank


def main() -> int:
    if "WIRESPEED_BACKEND" not in os.environ:
        sys.stderr.write("this program is started by wirespeed, not by hand\n")
        return 2
    if "RANK" not in os.environ:
        from wirespeed.rank.forked import fork_ranks

        return fork_ranks(sys.argv[1:])

    run_local_rank()
    return 0


if __name__ == "__main__":
    leave_at_once(main())
