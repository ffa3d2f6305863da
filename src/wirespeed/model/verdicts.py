"""Verdict words: the word with which a run ends, which commands say it, and what it means.

Everything that shows, filters, counts or explains a verdict reads this table: views, the JSON schema,
Prometheus, JUnit, pages, the stored runs' index, histories and the documentation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal[
    "READY",
    "NOT READY",
    "UNKNOWN",
    "INTERRUPTED",
    "PASSED",
    "FAILED",
    "MEASURED",
    "CULPRIT NAMED",
    "NO CULPRIT",
    "NOT DECIDED",
    "ENDED WELL",
    "JOB FAILED",
    "NO FINDINGS",
    "SLOW",
    "HUNG",
    "NOT ENOUGH SEEN",
    "PROGRESSING",
    "CANNOT TELL",
    "CAUSE NAMED",
    "SYMPTOMS ONLY",
    "NOTHING KNOWN",
    "NONE",
    "GOOD END SHOWN",
    "HELD UP",
]
"""A word of the table below. The last two stand only in runs of older versions."""

Standing = Literal["good", "bad", "undecided", "measured", "none"]
"""What a verdict word says of a run: judged good, judged bad, not decided, only measured, no verdict."""

CHECK, BENCH, TRAIN, LOCATE = "check", "bench", "train", "locate"
LAUNCH, WATCH, ATTACH, DIAGNOSE, GATE = "launch", "watch", "attach", "diagnose", "gate"
_MEASURING = (CHECK, BENCH, TRAIN, LOCATE)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one verdict word means."""

    standing: Standing
    commands: tuple[str, ...]
    """Commands that end with this word; empty: any other command."""
    exit_code: str
    """The exit code that belongs to it; of `launch` the job's own code counts."""
    explanation: str
    """One sentence for the documentation."""
    replaced_by: Verdict | None = None
    """The word that is said today, where this one is only read in stored runs."""


MEANINGS: dict[Verdict, Meaning] = {
    "NOT READY": Meaning(
        "bad", (CHECK, GATE), "1", "A check failed: data, speed, a node or the network is bad."
    ),
    "FAILED": Meaning(
        "bad",
        (CHECK, BENCH, TRAIN, "import"),
        "1",
        "`check --only`: a selected check failed. `bench`, `train`: wrong data, or a judged speed below "
        "the baseline that the user set.",
    ),
    "CULPRIT NAMED": Meaning("bad", (LOCATE,), "1", "A slow node, link, rail or rank is named."),
    "HUNG": Meaning(
        "bad",
        (LAUNCH, WATCH, ATTACH),
        "1; of `launch` the job's",
        "Ranks wait for a rank that does not move, or for each other.",
    ),
    "JOB FAILED": Meaning(
        "bad",
        (LAUNCH, WATCH),
        "the job's; of `watch` 1",
        "The job ended with an error, or its loss is no number.",
    ),
    "SLOW": Meaning(
        "bad",
        (LAUNCH, WATCH, ATTACH),
        "1 for a failure, 0 for a warning; of `launch` the job's",
        "Something costs the job time; `verdict_subject` says which rank, node or part of a step.",
    ),
    "CAUSE NAMED": Meaning("bad", (DIAGNOSE,), "1", "The logs prove why the job failed."),
    "UNKNOWN": Meaning(
        "undecided",
        (*_MEASURING, LAUNCH, GATE),
        "3",
        "What had to be looked at could not be, so nothing is claimed.",
    ),
    "INTERRUPTED": Meaning(
        "undecided",
        (*_MEASURING, LAUNCH),
        "130",
        "A signal ended the run before anything failed; what was measured is kept.",
    ),
    "NOT DECIDED": Meaning(
        "undecided", (LOCATE,), "3", "The pairs do not tell whether a node is slow."
    ),
    "NOT ENOUGH SEEN": Meaning(
        "undecided",
        (LAUNCH, WATCH),
        "3; of `launch` the job's",
        "Too few steps or ranks were seen to judge the job.",
    ),
    "SYMPTOMS ONLY": Meaning(
        "undecided",
        (DIAGNOSE,),
        "3",
        "The logs show symptoms, possible causes or an error that no rule knows, and prove no cause.",
    ),
    "NOTHING KNOWN": Meaning(
        "undecided", (DIAGNOSE,), "3", "No rule knows a line of the logs, and no end is shown."
    ),
    "CANNOT TELL": Meaning(
        "undecided", (ATTACH,), "3", "What could be seen does not tell whether the job progresses."
    ),
    "MEASURED": Meaning(
        "measured",
        (BENCH, TRAIN),
        "0",
        "Figures were measured, and no data was wrong. Speed is judged only against a baseline that you "
        "set; the line says whether it was.",
    ),
    "READY": Meaning(
        "good",
        (CHECK, GATE),
        "0",
        "World, data and speed were looked at, and nothing failed. `speed_judged: false`: the speed was "
        "measured, and not all of it could be judged.",
    ),
    "PASSED": Meaning(
        "good",
        (CHECK,),
        "0",
        "`check --only`: the selected checks passed, n of the m that a full check of this world lists.",
    ),
    "NO CULPRIT": Meaning(
        "good", (LOCATE,), "0", "The pairs that were measured show no slow node, link or rank."
    ),
    "ENDED WELL": Meaning(
        "good",
        (LAUNCH, DIAGNOSE),
        "0",
        "The job ended with exit code 0; the logs show a normal end.",
    ),
    "NO FINDINGS": Meaning(
        "good", (LAUNCH, WATCH), "0", "Enough steps were seen, and nothing holds the job up."
    ),
    "PROGRESSING": Meaning("good", (ATTACH,), "0", "The ranks work."),
    "NONE": Meaning(
        "none",
        (),
        "0 or 3",
        "The command gives no verdict: `topo`, `predict`, `cluster`, `runs`, `report`, imports.",
    ),
    "HELD UP": Meaning("bad", (ATTACH,), "1", "The job hung.", replaced_by="HUNG"),
    "GOOD END SHOWN": Meaning(
        "good", (DIAGNOSE,), "0", "The logs showed a normal end.", replaced_by="ENDED WELL"
    ),
}
"""By word, the worst first."""


def standing_of(word: str) -> Standing:
    """Return what a stored verdict word says of its run; a word that nobody knows decides nothing."""
    meaning = MEANINGS.get(word)  # type: ignore[call-overload]
    return meaning.standing if meaning else "undecided"


def words_with(*standings: Standing) -> tuple[Verdict, ...]:
    """Return the words of these standings, those of older versions included."""
    return tuple(word for word, meaning in MEANINGS.items() if meaning.standing in standings)


def words_of(command: str) -> tuple[Verdict, ...]:
    """Return the words that runs of this command may end with, the worst first."""
    own = [
        word
        for word, meaning in MEANINGS.items()
        if command in meaning.commands and meaning.replaced_by is None
    ]
    return tuple(own) or ("NONE",)


HISTORY = words_with("good", "measured")
"""Words of runs whose figures may serve later runs as a history. Older versions said READY
of whatever was measured well."""


def is_decided(word: str) -> bool:
    """Return whether the word is a judgement, good or bad."""
    return standing_of(word) in ("good", "bad")


NOT_JUDGED = "speed not judged"
"""Detail of READY where speed was only measured."""
PARTLY_JUDGED = "speed partly judged"
"""Detail of READY where some of the speed that has a reference was too uncertain to be judged."""


def with_detail(word: str, detail: str) -> str:
    """Return a verdict word with what it is about or what was left out, as people read it."""
    if not detail:
        return word
    of_speed = detail in (NOT_JUDGED, PARTLY_JUDGED)
    return f"{word} ({detail})" if of_speed else f"{word} {detail}"


def worst_first(words: Sequence[str]) -> list[str]:
    """Return the words in the order of the table."""
    order: list[str] = list(MEANINGS)
    return sorted(words, key=lambda word: order.index(word) if word in order else len(order))
