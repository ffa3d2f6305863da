"""How right `wirespeed diagnose` is on a folder of labelled cases.

    make diagnose-score CASES=folder

The folder holds pairs `NAME.log` and `NAME.json`. Of the JSON: `expected_keywords` (regular expressions,
without case), `healthy`, `strict` (the log alone proves the cause) and `cause_in_log` (`yes`, `partly`,
`no`; where it is missing, `yes` of a strict case and `partly` of another). No category is compared.

Only the words that wirespeed itself says count: title, `because` and `fix` of the first finding that
fails, without whatever they copy from the log. Quoted evidence never counts, except for labels with
`cause_in_log`: they are of an older form, whose keywords include words of the log, and how many of them
are right by own words is printed beside. The answers are

- `silent`: nothing failed and nothing warned, which is right of a healthy case;
- `named`: the first failing finding's own words hold all keywords;
- `another cause`: a cause is named, and its words lack a keyword;
- `suggested`: no cause is named, and the own words of a warning hold all keywords;
- `symptom`: no cause is named or suggested;
- `nothing`: no finding fails or warns, in a case that is not healthy;
- `alarm`: a finding fails or warns in a healthy case.

Right is: `silent` of a healthy case, `named` of a strict case, `named` or `suggested` of a case that is
not strict, no cause named where the log holds none (`no`), and the line shown first that the label's
`root_line` (a regular expression) describes, where no rule can be expected to know it.

The score is taken a second time after numbers, host names and paths in each log were replaced by others:
a rule that knows only one log by heart falls there. Exit code 1 where a strict case or a healthy one is
wrong, 2 for a folder without cases.
"""

import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from wirespeed.diagnose.diagnose import diagnose
from wirespeed.diagnose.rules import all_rules
from wirespeed.diagnose.sources import Source
from wirespeed.model.records import Finding

COPIED = 20
"""Characters in a row that stand in the log too: shorter runs are words that both use."""
_ROOT_LINES = 12
"""Lines of evidence that may hold the root line: the exception's message with what belongs to it."""
ANSWERS = ("named", "suggested", "another cause", "symptom", "nothing", "silent", "alarm")


@dataclass(frozen=True, slots=True)
class Scored:
    """What was said of one case."""

    name: str
    label: dict[str, Any]
    answer: str
    found: Finding | None
    """The first finding that fails or warns."""
    missing: tuple[str, ...]
    """Keywords that the own words of the answer do not hold; of an older label, its whole text."""
    own_missing: tuple[str, ...] = ()
    """Keywords that its own words do not hold."""

    @property
    def kind(self) -> str:
        """`healthy`, or how far the log holds the cause: `yes`, `partly`, `no`."""
        if self.label.get("healthy"):
            return "healthy"
        return str(self.label.get("cause_in_log") or ("yes" if self.strict else "partly"))

    @property
    def root_shown(self) -> bool:
        """Whether the first answer shows the line that its label calls the root."""
        shown = (self.found.title, *self.found.evidence[:_ROOT_LINES]) if self.found else ()
        return any(re.search(self.label["root_line"], text, re.IGNORECASE) for text in shown)

    @property
    def strict(self) -> bool:
        """Whether the log alone proves the cause."""
        return bool(self.label.get("strict"))

    @property
    def said(self) -> str:
        """The answer with the id of its finding."""
        return self.answer if self.found is None else f"{self.answer} ({self.found.id})"

    @property
    def right(self) -> bool:
        """Whether the answer is what the label asks for."""
        if self.kind == "healthy":
            return self.answer == "silent"
        if self.label.get("root_line"):
            return self.answer not in ("another cause", "nothing") and self.root_shown
        if self.kind == "no":
            return self.answer in ("suggested", "symptom")
        if self.strict or self.kind == "yes":
            return self.answer == "named"
        return self.answer in ("named", "suggested")


def scored(log: Path, text: str | None = None) -> Scored:
    """Return what is said of the log, or of `text` in its place."""
    label = json.loads(log.with_suffix(".json").read_text())
    written = log.read_text(errors="replace") if text is None else text
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / log.name
        copy.write_text(written)
        reading = diagnose([Source(log.name, copy)])
    answers = [one for one in reading.findings if one.status in ("fail", "warn")]
    wanted = label.get("expected_keywords", [])
    if not answers:
        return Scored(log.stem, label, "silent" if label.get("healthy") else "nothing", None, ())
    if label.get("healthy"):
        return Scored(log.stem, label, "alarm", answers[0], ())
    failing = [one for one in answers if one.status == "fail"]
    considered = failing[:1] or answers
    own = min((_missing(wanted, own_words(one, written)) for one in considered), key=len)
    fewest = own
    if "cause_in_log" in label:
        fewest = min((_missing(wanted, _whole_text(one)) for one in considered), key=len)
    if failing:
        answer = "another cause" if fewest else "named"
    else:
        answer = "symptom" if fewest else "suggested"
    return Scored(log.stem, label, answer, answers[0], fewest, own)


def _whole_text(found: Finding) -> str:
    parts = (found.title, found.saw, found.because, found.costs, found.fix, found.next)
    return "\n".join((*parts, *found.evidence))


def _missing(wanted: Iterable[str], text: str) -> tuple[str, ...]:
    return tuple(word for word in wanted if not re.search(word, text, re.IGNORECASE | re.DOTALL))


def own_words(found: Finding, log: str) -> str:
    """Return title, `because` and `fix` of a finding without what they copy from the log."""
    text = "\n".join((found.title, found.because, found.fix))
    lines = [line for line in log.splitlines() if line.strip()]
    for line in lines[:2_000]:
        matcher = SequenceMatcher(None, text, line, autojunk=False)
        while (match := matcher.find_longest_match()).size >= COPIED:
            text = text[: match.a] + "\n" + text[match.a + match.size :]
            matcher.set_seq1(text)
    return text


# Names that mean nothing to a rule: what a stranger's log has of its own.

_HOME = re.compile(
    r"/(?:home|mnt|data|root|workspace|user|scratch|lustre|users|opt/venv)(?=/)[\w./-]*"
)
_MODULES = re.compile(r"/(?:site-packages|dist-packages|lib/python[\d.]+)/")
# A version is a fact, and no name of a machine's own.
_LONG_NUMBER = re.compile(r"(?<!ersion )(?<![\w.])\d{4,9}(?![\w.]*[:.-]\d)(?![\w])")
_HOST = re.compile(r"\b(?<!GPU )(?:node|worker|gpu|host|rank-host|ip)-?\d{1,4}\b(?!\.)")


def disguised(log: str) -> str:
    """Return a log with other numbers of four digits and more, host names and folders."""
    text = _HOME.sub(_other_path, log)
    text = _HOST.sub(lambda match: f"kx{sum(map(ord, match[0])) % 97:02d}-c", text)
    return _LONG_NUMBER.sub(_other_number, text)


def _other_path(match: re.Match[str]) -> str:
    """Return the path below other folders; what lies in a Python package keeps its name there."""
    path = match[0]
    inside = _MODULES.search(path)
    kept = path[inside.start() :] if inside else "/" + path.rsplit("/", 1)[-1]
    return f"/srv/p{sum(map(ord, path[: len(path) - len(kept)])) % 89}{kept}"


def _other_number(match: re.Match[str]) -> str:
    number = match[0]
    return str(int(number) + 10 ** (len(number) - 2))[: len(number)]


def proven_share() -> tuple[int, int]:
    """Return how many rules that name or suggest something are proven, and how many there are."""
    rules = [rule for rule in all_rules() if not rule.id.startswith("T-")]
    return sum(not rule.unproven for rule in rules), len(rules)


def _tell(title: str, cases: Sequence[Scored]) -> None:
    counts = Counter(case.answer for case in cases)
    told = ", ".join(f"{answer} {counts[answer]}" for answer in ANSWERS if counts[answer])
    print(f"{title}: {sum(case.right for case in cases)} of {len(cases)} right ({told})")
    for kind in ("yes", "partly", "no", "healthy"):
        of = [case for case in cases if case.kind == kind]
        if of:
            print(f"  {kind:<8} {sum(case.right for case in of)} of {len(of)} right")
    strict = [case for case in cases if case.strict]
    if strict:
        print(f"  strict   {sum(case.right for case in strict)} of {len(strict)} right")
    older = [case for case in cases if "cause_in_log" in case.label]
    if older:
        own = sum(case.right and not case.own_missing for case in older)
        print(f"  by own words {own} of {len(older)}")


def main(folder: Path) -> int:
    """Print the score of a folder, and return the exit code."""
    logs = [log for log in sorted(folder.glob("*.log")) if log.with_suffix(".json").exists()]
    if not logs:
        sys.stderr.write(f"no pairs NAME.log and NAME.json in {folder}\n")
        return 2
    cases = [scored(log) for log in logs]
    for case in cases:
        if not case.right:
            mark = "strict " if case.strict else ""
            category = case.label.get("category", "")
            print(f"wrong  {case.name}  {mark}{case.kind}: {category}, said {case.said}")
            if case.missing:
                print(f"       without {', '.join(case.missing)}")
    _tell("as written", cases)
    others = [scored(log, disguised(log.read_text(errors="replace"))) for log in logs]
    for before, after in zip(cases, others, strict=True):
        if before.answer != after.answer:
            print(f"other  {before.name}: {before.said}, disguised {after.said}")
    _tell("with other numbers, names and paths", others)
    proven, rules = proven_share()
    print(f"proven {proven} of {rules} rules ({proven / rules:.0%})")
    return int(not all(case.right for case in cases if case.strict or case.kind == "healthy"))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) if len(sys.argv) == 2 else 2)
