"""`world`: run a function of the test's own file on real gloo ranks (worlds.py)."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def _run_world() -> Callable[..., list[Any]]:
    spec = importlib.util.spec_from_file_location("worlds", Path(__file__).parent / "worlds.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run: Callable[..., list[Any]] = module.run_world
    return run


@pytest.fixture(scope="module")
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[Any]]:
    """world("function", ranks=2, arguments={...}) -> what it returned, by rank."""
    folder, run = tmp_path_factory.mktemp("world"), _run_world()

    def start(function: str, **options: Any) -> list[Any]:
        return run(request.path, function, folder=folder, **options)

    return start
