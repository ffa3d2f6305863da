"""What a lab made is known before it is made, and after a crash."""

import json
from pathlib import Path

import pytest

from wirespeed.errors import InputError, UsageError
from wirespeed.lab.spec import Cut, LabSpec
from wirespeed.lab.state import Made, all_states, claim, load


def test_it_stands_on_disk_before_the_thing_is_made(places: Path) -> None:
    state = claim(LabSpec(2, "one", faults=(Cut("node-1"),)))
    state.will_make("namespace", "wslab-one-node-0")
    again = load("one")
    assert again is not None
    assert again.made == [Made("namespace", "wslab-one-node-0")]
    assert again.spec == LabSpec(2, "one", faults=(Cut("node-1"),))
    assert not again.ready
    state.remove()
    assert load("one") is None
    assert not list(places.iterdir())


def test_two_labs_have_two_subnets_and_one_name_is_taken_once(places: Path) -> None:
    first, second = claim(LabSpec(name="one")), claim(LabSpec(name="two"))
    assert first.subnet != second.subnet
    with pytest.raises(UsageError, match="one is there already") as raised:
        claim(LabSpec(name="one"))
    assert "down --name one" in raised.value.next
    assert [state.spec.name for state in all_states()] == ["one", "two"]
    first.remove()
    assert load("two") is not None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"name": "one", "nodes": "x"}'])
def test_a_damaged_state_is_told_and_kept(places: Path, content: str) -> None:
    state = claim(LabSpec(name="one"))
    state.path.write_text(content)
    with pytest.raises(InputError, match="not the state of a lab"):
        load("one")
    assert state.path.exists()


def test_a_folder_that_others_can_write_is_not_believed(places: Path) -> None:
    state = claim(LabSpec(name="one"))
    state.path.parent.chmod(0o777)
    assert load("one") is None
    assert json.loads(state.path.read_text())["name"] == "one"
