"""`world`: run a function of the test's own file on real gloo ranks (worlds.py)."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def nursery() -> Iterator[Any]:
    """What forks the ranks of all worlds of these tests."""
    spec = importlib.util.spec_from_file_location("worlds", Path(__file__).parent / "worlds.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.Nursery() as started:
        yield started


@pytest.fixture(scope="module")
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, nursery: Any
) -> Callable[..., list[Any]]:
    """world("function", ranks=2, arguments={...}) -> what it returned, by rank."""
    folder = tmp_path_factory.mktemp("world")

    def start(function: str, **options: Any) -> list[Any]:
        found: list[Any] = nursery.run(request.path, function, folder=folder, **options)
        return found

    return start
