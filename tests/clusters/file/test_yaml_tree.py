"""The strict YAML reader: plain text with lines, and nothing that YAML can do beside that."""

import time
import types
from pathlib import Path

import pytest

import hostile_files as hostile
from wirespeed import yaml_tree
from wirespeed.yaml_tree import MOST_BYTES, MOST_DEPTH, Mark, parse


def test_values_stay_text_whatever_yaml_1_1_makes_of_them() -> None:
    text = "no yes on off Y 012 0o14 0x1f 1e3 1_000 1.10 .inf 2026-11-05 12:30:45 = <"
    plain = text.split()
    tree = parse("\n".join(f"k{index}: {text}" for index, text in enumerate(plain)))
    assert list(tree.data.values()) == plain
    assert tree.complaints == []


def test_empty_values_are_none_and_quoted_ones_text() -> None:
    tree = parse("a:\nb: ~\nc: null\nd: ''\ne: 'null'\nf: \"~\"\n")
    assert tree.data == {"a": None, "b": None, "c": None, "d": "", "e": "null", "f": "~"}


def test_keys_are_text_too() -> None:
    assert parse("on: 1\n1: 2\nnull: 3\n").data == {"on": "1", "1": "2", "null": "3"}


def test_every_key_and_item_has_its_place() -> None:
    tree = parse("a: 1\nb:\n  - x\n  -\n  - {c: d}\n")
    assert tree.marks == {
        ("a",): Mark(1, 1),
        ("b",): Mark(2, 1),
        ("b", 0): Mark(3, 5),
        ("b", 1): Mark(5, 5),
        ("b", 1, "c"): Mark(5, 6),
    }
    assert tree.mark(("b", 1, "nix", 7)) == Mark(5, 5)
    assert tree.mark(("nix",)) == Mark(1, 1)


@pytest.mark.parametrize(
    ("text", "line", "saw"),
    [
        ("a: 1\nb: &x 2\n", 2, "an anchor, &x"),
        ("a: 1\nb: *x\n", 2, "an alias, *x"),
        ("*x : 1\n", 1, "an alias, *x"),
        ("a: !!python/object/apply:os.system [id]\n", 1, "python/object/apply:os.system"),
        ("a: !!str 3\n", 1, "a tag"),
        ("a: ! x\n", 1, "a tag, !"),
        ("!!map {a: 1}\n", 1, "a tag"),
        ("a: 1\nb: 2\na: 3\n", 3, "the first is in line 1"),
        ("a: 1\n---\na: 2\n", 2, "a second document"),
        ("a:\n\tb: 1\n", 2, "a tab in the indentation"),
        ("a:\n  \t- 1\n", 2, "a tab in the indentation"),
        ("a: 1\n\nb: \0\n", 3, "U+0000"),
        ("a: \x1b[31m\n", 1, "U+001B"),
        ("a: \ud800\n", 1, "U+D800"),
        ("? [a]\n: b\n", 1, "a list or a map as a key"),
        ("b: 0\na: [1, 2\n\n", 2, "did not find expected or else expected ','"),
        ("a: b: c\n", 1, "mapping values are not allowed"),
        ('a: "\\UFFFFFFFF"\n', 1, "invalid Unicode or else no YAML"),
        ("%YAML 9.9\n---\na: 1\n", 1, "incompatible"),
    ],
)
def test_what_is_not_read_is_said_with_its_line(text: str, line: int, saw: str) -> None:
    complaints = parse(text).complaints
    assert [one.mark.line for one in complaints] == [line]
    assert any(words in complaints[0].saw for words in saw.split(" or else "))


def test_a_duplicate_key_keeps_the_first_value_and_is_read_on() -> None:
    tree = parse("a: {x: 1}\na: {x: 2, y: &q 3}\nb: 4\n")
    assert tree.data == {"a": {"x": "1"}, "b": "4"}
    assert tree.marks[("a", "x")] == Mark(1, 5)
    assert [one.mark.line for one in tree.complaints] == [2, 2]
    assert tree.whole


@pytest.mark.hostile("bombs")
@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
def test_bombs_cost_nothing(loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    if loader == "SafeLoader":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    elif not hasattr(yaml, loader):
        pytest.skip("Requires: PyYAML with libyaml")
    monkeypatch.setattr(yaml_tree, "MOST_VALUES", 1000)
    began = time.monotonic()
    assert len(parse(hostile.BOMB).complaints) == 81
    for deep in ("[" * 100_000, "{a: " * 50_000, "- " * 100_000):
        (complaint,) = parse(deep).complaints
        assert f"more than {MOST_DEPTH} levels" in complaint.saw
    (complaint,) = parse("- x\n" * 1001).complaints
    assert "more than 1000 values" in complaint.saw
    assert time.monotonic() - began < 60, "a bomb went off"


@pytest.mark.hostile("bombs")
def test_a_large_file_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    monkeypatch.setattr(yaml, "parse", types.MethodType(lambda *_: pytest.fail("parsed"), yaml))
    for text in ("x" * (MOST_BYTES + 1), "ü" * (MOST_BYTES // 2 + 1)):
        (complaint,) = parse(text).complaints
        assert "larger than 1 MB" in complaint.saw


def test_both_parsers_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    text = Path(__file__).with_name("older.yaml").read_text("utf-8")
    quick = parse(text)
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert parse(text) == quick


def test_an_item_without_a_value_is_none() -> None:
    assert parse("a:\n  - x\n  -\n  - ~\n  - y\n").data == {"a": ["x", "y"]}


def test_half_a_character_is_refused_by_both_parsers(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    assert parse('a: "\\ud800"\n').complaints
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    (complaint,) = parse('a: "\\ud800"\n').complaints
    assert "half of a character" in complaint.saw
