"""Which file a name means, and what is said where there is none."""

import os
from pathlib import Path

import pytest

from wirespeed.clusters.reading import ClusterFileError, find_file, known_files, read_named, stem
from wirespeed.errors import UsageError

GOOD = "cluster: {name: a}\n"


def put(*names: str, text: str = GOOD) -> None:
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_name_is_a_file_of_the_folder_clusters() -> None:
    put("clusters/mine.yaml", "clusters/yours.yml", "mine.yaml")
    assert find_file("mine") == Path("clusters/mine.yaml")
    assert find_file("yours") == Path("clusters/yours.yml")
    assert read_named("mine").cluster.name == "a"


def test_a_path_is_one_by_its_slash_or_its_ending() -> None:
    put("mine.yaml", "other/x.conf", "b.yml")
    assert find_file("mine.yaml") == Path("mine.yaml")
    assert find_file("b.yml") == Path("b.yml")
    assert find_file("./other/x.conf") == Path("other/x.conf")
    assert read_named(str(Path("other/x.conf").resolve())).cluster.name == "a"


def test_known_files_are_sorted_and_are_files() -> None:
    put("clusters/b.yaml", "clusters/a.yml", "clusters/.c.yaml", "clusters/d.txt")
    Path("clusters/e.yaml").mkdir()
    assert known_files() == [Path("clusters/a.yml"), Path("clusters/b.yaml")]


def test_without_a_folder_nothing_is_known() -> None:
    assert known_files() == []


BAD_NAMES = (
    "..",
    "a..b",
    "",
    "a b",
    "a\nb",
    "a\x1b[2J",
    "a\0",
    "-a",
    "$(id)",
    "`id`",
    "'",
    "a" * 200,
    ".a",
)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_what_can_be_no_name_is_refused_and_shown_harmless(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a cluster file's name") as caught:
        find_file(name)
    assert all(line.isprintable() for line in str(caught.value).splitlines())


@pytest.mark.parametrize(
    "path", ["./nix", "../nix.yaml", "a\0.yaml", "a\x1b.yaml", "/" + "a" * 300, "a/\n"]
)
def test_a_path_that_is_not_there(path: str) -> None:
    with pytest.raises(UsageError, match="there is no file") as caught:
        read_named(path)
    assert all(line.isprintable() for line in str(caught.value).splitlines())


def test_a_missing_name_lists_what_is_there_and_what_is_near() -> None:
    put("clusters/barcelona.yaml", "clusters/cairo.yaml")
    with pytest.raises(UsageError) as caught:
        find_file("barcellona")
    assert str(caught.value).splitlines() == [
        "there is no clusters/barcellona.yaml in this folder; did you mean barcelona?",
        "  expected  one of barcelona, cairo",
        "  next      wirespeed cluster validate barcelona",
    ]


def test_in_an_empty_folder_the_next_command_makes_one() -> None:
    with pytest.raises(UsageError) as caught:
        find_file("mine")
    assert caught.value.next == "wirespeed cluster new mine"


def test_two_files_of_one_name() -> None:
    put("clusters/a.yaml", "clusters/a.yml")
    with pytest.raises(UsageError, match=r"clusters/a\.yaml or clusters/a\.yml"):
        find_file("a")


def test_what_is_no_file_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    (folder / "folder.yaml").mkdir()
    for name in ("pipe.yaml", "folder.yaml", "/dev/zero"):
        with pytest.raises(UsageError, match="is no file"):
            read_named(name)


def test_a_file_that_may_not_be_read(folder: Path) -> None:
    put("a.yaml")
    (folder / "a.yaml").chmod(0)
    if os.access(folder / "a.yaml", os.R_OK):
        pytest.skip("Requires: another user than root")
    with pytest.raises(UsageError, match="cannot be read"):
        read_named("a.yaml")


def test_a_large_file_is_not_read_whole() -> None:
    put("a.yaml", text="#" * 2_000_000)
    with pytest.raises(ClusterFileError, match="larger than 1 MB"):
        read_named("a.yaml")


def test_problems_carry_the_path() -> None:
    put("clusters/a.yaml", text="cluster: {name: a}\ngpu: 3\n")
    with pytest.raises(ClusterFileError, match=r"clusters/a\.yaml:2: gpu: saw an unknown key"):
        read_named("a")


def test_what_means_a_file_on_the_command_line() -> None:
    assert stem(Path("clusters/a.yaml")) == "a"
    assert stem(Path("clusters/a b.yaml")) == "clusters/a b.yaml"
    assert stem(Path("other/a.yaml")) == "other/a.yaml"
