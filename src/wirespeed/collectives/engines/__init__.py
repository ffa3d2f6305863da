"""Engines: the libraries through which a collective is called."""

from typing import TYPE_CHECKING

from wirespeed.errors import CannotMeasure

if TYPE_CHECKING:
    import torch

    from wirespeed.collectives.engines.base import Engine


ENGINES = ("torch", "deepspeed", "mpi4py")


def open_engine(name: str, backend: str, device: "torch.device") -> "Engine":
    """The engine of that name on an existing process group; CannotMeasure without its extra."""
    try:
        if name == "deepspeed":
            from wirespeed.collectives.engines.deepspeed_engine import DeepSpeedEngine

            return DeepSpeedEngine(backend, device)
        if name == "mpi4py":
            from wirespeed.collectives.engines.mpi_engine import MpiEngine

            return MpiEngine(device)
        from wirespeed.collectives.engines.torch_engine import TorchEngine

        return TorchEngine(backend, device)
    except ImportError as error:
        extra = {"mpi4py": "mpi"}.get(name, name)
        raise CannotMeasure(
            f"the engine {name} cannot be loaded: {error}",
            expected=f"the extra `{extra}` to be installed",
            next=f"pip install 'wirespeed[{extra}]'",
        ) from error
