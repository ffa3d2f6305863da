"""torch.distributed whose ways to send pickles from rank to rank raise, wherever they are called.

On PYTHONPATH it is imported by every Python at its start, and waits for torch; a line in the file
that NO_PICKLES names says that it has struck. A process that has torch already calls `forbid()`.
"""

import os
import sys
from typing import Any, NoReturn

_HOME = "torch.distributed.distributed_c10d"
_ENDS = ("_object", "_object_list", "_object_to_tensor", "_tensor_to_object")


def forbid() -> None:
    """In this process, from now on."""
    import torch
    import torch.distributed as dist
    from torch.distributed.optim import zero_redundancy_optimizer

    _forbid_in(sys.modules[_HOME])
    _forbid_in(dist)
    _forbid_in(zero_redundancy_optimizer)
    load = torch.load

    def plain_load(*words: Any, weights_only: bool = False, **named: Any) -> Any:
        if not weights_only:
            raise AssertionError("torch.load was to load a pickle")
        return load(*words, weights_only=True, **named)

    torch.load = plain_load


def _forbid_in(module: Any) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a pickle was to be sent between ranks")

    names = [name for name in vars(module) if name.endswith(_ENDS)]
    assert names, f"{module.__name__} has no such function: this test has lost its object"
    for name in names:
        setattr(module, name, refuse)


def _tell() -> None:
    with open(os.environ["NO_PICKLES"], "a") as struck:  # noqa: PTH123
        struck.write(f"{os.getpid()} {os.getppid()}\n")


class _Finder:
    """Strikes when torch's module has been executed, before others take names from it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _HOME:
            return None
        from importlib.util import find_spec

        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec: Any = find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_forbid(module: Any) -> None:
            execute(module)
            _forbid_in(module)
            _tell()
            os.register_at_fork(after_in_child=_tell)

        spec.loader.exec_module = execute_and_forbid
        return spec


if "NO_PICKLES" in os.environ:
    sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
