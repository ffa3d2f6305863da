"""Every finding: its id, what it asks, and what `--explain` says.

A check is data here and a function in its family's file, which turns records into findings.
"""

from dataclasses import dataclass

from wirespeed.checks.combinations import EXPLANATIONS as COMBINATIONS
from wirespeed.checks.locating import EXPLANATIONS as LOCATING
from wirespeed.checks.soaking_texts import EXPLANATIONS as SOAK
from wirespeed.checks.training import EXPLANATIONS as TRAINING
from wirespeed.clusters.explanations import EXPLANATIONS as CLUSTER
from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.errors import UsageError
from wirespeed.launchers.explanations import EXPLANATIONS as LAUNCH

__all__ = ["CHECKS", "EXPLAINED", "Check", "check_id", "select"]


@dataclass(frozen=True, slots=True)
class Check:
    id: str
    family: str
    title: str
    explanation: str


_PER_OPERATION = {
    "COL": (
        "correctness",
        "{} delivers exact data",
        "Every rank runs {0} on inputs made from (seed, element, rank) and compares its output, bit "
        "for bit, with what it must be; the expected values are computed apart from the library. "
        "Wrong data means a broken library, driver, memory or network: training on it is lost time. "
        "Compare with another NCCL version, then look at ECC errors of the named rank's GPU.",
    ),
    "LAT": (
        "latency",
        "{} at small size",
        "The time of one small {0}: the slowest rank's, after a common start, as the median with "
        "its 95 % interval. Where a time is known (a baseline, your own figures, five earlier READY "
        "runs on such nodes) it warns above 1.23 times that time and fails above 1.56 times, if it lies "
        "outside those runs' own spread, too; without one, only ranks that lie far apart are told.",
    ),
    "BW": (
        "bandwidth",
        "{} at large size",
        "The bus bandwidth of one large {0} (docs/bandwidth.md). Where a figure is known (a baseline, "
        "your own, five earlier READY runs on such nodes, or a published one: docs/reference.md) it "
        "warns below 0.9 of it and fails below 0.8, if it lies outside those runs' own spread, too; "
        "without one, only ranks that lie far apart are told. What links allow is shown and fails none.",
    ),
}


def check_id(prefix: str, op: str) -> str:
    """`COL-001` for all_reduce and so on, in the order of the catalogue."""
    return f"{prefix}-{list(CATALOGUE).index(op) + 1:03d}"


def _per_operation() -> list[Check]:
    return [
        Check(check_id(prefix, op), family, title.format(op), text.format(op))
        for prefix, (family, title, text) in _PER_OPERATION.items()
        for op in CATALOGUE
        if prefix == "LAT" or CATALOGUE[op].has_data
    ]


_SINGLE = (
    Check(
        check_id("COL", "barrier"),
        "correctness",
        "barrier holds every rank back",
        "Rank 0 and then the last rank comes late to a barrier, and no other may have passed it "
        "before. Behind a barrier that lets ranks pass early, data are read that others still write.",
    ),
    Check(
        "WORLD-001",
        "world",
        "all ranks join one world",
        "Every rank that was asked for has connected, opened the process group and told its node. "
        "When one is missing the finding names it and what the others waited for.",
    ),
    Check(
        "WORLD-002",
        "world",
        "this world can be measured as asked",
        "A rank found that what was asked cannot be done there: no GPU for NCCL, an engine that is not "
        "installed, a world that another launcher must start. Nothing was measured; the verdict is "
        "UNKNOWN with exit code 3, and the finding says what to do.",
    ),
    Check(
        "WORLD-003",
        "world",
        "nobody else measures on these nodes",
        "Another wirespeed run measured on a node of this one at the same time. Both share its cores, "
        "memory and links, so that neither's figures tell what the node can do: latency, bandwidth and "
        "stragglers are not checked, and the verdict is UNKNOWN (exit code 3) unless something else "
        "failed. Data and settings are checked as ever. Run it again when the others have ended; runs "
        "in other containers, which have network namespaces of their own, are not seen.",
    ),
    Check(
        "WORLD-004",
        "world",
        "nobody else writes where the ranks meet",
        "A key of the store in which ranks meet holds what no rank of this job has left there: it does "
        "not bear the mark of the job's secret, or it is no message of ours. It was ignored. Whoever "
        "reaches the master port can write to that store and end the run: let only the nodes of the job "
        "reach it (docs/security.md).",
    ),
    Check(
        "CAP-001",
        "correctness",
        "what the backend cannot do",
        "Combinations of operation, type and reduction that this backend refuses. They are not "
        "checked, with the backend's reason, and never count as passed or failed.",
    ),
    Check(
        "MEM-001",
        "memory",
        "sizes that did not fit",
        "A size for which some rank had not enough memory. The sweep of that operation ended there; "
        "the smaller sizes are measured.",
    ),
    Check(
        "SKEW-001",
        "stragglers",
        "no rank is always the slowest",
        "Over all synchronising operations, whether one rank takes clearly longer than the others "
        "after a common start. One such rank slows every step of the whole job. "
        "`wirespeed bench all_reduce -o wide` shows who was last and how often.",
    ),
)


_FAMILIES = ("world", "correctness", "latency", "bandwidth", "stragglers", "memory")
"""The order of `--list`, before the nodes and the watchdog."""
_WATCH_TITLES = {
    "DIED-001": "no rank dies",
    "EXIT-001": "every rank ends as it announced",
    "HANG-001": "no rank is stopped or stuck",
    "HANG-002": "no rank stays behind the others",
    "HANG-003": "all ranks run the same operations in the same order",
    "HANG-004": "data arrive where every rank waits",
    "INT-001": "the run is not interrupted",
    "JOIN-001": "every rank joins in time",
    "JOIN-002": "every rank is one process",
    "JOIN-003": "nobody but the ranks speaks to the console",
    "RAISED-001": "no rank raises an exception",
}

_OTHER_VERBS = (
    Check(
        "IMP-001",
        "import",
        "the imported table is whole",
        "The output of nccl-tests ends without the lines that it prints last, so the job was killed, "
        "hung, or the file was cut. The rows that are there are kept. What happened at larger sizes is "
        "not known: import the whole output, or run the test again.",
    ),
    Check(
        "IMP-002",
        "import",
        "the imported test found no wrong data",
        "nccl-tests compared the results with what they must be and counted wrong elements (column "
        "#wrong, or the line `Out of bounds values`). Training on these ranks computes with wrong "
        "gradients. Find the node with `wirespeed check`, then look at Xid errors, ECC counts, cables.",
    ),
    Check(
        "IMP-003",
        "import",
        "every imported row can be read",
        "Lines that begin as rows of the table end as something else, mostly because NCCL's log was "
        "printed into them. They are left out and counted. Send the log elsewhere: "
        "NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.",
    ),
    Check(
        "IMP-004",
        "import",
        "the number of ranks is known",
        "The output names no whole list of devices, and its figures fit several numbers of ranks. "
        "Without the number nothing can be expected of the figures. Import again with --ranks N.",
    ),
    Check(
        "IMP-005",
        "import",
        "nccl-tests reported no error",
        "The output holds an error of nccl-tests, NCCL or CUDA. The rows before it are kept; the first "
        "error is shown, the others are in the evidence.",
    ),
    Check(
        "IMP-006",
        "import",
        "the figures fit the operation and the ranks",
        "busbw over algbw is fixed by the operation and the number of ranks (docs/bandwidth.md). Here "
        "it is another ratio, so the file's name, --op or --ranks say something that the figures do "
        "not. Import again with the right --op and --ranks.",
    ),
    Check(
        "IMP-007",
        "import",
        "the imported memory figures can be used",
        "The script that wrote this file reads peaks of memory after it has reset their counter, takes "
        "activations without gradients and assumes those. Its memory figures are left out. "
        "`wirespeed train --memory` measures each kind.",
    ),
    Check(
        "GATE-001",
        "gate",
        "no warning, where warnings fail",
        "The run was started with --fail-on warn (or WIRESPEED_FAIL_ON, or fail-on in "
        "wirespeed.yaml), and it "
        "has warnings; without that it would be READY. Each warning says what to do. One that is "
        "known and "
        "accepted is named by --allow: it is shown as allowed, and counts no more.",
    ),
    Check(
        "RUN-001",
        "run",
        "the stored run came to its end",
        "The run's folder holds records but no run.json: the run was killed, its disk was full, or it "
        "is still running. What was stored is shown as far as it goes, and the verdict stays UNKNOWN.",
    ),
)
"""Findings that other verbs give: `check` explains them and does not list them."""


def _all_checks() -> dict[str, Check]:
    from wirespeed.checks.counting_rules import EXPLANATIONS as COUNTERS
    from wirespeed.checks.hardware import EXPLANATIONS as HARDWARE
    from wirespeed.checks.interfaces import EXPLANATIONS as INTERFACES
    from wirespeed.checks.nodes import EXPLANATIONS as NODES
    from wirespeed.checks.placement import EXPLANATIONS as PLACEMENT
    from wirespeed.checks.reach import EXPLANATIONS as REACH
    from wirespeed.checks.settings import EXPLANATIONS as SETTINGS
    from wirespeed.world.watch.blame import EXPLANATIONS as WATCH

    found = {check.id: check for check in sorted((*_SINGLE, *_per_operation()), key=_place)}
    families = {
        "nodes": dict(sorted((NODES | HARDWARE).items(), key=_nodes_first)),
        "settings": SETTINGS,
        "network": INTERFACES | REACH,
        "placement": PLACEMENT,
        "counters": COUNTERS,
    }
    for family, texts in families.items():
        for id, text in texts.items():
            found[id] = Check(id, family, _lower(text.split(". ")[0].rstrip(".")), text)
    for id, text in WATCH.items():
        found[id] = Check(id, "watchdog", _WATCH_TITLES[id], text)
    return found


def _nodes_first(item: tuple[str, str]) -> tuple[bool, str]:
    return not item[0].startswith("NODE"), item[0]


def _place(check: Check) -> tuple[int, str]:
    return _FAMILIES.index(check.family), check.id


def _lower(sentence: str) -> str:
    """Without its capital, unless that belongs to the word, as in `GPUs`."""
    return sentence if sentence[1:2].isupper() else sentence[0].lower() + sentence[1:]


CHECKS: dict[str, Check] = _all_checks()
"""What `check` can give, by id: what `--list` shows and `--only` selects from."""
EXPLAINED: dict[str, Check] = (
    CHECKS
    | {check.id: check for check in _OTHER_VERBS}
    | {
        id: Check(id, family, _lower(text.split(". ")[0].rstrip(".")), text)
        for family, texts in (
            ("locating", LOCATING),
            ("training", TRAINING),
            ("launch", LAUNCH),
            ("cluster", CLUSTER),
            ("settings", COMBINATIONS),
            ("soak", SOAK),
        )
        for id, text in texts.items()
    }
)
"""Also what the other verbs give: every id that a view can show."""


def select(wanted: str) -> set[str]:
    """Ids from `COL-001,latency,BW`: ids, prefixes or families; UsageError names what is unknown."""
    chosen: set[str] = set()
    for word in filter(None, (part.strip() for part in wanted.split(","))):
        matches = {
            id
            for id, check in CHECKS.items()
            if word.upper() in (id, id.split("-")[0]) or word.lower() == check.family
        }
        if not matches:
            families = sorted({check.family for check in CHECKS.values()})
            raise UsageError(
                f"no check is called {word!r}",
                expected="an id such as COL-001, a prefix such as COL, or one of the families "
                + ", ".join(families),
                next="wirespeed check --list",
            )
        chosen |= matches
    return chosen
