"""In the environment of a sandbox of `mutants.py`, in every Python process and as a plugin of pytest:
says which test reaches which place, runs given tests in a given order, notes times and failures.

PYTEST_DONT_REWRITE: it is loaded before pytest.
"""

import builtins
import os
from contextlib import suppress
from typing import Any

_HERE = os.path.dirname(__file__)  # noqa: PTH120
_seen: set[int] = set()
_test = ""
_spent: dict[str, float] = {}
_failed: set[str] = set()


def _lines(path: str) -> list[str]:
    with suppress(OSError), open(path) as file:  # noqa: PTH123
        return file.read().splitlines()
    return []


_reach = "".join(_lines(f"{_HERE}/mutants_reach"))
"""Folder of what is found out; empty where nothing is asked."""


def _hit(key: int) -> None:
    """The place `key` is reached, by the test that runs: that of our pytest, or else any."""
    if _reach and key not in _seen:
        _seen.add(key)
        worker = os.environ.get("MUTANTS_WORKER")
        with suppress(OSError):
            workers = [worker] if worker else os.listdir(f"{_reach}/now")  # noqa: PTH208
            tests = {"".join(_lines(f"{_reach}/now/{one}")) for one in workers}
            _append("hits", "".join(f"{key}\t{test}\n" for test in sorted(tests)))


builtins._hit = _hit  # type: ignore[attr-defined]


def _append(name: str, text: str) -> None:
    with open(f"{_reach}/{name}-{os.getpid()}", "a") as file:  # noqa: PTH123
        file.write(text)


def _now(test: str) -> None:
    """This test runs, or `+FILE`: a fixture of several tests of that file is made."""
    global _test
    if _reach and test != _test:
        _test = test
        _seen.clear()
        worker = os.environ.setdefault("MUTANTS_WORKER", str(os.getpid()))
        os.makedirs(f"{_reach}/now", exist_ok=True)  # noqa: PTH103
        with open(f"{_reach}/now/{worker}", "w") as file:  # noqa: PTH123
            file.write(test)


def pytest_configure(config: Any) -> None:
    if hasattr(config, "workerinput"):
        os.environ["MUTANTS_WORKER"] = str(os.getpid())


def pytest_collection_modifyitems(items: list[Any]) -> None:
    if "MUTANTS_ONLY" in os.environ:
        asked = {name: place for place, name in enumerate(_lines(os.environ["MUTANTS_ONLY"]))}
        kept = [item for item in items if item.nodeid in asked]
        items[:] = sorted(kept, key=lambda item: asked[item.nodeid])
    else:
        done = set(_lines(os.environ.get("MUTANTS_SKIP", "")))
        items[:] = [item for item in items if item.nodeid not in done]


def pytest_runtest_protocol(item: Any) -> None:
    _now(item.nodeid)


def pytest_fixture_setup(fixturedef: Any, request: Any) -> None:
    item = getattr(request, "_pyfuncitem", None)
    name = item.nodeid if item else _test.lstrip("+")
    _now(name if fixturedef.scope == "function" else "+" + name.partition("::")[0])


def pytest_runtest_call(item: Any) -> None:
    _now(item.nodeid)


def pytest_runtest_logreport(report: Any) -> None:
    """Times of what passed alone: what failed runs again when the measurement goes on."""
    _spent[report.nodeid] = _spent.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        _failed.add(report.nodeid)
        if "MUTANTS_FAILED" in os.environ:
            with open(os.environ["MUTANTS_FAILED"], "a") as file:  # noqa: PTH123
                file.write(report.nodeid + "\n")
    elif report.when == "teardown" and _reach and report.nodeid not in _failed:
        _append("times", f"{_spent[report.nodeid]:.3f}\t{report.nodeid}\n")
