"""Which runs wait to be sent to a common store, and what an address of one may hold."""

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from wirespeed.errors import UsageError
from wirespeed.fleet.common_store.outbox import waiting
from wirespeed.model.records import Run
from wirespeed.runs.folder import PatientFolder
from wirespeed.runs.store import outdated, save
from wirespeed.runs.unsent import checked_address, label

STORE = "postgresql://fleet@db.example:5432/fleet?sslmode=verify-full"


def outbox(home: Path) -> list[Path]:
    return sorted((home / "outbox").glob("*"))


def test_a_stored_run_waits_where_a_store_is_named(
    small_run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(replace(small_run, id="00000001"))
    assert outbox(home) == []
    monkeypatch.setenv("WIRESPEED_STORE", STORE)
    path = save(small_run)
    (one,) = outbox(home)
    assert one.name == f"{path.name}.json"
    assert json.loads(one.read_text()) == {"store": STORE}
    assert stat.S_IMODE(one.stat().st_mode) == 0o600
    assert stat.S_IMODE(one.parent.stat().st_mode) == 0o700


@pytest.mark.hostile("hostile values")
def test_a_run_is_stored_whatever_the_outbox_is(
    small_run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIRESPEED_STORE", "postgresql://fleet:secret@db/fleet")
    assert save(replace(small_run, id="00000001")).is_dir()
    assert outbox(home) == []
    monkeypatch.setenv("WIRESPEED_STORE", STORE)
    (home / "outbox").write_text("a file")
    assert save(small_run).is_dir()


def test_a_run_that_waits_is_not_pruned(small_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = save(replace(small_run, id="00000001"))
    monkeypatch.setenv("WIRESPEED_STORE", STORE)
    save(replace(small_run, id="00000002"))
    assert outdated(None, 0) == [first]


PASSWORDS = [
    "postgresql://fleet:secret@db/fleet",
    "postgresql://:secret@db/fleet",
    "postgresql://fleet:se/cr?et@db/fleet",
    "postgres://db/fleet?user=fleet&password=secret",
    "postgres://db/fleet?PASSWORD=secret",
    "postgres://db/fleet?sslpassword=secret",
]


@pytest.mark.hostile("hostile values")
@pytest.mark.parametrize("url", PASSWORDS)
def test_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        checked_address(url)
    assert "holds a password" in caught.value.saw
    assert ".pgpass" in caught.value.expected
    for part in ("secret", "se/cr", "cr?et"):
        assert part not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "fleet", "mysql://a:secret@db/x", "postgresql://", "postgresql://a\nb"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError, match="is no address of a store") as caught:
        checked_address(url)
    assert "secret" not in str(caught.value)


def test_addresses() -> None:
    for url in (
        STORE,
        "postgresql://me@db:1/x?sslcert=a@b",
        "postgres:///fleet?host=/run/postgresql",
        "postgresql://a,b:6432/fleet",
    ):
        assert checked_address(url) == url
    assert label(STORE) == "postgresql://db.example:5432/fleet"
    assert label("postgresql://me@db:1/x?sslcert=a@b") == "postgresql://db:1/x"


def test_a_run_waits_from_its_beginning_and_is_let_alone_while_it_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIRESPEED_STORE", STORE)
    folder = PatientFolder.create("soak", {})
    assert [path.stem for path in outbox(home)] == [folder.path.name]
    assert waiting() == []
    folder.lock.release()  # as after its death
    assert [one.name for one in waiting()] == [folder.path.name]
