"""What DeepSpeed may be given of a job's environment, and how.

Its pdsh launcher starts a node with `export NAME=VALUE; …` on ssh's command line, visible to all in
the list of processes of both machines. The pairs come from two places: the file that DS_ENV_FILE
names, a pair a line, and the launching process's own variables of some families. A value of other
than harmless characters is put between double quotes, without any care for what it holds
(deepspeed/launcher/runner.py and multinode_runner.py, `add_export`). With other launchers the pairs
are words of their own (`-x NAME=VALUE`, `-genv`, `--export=`), the quotes included.
"""

import re
import shlex
from collections.abc import Mapping

from wirespeed.errors import UsageError
from wirespeed.launchers.forwarding import forwarded
from wirespeed.world.redact import allowed_environment, is_secret, redact_value

__all__ = ["env_file", "names_of", "not_for_command_lines", "refuse_secrets"]

_OWN = re.compile(r"WIRESPEED_\w+")
_FAMILIES = ("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL")
"""Prefixes of what DeepSpeed exports unasked: EXPORT_ENVS of its runner, and its CUDA part's NCCL."""
_UNQUOTED = re.compile(r"[\w@%+=:,./-]*")
"""Values that `add_export` leaves as they are."""
_HARMLESS = re.compile(r"[^\"$`\\\n]*")
"""Values that mean themselves between double quotes."""


def refuse_secrets(environment: Mapping[str, str]) -> None:
    """UsageError for variables that may not stand on a command line."""
    shown = _may_be_shown(environment)
    bad = sorted(set(environment) - set(shown))
    if bad:
        raise UsageError(
            f"DeepSpeed with pdsh would show the value of {', '.join(bad)} in every node's list "
            "of processes",
            expected="with it only variables of known families without secrets (NCCL_*, GLOO_*, …)",
            next="--on ssh, or --with launcher=openmpi; or have the program read it from a file",
        )


def not_for_command_lines(environ: Mapping[str, str]) -> list[str]:
    """Names that DeepSpeed would export unasked, though their values are secret or not harmless."""
    families = {name: value for name, value in environ.items() if name.startswith(_FAMILIES)}
    return sorted(
        name
        for name, value in families.items()
        if is_secret(name) or redact_value(value) != value or not _HARMLESS.fullmatch(value)
    )


def env_file(environment: Mapping[str, str], *, quoted: bool) -> str:
    """The text of DS_ENV_FILE that makes these variables arrive unchanged.

    `quoted`: pdsh's form, where a shell reads the lines; else only plain values are written, and the
    rest goes by name (`names_of`). UsageError for a value that has no such line.
    """
    lines = []
    for name, value in sorted(environment.items()):
        if quoted:
            lines.append(f"{name}={_for_shell(name, value)}")
        elif name not in names_of({name: value}):
            lines.append(f"{name}={value}")
    return "".join(f"{line}\n" for line in lines)


def names_of(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that an mpirun is told by name only; UsageError where DeepSpeed spoils the value."""
    shown = _may_be_shown(environment)
    names = tuple(
        name
        for name, value in sorted(environment.items())
        if name not in shown or not _UNQUOTED.fullmatch(value)
    )
    for name in names:
        if name.startswith(_FAMILIES):
            raise UsageError(
                f"{name}: DeepSpeed exports it by itself, and its value would be shown or arrive "
                "in quotes",
                expected="letters, digits and @%+=:,./-_ with this launcher",
                next="--on mpi, or --with launcher=pdsh",
            )
    return names


def _may_be_shown(environment: Mapping[str, str]) -> dict[str, str]:
    """Of known families, with a value that holds no secret."""
    known = {**forwarded(environment), **allowed_environment(environment)}
    return {
        name: value
        for name, value in environment.items()
        if _OWN.fullmatch(name) or (name in (*known, "PYTHONPATH") and redact_value(value) == value)
    }


def _for_shell(name: str, value: str) -> str:
    """What DeepSpeed, pdsh and a shell together make `value` of.

    pdsh replaces `%h` and the like, and makes `%` of `%%`. Where DeepSpeed adds double quotes, our
    own end them at once, so that the value stands between single ones.
    """
    if any(character in value for character in "\n\r\0"):
        raise UsageError(
            f"{name}: DeepSpeed's environment file cannot hold a value with a line break",
            expected="one line",
            next="--on ssh",
        )
    plain = value.replace("%", "%%")
    return plain if _UNQUOTED.fullmatch(plain) else f'"{shlex.quote(plain)}"'
