"""Fabric presets that ship with wirespeed, one YAML file each, and which fabric a deployment uses.

The option counts before the cluster file, the file before its preset; else TCP.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

from pydantic import Field

from wirespeed.clusters.file import ClusterFile, FabricMode, Network, Rdma, Section, Volume
from wirespeed.errors import UsageError, WirespeedError
from wirespeed.model.records import Choice

Mode = Literal["rdma", "tcp"]
NETWORKS = "k8s.v1.cni.cncf.io/networks"
"""Annotation that Multus reads: https://github.com/k8snetworkplumbingwg/multus-cni"""


class Variable(Section):
    """One environment variable of a fabric."""

    name: str
    value: str
    why: str
    """One sentence."""


class Preset(Section):
    """One fabric; what a cluster file says itself has precedence."""

    name: str
    """`h100-ib-sharp` and the like: the name of its file."""
    summary: str
    why: str
    """One sentence: when to take it, and what it rests on."""
    source: str
    """Public documentation."""
    mode: Mode
    gpus: tuple[str, ...] = ()
    """Parts of the GPU products that it is meant for."""
    environment: tuple[Variable, ...] = ()
    resources: dict[str, int] = Field(default={})
    """Extended resources of each pod: count by name."""
    volumes: tuple[Volume, ...] = ()
    annotations: dict[str, str] = Field(default={})
    """Of pods."""
    ipc_lock: bool = False
    same_zone: bool = False
    spread_over: str = ""
    """A node label over whose values pods are spread."""
    sidecars: tuple[dict[str, Any], ...] = ()
    """Containers beside ours, as Kubernetes writes them (GPUDirect-TCPX has one)."""

    def variable(self, name: str) -> str:
        """Its value; empty where the preset does not set it."""
        return next((one.value for one in self.environment if one.name == name), "")

    @property
    def attached(self) -> str:
        """Networks that it attaches, with commas between them."""
        return self.annotations.get(NETWORKS, "")

    @property
    def names_adapters(self) -> bool:
        return bool(self.resources or self.attached or self.variable("NCCL_IB_HCA"))


NO_PRESET = Preset(name="", summary="", why="", source="", mode="tcp")
"""It asks for nothing."""
_FOLDER = Path(__file__).parent / "data"
_KEYS = Preset.model_fields.keys() - {"name"} | {"extends", "without"}


@cache
def preset_names() -> tuple[str, ...]:
    """All names, sorted; no file is read for it."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@cache
def preset_named(name: str) -> Preset:
    """The preset; UsageError with the nearest name where there is none."""
    if name not in preset_names():
        near = get_close_matches(name, preset_names(), n=1, cutoff=0.5)
        raise UsageError(
            f"there is no preset {name!r}" + (f"; do you mean {near[0]}?" if near else ""),
            expected=", ".join(preset_names()),
            next="wirespeed cluster presets",
        )
    return Preset(name=name, **_merged(name))


def _merged(name: str) -> dict[str, Any]:
    """A file's data on top of what it extends, so that near-equal fabrics cannot drift apart."""
    import yaml

    told: dict[str, Any] = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text("utf-8"))
    if unknown := sorted(set(told) - _KEYS):
        raise WirespeedError(f"preset {name}: unknown key {unknown[0]!r}")
    base, without = told.pop("extends", ""), set(told.pop("without", ()))
    own = {one["name"]: one for one in told.pop("environment", ())}
    whole = _merged(base) if base else {}
    inherited = {one["name"]: one for one in whole.pop("environment", ())}
    if lost := sorted(without - set(inherited)):
        raise WirespeedError(f"preset {name}: {base} does not set {lost[0]}")
    kept = {key: one for key, one in inherited.items() if key not in without}
    return {**whole, **told, "environment": list({**kept, **own}.values())}


_WIDTH = 100


def listed(presets: Sequence[Preset]) -> str:
    """One line each."""
    wide = max(len(one.name) for one in presets)
    lines = [f"{one.name:<{wide}}  {one.mode:<4}  {one.summary}" for one in presets]
    last = "\nwirespeed cluster presets NAME tells what one sets, and why; network.preset takes it."
    return "\n".join([*lines, last])


def explained(preset: Preset) -> str:
    """Everything that it sets, each with its reason."""
    parts = [
        f"{preset.name}: {preset.summary}",
        _wrapped(preset.why, ""),
        f"source  {preset.source}\nmode    {preset.mode}",
        _titled("environment", _variables(preset)),
        _titled("of each pod", _needs(preset)),
        f"In a cluster file:\n  network:\n    preset: {preset.name}",
    ]
    return "\n\n".join(part for part in parts if part)


def as_data(preset: Preset) -> dict[str, Any]:
    """Plain values only; keys as the preset files and cluster files spell them."""
    volumes = [one.model_dump(exclude_defaults=True) for one in preset.volumes]
    return {**preset.model_dump(mode="json"), "volumes": volumes}


def _titled(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *lines]) if lines else ""


def _variables(preset: Preset) -> list[str]:
    lines = []
    for one in preset.environment:
        lines += [f"  {one.name}={one.value}", _wrapped(one.why, "      ")]
    return lines


def _needs(preset: Preset) -> list[str]:
    """What it asks of a pod beside variables."""
    lines = [f"  resource    {name}: {count}" for name, count in preset.resources.items()]
    for one in preset.volumes:
        origin = f"{one.host_path} of the node" if one.host_path else "a folder of the pod"
        lines.append(f"  mount       {one.mount_path} <- {origin}")
    lines += [f"  annotation  {name}" for name in preset.annotations]
    lines += [f"  container   {one['name']}: {one['image']}" for one in preset.sidecars]
    if preset.ipc_lock:
        lines.append("  capability  IPC_LOCK, for memory registration")
    if preset.same_zone:
        lines.append("  placement   all in one zone")
    if preset.spread_over:
        lines.append(f"  placement   spread evenly over {preset.spread_over}")
    return lines


def _wrapped(text: str, indent: str) -> str:
    return fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)


_ATTACHED = re.compile(r"net[0-9]+")
"""What Multus calls the interface of the n-th attachment that does not say a name of its own."""
_UCX = "UCX_NET_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What was chosen."""

    mode: Mode
    preset: Preset
    """Without the parts that belong to the other mode."""
    network: Network
    """The file's, with what it leaves to the preset written out."""
    choices: tuple[Choice, ...]
    attachable: tuple[str, ...] = ()
    """Interfaces that the file names and nothing attaches: attachments of the same names would."""

    @property
    def seeks_resource(self) -> bool:
        return self.mode == "rdma" and seeks_resource(self.network.rdma, self.preset)


@dataclass(frozen=True, slots=True)
class _Lack:
    """Why RDMA cannot work as the file stands."""

    saw: str
    write: str


def choose_fabric(
    file: ClusterFile, mode: FabricMode | None, fallback: str | None, *, live: bool = False
) -> Fabric:
    """UsageError where RDMA is asked and nothing names it, unless `fallback` is tcp.

    live: a cluster is asked afterwards, which may name it.
    """
    network = file.network
    preset = preset_named(network.preset) if network.preset else NO_PRESET
    wanted = _wanted(network, preset, mode)
    choices: list[Choice] = [wanted] if (mode or network.mode) == "auto" else []
    settled: Mode = "rdma" if wanted.value == "rdma" else "tcp"
    if settled == "rdma" and (lack := _lack(network, preset, live)):
        if fallback != "tcp":
            raise UsageError(
                f"RDMA is asked ({wanted.reason}), but {lack.saw}",
                expected=lack.write,
                next="write the key into the cluster file, or go on over TCP with --fallback tcp",
            )
        choices = [Choice("mode", "tcp", f"{lack.saw}; --fallback tcp")]
        settled = "tcp"
    if network.preset:
        preset, named = _of_mode(preset, settled, file.gpus.type)
        choices.append(named)
    settle = _with_rdma if settled == "rdma" else _with_tcp
    return settle(network, preset, choices)


def _wanted(network: Network, preset: Preset, option: FabricMode | None) -> Choice:
    """rdma or tcp, before anybody looks whether it is there."""
    if option and option != "auto":
        return Choice("mode", option, f"--mode {option}")
    if network.mode != "auto" and option is None:
        return Choice("mode", network.mode, f"network.mode: {network.mode} in the cluster file")
    if network.rdma.enabled:
        return Choice("mode", "rdma", "network.rdma.enabled is true in the cluster file")
    if "enabled" in network.rdma.model_fields_set:
        return Choice("mode", "tcp", "network.rdma.enabled is false in the cluster file")
    if network.preset:
        return Choice("mode", preset.mode, f"the preset {preset.name} is for it")
    return Choice("mode", "tcp", "neither network.rdma.enabled nor network.preset says otherwise")


def _lack(network: Network, preset: Preset, live: bool) -> _Lack | None:
    """What RDMA misses; None: nothing."""
    of_preset = preset if preset.mode == "rdma" else NO_PRESET
    if not (live or names_adapters(network.rdma, of_preset)):
        others = f" and its preset {preset.name} name" if network.preset else " names"
        return _Lack(
            f"the cluster file{others} no RDMA resource, network or device",
            "network.rdma.resource, such as rdma/ib (what `kubectl describe node` lists under "
            "Allocatable); or network.rdma.networks, the Multus attachments; or "
            "network.rdma.devices, such as mlx5_0,mlx5_1; or network.preset",
        )
    return _lacking_networks(network.rdma, of_preset)


def names_adapters(rdma: Rdma, preset: Preset) -> bool:
    """Whether the file or its preset names something of RDMA; else only a cluster can."""
    return bool(rdma.resource or rdma.devices or rdma.networks) or preset.names_adapters


def seeks_resource(rdma: Rdma, preset: Preset) -> bool:
    """Whether no resource of a device plugin is named: then the one that nodes offer is taken."""
    return not (rdma.resource or rdma.networks or preset.attached)


def _lacking_networks(rdma: Rdma, preset: Preset) -> _Lack | None:
    """net1, net2, … exist in a pod only where as many attachments are asked of Multus."""
    value = rdma.interfaces or preset.variable("NCCL_SOCKET_IFNAME")
    if value.startswith("^"):
        return None
    asked = rdma.networks or tuple(filter(None, preset.attached.split(",")))
    there = {network.partition("@")[2] or f"net{number}" for number, network in enumerate(asked, 1)}
    named = [one for one in value.lstrip("=").split(",") if _ATTACHED.fullmatch(one)]
    # Where nothing at all is attached, the pods can still have the device plugin's adapters.
    if there and (lost := [one for one in named if one not in there]):
        return _Lack(
            f"network.rdma.interfaces names {', '.join(lost)}, and network.rdma.networks attaches "
            f"{', '.join(sorted(there))}: no such interface would be in a pod",
            f"network.rdma.networks with one Multus attachment for each of {', '.join(named)} "
            "(`kubectl get network-attachment-definitions`)",
        )
    return None


def is_for(preset: Preset, product: str) -> bool:
    """Whether a GPU product such as NVIDIA-H100-80GB-HBM3 is one of the preset's."""
    words = re.split(r"[^a-z0-9]+", product.lower())
    return any(one.lower() in words for one in preset.gpus)


def _of_mode(preset: Preset, mode: Mode, gpu: str) -> tuple[Preset, Choice]:
    """The preset, or what of it is true in either mode: where its pods belong."""
    if preset.mode == mode:
        reason = "network.preset in the cluster file"
        if gpu and preset.gpus and not is_for(preset, gpu):
            reason += f"; it was made for {', '.join(preset.gpus)}, and gpus.type is {gpu}"
        return preset, Choice("preset", preset.name, reason)
    kept = {key: getattr(preset, key) for key in ("name", "gpus", "same_zone", "spread_over")}
    reason = f"it is for {preset.mode}, and the mode is {mode}: none of its environment, "
    told = f"{preset.name}: {reason}resources and mounts is used"
    return NO_PRESET.but(**kept, mode=mode), Choice("preset", "none", told)


def _with_rdma(network: Network, preset: Preset, choices: list[Choice]) -> Fabric:
    """The resource moves into the network, so that the file's and the preset's never add up."""
    rdma = network.rdma
    if preset.resources:
        (name, count), *others = preset.resources.items()
        preset = preset.but(resources=dict(others))
        if not rdma.resource:
            count = rdma.count if "count" in rdma.model_fields_set else count
            rdma = rdma.but(resource=name, count=count)
            choices.append(Choice("network.rdma.resource", name, f"of the preset {preset.name}"))
    elif not rdma.resource:
        names = "network.rdma.networks" if rdma.networks else "network.rdma.devices"
        reason = f"only {names} is named: the pods get their adapters from it, or see none"
        choices.append(Choice("network.rdma.resource", "none", reason))
    preset = _ucx_on_these_devices(preset, rdma.devices, choices)
    attachable = _attachable(rdma, preset)
    if attachable:
        there = [one for one in rdma.interfaces.split(",") if one.lstrip("=") not in attachable]
        rdma = rdma.but(interfaces=",".join(there))
    return Fabric(
        mode="rdma",
        preset=preset,
        network=network.but(rdma=rdma),
        choices=tuple(choices),
        attachable=attachable,
    )


def _attachable(rdma: Rdma, preset: Preset) -> tuple[str, ...]:
    """The file's net1, net2, … where neither it nor its preset attaches a network."""
    if rdma.networks or preset.attached or rdma.interfaces.startswith("^"):
        return ()
    names = rdma.interfaces.lstrip("=").split(",")
    return tuple(one for one in names if _ATTACHED.fullmatch(one))


def _ucx_on_these_devices(preset: Preset, devices: str, choices: list[Choice]) -> Preset:
    """UCX has to use the adapters that the file names, not those that the preset would guess."""
    guess = preset.variable(_UCX)
    if not devices or not guess or guess.startswith("eth"):
        return preset
    others = tuple(one for one in preset.environment if one.name != _UCX)
    if devices.startswith("^"):
        choices.append(Choice(_UCX, "not set", "network.rdma.devices says only which not to use"))
        return preset.but(environment=others)
    names = devices.removeprefix("=").split(",")
    ports = ",".join(one if ":" in one else f"{one}:1" for one in names)
    choices.append(Choice(_UCX, ports, "follows network.rdma.devices"))
    why = "MPI's own traffic uses the adapters that NCCL uses."
    return preset.but(environment=(*others, Variable(name=_UCX, value=ports, why=why)))


def _with_tcp(network: Network, preset: Preset, choices: list[Choice]) -> Fabric:
    """What the preset says of interfaces has precedence over our default, not over the file."""
    interfaces = preset.variable("NCCL_SOCKET_IFNAME")
    if interfaces and "interface_exclude" not in network.tcp.model_fields_set:
        tcp = network.tcp.but(interface_exclude=interfaces)
        network = network.but(tcp=tcp)
        reason = f"of the preset {preset.name}"
        choices.append(Choice("network.tcp.interface_exclude", interfaces, reason))
    return Fabric(mode="tcp", preset=preset, network=network, choices=tuple(choices))
