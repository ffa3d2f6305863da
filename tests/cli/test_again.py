"""`next:` keeps the options of the command that was typed."""

from importlib import import_module

import pytest

from wirespeed.cli.config import with_typed
from wirespeed.node.redact import TAKEN_OUT


def again(verb: str, *words: str):
    command = getattr(import_module(f"wirespeed.cli.{verb}"), verb)
    return with_typed(command.make_context(verb, list(words)))


@pytest.mark.parametrize(
    ("typed", "proposed", "completed"),
    [
        (
            "train --ranks 2 --model small --no-prove --max-time 12.5 -q -o json",
            "wirespeed train --bucket-mb 0.6,25",
            "wirespeed train --bucket-mb 0.6,25 --model small --max-time 12.5 --no-prove --ranks 2",
        ),
        (
            "train --bucket-mb 1 --ranks 2",
            "wirespeed train --bucket-mb 0.6,25",
            "wirespeed train --bucket-mb 0.6,25 --ranks 2",
        ),
        (
            "bench all_reduce -b 4M --env A=1,2 --env B=3 --inject flip:rank=1",
            "wirespeed bench all_reduce -o wide",
            "wirespeed bench all_reduce -o wide --min-bytes 4M --env A=1,2 --env B=3",
        ),
        (
            "train --ranks 2 --model small",
            "wirespeed check --only correctness",
            "wirespeed check --only correctness --ranks 2",
        ),
        (
            "check --on ssh --hosts a,b --level quick",
            "wirespeed locate",
            "wirespeed locate --on ssh --hosts a,b",
        ),
        ("check --ranks 2", "wirespeed check --explain HANG-004", None),
        ("check --ranks 2", "nvidia-smi topo -p2p r; wirespeed check --only nodes", None),
        ("train --ranks 2", "a longer --max-time, or a quieter machine", None),
        ("train --ranks 2", "wirespeed diagnose logs", None),
        ("train --ranks 2", "", None),
    ],
)
def test_what_was_typed_stays(typed: str, proposed: str, completed: str | None) -> None:
    assert again(*typed.split())(proposed) == (proposed if completed is None else completed)


def test_words_with_spaces_are_quoted() -> None:
    found = again("train", "--text", "my text")("wirespeed train --lr 1e-4")
    assert found == "wirespeed train --lr 1e-4 --text 'my text'"


def test_a_secret_is_taken_out_and_that_is_said() -> None:
    typed = ("check", "--on", "slurm", "--with", "output=https://me:abc@host/x")
    found = again(*typed)("wirespeed check --only NET-001")
    assert "abc" not in found
    assert "https://***@host/x" in found
    assert found.endswith(TAKEN_OUT)
