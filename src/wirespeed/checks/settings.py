"""ENV-001 and on: settings in the environment that are known to hurt, or contradict the hardware.

The rules, and the names and values that NCCL and torch know, are settings.yaml. When a rule holds is
said here, by one small function each: it gets a node and what NCCL and torch will read there, and says
in a few words what hurts, or nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct, convert

from wirespeed.compiled import Compiled
from wirespeed.model.records import Finding, NodeFacts, Subject, World
from wirespeed.model.units import counted


class Port(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A port of an RDMA device, as nodes tell it."""

    device: str = "mlx5_0"
    port: int = 1
    state: str = "ACTIVE"
    link_layer: str = "InfiniBand"
    gids: int = 2


class Example(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node for which a rule does or does not hold."""

    environment: dict[str, str] = {}
    gpus: int = 0
    gpu: str = "NVIDIA H100 80GB HBM3"
    rdma: tuple[Port, ...] = ()


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    good: str
    """What is so when nothing is found, as a sentence."""
    hurts: str
    """The name of a condition: `CONDITIONS`."""
    because: str
    costs: str
    fix: str
    link: str
    bad: Example
    fine: Example = Example()


class _Told(Struct, frozen=True, forbid_unknown_fields=True):
    """What settings.yaml says."""

    rules: tuple[Rule, ...]
    numbers: dict[str, tuple[int, ...]]
    """Whole numbers, with the least and, where one is documented, the greatest."""
    choices: dict[str, tuple[str, ...]]
    """Words; the two levels are also known as small numbers."""
    obsolete: dict[str, str]
    """Names that newer versions ignore, or read with a warning, and what came after them."""
    known: dict[str, str]
    """By their beginning, the rest of names that are no typing errors."""


def _read(texts: Mapping[str, bytes]) -> _Told:
    from wirespeed.yaml_tree import data_of

    return convert(data_of(texts["settings.yaml"]), _Told, strict=False)


TEXTS = Compiled(Path(__file__).parent, "settings.yaml", "settings.json", _Told, _read)


@lru_cache(maxsize=1)
def settings_told() -> _Told:
    """The rules are in the order of their ids."""
    return TEXTS.load()


@lru_cache(maxsize=1)
def known_names() -> frozenset[str]:
    """Names that are no typing errors."""
    told = settings_told()
    names = (start + rest for start, rests in told.known.items() for rest in rests.split())
    return frozenset((*names, *told.obsolete))


def settings_findings(world: World, only: frozenset[str] = frozenset()) -> list[Finding]:
    """A finding a rule and text, with the nodes where it is so; one pass when there is none. Pure.

    only: ids of the rules to look at; empty: all. The pass has the first one's id.
    """
    rules = [rule for rule in settings_told().rules if not only or rule.id in only]
    if not world.nodes or not rules:
        return []
    found = [finding for rule in rules for finding in _of_rule(rule, world)]
    title = f"no setting that is known to hurt on {counted(len(world.nodes), 'node')}"
    return found or [Finding(id=rules[0].id, status="pass", title=title)]


def _of_rule(rule: Rule, world: World) -> list[Finding]:
    hosts: dict[str, list[NodeFacts]] = defaultdict(list)
    for node in world.nodes:
        # The environment, over what NCCL reads from its files.
        settings = {**(node.facts.net_nccl_conf or {}), **node.environment}
        if text := CONDITIONS[rule.hurts](node, settings):
            hosts[text].append(node)
    return [_finding(rule, text, nodes, world) for text, nodes in hosts.items()]


def _finding(rule: Rule, text: str, nodes: list[NodeFacts], world: World) -> Finding:
    """One for all nodes where it is the same, as the job sets it; else the nodes are named."""
    names = [node.host for node in nodes]
    everywhere = len(names) == len(world.nodes)
    where = f"every node ({len(names)})" if everywhere else ", ".join(names[:4])
    where = names[0] if len(names) == 1 else where
    return Finding(
        id=rule.id,
        status="warn",
        title=f"{where}: {text}",
        subject=Subject("node", names[0]) if len(names) == 1 else Subject("job", "job"),
        saw=text,
        expected=f"{rule.good} ({rule.link})",
        because=rule.because,
        costs=rule.costs,
        fix=rule.fix,
        next=f"wirespeed check --only {rule.id}",
        evidence=tuple(f"{name}: {text}" for name in names),
    )


Settings = Mapping[str, str]

_SOCKETS_MOST = 64
"""NCCL's limit on the sockets of one connection."""
_TIMEOUT = (18, 22)
"""NCCL's own values of NCCL_IB_TIMEOUT: 18 since 2.14, 20 since 2.23; 22 waits two minutes."""
_CHANNELS_LEAST, _THREADS_LEAST, _BUFFER_LEAST = 4, 256, 1 << 20
"""Far below what NCCL takes by itself: 512 threads (older GPUs 256) and 4 MiB."""
_NVSWITCH_GPUS = ("H100", "H200", "H800", "H20", "B100", "B200", "B300", "GB200", "GB300")


def _number(settings: Settings, name: str) -> int | None:
    """The whole number that a variable is set to, or None."""
    text = settings.get(name, "").strip()
    return int(text) if text.removeprefix("-").isdecimal() else None


def _is_on(settings: Settings, name: str) -> bool:
    return settings.get(name, "").strip().lower() in ("1", "true", "t", "yes", "y")


def _shown(settings: Settings, *names: str) -> str:
    return ", ".join(f"{name}={settings[name]}" for name in names if name in settings)


def _active(node: NodeFacts, link_layer: str = "") -> list[dict[str, object]]:
    ports = [port for port in node.rdma if port.get("state") == "ACTIVE"]
    return [port for port in ports if link_layer in ("", port.get("link_layer"))]


def _rdma_off(node: NodeFacts, settings: Settings) -> str:
    ports = len(_active(node))
    name = "NCCL_IB_DISABLE" if _number(settings, "NCCL_IB_DISABLE") else ""
    if settings.get("NCCL_NET", "").lower() == "socket":
        name = "NCCL_NET"
    return f"{_shown(settings, name)} with {ports} ACTIVE RDMA port(s)" if ports and name else ""


def _paths_off(node: NodeFacts, settings: Settings) -> str:
    """Ways between the GPUs of one node that are closed."""
    if len(node.gpus) < 2:
        return ""
    found = ["NCCL_SHM_DISABLE"] if _number(settings, "NCCL_SHM_DISABLE") else []
    # GeForce cards have no peer-to-peer that could be lost.
    if not all("GeForce" in str(gpu.get("name", "")) for gpu in node.gpus):
        found += ["NCCL_P2P_DISABLE"] if _number(settings, "NCCL_P2P_DISABLE") else []
        low = settings.get("NCCL_P2P_LEVEL", "").upper() in ("LOC", "0")
        found += ["NCCL_P2P_LEVEL"] if low else []
    return f"{_shown(settings, *found)} with {len(node.gpus)} GPUs" if found else ""


def _gdr_off(node: NodeFacts, settings: Settings) -> str:
    level = settings.get("NCCL_NET_GDR_LEVEL", "").upper()
    if level not in ("LOC", "0") or not node.gpus or not _active(node):
        return ""
    return _shown(settings, "NCCL_NET_GDR_LEVEL") + " switches GPUDirect RDMA off"


def _forced(_: NodeFacts, settings: Settings) -> str:
    """An algorithm or a protocol that is forced; one that is excluded is as documented."""
    names = ("NCCL_ALGO", "NCCL_PROTO")
    found = [name for name in names if settings.get(name) and "^" not in settings[name]]
    protocols = settings.get("NCCL_PROTO", "").upper().replace(" ", "").split(",")
    if "LL128" in protocols and "NCCL_PROTO" in found:
        return _shown(settings, *found) + " (LL128 where it is not supported corrupts data)"
    return _shown(settings, *found)


def _logs(_: NodeFacts, settings: Settings) -> str:
    level = settings.get("NCCL_DEBUG", "").upper()
    every = {"ALL", "COLL", "CALL", "P2P", "PROXY"}
    if level == "TRACE":
        return _shown(settings, "NCCL_DEBUG")
    chosen = {part.strip().upper() for part in settings.get("NCCL_DEBUG_SUBSYS", "").split(",")}
    noisy = level == "INFO" and every & chosen
    return _shown(settings, "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS") if noisy else ""


def _starved(_: NodeFacts, settings: Settings) -> str:
    """Fewer channels, threads or bytes than NCCL needs for large messages."""
    least = {
        "NCCL_MAX_NCHANNELS": _CHANNELS_LEAST,
        "NCCL_MAX_CTAS": _CHANNELS_LEAST,
        "NCCL_NTHREADS": _THREADS_LEAST,
        "NCCL_BUFFSIZE": _BUFFER_LEAST,
    }
    found = [name for name, low in least.items() if 0 < (_number(settings, name) or 0) < low]
    return _shown(settings, *found)


def _gid(node: NodeFacts, settings: Settings) -> str:
    index = _number(settings, "NCCL_IB_GID_INDEX")
    if index is None or index < 0 or not _active(node):
        return ""
    said = _shown(settings, "NCCL_IB_GID_INDEX")
    roce = _active(node, "Ethernet")
    if not roce and len(_active(node, "InfiniBand")) == len(_active(node)):
        return f"{said}, but every ACTIVE port is InfiniBand, and the index is for RoCE"
    short = [port for port in roce if index >= _gids(port)]
    if not short:
        return ""
    return f"{said}, but {short[0]['device']} port {short[0]['port']} has {_gids(short[0])} GID(s)"


def _gids(port: Mapping[str, object]) -> int:
    count = port.get("gids")
    return count if isinstance(count, int) else 1 << 16


def _timeout(node: NodeFacts, settings: Settings) -> str:
    """Limits of waiting for RDMA that give up early or (almost) never."""
    found = []
    value, (low, high) = _number(settings, "NCCL_IB_TIMEOUT"), _TIMEOUT
    if value is not None and not low <= value <= high:
        found.append("NCCL_IB_TIMEOUT")
    if (count := _number(settings, "NCCL_IB_RETRY_CNT")) is not None and count < 7:
        found.append("NCCL_IB_RETRY_CNT")
    return _shown(settings, *found) if node.rdma else ""


def _collnet(node: NodeFacts, settings: Settings) -> str:
    if not _number(settings, "NCCL_COLLNET_ENABLE"):
        return ""
    said = _shown(settings, "NCCL_COLLNET_ENABLE")
    if settings.get("NCCL_NET_PLUGIN", "").lower() == "none":
        return f"{said}, but NCCL_NET_PLUGIN=none leaves no plugin that has it"
    return "" if _active(node, "InfiniBand") else f"{said} without an ACTIVE InfiniBand port"


def _nvls_off(node: NodeFacts, settings: Settings) -> str:
    """NVLink SHARP off where GPUs of Hopper or later sit behind NVSwitch."""
    names = [str(gpu.get("name", "")) for gpu in node.gpus]
    able = [name for name in names if any(word in _words(name) for word in _NVSWITCH_GPUS)]
    switched = [name for name in able if "PCIe" not in name and "NVL" not in name]
    if _number(settings, "NCCL_NVLS_ENABLE") != 0 or len(switched) < 4:
        return ""
    return f"{_shown(settings, 'NCCL_NVLS_ENABLE')} with {len(switched)} x {switched[0]}"


def _words(name: str) -> list[str]:
    return name.replace("-", " ").split()


def _contradiction(_: NodeFacts, settings: Settings) -> str:
    if _number(settings, "NCCL_MNNVL_ENABLE") == 1 and _number(settings, "NCCL_CUMEM_ENABLE") == 0:
        return _shown(settings, "NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE")
    return ""


def _sockets(_: NodeFacts, settings: Settings) -> str:
    names = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
    threads, each = (_number(settings, name) or 1 for name in names)
    if threads * each <= _SOCKETS_MOST:
        return ""
    return f"{_shown(settings, *names)}: {threads * each} sockets a connection"


def _blocking(_: NodeFacts, settings: Settings) -> str:
    names = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
    return _shown(settings, *(name for name in names if _is_on(settings, name)))


def _deaf(_: NodeFacts, settings: Settings) -> str:
    names = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
    return _shown(settings, *(name for name in names if _number(settings, name) == 0))


def _debugging(_: NodeFacts, settings: Settings) -> str:
    names = ("CUDA_LAUNCH_BLOCKING", "NCCL_CHECK_POINTERS", "TORCH_NCCL_NAN_CHECK")
    found = [name for name in names if _is_on(settings, name)]
    if settings.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        found.append("TORCH_DISTRIBUTED_DEBUG")
    if settings.get("NCCL_CHECK_MODE", "").upper().startswith("DEBUG"):
        found.append("NCCL_CHECK_MODE")
    return _shown(settings, *found)


def _obsolete(_: NodeFacts, settings: Settings) -> str:
    found = [
        f"{name} ({why})" for name, why in settings_told().obsolete.items() if name in settings
    ]
    if settings.get("NCCL_LAUNCH_MODE", "").upper() == "GROUP":
        found.append("NCCL_LAUNCH_MODE=GROUP (NCCL deprecated it in 2.9)")
    return ", ".join(found)


def _misspelt(_: NodeFacts, settings: Settings) -> str:
    found = []
    for name in settings:
        if name.startswith(("NCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_DISTRIBUTED_")):
            near = _nearest(name) if name not in known_names() else ""
            found += [f"{name} (no such variable; {near}?)"] if near else []
    return ", ".join(found)


def _nearest(name: str) -> str:
    """The known name within one typing error of `name`, or two where it is long; else nothing."""
    within = 1 if len(name) < 12 else 2
    near = [
        (d, known) for known in known_names() if (d := _distance(name, known, within)) <= within
    ]
    return min(near)[1] if near else ""


def _distance(a: str, b: str, within: int) -> int:
    """Letters to add, drop, change or swap with the next one; above `within`, any larger number."""
    if abs(len(a) - len(b)) > within:
        return within + 1
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        row = [i]
        for j, other in enumerate(b, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]


def _values(_: NodeFacts, settings: Settings) -> str:
    told = settings_told()
    found = [_wrong_number(settings, name) for name in told.numbers if settings.get(name)]
    found += [_wrong_word(settings, name) for name in told.choices if settings.get(name)]
    return ", ".join(filter(None, found))


def _wrong_number(settings: Settings, name: str) -> str:
    value, (low, *most) = _number(settings, name), settings_told().numbers[name]
    if value is None:
        # torch also takes words for its own switches.
        wordy = name.startswith("TORCH_") or settings[name].lower().startswith("0x")
        return "" if wordy else f"{_shown(settings, name)} is no whole number"
    if value < low or any(value > high for high in most):
        limits = f"{low} to {most[0]}" if most else f"at least {low}"
        return f"{_shown(settings, name)} is not {limits}"
    return ""


def _wrong_word(settings: Settings, name: str) -> str:
    value = settings[name].strip().upper()
    choices = settings_told().choices[name]
    if value in choices or (name.endswith("_LEVEL") and value.isdecimal()):
        return ""
    return f"{_shown(settings, name)} is none of {', '.join(choices)}"


CONDITIONS: dict[str, Callable[[NodeFacts, Settings], str]] = {
    "blocking": _blocking,
    "collnet": _collnet,
    "contradiction": _contradiction,
    "deaf": _deaf,
    "debugging": _debugging,
    "forced": _forced,
    "gdr-off": _gdr_off,
    "gid": _gid,
    "logs": _logs,
    "misspelt": _misspelt,
    "nvls-off": _nvls_off,
    "obsolete": _obsolete,
    "paths-off": _paths_off,
    "rdma-off": _rdma_off,
    "sockets": _sockets,
    "starved": _starved,
    "timeout": _timeout,
    "values": _values,
}
"""By the name that rules call them."""

if __name__ == "__main__":
    TEXTS.write()
