"""The engines, one file each; a module is imported when its engine is asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

from wirespeed.errors import UsageError
from wirespeed.launchers import ENGINES

if TYPE_CHECKING:
    from wirespeed.launchers.base import Engine


def engine_named(name: str) -> "Engine":
    """The engine of that name; UsageError lists them."""
    if name not in ENGINES:
        raise UsageError(f"no engine is called {name!r}", expected=", ".join(ENGINES))
    engine: Engine = import_module(f"wirespeed.launchers.engines.{name}").ENGINE
    return engine
