"""How two ends of a connection show each other that they know a key, which neither sends.

The caller sends a nonce, the called end one of its own and its proof, then the caller its proof; a
proof is an HMAC-SHA256 over both nonces and the role, cut to 16 bytes (RFC 2104, section 5).
"""

import hmac
import os
import socket
import time

from wirespeed.world.network.callers import take

__all__ = ["PROOF_BYTES", "admits", "call", "proof"]

PROOF_BYTES = 16
_CALLER, _CALLED = b"caller", b"called"
_TRIES, _PAUSE_S = 10, 0.1


def call(address: str, port: int, key: bytes, seconds: float) -> socket.socket:
    """A connection to an end that knows the key. OSError within `seconds` when nobody answers.

    Who hangs up is called again a few times: in a crowd it may have taken us for a stranger.
    """
    for _ in range(_TRIES):
        line = socket.create_connection((address, port), seconds)
        try:
            if _introduced(line, key):
                return line
        except ConnectionError:
            line.close()
            time.sleep(_PAUSE_S)
            continue
        except OSError:
            line.close()
            raise
        line.close()
        break
    raise ConnectionError("another program answered")


def _introduced(line: socket.socket, key: bytes) -> bool:
    """The caller's part: whether the other end knows the key. OSError when it hangs up or is silent."""
    mine = os.urandom(PROOF_BYTES)
    line.sendall(mine)
    answer = take(line, 2 * PROOF_BYTES)
    nonces = mine + answer[:PROOF_BYTES]
    if not hmac.compare_digest(answer[PROOF_BYTES:], proof(key, _CALLED + nonces)):
        return False
    line.sendall(proof(key, _CALLER + nonces))
    return True


def admits(line: socket.socket, key: bytes) -> bool:
    """The called end's part: whether the caller knows the key. OSError likewise."""
    theirs, mine = take(line, PROOF_BYTES), os.urandom(PROOF_BYTES)
    line.sendall(mine + proof(key, _CALLED + theirs + mine))
    return hmac.compare_digest(take(line, PROOF_BYTES), proof(key, _CALLER + theirs + mine))


def proof(key: bytes, text: bytes) -> bytes:
    """16 bytes that only who knows the key can make of that text."""
    return hmac.digest(key, text, "sha256")[:PROOF_BYTES]
