"""Runs of nodes at given times, as they lie in a home."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from wirespeed.model.codec import to_json
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Finding, Located, NodeFacts, PairFigures, Run, World
from wirespeed.runs import jsontext
from wirespeed.runs.folder import private_folder
from wirespeed.runs.index import Index

Stored = Callable[..., str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    monkeypatch.setenv("WIRESPEED_HOME", str(path))
    return path


@pytest.fixture
def stored(home: Path) -> Stored:
    """Stores a run that began at a time and gives its folder's name."""
    count = 0

    def store(
        at: str,
        *hosts: str,
        verdict: str = "READY",
        command: str = "check",
        findings: Sequence[Finding] = (),
        facts: Facts | None = None,
        gpus: Sequence[dict[str, Any]] = (),
        seconds: float = 60.0,
        exit_code: int | None = None,
        config: dict[str, Any] | None = None,
        pairs: Iterable[tuple[str, str]] = (),
        backend: str = "gloo",
    ) -> str:
        nonlocal count
        count += 1
        nodes = tuple(
            NodeFacts(host=host, ranks=(rank,), facts=facts or Facts(), gpus=tuple(gpus))
            for rank, host in enumerate(hosts)
        )
        code = exit_code if exit_code is not None else 0 if verdict == "READY" else 1
        run = Run(
            id=f"{count:08x}",
            command=command,
            verdict=verdict,  # type: ignore[arg-type]
            exit_code=code,
            started=at,
            seconds=seconds,
            world=World(size=len(hosts), nodes=nodes, backend=backend, launcher="local"),
            findings=tuple(findings),
            config=config or {},
            located=located(hosts, pairs) if command == "locate" else None,
        )
        name = f"{at[:10].replace('-', '')}-{at[11:19].replace(':', '')}-{run.id}"
        folder = private_folder("runs") / name
        folder.mkdir(mode=0o700)
        (folder / "run.json").write_text(jsontext.dump(to_json(run)) + "\n")
        return name

    return store


def located(hosts: Sequence[str], pairs: Iterable[tuple[str, str]]) -> Located:
    figures = tuple(
        PairFigures(first=a, second=b, rail=0, round=0, latency=1e-6, forth=1e9, back=1e9, both=0.0)
        for a, b in pairs
    )
    return Located(
        over="nodes",
        nodes=tuple(hosts),
        rounds=1,
        pairs_measured=len(figures),
        pairs_possible=len(hosts) * (len(hosts) - 1) // 2,
        stopped="",
        compute=(),
        pairs=figures,
    )


@pytest.fixture
def index(home: Path) -> Iterator[Callable[[], Index]]:
    """Opens the index as it is then."""
    opened = []

    def open_now() -> Index:
        context = Index.opened()
        opened.append(context)
        return context.__enter__()

    yield open_now
    for context in opened:
        context.__exit__(None, None, None)
