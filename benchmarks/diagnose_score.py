"""How right `wirespeed diagnose` is on a folder of labelled cases.

    make diagnose-score CASES=folder

The folder holds pairs `NAME.log` and `NAME.json`. Of the JSON: `category`, `also` (other names that mean
the same), `expected_keywords` (regular expressions, without case, each to be found in the diagnosis:
cause, fix and quoted evidence together), `cause_in_log` (`yes`, `partly`, `no`), `strict` and `healthy`.
Right is:

- a healthy case: nothing failed and nothing warned;
- `no`: the answer is "cannot tell", and what it lists holds all keywords;
- else: the first cause is of the category (or of one in `also`), and its text holds all keywords.

Exit code 1 where a strict case or a healthy one is wrong, 2 for a folder without cases.
"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirespeed.diagnose.diagnose import diagnose
from wirespeed.diagnose.sources import Source
from wirespeed.model.records import Finding


@dataclass(frozen=True, slots=True)
class Scored:
    name: str
    label: dict[str, Any]
    found: Finding | None
    """The first answer; None: nothing is wrong."""
    missing: tuple[str, ...]
    """Keywords that the answer does not hold."""

    @property
    def kind(self) -> str:
        if self.label.get("healthy"):
            return "healthy"
        return str(self.label["cause_in_log"])

    @property
    def strict(self) -> bool:
        return bool(self.label.get("strict"))

    @property
    def said(self) -> str:
        if self.found is None:
            return "nothing"
        told = "" if self.found.status == "fail" else ", cannot tell"
        return f"{self.found.category} ({self.found.id}{told})"

    @property
    def named(self) -> bool:
        """Whether a cause is named, and it is the case's."""
        wanted = (self.label["category"], *self.label.get("also", ()))
        return (
            self.found is not None and self.found.status == "fail" and self.found.category in wanted
        )

    @property
    def right(self) -> bool:
        if self.kind == "healthy":
            return self.found is None
        if self.found is None or self.missing:
            return False
        if self.kind == "no":
            return self.found.status == "warn"
        return self.named


def scored(log: Path) -> Scored:
    label = json.loads(log.with_suffix(".json").read_text())
    reading = diagnose([Source(log.name, log)])
    answers = [one for one in reading.findings if one.status in ("fail", "warn")]
    first = answers[0] if answers else None
    text = _text(first) if first else ""
    wanted = label.get("expected_keywords", [])
    missing = tuple(word for word in wanted if not re.search(word, text, re.IGNORECASE))
    return Scored(log.stem, label, first, missing)


def _text(found: Finding) -> str:
    parts = (found.title, found.saw, found.because, found.costs, found.fix, found.next)
    return "\n".join((*parts, *found.evidence))


def main(folder: Path) -> int:
    logs = [log for log in sorted(folder.glob("*.log")) if log.with_suffix(".json").exists()]
    if not logs:
        sys.stderr.write(f"no pairs NAME.log and NAME.json in {folder}\n")
        return 2
    cases = [scored(log) for log in logs]
    for case in cases:
        if not case.right:
            mark = "strict " if case.strict else ""
            print(
                f"wrong  {case.name}  {mark}{case.kind}: {case.label['category']}, said {case.said}"
            )
            if case.missing:
                print(f"       without {', '.join(case.missing)}")
    for kind in ("yes", "partly", "no", "healthy"):
        of = [case for case in cases if case.kind == kind]
        print(f"{kind:<8} {sum(case.right for case in of)} of {len(of)} right")
    strict = [case for case in cases if case.strict]
    print(f"strict   {sum(case.right for case in strict)} of {len(strict)} right")
    named = [case for case in cases if case.found and case.found.status == "fail"]
    true = [case for case in named if case.named]
    there = [case for case in cases if case.kind in ("yes", "partly")]
    hit = [case for case in there if case in true]
    print(
        f"precision {len(true) / len(named) if named else 1.0:.3f}  causes named that are the case's"
    )
    print(
        f"recall    {len(hit) / len(there) if there else 1.0:.3f}  causes in the log that are named"
    )
    return int(not all(case.right for case in cases if case.strict or case.kind == "healthy"))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) if len(sys.argv) == 2 else 2)
