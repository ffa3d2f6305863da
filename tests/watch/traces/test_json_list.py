"""Long lists of objects: whole, cut anywhere, with bare quotes, in one piece or in many."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from wirespeed.diagnose.sources import Source
from wirespeed.errors import InputError
from wirespeed.watch.traces import json_list
from wirespeed.watch.traces.json_list import JsonList


class Item(Struct):
    name: str = ""
    args: object = None


def read(path: Path, data: bytes) -> tuple[list[Item], JsonList[Item]]:
    path.write_bytes(data)
    found = JsonList(Source(str(path), path), "events", Item)
    return [one for batch in found.batches() for one in batch], found


AWKWARD = [
    {"name": 'quotes " and },{ braces ]', "args": {"a": [{"b": 1}, {"c": "}, {"}]}},
    {"name": "\\", "args": {"deep": [[[{"x": []}]]]}},
    {"name": "plain", "args": {}},
]


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_all_objects_in_order_whatever_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, indent: int | None
) -> None:
    monkeypatch.setattr(json_list, "_BLOCK", block)
    whole = {"before": {"k": [1]}, "events": AWKWARD * 5, "after": "x"}
    found, told = read(tmp_path / "a.json", json.dumps(whole, indent=indent).encode())
    assert [one.name for one in found] == [one["name"] for one in AWKWARD] * 5
    assert (told.cut, told.skipped) == ("", 0)
    assert [json.loads(text) for text in told.around] == [{"before": {"k": [1]}}, {"after": "x"}]


def test_a_bare_list_needs_no_bracket_at_its_end(tmp_path: Path) -> None:
    text = json.dumps(AWKWARD).encode()
    for data in (text, text[:-1], text[:-1] + b",\n"):
        found, told = read(tmp_path / "a.json", data)
        assert (len(found), told.cut) == (3, "")
    assert read(tmp_path / "a.json", text[:-3])[1].cut


def test_an_object_that_is_no_json_is_skipped_and_counted(tmp_path: Path) -> None:
    text = b'{"events": [{"name": "a"}, {"name": "b" c}, {"name": NaN}, {"name": "d"}]}'
    found, told = read(tmp_path / "a.json", text)
    assert ([one.name for one in found], told.skipped, told.cut) == (["a", "d"], 2, "")


@given(st.data())
def test_cut_at_any_byte_it_gives_what_is_whole_and_says_so(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    text = json.dumps({"events": AWKWARD * 3, "z": [{"name": "no"}]}).encode()
    end = data.draw(st.integers(text.index(b"[") + 1, len(text) - 1))
    found, told = read(tmp_path_factory.getbasetemp() / "cut.json", text[:end])
    ends = [text.index(json.dumps(one).encode(), at) for at, one in _places(text)]
    assert len(found) == sum(
        begin + len(json.dumps(one)) <= end for begin, one in zip(ends, AWKWARD * 3, strict=True)
    )
    assert told.cut


def _places(text: bytes) -> list[tuple[int, dict[str, object]]]:
    places, at = [], 0
    for one in AWKWARD * 3:
        at = text.index(json.dumps(one).encode(), at)
        places.append((at, one))
        at += 1
    return places


@pytest.mark.parametrize("data", [b"", b"{}", b'{"events": 3}', b"\x00\xff" * 100, b"no"])
def test_without_such_a_list_it_is_an_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InputError, match="holds no list"):
        read(tmp_path / "a.json", data)


def test_an_object_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_list, "_LONGEST", 1 << 16)
    monkeypatch.setattr(json_list, "_BLOCK", 1 << 12)
    with pytest.raises(InputError, match="without an end"):
        read(tmp_path / "a.json", b'{"events": [{"name": "' + b"x" * (1 << 17))
