"""Findings of imports and of runs that did not end: their texts are findings.yaml."""

from pathlib import Path

from wirespeed.model.finding_texts import FindingTexts

make_finding = FindingTexts(Path(__file__).parent)
"""`make_finding(ENTRY, name=…)`: the finding of that entry, with these values in its texts."""

if __name__ == "__main__":
    make_finding.texts.write()
