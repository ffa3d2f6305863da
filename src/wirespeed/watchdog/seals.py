"""Who lacks the run's key can say no line, nor change, repeat or reorder those of others.

The session greets each caller with a nonce. The rank's `Hello`, sealed with a key that is made of the
run's key and that nonce, brings a nonce of its own; every later line is sealed with a key made of both,
one for each direction. A seal is an HMAC-SHA256 over the line and its number in its direction, cut to
16 bytes (RFC 2104, section 5), and stands before the line. The run's key itself is never sent.
"""

import hmac

from wirespeed.watchdog.protocol import ProtocolError

__all__ = ["SEAL_BYTES", "LineSeal", "hello_seal", "session_seals"]

SEAL_BYTES = 32
"""What a seal adds to a line: 16 bytes in hexadecimal."""
_COUNTER_BYTES = 8


class LineSeal:
    """One direction of one connection; both ends make the same one and count the lines."""

    def __init__(self, token: str, *purpose: str) -> None:
        key = hmac.digest(token.encode(), "\n".join(purpose).encode(), "sha256")
        self._keyed = hmac.new(key, digestmod="sha256")
        self._number = 0

    def sealed(self, line: bytes) -> bytes:
        """The next line to send; `line` with its newline."""
        return self._next(line[:-1]) + line

    def opened(self, line: bytes) -> bytes:
        """The next line that came, without its newline. Raises ProtocolError for a wrong seal."""
        seal, text = line[:SEAL_BYTES], line[SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._next(text)):
            raise ProtocolError("a line without the seal of this run")
        return text

    def _next(self, line: bytes) -> bytes:
        mac = self._keyed.copy()
        mac.update(self._number.to_bytes(_COUNTER_BYTES, "big"))
        mac.update(line)
        self._number += 1
        return mac.hexdigest()[:SEAL_BYTES].encode()


def hello_seal(token: str, greeted: str) -> LineSeal:
    """For the rank's first line; `greeted`: the session's nonce."""
    return LineSeal(token, "hello", greeted)


def session_seals(token: str, greeted: str, nonce: str) -> tuple[LineSeal, LineSeal]:
    """(to the session, to the rank) for all that follows a hello, which brought `nonce`."""
    to_session = LineSeal(token, "to the session", greeted, nonce)
    return to_session, LineSeal(token, "to the rank", greeted, nonce)
