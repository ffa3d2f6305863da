"""`python -m wirespeed.watch train.py ARGUMENTS`: the program as a rank of its job, watched.

For launchers that start the ranks by themselves: `torchrun … -m wirespeed.watch train.py`. The
process becomes the program, so that its signals and its exit code are the program's own.
"""

import os
import sys
from typing import NoReturn

from wirespeed.launchers.watch_relay import VARIABLE
from wirespeed.watch.beside import watched_environment

_USAGE = """usage: python -m wirespeed.watch SCRIPT [ARGUMENTS ...]
       python -m wirespeed.watch -m MODULE [ARGUMENTS ...]

Runs a training program as it would run by `python`, and watches it: who is late or hangs, since when,
what it costs. Under a launcher it is each rank's program:

  torchrun --nproc-per-node 4 -m wirespeed.watch train.py --lr 0.1
  srun -n 16 python -m wirespeed.watch -m my.training

Rank 0 tells on stderr; `wirespeed runs show last` afterwards. Where we start the ranks:
  wirespeed launch --watch --ranks 4 -- python train.py
"""


def main(arguments: list[str]) -> NoReturn:
    if not arguments or arguments[0] in ("-h", "--help"):
        (sys.stdout if arguments else sys.stderr).write(_USAGE)
        sys.exit(0 if arguments else 2)
    environment = dict(os.environ)
    if not environment.get(VARIABLE):
        try:
            environment = watched_environment(environment)
        except Exception as error:  # whatever it is, it is no reason not to train
            sys.stderr.write(
                f"wirespeed: {error}\nwirespeed: the program runs, and is not watched\n"
            )
    os.execve(sys.executable, [sys.executable, *arguments], environment)


if __name__ == "__main__":
    main(sys.argv[1:])
