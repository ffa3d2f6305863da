"""One secret a job: where it is read, that it goes, and what bears its mark."""

import os
from pathlib import Path

import pytest

from wirespeed.errors import UsageError
from wirespeed.node.secret import VARIABLE, Seal, derived, job_secret, new_secret

pytestmark = pytest.mark.hostile("forged messages")

SECRET = new_secret()
OTHER = new_secret()


def kept(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    file = tmp_path / "secret"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_it_leaves_the_environment(tmp_path: Path) -> None:
    environ = {VARIABLE: SECRET, "PATH": "/bin"}
    assert job_secret(environ) == SECRET.encode()
    assert environ == {"PATH": "/bin"}
    assert job_secret(environ) is None
    environ[VARIABLE] = OTHER
    assert job_secret(environ, kept(tmp_path, f"{SECRET}\n")) == SECRET.encode()
    assert VARIABLE not in environ


@pytest.mark.parametrize("text", ["", "short", "x" * 5000, "two words of a sentence"])
def test_what_is_no_secret_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    for given in (({VARIABLE: text}, None), ({}, kept(tmp_path, text))):
        with pytest.raises(UsageError) as caught:
            job_secret(*given)
        assert not text or text not in str(caught.value)


def test_a_file_that_others_read_is_no_secret(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="0640") as caught:
        job_secret({}, kept(tmp_path, SECRET, 0o640))
    assert "chmod 600" in caught.value.next


def test_devices_pipes_and_nothing_hold_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for file in (Path("/dev/zero"), tmp_path / "pipe", tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match="--secret-file"):
            job_secret({}, file)


def test_keys_tell_nothing_of_each_other() -> None:
    keys = {derived(secret.encode(), use) for secret in (SECRET, OTHER) for use in ("a", "b")}
    assert len(keys) == 4
    assert all(len(key) == 32 for key in keys)


def test_a_mark_fits_one_text_in_one_place_of_one_job() -> None:
    ours = Seal(SECRET.encode(), "store")
    text = ours.close(b"door", "key/1")
    assert ours.open(text, "key/1") == b"door"
    forged = [
        (text, "key/2"),
        (text[:-1] + b"x", "key/1"),
        (Seal(OTHER.encode(), "store").close(b"door", "key/1"), "key/1"),
        (Seal(SECRET.encode(), "meeting").close(b"door", "key/1"), "key/1"),
        (Seal(None, "store").close(b"door", "key/1"), "key/1"),
        *((part, "key/1") for part in (b"", b"door", b"s1 ", text[:20])),
    ]
    for what, where in forged:
        with pytest.raises(ValueError, match="mark of this job's secret"):
            ours.open(what, where)


def test_without_a_secret_nothing_is_marked_and_a_mark_is_told() -> None:
    none = Seal(None, "store")
    assert none.open(none.close(b"o1 s1 x", "key"), "key") == b"o1 s1 x"
    with pytest.raises(ValueError, match="this rank was given none"):
        none.open(Seal(SECRET.encode(), "store").close(b"x", "key"), "key")
