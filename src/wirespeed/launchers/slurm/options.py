"""The options of Slurm that `--with` takes: what a value may look like, and who is given it.

Each is one word, `--key=value`, to srun and sbatch (https://slurm.schedmd.com/srun.html). Values are
held to characters that neither Slurm nor the shell of a batch script could take for something else.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from wirespeed.errors import UsageError
from wirespeed.launchers.base import EngineOption

__all__ = ["OPTIONS", "allocating", "checked", "engine_options", "passed", "seconds"]

Scope = Literal["allocation", "step", "both", "ours"]
"""Who takes it: what asks for nodes; what starts ranks on them (pyxis's, for instance, also where
the nodes are ours already); both; or nobody but us."""

_NAME = r"[\w@+][\w.@+-]*"
_TIME = r"\d+(?::\d{1,2}){0,2}|\d+-\d{1,2}(?::\d{1,2}){0,2}|UNLIMITED|INFINITE"
_TEXT = r"[^\x00-\x1f\x7f]+"
_GRES = r"[a-zA-Z]\w*(?:[:/][\w.-]+)*"
_WAIT = re.compile(r"(\d+)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class _Option:
    help: str
    scope: Scope
    pattern: str = ""
    """Empty: a flag."""
    sample: str = ""


OPTIONS: dict[str, _Option] = {
    "partition": _Option("partition", "allocation", rf"{_NAME}(?:,{_NAME})*", "gpu"),
    "account": _Option("account that is charged", "allocation", _NAME, "ml-research"),
    "qos": _Option("quality of service", "allocation", _NAME, "high"),
    "time": _Option("time limit: minutes, H:M:S or D-H:M", "both", _TIME, "2:00:00"),
    "gres": _Option("generic resources of each node", "both", rf"{_GRES}(?:,{_GRES})*", "gpu:8"),
    "gpus-per-node": _Option("GPUs of each node", "both", r"(?:[a-zA-Z][\w.-]*:)?\d+", "h100:8"),
    "cpus-per-task": _Option("cores of each rank", "both", r"[1-9]\d*", "12"),
    "mem": _Option("memory of each node; 0: all of it", "both", r"\d+[KMGT]?", "0"),
    "exclusive": _Option("no other job on these nodes", "allocation"),
    "constraint": _Option(
        "features of the nodes", "allocation", r"[\w(\[][\w.,&|*()\[\]!:@+-]*", "h100&ib"
    ),
    "exclude": _Option("nodes not to use", "allocation", r"\w[\w.,\[\]-]*", "node-7,node-9"),
    "reservation": _Option("reservation", "allocation", rf"{_NAME}(?:,{_NAME})*", "maintenance"),
    "switches": _Option(
        "at most so many leaf switches, and how long to wait for that",
        "allocation",
        rf"\d+(?:@(?:{_TIME}))?",
        "1@60:00",
    ),
    "segment": _Option(
        "nodes a block of a block topology, such as an NVL72 rack (Slurm 24.05)",
        "allocation",
        r"[1-9]\d*",
        "16",
    ),
    "container-image": _Option("image of the ranks (pyxis, enroot)", "step", _TEXT, "/img/a.sqsh"),
    "container-mounts": _Option("SRC:DST[:FLAGS],… in it", "step", _TEXT, "/data:/data:ro"),
    "container-workdir": _Option("working directory in it", "step", r"/[^\x00-\x1f\x7f]*", "/work"),
    "mpi": _Option("PMI that Slurm offers the ranks", "step", r"\w+", "pmix"),
    "cpu-bind": _Option("binding of ranks to cores", "step", r"[\w,:]+", "none"),
    "overcommit": _Option("more ranks than cores", "both"),
    "overlap": _Option("share the resources of a step that runs", "step"),
    "jobid": _Option("start in this allocation of mine", "step", r"[1-9]\d*(?:[_+]\d+)?", "811"),
    "batch": _Option("as a batch job: sbatch, and its output as it comes", "ours"),
    "output": _Option(
        "of a batch job: folder for its output, shared by the nodes, which is kept",
        "ours",
        r"/[^\x00-\x1f\x7f\\]*",
        "/shared/logs",
    ),
    "wait": _Option(
        "how long the job may be pending: 90s, 30m, 24h, 2d", "ours", _WAIT.pattern, "24h"
    ),
}
"""By name, in the order in which they are passed."""

_TOGETHER = (("gres", "gpus-per-node"),)


def engine_options() -> tuple[EngineOption, ...]:
    """As `wirespeed launch --list` shows them."""
    return tuple(
        EngineOption(
            name, f"{one.help}, such as {one.sample}" if one.sample else one.help, not one.pattern
        )
        for name, one in OPTIONS.items()
    )


def checked(options: Mapping[str, str]) -> None:
    """UsageError for a value that is none, and for options that exclude each other."""
    for name, value in options.items():
        option = OPTIONS.get(name)
        if option is None:
            raise UsageError(f"--on slurm has no option {name!r}", expected=", ".join(OPTIONS))
        if option.pattern and not re.fullmatch(option.pattern, value):
            raise UsageError(
                f"--with {name}={value!r}: no value for {name} ({option.help})",
                expected=f"such as --with {name}={option.sample}",
            )
    for one, other in _TOGETHER:
        if one in options and other in options:
            raise UsageError(f"--with {one} and --with {other}", expected="one of them")
    if "output" in options and "batch" not in options:
        raise UsageError("--with output is about a batch job", expected="--with batch as well")


def passed(options: Mapping[str, str], *scopes: Scope) -> list[str]:
    """The words for Slurm of those with one of these scopes."""
    return [
        f"--{name}={options[name]}" if one.pattern else f"--{name}"
        for name, one in OPTIONS.items()
        if name in options and one.scope in scopes
    ]


def allocating(options: Mapping[str, str]) -> list[str]:
    """Names of those that ask for nodes: nothing that a step could have inside an allocation."""
    return [name for name in options if OPTIONS[name].scope == "allocation"]


def seconds(text: str) -> float:
    """Of a checked `wait`."""
    found = _WAIT.fullmatch(text)
    return float(found[1]) * _UNITS[found[2]] if found else 0.0
