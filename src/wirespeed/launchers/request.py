"""From what was asked on the command line to a `Job`.

`--with KEY=VALUE` is checked against what the engine knows. Of this process's variables an allow-list
and what was asked for (`-x`) go along to the ranks. A job made ready has its token, and what every
rank's wrapper must know.

Names of nodes, from `--hosts` or a hostfile in one of the usual notations.
"""

import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from wirespeed.errors import InputError, UsageError
from wirespeed.launchers.base import Engine, Host, Job
from wirespeed.launchers.node.snapshot import interface_variables
from wirespeed.launchers.node_lists import expand, split_list
from wirespeed.launchers.rank_wrapper import DIRECTORY, GRACE
from wirespeed.launchers.texts import make_error
from wirespeed.node.reading import read_whole
from wirespeed.node.redact import is_secret
from wirespeed.process.frames import VARIABLE

_NAME = re.compile(r"(?:[\w.-]+@)?[A-Za-z0-9_](?:[\w.-]*\w)?|[0-9a-fA-F:]*:[0-9a-fA-F:.]+")
"""A host name, `user@name`, an alias of ssh's configuration, or an address: what no program takes
for an option or a pattern."""
_MOST_SLOTS = 4096
_MOST_BYTES = 16 << 20
_SLOT_WORD = re.compile(r"slots=(\d+)")
_IGNORED_WORD = re.compile(r"max[-_]slots=\d+")
_NOTATIONS = (
    "`host`, `host slots=8` (DeepSpeed, Open MPI), `host:8` or `[address]:8` (MPICH, --host), "
    "`node[01-03,07]` (Slurm), or a line per slot (PBS)"
)
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\](?::(.*))?")
"""An IPv6 address as it is written where a number follows."""


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Return the hosts of `a,b:4,node[01-03]`, with or without slots; UsageError for anything else.

    A host that is there several times without slots has so many, as for Open MPI's --host.
    """
    hosts = [host for word in split_list(text) for host in _hosts_of(word, "--hosts")]
    return _each_once(hosts, "--hosts")


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """Return the hosts of a file, one per line or slot; InputError names the line that is none."""
    try:
        lines = read_whole(path, _MOST_BYTES, pipes=True).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise make_error(
            "hostfile_unread",
            path=path,
            why=getattr(error, "strerror", None) or error,
            notations=_NOTATIONS,
        ) from error
    hosts: list[Host] = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words:
            hosts += _hosts_of_line(words, f"{path}:{number}")
    if not hosts:
        raise InputError(
            f"hostfile {path} names no host", expected=f"a line per node: {_NOTATIONS}"
        )
    return _each_once(hosts, str(path))


def _hosts_of_line(words: Sequence[str], where: str) -> list[Host]:
    hosts = [host for word in split_list(words[0]) for host in _hosts_of(word, where)]
    for word in words[1:]:
        if found := _SLOT_WORD.fullmatch(word):
            slots = _slots(found[1], where)
            hosts = [Host(host.name, slots) for host in hosts]
        elif not _IGNORED_WORD.fullmatch(word):
            raise InputError(f"{where}: {word!r} is not known", expected=_NOTATIONS)
    return hosts


def _hosts_of(word: str, where: str) -> list[Host]:
    """Return the hosts that one word means: a name, an address, a range, each with slots or without."""
    if found := _BRACKETED.fullmatch(word):
        name, slots = found[1], found[2]
        names = [name]
    else:
        name, colon, slots_text = word.rpartition(":")
        if not colon or ":" in name:
            name, slots_text, colon = word, "", ""
        slots = slots_text if colon else None
        try:
            names = expand(name)
        except UsageError as error:
            raise InputError(f"{where}: {error.saw}", expected=error.expected) from error
    for one in names:
        if not _NAME.fullmatch(one):
            raise InputError(f"{where}: {one!r} is no host name", expected=_NOTATIONS)
    count = _slots(slots, where) if slots is not None else None
    return [Host(one, count) for one in names]


def _slots(text: str, where: str) -> int:
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= _MOST_SLOTS:
        raise InputError(f"{where}: {text[:40]!r} slots", expected=f"1 to {_MOST_SLOTS} slots")
    return int(text)


def _each_once(hosts: Sequence[Host], where: str) -> tuple[Host, ...]:
    """Return each host once: where hosts without slots are repeated, with a slot per time."""
    times = Counter(host.name for host in hosts)
    if max(times.values()) == 1:
        return tuple(hosts)
    for host in hosts:
        if host.slots is not None and times[host.name] > 1:
            raise make_error(
                "host_twice",
                where=where,
                name=host.name,
                slots=sum(h.slots or 1 for h in hosts if h.name == host.name),
            )
    slots = {host.name: times[host.name] if host.slots is None else host.slots for host in hosts}
    return tuple(Host(name, count) for name, count in slots.items())


YES = "yes"


def read_options(engine: Engine, words: Sequence[str]) -> dict[str, str]:
    """The engine's options by name; a flag's value is `yes`. UsageError names the nearest key."""
    known = {option.name: option for option in engine.options}
    options: dict[str, str] = {}
    for word in words:
        key, _, value = word.partition("=")
        option = known.get(key)
        if option is None:
            raise _unknown(engine, key)
        if option.flag and value not in ("", YES):
            raise UsageError(f"--with {word}: {key} takes no value", expected=f"--with {key}")
        if not option.flag and not value:
            raise UsageError(f"--with {word}: {key} has no value", expected=f"--with {key}=…")
        if key in options:
            raise UsageError(f"--with {key} twice", expected="one value")
        options[key] = YES if option.flag else value
    return options


def _unknown(engine: Engine, key: str) -> UsageError:
    names = [option.name for option in engine.options]
    near = get_close_matches(key, names, n=1)
    return UsageError(
        f"--on {engine.name} has no option {key!r}" + (f"; do you mean {near[0]}?" if near else ""),
        expected=", ".join(names) or "no --with at all",
        next="wirespeed launch --list",
    )


_FAMILIES = re.compile(
    r"(?:NCCL|RCCL|GLOO|UCX|FI|TORCH)_\w+|OMP_NUM_THREADS|TP_SOCKET_IFNAME|DS_ACCELERATOR"
    r"|CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_BLOCKING|WIRESPEED_HOME"
)
"""What changes how ranks communicate. Not CUDA_VISIBLE_DEVICES: the nodes' GPUs are their own."""
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def forwarded(environ: Mapping[str, str], asked: Sequence[str] = ()) -> dict[str, str]:
    """Variables for every rank: families that matter to collectives, and each `NAME[=VALUE]` asked.

    UsageError for a name that is none, or that is asked for and not set here.
    """
    found = {k: v for k, v in environ.items() if _FAMILIES.fullmatch(k) and not is_secret(k)}
    for word in asked:
        name, equals, value = word.partition("=")
        if not _VARIABLE_NAME.fullmatch(name):
            raise UsageError(f"-x {word!r} names no variable", expected="-x NAME or -x NAME=VALUE")
        if not equals and name not in environ:
            raise make_error("variable_not_set", name=name)
        if equals and is_secret(name):
            raise make_error("secret_variable", name=name)
        if "\0" in value:
            raise UsageError(f"-x {name}: its value holds a NUL", expected="text")
        found[name] = value if equals else environ[name]
    return found


def shown(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What may be written into a script, and the names of the rest."""
    open_ones = {k: v for k, v in environment.items() if not is_secret(k)}
    return open_ones, sorted(set(environment) - set(open_ones))


INTERFACE = "WIRESPEED_INTERFACE"
"""Tells our own sockets on the nodes which interface to listen on."""
_WRITTEN = "written-down"


def made_ready(job: Job, *, framed: bool = True) -> Job:
    """With a fresh token and the wrappers' variables; not `framed`: to be run by hand."""
    environment = {**job.environment, DIRECTORY: job.directory}
    if job.interface:  # a variable that the user has set is stronger
        own = {INTERFACE: job.interface, **interface_variables(job.interface)}
        environment = {**own, **environment}
    if not framed:
        return replace(job, token=_WRITTEN, environment=environment, written=True)
    environment |= {GRACE: f"{job.grace_s:g}", VARIABLE: secrets.token_hex(6)}
    return replace(job, token=secrets.token_hex(16), environment=environment)
