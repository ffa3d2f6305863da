"""`--with KEY=VALUE` against what an engine knows."""

import pytest

from wirespeed.errors import UsageError
from wirespeed.launchers import ENGINES
from wirespeed.launchers.engines import engine_named
from wirespeed.launchers.request import read_options
from wirespeed.launchers.texts import EngineOption


class Toy:
    name = "toy"
    summary = ""
    options = (EngineOption("partition", ""), EngineOption("exclusive", "", flag=True))


def test_values_and_flags() -> None:
    words = ("partition=a=b", "exclusive")
    assert read_options(Toy(), words) == {"partition": "a=b", "exclusive": "yes"}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("partitoin=a", "do you mean partition"),
        ("zzz", "no option 'zzz'"),
        ("partition", "no value"),
        ("partition=", "no value"),
        ("exclusive=maybe", "takes no value"),
    ],
)
def test_mistakes_are_explained(word: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_options(Toy(), (word,))  # type: ignore[arg-type]


def test_the_same_twice() -> None:
    with pytest.raises(UsageError, match="twice"):
        read_options(Toy(), ("partition=a", "partition=b"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_is_there_and_tells_what_it_is(name: str) -> None:
    engine = engine_named(name)
    assert engine.name == name
    assert engine.summary
    names = [option.name for option in engine.options]
    assert len(names) == len(set(names))
    assert all(option.help for option in engine.options)


@pytest.mark.parametrize("value", ["0", "65536", "ssh", "", "-1", "9" * 5000, "٣"])
def test_a_number_is_held_to_its_bounds(value: str) -> None:
    with pytest.raises(UsageError, match="--with port="):
        engine_named("ssh").check({"port": value})


def test_an_engine_that_is_none() -> None:
    with pytest.raises(UsageError, match="pbs"):
        engine_named("pbs")
