"""Several runs by one reference: the newest of a kind, and ranges."""

from pathlib import Path

import pytest

import usual
from wirespeed.errors import UsageError
from wirespeed.model.records import Run
from wirespeed.runs.selection import is_selection
from wirespeed.runs.store import find, find_all, load, save


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with seven runs of a kind, and runs of other kinds between them and after them."""
    home = tmp_path_factory.mktemp("filled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WIRESPEED_HOME", str(home))
        seven_of_a_kind()
        find_all("last:3")  # the index is made
    return home


@pytest.fixture(autouse=True)
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The filled home where a test asks for it, else an empty one."""
    filled = "filled" in request.fixturenames
    path = request.getfixturevalue("filled") if filled else tmp_path / "home"
    monkeypatch.setenv("WIRESPEED_HOME", str(path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kept(id: str, minute: int, op: str = "all_reduce", ranks: int = 2, **changes: object) -> Run:
    run = usual.run(
        id=id, command="bench", started=f"2026-11-03T10:{minute:02d}:00.000Z",
        world=usual.world(usual.node("a", *range(ranks)), size=ranks),
        measurements=tuple(
            usual.measurement(1e-4, size, 0.01, op=op, ranks=ranks) for size in (1024, 4096, 16384)
        ),
    )  # fmt: skip
    save(run)
    return run


def seven_of_a_kind() -> None:
    for k in range(7):
        kept(f"a{k}000000", 4 * k)
        kept(f"b{k}000000", 4 * k + 1, op="broadcast")
    for k in range(6):
        kept(f"c{k}000000", 4 * k + 2, ranks=4)
    save(usual.run(id="d0000000", command="topo", started="2026-11-03T11:00:00.000Z"))
    kept("a7000000", 40)


def ids(reference: str) -> list[str]:
    return [load(path).id[:2] for path in find_all(reference)]


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("last", ["a7"]),
        ("last:1", ["a7"]),
        ("last:3", ["a5", "a6", "a7"]),
        ("last~0", ["a7"]),
        ("last~2", ["a5"]),
        ("last~5..last~3", ["a2", "a3", "a4"]),
        ("last~3..last~5", ["a2", "a3", "a4"]),
        ("last~1..last", ["a6", "a7"]),
        ("b1..b3", ["b1", "b2", "b3"]),
        ("c2000000..c2", ["c2"]),
        ("a5..last", ["a5", "a6", "a7"]),
        ("b4", ["b4"]),
    ],
)
def test_runs_of_the_same_kind_are_counted(
    filled: Path, reference: str, expected: list[str]
) -> None:
    assert ids(reference) == expected


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("last:9", "only 8 runs of the same kind as the newest (bench on 2 ranks)"),
        ("last~8", "only 8 runs"),
        ("last~9..last", "only 8 runs"),
        ("last:0", "names no run"),
        ("a1..b3", "not of the same kind"),
        ("a1..ffff", "names no run with figures"),
        ("a1..d0", "names no run with figures"),
        ("a..b1", "names no run with figures"),
        ("a0..xyz", "names no run with figures"),
    ],
)
def test_what_names_no_runs_is_refused(filled: Path, reference: str, said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(").replace(")", r"\)")):
        find_all(reference)


def test_one_run_before_the_last_can_stand_wherever_a_run_can(filled: Path) -> None:
    assert load(find("last~1")).id == "a6000000"
    with pytest.raises(UsageError, match="names 3 runs"):
        find("last:3")


def test_no_runs_at_all(home: Path) -> None:
    with pytest.raises(UsageError, match="no stored run has figures"):
        find_all("last:3")


def test_paths_and_ids_are_none_of_it(home: Path) -> None:
    (home / "a..b").write_text("{}")
    for reference in ("last", "7f3c", "../x/run..json", "a..b", "..", "a..", "last:x", "x" * 5000):
        assert not is_selection(reference), reference
    assert is_selection("a1..b2") and is_selection("last:3") and is_selection("last~0")


def test_more_runs_than_are_read_at_once(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirespeed.runs.selection._AT_ONCE", 2)
    assert ids("last:8") == [f"a{k}" for k in range(8)]
    assert ids("a0..last~6") == ["a0", "a1"]
