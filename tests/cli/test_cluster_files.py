"""`wirespeed cluster new|list|validate|schema`, as a user calls them."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wirespeed.cli import run

BAD = "cluster:\n  name: bad\ngpu: {}\nnetwork: {preset: h100}\n"
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """`say("list")` -> exit code, stdout, stderr; in a folder of its own, nobody at the keyboard."""
    monkeypatch.chdir(tmp_path)

    def started(*words: str, answers: str = "", terminal: bool = False) -> tuple[int, str, str]:
        stdin = io.StringIO(answers)
        monkeypatch.setattr(stdin, "isatty", lambda: terminal)
        monkeypatch.setattr("sys.stdin", stdin)
        code = run(["cluster", *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return started


def put(name: str, text: str) -> None:
    path = Path("clusters") / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_new_then_validate_then_list(say: Say) -> None:
    code, out, _ = say("new", "mine", "--gpus", "8", "--nodes", "3", "--preset", "h100-ib")
    assert code == 0
    assert out.startswith("wrote clusters/mine.yaml\nnext: ")
    assert out.endswith("wirespeed cluster validate mine\n")
    code, out, _ = say("validate", "mine")
    first, *warned = out.splitlines()
    valid = "clusters/mine.yaml: valid: mine in default: statefulset, 3 × 8 GPUs, rdma"
    assert (code, first) == (0, valid)
    assert warned[0].startswith("  warning: workload.image is empty")
    code, out, _ = say("list")
    assert code == 0
    assert out.splitlines()[1].split() == ["mine", "default", "statefulset", "3×8", "rdma", "valid"]


def test_new_never_overwrites_unasked(say: Say) -> None:
    put("mine.yaml", "precious\n")
    code, _, err = say("new", "mine")
    assert code == 2
    assert "there already" in err
    assert Path("clusters/mine.yaml").read_text() == "precious\n"
    assert say("new", "mine", "--force")[0] == 0
    assert say("validate", "mine")[0] == 0


def test_new_to_stdout_and_to_any_file(say: Say) -> None:
    code, out, _ = say("new", "mine", "--image", "r.example.org/x:1", "-o", "-")
    assert code == 0
    assert "\n  image: r.example.org/x:1\n" in out
    assert not Path("clusters").exists()
    code, out, _ = say("new", "mine", "-o", "deep/x y.yaml")
    assert code == 0
    assert "validate 'deep/x y.yaml'" in out
    assert say("validate", "deep/x y.yaml")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Mine"], "cluster.name: saw 'Mine'"),
        (["../x"], "cluster.name: saw '../x'"),
        (["a\nb: c"], r"cluster.name: saw 'a\nb: c'"),
        (["mine", "--gpus", "65"], "gpus.per_node: saw '65', expected a whole number from 0 to 64"),
        (["mine", "--nodes", "0"], "gpus.default_nodes: saw '0'"),
        (["mine", "--preset", "h100"], "did you mean h100-ib?"),
        (["mine", "--image", "a b"], "workload.image: saw 'a b'"),
        (["mine", "--namespace", "$(id)"], "cluster.namespace: saw '$(id)'"),
    ],
)
def test_new_refuses_what_no_file_may_say(say: Say, words: list[str], said: str) -> None:
    code, out, err = say("new", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert not Path("clusters").exists()


def test_new_asks_on_a_terminal_and_asks_again(say: Say) -> None:
    answers = "team\nmany\n4\nr.example.org/x:1\n2\n\nrwx\n"
    code, _, err = say("new", "mine", answers=answers, terminal=True)
    assert code == 0
    assert "saw 'many', expected a whole number from 0 to 64" in err
    told = say("validate", "mine", "-o", "json")[1]
    assert json.loads(told)[0]["valid"] is True
    text = Path("clusters/mine.yaml").read_text()
    for line in ("namespace: team", "image: r.example.org/x:1", "per_node: 4", "mode: rwx"):
        assert f"\n  {line}\n" in text
    assert "\n  #preset:" in text


def test_new_asks_only_where_nothing_is_told_or_when_it_shall(say: Say) -> None:
    assert say("new", "a", "--gpus", "4", terminal=True)[0] == 0
    assert say("new", "b")[0] == 0
    code, _, err = say("new", "c", "--interactive", "--gpus", "4", answers="\n" * 6)
    assert code == 0
    assert "GPUs of each node (0: none) [4]" in err
    assert "image of the pods [localhost/wirespeed:cuda]" in err
    assert "\n  per_node: 4\n" in Path("clusters/c.yaml").read_text()
    assert say("new", "d", "--interactive", answers="x\n")[0] == 130
    assert not Path("clusters/d.yaml").exists()


def test_validate_tells_all_problems_of_all_files(say: Say) -> None:
    put("bad.yaml", BAD)
    put("good.yaml", "cluster: {name: good}\n")
    put("tab.yaml", "cluster:\n\tname: x\n")
    code, out, err = say("validate", "bad", "good", "clusters/tab.yaml", "nix")
    assert (code, err) == (2, "")
    lines = out.splitlines()
    assert lines[0].startswith(
        "clusters/bad.yaml:3: gpu: saw an unknown key, expected one of cluster"
    )
    assert lines[0].endswith("did you mean gpus?")
    assert lines[1].startswith("clusters/bad.yaml:4: network.preset: saw 'h100'")
    assert lines[2].startswith("clusters/good.yaml: valid: good in default: statefulset, 2 nodes")
    assert lines[3] == "clusters/tab.yaml:2: saw a tab in the indentation, expected spaces"
    assert lines[4] == "nix: there is no clusters/nix.yaml in this folder"


def test_validate_as_json(say: Say) -> None:
    put("bad.yaml", BAD)
    code, out, _ = say("validate", "bad", "nix", "-o", "json")
    assert code == 2
    bad, nix = json.loads(out)
    assert [(one["line"], one["key"], one["meant"]) for one in bad["problems"]] == [
        (3, "gpu", "gpus"),
        (4, "network.preset", "h100-ib"),
    ]
    assert bad["valid"] is nix["valid"] is False
    assert nix["refused"].startswith("there is no clusters/nix.yaml")


def test_validate_makes_the_choices_that_a_file_alone_allows(say: Say) -> None:
    put("few.yaml", "cluster: {name: few}\nnodes: {gpu_nodes: [a]}\ngpus: {default_nodes: 3}\n")
    code, out, _ = say("validate", "few")
    assert code == 2
    assert "gpus.default_nodes asks for 3 nodes" in out


def test_list_shows_the_first_problem_of_a_bad_file(say: Say) -> None:
    put("bad.yaml", BAD)
    put("evil\x1b[2J.yaml", "\0")
    code, out, _ = say("list")
    assert code == 0
    assert "line 3: gpu: saw an unknown key (and 1 more)" in out
    assert "\x1b" not in out
    rows = json.loads(say("list", "-o", "json")[1])
    assert [row["valid"] for row in rows] == [False, False]
    assert rows[0]["name"] == "bad"


def test_an_empty_list_says_what_to_do(say: Say) -> None:
    assert say("list") == (
        0,
        "no cluster files in clusters/\nnext: wirespeed cluster new NAME\n",
        "",
    )
    assert json.loads(say("list", "-o", "json")[1]) == []


def test_schema_is_printed_or_written(say: Say) -> None:
    code, out, _ = say("schema")
    assert code == 0
    printed: Any = json.loads(out)
    assert printed["$schema"].endswith("2020-12/schema")
    for _ in range(2):  # an older one is replaced
        assert say("schema", "--write", "clusters/schema.json")[0] == 0
    assert json.loads(Path("clusters/schema.json").read_text()) == printed
    assert say("list")[1].startswith("no cluster files")


def test_other_verbs_tell_a_bad_file_the_same_way(say: Say) -> None:
    put("bad.yaml", BAD)
    code, out, err = say("render", "bad")
    assert (code, out) == (2, "")
    assert err.startswith("wirespeed: clusters/bad.yaml has 2 problems\nclusters/bad.yaml:3: gpu: ")
    code, _, err = say("render", "bda")
    assert code == 2
    assert "did you mean bad?" in err
