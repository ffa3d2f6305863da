"""docs/verdicts.md: its table of words is made of the table in the code."""

import os
from pathlib import Path

from wirespeed.model.verdicts import MEANINGS

PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"
BEGIN, END = "<!-- table: tests/docs/test_verdicts_page.py -->\n", "<!-- end -->"
STANDINGS = {
    "bad": "fail",
    "undecided": "unknown",
    "measured": "measured",
    "good": "pass",
    "none": "none",
}


def table() -> str:
    lines = ["| word | says | of | exit code | means |", "|---|---|---|---|---|"]
    for word, meaning in MEANINGS.items():
        if meaning.replaced_by is None:
            commands = ", ".join(f"`{command}`" for command in meaning.commands) or "others"
            cells = (word, STANDINGS[meaning.standing], commands, meaning.exit_code)
            lines.append(f"| {' | '.join(cells)} | {meaning.explanation} |")
    return "".join(f"{line}\n" for line in lines)


def test_the_page_lists_every_word_with_its_meaning() -> None:
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    wanted = f"{head}{BEGIN}{table()}{END}{tail}"
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted


def test_the_page_tells_what_older_words_became() -> None:
    text = PAGE.read_text()
    for word, meaning in MEANINGS.items():
        if meaning.replaced_by:
            assert f"| {word} |" in text and meaning.replaced_by in text
