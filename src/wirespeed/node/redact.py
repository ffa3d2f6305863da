"""The part of the environment that may be stored and shown.

An allow-list of what changes how ranks communicate; of that, nothing whose name speaks of a secret;
and of the rest, no user, password or token that is part of a value.
"""

import re
from collections.abc import Mapping, Sequence

TAKEN_OUT = "  # *** stands for a secret that was taken out: put it back"
"""Follows a command that `redact_words` has changed."""

_ALLOWED = re.compile(
    r"(?:NCCL|GLOO|UCX|OMPI_MCA|FI|TORCH|MASTER)_\w+"
    r"|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_BLOCKING|OMP_NUM_THREADS"
    r"|TP_SOCKET_IFNAME"
)
_SECRET = re.compile(
    r"TOKEN|SECRET|PSK|PASSW|CREDENTIAL|API_?KEY|PRIVATE|(?:^|_)(?:KEY|KEYS|PWD|AUTH)(?:_|$)"
    r"|PRECONDITION_TRANSPORTS",  # Open MPI's key of a job
    re.IGNORECASE,
)
"""NCCL_IB_PKEY, the index of a partition, is not one."""

_URL = re.compile(r"([\w+.-]+://)\S*@")
_USER = re.compile(_URL.pattern + r"|(?<![\w/])[^\s:/@,;=]+:[^\s@]+@")
"""`scheme://user:password@`, up to the last @ of the word, as a password may hold an unescaped
slash, and a bare `user:password@`."""
_QUERY = re.compile(
    r"((?:^|[?&;,\s])[\w-]*(?:token|secret|passw\w*|credential\w*|signature|sig|key)=)[^&;,\s]+",
    re.IGNORECASE,
)
_HIDDEN = "***"
_NO_SECRET = re.compile(
    r"tokens|token_(?:count|type|length|id)|tokeni[sz]|key_value", re.IGNORECASE
)
"""In the names of options: what models read and count."""
_NAME = re.compile(r"-{0,2}[\w.-]+")
_NAMED = re.compile(
    r"(?<![\w.-])(-{0,2}(?=[\w.-]*(?:TOKEN|SECRET|PSK|PASSW|CREDENTIAL|KEY|PRIVATE|PWD|AUTH))"
    r"[A-Za-z][\w.-]*)(=|[\"']\s*:\s*|\s+)('[^']*'|\"[^\"]*\"|\S+)",
    re.IGNORECASE,
)
"""`--token abc`, `TOKEN=abc` or `"token": "abc"` inside one word, such as that of `sh -c`."""
_HEADER = re.compile(
    r"((?:Authorization|Cookie|X-[\w-]*(?:Token|Key|Auth)[\w-]*)\s*:|\bBearer)\s*[^\s'\"][^'\"\n]*",
    re.IGNORECASE,
)


def allowed_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that may be stored, by name, each value through `redact_value`."""
    return {
        name: redact_value(environ[name])
        for name in sorted(environ)
        if _ALLOWED.fullmatch(name) and not is_secret(name)
    }


def is_secret(name: str) -> bool:
    """Whether the name of a variable speaks of a secret."""
    return _SECRET.search(name) is not None


def redact_value(value: str) -> str:
    """`value` with `user:password@` and `token=…` hidden."""
    value = _USER.sub(lambda found: (found[1] or "") + _HIDDEN + "@", value)
    return _QUERY.sub(r"\1" + _HIDDEN, value)


def redact_words(words: Sequence[str]) -> list[str]:
    """A command line that may be stored and shown: what looks like a secret is `***`.

    So are values of options and variables whose names speak of one (`--token=…`, `--password …`,
    `-x API_KEY=…`), `user:password@` of URLs, and headers such as `Authorization: …`.
    """
    told: list[str] = []
    after = False
    for word in words:
        name, equals, _ = word.partition("=")
        if after and not word.startswith("-"):
            told.append(_HIDDEN)
        elif equals and _NAME.fullmatch(name) and _speaks_of_secret(name):
            told.append(f"{name}={_HIDDEN}")
        else:
            inside = _NAMED.sub(_redacted, _HEADER.sub(rf"\1 {_HIDDEN}", word))
            told.append(_URL.sub(rf"\1{_HIDDEN}@", inside))
        after = word.startswith("-") and not equals and _speaks_of_secret(word)
    return told


def _speaks_of_secret(name: str) -> bool:
    name = name.lstrip("-").replace("-", "_").replace(".", "_")
    return is_secret(_NO_SECRET.sub("", name)) and not name.endswith(("_file", "_path", "_dir"))


def _redacted(found: re.Match[str]) -> str:
    name, between, value = found.groups()
    option = name.startswith("-") or not between.isspace()
    quote = value[0] if value[0] in "'\"" else ""
    hidden = f"{name}{between}{quote}{_HIDDEN}{quote}"
    return hidden if option and _speaks_of_secret(name) else found[0]
