"""Engines: the libraries through which a collective is called, and the contract of one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from wirespeed.collectives.collective import Collective, Geometry
from wirespeed.errors import CannotMeasure

if TYPE_CHECKING:
    import torch


class Handle(Protocol):
    """An operation under way."""

    def wait(self) -> object: ...


Issue = Callable[[], Handle | None]
"""Issues the operation. A handle is returned only if it was bound with `blocking=False`."""


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks that take part, and the engine's own object for them."""

    ranks: tuple[int, ...]
    """Global ranks in the order of their rank within the group."""
    rank: int
    """This process's rank within the group."""
    handle: Any
    """torch: a ProcessGroup or None for the world; mpi4py: a communicator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operation on given buffers; in place they are views of one tensor."""

    collective: Collective
    geometry: Geometry
    redop: str
    input: "torch.Tensor"
    """1-D, `collective.input_count(geometry)` elements."""
    output: "torch.Tensor"
    """1-D, `collective.output_count(geometry)` elements."""
    group: Group
    blocking: bool = True


class Engine(Protocol):
    """Binds operations to buffers; what it cannot do it says with a reason."""

    name: str
    backend: str
    device: "torch.device"
    in_place_only: frozenset[str]
    """Operations whose call reduces or receives into its only buffer. Out of place there means:
    the input is copied to the output before the clock starts, and the call works on the output."""

    def why_not(self, collective: Collective, dtype: str, redop: str, in_place: bool) -> str:
        """Why this cannot be called here, or nothing."""
        ...

    def ulps(self, redop: str, ranks: int) -> int:
        """The documented exception to bit-exactness, in units in the last place."""
        ...

    def group(self, members: list[tuple[int, ...]]) -> Group | None:
        """Make these disjoint groups (called alike on every rank); the one we are in, if any."""
        ...

    def bind(self, call: Call) -> Issue:
        """A closure that does nothing but the call: it is timed, so it must not allocate."""
        ...

    def sync_point(self, group: Group) -> Callable[[], object]:
        """What returns when every rank of the group has called it: this library's own barrier over the
        connections that `bind`'s calls use, so that they are as awake as in a program that has one."""
        ...

    def close(self) -> None: ...


ENGINES = ("torch", "deepspeed", "mpi4py")


def open_engine(name: str, backend: str, device: "torch.device", capability: int = 0) -> Engine:
    """The engine of that name on an existing process group; CannotMeasure without its extra.

    capability: the least compute capability of the ranks' GPUs, 90 for Hopper.
    """
    try:
        if name == "deepspeed":
            from wirespeed.collectives.engines.torch_engine import DeepSpeedEngine

            return DeepSpeedEngine(backend, device, capability)
        if name == "mpi4py":
            from wirespeed.collectives.engines.mpi_engine import MpiEngine

            return MpiEngine(device)
        from wirespeed.collectives.engines.torch_engine import TorchEngine

        return TorchEngine(backend, device, capability=capability)
    except ImportError as error:
        extra = {"mpi4py": "mpi"}.get(name, name)
        raise CannotMeasure(
            f"the engine {name} cannot be loaded: {error}",
            expected=f"the extra `{extra}` to be installed",
            next=f"pip install 'wirespeed[{extra}]'",
        ) from error
