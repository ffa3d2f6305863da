"""Which variables go along, and which are written down."""

import pytest

from wirespeed.errors import UsageError
from wirespeed.launchers.request import forwarded, shown

HERE = {
    "NCCL_DEBUG": "INFO",
    "GLOO_SOCKET_IFNAME": "eth0",
    "OMP_NUM_THREADS": "2",
    "PATH": "/bin",
    "HF_TOKEN": "secret",
    "NCCL_SECRET_KEY": "secret",
    "CUDA_VISIBLE_DEVICES": "0",
}


def test_families_go_along_and_secrets_do_not() -> None:
    assert sorted(forwarded(HERE)) == ["GLOO_SOCKET_IFNAME", "NCCL_DEBUG", "OMP_NUM_THREADS"]


def test_what_is_asked_for_goes_along_whatever_it_is() -> None:
    found = forwarded(HERE, ("HF_TOKEN", "A=x=y", "EMPTY=", "NCCL_DEBUG=WARN"))
    assert found["HF_TOKEN"] == "secret"
    assert (found["A"], found["EMPTY"], found["NCCL_DEBUG"]) == ("x=y", "", "WARN")


@pytest.mark.parametrize("word", ["", "1A", "A B=1", "-x", "$(id)=1", "NOT_SET_HERE", "A=b\0c"])
def test_what_is_no_variable_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="-x"):
        forwarded(HERE, (word,))


def test_secrets_are_named_and_not_told() -> None:
    assert shown({"NCCL_DEBUG": "INFO", "HF_TOKEN": "s", "DB_PASSWORD": "p"}) == (
        {"NCCL_DEBUG": "INFO"},
        ["DB_PASSWORD", "HF_TOKEN"],
    )


def test_a_secret_s_value_is_not_taken_from_the_command_line() -> None:
    with pytest.raises(UsageError, match="ps"):
        forwarded(HERE, ("HF_TOKEN=value",))
