"""How many error texts that end a job `wirespeed diagnose` knows, by the program that prints them.

    make diagnose-texts
    python benchmarks/diagnose_texts.py [tests/diagnose/texts] [--unknown NAME]

The folder holds a file a program: `# name:`, `# source:` (repository and version that the texts were
collected from), `# before:` (what that program prints before each), then a text a line, its gaps
filled. A text is known where a rule gives it a meaning: one of its own, or one that it shares with
texts alike (a rule that is `general`, or the one of any exception). What no rule knows is shown as the
first line that looks wrong (LOG-001), or not at all. Exit code 1 where fewer than 90 % are known.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from wirespeed.diagnose.prefix import strip
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.rules import all_rules
from wirespeed.diagnose.suspects import looks_wrong

FOLDER = Path(__file__).parents[1] / "tests" / "diagnose" / "texts"
LEAST = 0.90
ANY_EXCEPTION = ("python-error", "python-runtime")


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts of one program, as it prints them."""

    name: str
    source: str
    lines: tuple[str, ...]


def texts_of(file: Path) -> Texts:
    told, lines = {"name": file.stem, "source": "", "before": ""}, []
    for line in file.read_text().splitlines():
        key, colon, value = line.removeprefix("# ").partition(": ")
        if line.startswith("# ") and colon and key in told:
            told[key] = value
        elif line:
            lines.append(line)
    return Texts(told["name"], told["source"], tuple(told["before"] + line for line in lines))


def kind_of(line: str, rules: Sequence[Rule]) -> str:
    """`own`, `shared`, `shown` or `nothing`."""
    low, text = line.lower(), strip(line).text
    hit = [
        rule
        for rule in rules
        if any(anchor.lower() in low for anchor in rule.anchors) and rule.match(text) is not None
    ]
    if any(not rule.general and rule.category not in ANY_EXCEPTION for rule in hit):
        return "own"
    if hit:
        return "shared"
    return "nothing" if looks_wrong(text) is None else "shown"


def judged(folder: Path) -> Iterator[tuple[Texts, dict[str, str]]]:
    """Each program's texts, and what is said of each."""
    rules = [rule for rule in all_rules() if rule.role != "fact" and rule.anchors]
    for file in sorted(folder.glob("*.txt")):
        texts = texts_of(file)
        yield texts, {line: kind_of(line, rules) for line in texts.lines}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument(
        "--unknown", metavar="NAME", help="Print the texts of a file no rule knows."
    )
    given = parser.parse_args()
    if not list(given.folder.glob("*.txt")):
        sys.stderr.write(f"no files NAME.txt in {given.folder}\n")
        return 2
    total: Counter[str] = Counter()
    row = "{:<28} {:>6} {:>6} {:>7} {:>6} {:>8} {:>7}"
    print(row.format("program", "texts", "own", "shared", "shown", "nothing", "known"))
    for texts, kinds in judged(given.folder):
        count = Counter(kinds.values())
        total += count
        print(_row(row, texts.name, count))
        if given.unknown and given.unknown in texts.name:
            for line, kind in kinds.items():
                if kind in ("shown", "nothing"):
                    print(f"    {kind:<8} {line}")
    print(_row(row, "all", total))
    return int(_known(total) < LEAST)


def _known(count: Counter[str]) -> float:
    return (count["own"] + count["shared"]) / max(1, count.total())


def _row(row: str, name: str, count: Counter[str]) -> str:
    kinds = (count[kind] for kind in ("own", "shared", "shown", "nothing"))
    return row.format(name[:28], count.total(), *kinds, f"{_known(count):.1%}")


if __name__ == "__main__":
    sys.exit(main())
