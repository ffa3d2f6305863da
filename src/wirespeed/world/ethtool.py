"""The highest speed that a network interface supports: ETHTOOL_GLINKSETTINGS.

Request, structure and the bits of the link modes are those of include/uapi/linux/ethtool.h. The
kernel is asked twice: first it tells how many words its bit masks have, then it fills them.
"""

import array
import fcntl
import socket
import struct

__all__ = ["fastest_mode", "supported_Gbitps"]

_SIOCETHTOOL = 0x8946
_GLINKSETTINGS = 0x4C
_HEADER = 48
"""Bytes of struct ethtool_link_settings before the masks."""
_NWORDS = 15
"""Where in it link_mode_masks_nwords lies, a signed byte."""
_MOST_WORDS = 127
_BITS_BY_MBITPS = {
    10: ((0, 1), (92, 92), (99, 102)),
    100: ((2, 3), (67, 67), (90, 91)),
    1_000: ((4, 5), (17, 17), (41, 41), (68, 68)),
    2_500: ((15, 15), (47, 47)),
    5_000: ((48, 48),),
    10_000: ((12, 12), (18, 20), (42, 46)),
    20_000: ((21, 22),),
    25_000: ((31, 33),),
    40_000: ((23, 26),),
    50_000: ((34, 35), (40, 40), (52, 56)),
    56_000: ((27, 30),),
    100_000: ((36, 39), (57, 61), (75, 79)),
    200_000: ((62, 66), (80, 84), (103, 108)),
    400_000: ((69, 73), (85, 89), (109, 114)),
    800_000: ((93, 98), (115, 120)),
    1_600_000: ((121, 124),),
}
"""First and last bit of each run of link modes of one speed."""


def supported_Gbitps(name: str) -> float | None:
    """Gbit/s of the fastest link mode that an interface supports.

    None: it names no mode, as virtual and InfiniBand interfaces. Raises OSError where the driver
    does not answer.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        words = -_ask(asking, name, bytearray(_HEADER), 0)[_NWORDS]
        if not 0 < words <= _MOST_WORDS:
            return None
        answer = _ask(asking, name, bytearray(_HEADER + 3 * 4 * words), words)
    start = _HEADER
    masks = struct.unpack_from(f"={words}I", answer, start)
    return fastest_mode(sum(mask << 32 * place for place, mask in enumerate(masks)))


def fastest_mode(supported: int) -> float | None:
    """Gbit/s of the fastest mode in a bit mask of link modes."""
    for speed in sorted(_BITS_BY_MBITPS, reverse=True):
        for first, last in _BITS_BY_MBITPS[speed]:
            if supported >> first & ((1 << last - first + 1) - 1):
                return speed / 1000
    return None


def _ask(asking: socket.socket, name: str, request: bytearray, words: int) -> "array.array[int]":
    """One request; the answer as signed bytes. The buffer must not move while the kernel writes."""
    struct.pack_into("=I", request, 0, _GLINKSETTINGS)
    request[_NWORDS] = words
    buffer = array.array("b", bytes(request))
    address, _ = buffer.buffer_info()
    fcntl.ioctl(asking, _SIOCETHTOOL, struct.pack("16sP16x", name.encode()[:15], address))
    return buffer
