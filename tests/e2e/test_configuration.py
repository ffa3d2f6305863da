"""Where an option's value comes from: flag > WIRESPEED_* environment > wirespeed.yaml > default."""

from typing import Any

import pytest


def printed(cli: Any, *words: str, **options: Any) -> dict[str, tuple[str, str]]:
    """(value, origin) by option."""
    done = cli.here("check", "--print-config", *words, **options)
    assert done.code == 0, done.err
    assert cli.folders() == [], "it only prints"
    rows = [line.split() for line in done.out.splitlines()]
    return {row[0]: (" ".join(row[1:-1]), row[-1]) for row in rows}


def test_each_origin_beats_the_next(cli: Any) -> None:
    assert printed(cli)["level"] == ("medium", "default")
    (cli.folder / "wirespeed.yaml").write_text("check:\n  level: long\n  startup-timeout: 7\n")
    from_file = printed(cli)
    assert from_file["level"] == ("long", "wirespeed.yaml")
    assert from_file["startup_timeout"] == ("7.0", "wirespeed.yaml")
    env = {"WIRESPEED_LEVEL": "quick"}
    assert printed(cli, env=env)["level"] == ("quick", "environment")
    assert printed(cli, "-l", "medium", env=env)["level"] == ("medium", "flag")
    assert printed(cli, "-l", "medium", env=env)["startup_timeout"] == ("7.0", "wirespeed.yaml")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("check:\n  levle: quick\n", "levle"),
        ("check: quick\n", "check"),
        ("chekc:\n  level: quick\n", "chekc"),
        ("- check\n", "list"),
        ("check: {level: [\n", "wirespeed.yaml"),
        ("check: {level: never}\n", "never"),
        ("check: {ranks: many}\n", "many"),
        ("a: &a [*a]\ncheck: {level: *b}\n", "wirespeed.yaml"),
        ("\x00\x01", "wirespeed.yaml"),
    ],
)
def test_a_wrong_file_is_refused(cli: Any, says_clearly: Any, text: str, word: str) -> None:
    (cli.folder / "wirespeed.yaml").write_text(text)
    assert word in says_clearly(cli.here("check"), 2)
    assert cli.folders() == []


def test_a_file_that_is_no_text(cli: Any, says_clearly: Any) -> None:
    (cli.folder / "wirespeed.yaml").write_bytes(b"\xff\xfe\xfa")
    assert "wirespeed.yaml" in says_clearly(cli("check"), 2)


def test_a_wrong_file_is_no_hindrance_to_help(cli: Any) -> None:
    (cli.folder / "wirespeed.yaml").write_text("check: {level: [\n")
    assert cli("--help").code == 0
    assert cli("--version").code == 0


def test_where_ranks_run_is_spelled_as_on_the_command_line(cli: Any) -> None:
    """YAML 1.1 reads a bare `on` as true."""
    text = "check:\n  on: ssh\n  hosts: a,b:2\n  with: [torchrun=no]\n  x: [HF_TOKEN]\n"
    (cli.folder / "wirespeed.yaml").write_text(text)
    assert cli.here("config", "trust").code == 0
    shown = printed(cli)
    assert shown["on"] == ("ssh", "wirespeed.yaml")
    assert shown["hosts"] == ("a,b:2", "wirespeed.yaml")
    assert shown["with"] == ("('torchrun=no',)", "wirespeed.yaml")
    assert shown["x"] == ("('HF_TOKEN',)", "wirespeed.yaml")


def test_the_gate_is_set_in_each_way(cli: Any) -> None:
    assert printed(cli)["fail_on"] == ("fail", "default")
    env = {"WIRESPEED_FAIL_ON": "warn", "WIRESPEED_ALLOW": "NET-001"}
    told = printed(cli, env=env)
    assert (told["fail_on"], told["allow"]) == (("warn", "environment"), ("NET-001", "environment"))
    (cli.folder / "wirespeed.yaml").write_text("check: {fail-on: warn, allow: PLACE-001}\n")
    assert printed(cli)["fail_on"] == ("warn", "wirespeed.yaml")
    # `compare` asks for a percentage by that name: it reads another variable.
    assert "WIRESPEED_COMPARE_FAIL_ON" not in cli.here("compare", "a", "b", env=env).err
    assert "no run" in cli.here("compare", "a", "b", env=env).err


def test_only_ids_of_findings_can_be_allowed(cli: Any, says_clearly: Any) -> None:
    said = says_clearly(cli.here("check", "--allow", "PLACE-01"), 2)
    assert "Did you mean 'PLACE-001'" in said
    assert cli.folders() == []


@pytest.mark.slow
def test_a_warning_fails_where_the_file_asks_for_it(cli: Any) -> None:
    env = {"NCCL_ALGO": "Ring"}
    (cli.folder / "wirespeed.yaml").write_text("check: {fail-on: warn}\n")
    done = cli("check", "--only", "settings", "-q", "-o", "json", env=env)
    assert done.code == 1, done.err
    assert [one["id"] for one in done.json["findings"]] == ["ENV-004", "GATE-001"]
    allowed = cli("check", "--only", "settings", "-q", "--allow", "ENV-004", "-o", "json", env=env)
    assert allowed.code == 0, allowed.err
    assert allowed.json["findings"][0]["allowed"] == "warn"
