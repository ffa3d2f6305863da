"""A made-up store, and what a page gives."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from starlette.requests import Request
from starlette.responses import Response

import fleet_lab as lab
from wirespeed.runs.source import opened
from wirespeed.site.framing import Site


@pytest.fixture(scope="session")
def fleet_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 nodes on 12 days; two of them have names that would be more than text."""
    home = tmp_path_factory.mktemp("fleet", numbered=True)
    home.chmod(0o700)
    lab.stored(home, 48, 12, now=datetime.now(UTC).replace(tzinfo=None), evil=True)
    return home


@pytest.fixture
def fleet(fleet_home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its module, with the store as this user's."""
    monkeypatch.setenv("WIRESPEED_HOME", str(fleet_home))
    return lab


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


Page = Callable[..., str]


@pytest.fixture
def shown() -> Iterator[Page]:
    """`shown(page, query, path=…)`: its text."""
    site = Site(opened, "runs in a test")

    def text(
        page: Callable[[Site, Request], Response],
        query: Any = (),
        status: int = 200,
        **path: str,
    ) -> str:
        scope = {
            "type": "http",
            "method": "GET",
            "path": quote("/"),
            "query_string": urlencode(
                list(query.items() if isinstance(query, dict) else query)
            ).encode(),
            "headers": [],
            "path_params": path,
        }
        answer = page(site, Request(scope))
        assert answer.status_code == status
        return bytes(answer.body).decode()

    yield text
