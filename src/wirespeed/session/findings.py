"""Findings of a session: their texts are findings.yaml."""

from pathlib import Path

from wirespeed.model.finding_texts import FindingTexts

make_finding = FindingTexts(Path(__file__).parent)

if __name__ == "__main__":
    make_finding.texts.write()
