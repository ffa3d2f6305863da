"""What a container runtime's words say of an image that does not come."""

import re

__all__ = ["IMAGE_REASONS", "image_trouble"]

IMAGE_REASONS = frozenset(
    {
        *("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"),
        *("ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"),
    }
)
"""Of a waiting container, as kubelets tell them."""
_SOON_S, _LATER_S = 5.0, 15.0
_WORDS: tuple[tuple[str, str, str, float], ...] = (
    (
        r"InvalidImageName|invalid reference format",
        "its name is none that a registry could have",
        "correct workload.image",
        0.0,
    ),
    (
        r"ErrImageNeverPull|is not present with pull policy of Never",
        "the node does not have it, and workload.image_pull_policy is Never",
        "load it into every node, or another image_pull_policy",
        0.0,
    ),
    (
        r"unauthorized|denied|authentication required|no basic auth|401|403 Forbidden",
        "the registry wants a login, or has no such image",
        "workload.image_pull_secrets with a secret that may read it",
        _SOON_S,
    ),
    (
        r"x509|certificate",
        "the node does not accept the registry's certificate",
        "let the nodes know the registry's authority",
        _SOON_S,
    ),
    (
        r"toomanyrequests|rate limit",
        "the registry limits how often it may be asked",
        "workload.image_pull_secrets with a login of more rights, or a mirror",
        _LATER_S,
    ),
    (r"no space left", "the node's disk is full", "make room on the node", _SOON_S),
    (
        r"no match for platform|exec format",
        "it is not made for the node's kind of processor",
        "an image for the nodes' architecture",
        _SOON_S,
    ),
    (
        r"no such host|connection refused|timeout|timed out|unreachable|no route|EOF|reset by peer",
        "the node cannot reach the registry",
        "is the registry's name right, and can the nodes reach it? IfNotPresent takes an image that is "
        "on the node already",
        _LATER_S,
    ),
    (
        r"not found|manifest unknown|NotFound|does not exist",
        "the registry has no such image",
        "correct workload.image, or push it",
        _SOON_S,
    ),
)


def image_trouble(reason: str, message: str) -> tuple[str, str, float]:
    """Cause, fix, and seconds for which it may still pass."""
    for pattern, cause, fix, patience_s in _WORDS:
        if re.search(pattern, f"{reason} {message}"):
            return cause, fix, patience_s
    return "the runtime could not get it", "correct workload.image", _LATER_S
