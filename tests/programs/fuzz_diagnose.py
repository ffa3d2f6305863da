"""Coverage-guided fuzzing of `diagnose` (atheris): whatever the bytes, no exception and bounded memory.

python tests/programs/fuzz_diagnose.py -max_total_time=60 -rss_limit_mb=1024
"""

import io
import sys

import atheris

with atheris.instrument_imports(include=["wirespeed.diagnose"]):
    from wirespeed.diagnose.derived import DERIVED, Evidence
    from wirespeed.diagnose.diagnose import disagreements
    from wirespeed.diagnose.rendering import findings_of, reason
    from wirespeed.diagnose.rules import all_rules
    from wirespeed.diagnose.scan import Scanner
    from wirespeed.diagnose.sources import blocks

RULES = all_rules()
LINES = [line.encode() for rule in RULES for line in rule.positive]
SCANNER = Scanner(RULES)


def test_one(data: bytes) -> None:
    """Junk between the messages that its own bytes choose."""
    given = atheris.FuzzedDataProvider(data)
    parts = []
    while given.remaining_bytes() and len(parts) < 40:
        line = LINES[given.ConsumeIntInRange(0, len(LINES) - 1)]
        parts += [
            given.ConsumeBytes(given.ConsumeIntInRange(0, 60)),
            line[: given.ConsumeIntInRange(0, 200)],
        ]
        parts.append(b"\n" if given.ConsumeBool() else b"")
    text = b"".join(parts)
    evidence = Evidence()
    for block in blocks(io.BytesIO(text), given.ConsumeIntInRange(1, 4096)):
        evidence.add(SCANNER._in_block("fuzz", block, 1, None))
    evidence.settle(RULES, {}, DERIVED)
    found = reason(evidence)
    told = findings_of(found) + disagreements(found.facts)
    if not all(one.title for one in told):
        raise ValueError(told)


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one)
    atheris.Fuzz()
