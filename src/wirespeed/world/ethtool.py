"""What the driver of a network interface tells: the highest speed that it supports, its statistics.

Requests (ETHTOOL_GLINKSETTINGS, ETHTOOL_GSTATS …), structures and the bits of the link modes are
those of
include/uapi/linux/ethtool.h. The kernel is asked first how much it will write, then it writes it.
"""

import array
import fcntl
import socket
import struct

__all__ = ["fastest_mode", "statistics", "supported_Gbitps"]

_SIOCETHTOOL = 0x8946
_GLINKSETTINGS = 0x4C
_GSSET_INFO, _GSTRINGS, _GSTATS = 0x37, 0x1B, 0x1D
_STATISTICS = 1
"""ETH_SS_STATS: the set of strings that names them."""
_NAME = 32
_SLACK = 4096
"""More statistics than were counted: a queue may be added before they are written."""
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


def statistics(name: str) -> dict[str, int]:
    """The driver's own statistics of an interface, by the names that it gives them.

    None at all for a driver that keeps none. Raises OSError where it does not answer.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        request = struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _STATISTICS, 0)
        _, _, known, count = struct.unpack("=IIQI", _told(asking, name, request))
        if not known or not count:
            return {}
        room = count + _SLACK
        header = struct.pack("=III", _GSTRINGS, _STATISTICS, count)
        names = _told(asking, name, header + bytes(_NAME * room))[12:]
        values = _told(asking, name, struct.pack("=II", _GSTATS, count) + bytes(8 * room))
    texts = (names[at : at + _NAME].partition(b"\0")[0] for at in range(0, _NAME * count, _NAME))
    numbers = struct.unpack_from(f"={count}Q", values, 8)
    return dict(zip((text.decode(errors="replace") for text in texts), numbers, strict=True))


def fastest_mode(supported: int) -> float | None:
    """Gbit/s of the fastest mode in a bit mask of link modes."""
    for speed in sorted(_BITS_BY_MBITPS, reverse=True):
        for first, last in _BITS_BY_MBITPS[speed]:
            if supported >> first & ((1 << last - first + 1) - 1):
                return speed / 1000
    return None


def _ask(asking: socket.socket, name: str, request: bytearray, words: int) -> "array.array[int]":
    """One request for link settings; the answer as signed bytes."""
    struct.pack_into("=I", request, 0, _GLINKSETTINGS)
    request[_NWORDS] = words
    return array.array("b", _told(asking, name, bytes(request)))


def _told(asking: socket.socket, name: str, request: bytes) -> bytes:
    """What the kernel makes of a request, which must not move while it writes."""
    buffer = array.array("b", request)
    address, _ = buffer.buffer_info()
    fcntl.ioctl(asking, _SIOCETHTOOL, struct.pack("16sP16x", name.encode()[:15], address))
    return buffer.tobytes()
