"""What readers of other tools' files share: JSON in a log, figures, places that fall behind, the run."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

from wirespeed.errors import InputError
from wirespeed.model.bench_records import ToolFigure
from wirespeed.model.node_facts import Facts
from wirespeed.model.records import Choice, Finding, Measurement, NodeFacts, Run, Subject, World
from wirespeed.model.units import format_figure
from wirespeed.runs.findings import make_finding
from wirespeed.runs.folder import begun, ended, new_id, now_text
from wirespeed.runs.importers.limits import find_beyond, marked, most_of_any, set_apart
from wirespeed.runs.importers.pair_matrix import find_slow_gpus, gpu_of
from wirespeed.statistics import MAD_TO_SIGMA

GIGA, MEBI, MICRO, MILLI = 1e9, float(2**20), 1e-6, 1e-3
MOST_FIGURES = 200_000
"""Of one file: 1,000 nodes with 200 figures each."""
_LARGEST_DOCUMENT = 32 * 2**20
"""Characters of one JSON document, which takes about ten times as much memory."""
_FAR, _SIGMAS, _LEAST_PLACES, _MOST_FAR = 0.1, 6.0, 5, 0.25
_MOST_EVIDENCE = 20


def documents(text: str, *, source: str) -> Iterator[dict[str, Any]]:
    """Each JSON object that begins a line, one after the other; NaN and infinities become null.

    InputError, with the line, where one breaks off or is too large. Lines before and between are
    passed over, as `dcgmi` and `mpirun` print some.
    """
    decoder = json.JSONDecoder(parse_constant=lambda _: None, object_pairs_hook=_every_pair)
    at = 0
    while (start := _next_object(text, at)) >= 0:
        if _too_large(text, start):
            raise InputError(
                f"{source}: a JSON document of more than {_LARGEST_DOCUMENT >> 20} MiB",
                expected="the output of one test",
            )
        try:
            found, at = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise InputError(
                f"{source}: no valid JSON: {error.msg} at line {error.lineno}, column {error.colno}",
                expected="a whole JSON document; this one was cut or changed",
            ) from error
        if isinstance(found, dict):
            yield found


SECOND = " (2)"
"""What a key has behind it that an object holds for the second time."""


def _every_pair(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object; a key that is there again gets ` (2)`, and so on, so that no value is lost."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    found, times = {}, Counter[str]()
    for key, value in pairs:
        times[key] += 1
        found[key if times[key] == 1 else f"{key} ({times[key]})"] = value
    return found


def unique_documents(text: str, *, source: str, times: "Counter[int]") -> Iterator[dict[str, Any]]:
    """Yield the documents without copies. times: counts how often each is there, as it goes on."""
    for data in documents(text, source=source):
        key = hash(json.dumps(data, sort_keys=True))
        times[key] += 1
        if times[key] == 1:
            yield data


def _next_object(text: str, at: int) -> int:
    """Where the next line begins with a brace; -1: none does."""
    while 0 <= at < len(text):
        start = at + len(text[at : at + 200]) - len(text[at : at + 200].lstrip())
        if text.startswith("{", start):
            return start
        at = text.find("\n", at) + 1 or len(text)
    return -1


def _too_large(text: str, start: int) -> bool:
    """Whether what begins there has more characters than a document may: of documents that are a
    line each, that line counts, of others the rest of the text."""
    end = text.find("\n", start, start + _LARGEST_DOCUMENT)
    one_line = end >= 0 and text[max(start, end - 3) : end].rstrip().endswith("}")
    return not one_line and len(text) - start > _LARGEST_DOCUMENT


def objects(value: object) -> list[dict[str, Any]]:
    """The objects of what should be a list of them; what is none is passed over."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def part(data: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """The object under these keys, one within the other; an empty one where there is none."""
    found: Any = data
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def number(value: object) -> float | None:
    """A finite figure that is not negative, also where it is written as a text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) and 0 <= found < 1e18 else None


def words(value: object, most: int = 200) -> str:
    """A text of others on one line."""
    return " ".join(str(value).split())[:most] if value is not None else ""


def reported(tool: str, text: str, *, evidence: Iterable[str] = ()) -> Finding:
    """The tool itself says that it failed."""
    return make_finding("tool_failed", what=f"{tool} reports an error", saw=text, evidence=evidence)


def behind_others(figures: Iterable[ToolFigure], hosts: Iterable[str] = ()) -> Iterator[Finding]:
    """Warnings of places that are far worse than the others in the same test.

    Far is more than 10 % and more than six robust sigmas (1.4826 times the median absolute deviation)
    from the median of at least five places. Where more than a quarter of the places are, there are
    several kinds of place (sockets, bridges), and none is named. A GPU is named rather than the
    test where the place is of one. hosts: places that begin with one of
    these are told as that node, one finding a node; of at least five a rank is held against the same
    rank of the others.
    """
    known = frozenset(hosts)
    slow, figures = find_slow_gpus(figures)
    yield from slow
    told: dict[str, list[str]] = {}
    for same in _alike(figures, apart=len(known) >= _LEAST_PLACES).values():
        for one, usual in _far(same):
            name = one.place.partition(":")[0]
            about = name if name in known else gpu_of(one.place) or one.test
            line = f"{one.place}: {shown(one)} in {one.test}, median {shown(one, usual)}"
            told.setdefault(about, []).append(line)
    for name, lines in told.items():
        subject = Subject("node", name) if name in known else None
        yield make_finding(
            "behind_others",
            subject=subject,
            about=name,
            saw=lines[0] if len(lines) == 1 else f"{lines[0]}; {len(lines) - 1:,} more",
            evidence=lines[:_MOST_EVIDENCE],
        )


def _alike(
    figures: Iterable[ToolFigure], *, apart: bool
) -> dict[tuple[object, ...], list[ToolFigure]]:
    """Figures whose better is known, by test; apart: and by rank."""
    found: dict[tuple[object, ...], list[ToolFigure]] = {}
    for one in figures:
        if one.unit and one.value > 0:
            rank = one.place.partition(":")[2] if apart else ""
            found.setdefault((one.test, one.size_bytes, one.unit, rank), []).append(one)
    return found


def _far(same: Sequence[ToolFigure]) -> list[tuple[ToolFigure, float]]:
    """(figure, the median of all)."""
    usual = median(one.value for one in same)
    sigma = MAD_TO_SIGMA * median(abs(one.value - usual) for one in same)
    reach, sign = max(_FAR * usual, _SIGMAS * sigma), 1 if same[0].unit == "s" else -1
    far = [(one, usual) for one in same if sign * (one.value - usual) > reach]
    return far if len(same) >= _LEAST_PLACES and len(far) <= _MOST_FAR * len(same) else []


def shown(one: ToolFigure, value: float | None = None) -> str:
    """With its unit, as people read it; value: another one of that unit."""
    return format_figure(one.value if value is None else value, one.unit)


def moment(seconds: object) -> str:
    """ISO 8601 in UTC of a Unix time; the time of the import where it is none."""
    known = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not known or not 0 < seconds < 1e11:  # type: ignore[operator]
        return now_text()
    at = datetime.fromtimestamp(float(seconds), UTC)  # type: ignore[arg-type]
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def node(host: str, gpus: Iterable[Mapping[str, Any]] = ()) -> NodeFacts:
    """A node of which a file tells little."""
    return NodeFacts(host=host, ranks=(), facts=Facts(), gpus=tuple(map(dict, gpus)))


def check_number(figures: int, name: str) -> None:
    """InputError for more figures of one file than anybody reads; long files are asked on the way."""
    if figures > MOST_FIGURES:
        raise InputError(
            f"{name}: {figures:,} figures or more",
            expected=f"at most {MOST_FIGURES:,}: cut the file",
        )


def imported(findings: Sequence[Finding], config: Mapping[str, Any], **told: Any) -> Run:
    """Return the run of what another tool wrote: without a verdict, FAILED where the tool found a fault.

    told: what else the run holds.
    """
    failed = any(one.status == "fail" for one in findings)
    known: dict[str, Any] = {"versions": {}, "environment": {}, **told}
    run = begun("import", config, new_id())
    return ended(run, "FAILED" if failed else "NONE", 1 if failed else 0, findings, **known)


def tool_run(
    tool: str,
    *,
    name: str,
    figures: Sequence[ToolFigure] = (),
    measurements: Sequence[Measurement] = (),
    findings: Sequence[Finding] = (),
    nodes: Sequence[NodeFacts] = (),
    versions: Mapping[str, object] | None = None,
    config: Mapping[str, Any] | None = None,
    started: str = "",
    seconds: float = 0.0,
    ranks: int = 0,
) -> Run:
    """The run of what a file tells.

    InputError where it holds neither figures nor findings, or more figures than anybody reads.
    """
    if not (figures or measurements or findings):
        raise InputError(
            f"{name}: no results of {tool} in it", expected="the output of a whole test"
        )
    check_number(len(figures), name)
    measurements, beyond = set_apart(measurements, most_of_any(), tool)
    figures = [*marked(figures), *beyond]
    findings = [*findings, *find_beyond(figures)]
    unsure = any(one.unit and one.low is None for one in figures) or bool(measurements)
    why = f"{tool} tells one figure and no samples"
    return imported(
        findings,
        {"source": name, "program": tool, **(config or {})},
        started=started or now_text(),
        seconds=seconds if math.isfinite(seconds) and seconds >= 0 else 0.0,
        world=World(size=ranks, nodes=tuple(nodes), backend="", launcher=tool),
        versions={key: words(value) for key, value in (versions or {}).items() if value},
        choices=(Choice("interval", "not known", why),) if unsure else (),
        measurements=tuple(measurements),
        figures=tuple(figures),
    )
