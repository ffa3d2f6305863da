"""Every finding that `check` can give: its id, what it asks, and what `--explain` says.

A check is data here and a function in its family's file, which turns records into findings.
"""

from dataclasses import dataclass

from wirespeed.collectives.catalogue import CATALOGUE
from wirespeed.errors import UsageError

__all__ = ["CHECKS", "Check", "check_id", "select"]


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
        "its 95 % interval. It fails below half of the reference where one is known for this "
        "hardware; without one it is judged by how far the ranks lie apart.",
    ),
    "BW": (
        "bandwidth",
        "{} at large size",
        "The bus bandwidth of one large {0} (docs/bandwidth.md). It fails below 0.8 of the "
        "reference and warns below 0.9, where one is known for this hardware; without one it is "
        "judged by how far the ranks lie apart.",
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
        if prefix != "BW" or CATALOGUE[op].has_data
    ]


_SINGLE = (
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


def _all_checks() -> dict[str, Check]:
    from wirespeed.checks.nodes import EXPLANATIONS as NODES
    from wirespeed.world.watch.blame import EXPLANATIONS as WATCH

    found = {check.id: check for check in (*_SINGLE, *_per_operation())}
    for family, texts in (("nodes", NODES), ("watchdog", WATCH)):
        for id, text in texts.items():
            found[id] = Check(id, family, text.split(". ")[0].rstrip("."), text)
    return found


CHECKS: dict[str, Check] = _all_checks()


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
