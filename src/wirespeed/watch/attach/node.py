"""What a far node runs: the look at its ranks, printed as one line of JSON.

python -P -m wirespeed.watch.attach.node '{"seconds": 3.0, "native": false}'
"""

import sys

import msgspec

from wirespeed.errors import WirespeedError
from wirespeed.watch.attach.look import NodeLook, look
from wirespeed.watch.attach.ranks import find_job


class Asked(msgspec.Struct, frozen=True):
    seconds: float
    native: bool = False
    match: str = ""


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    look: NodeLook | None = None
    why: str = ""
    """Why there is none."""


def main(words: str) -> None:
    asked = msgspec.json.decode(words, type=Asked)
    try:
        chosen = find_job(asked.match)
        known = {"ended": chosen.ended, "beside": chosen.beside}
        told = Told(look=look(chosen.ranks, asked.seconds, native=asked.native, **known))
    except WirespeedError as error:
        told = Told(why=f"{error.saw}; {error.next}" if error.next else error.saw)
    sys.stdout.write(f"{msgspec.json.encode(told).decode()}\n")


if __name__ == "__main__":
    main(sys.argv[1])
