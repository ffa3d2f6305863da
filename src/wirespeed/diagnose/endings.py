"""Whether the logs show a good end, and what a verdict on logs is.

Strict: a line that proves it stands at the end of each log of the job, or for all of them; no log begins
anew after it, breaks off or was not read; and nothing is wrong.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from wirespeed.diagnose.evidence import Evidence
from wirespeed.diagnose.prefix import rank_in_name
from wirespeed.diagnose.scan import Hit
from wirespeed.errors import InputError
from wirespeed.records import Finding, LogVerdict

__all__ = ["broken_off", "closing", "good_end", "not_read", "told_end", "trains", "verdict_of"]

_AFTER = 1_000
"""Lines that may follow an end: of many ranks that say goodbye."""
_BEGINS = ("NT-001", "FACT-033")
"""Rules that tell that a job, or a part of one, begins."""
_FOR_ALL = ("GOOD-001", "GOOD-003", "GOOD-004")
"""Ends that one process tells for all ranks."""
_WRONG = re.compile(
    rb"(?i)\b(?:errors?|fail(?:s|ed|ure)?|exception|traceback|killed|abort(?:ed|ing)?|fatal|panic|segfault"
    rb"|core dumped|timed? ?out|cancell?ed|terminated|non-?zero"
    rb"|(?:exit|return)(?:ed)?(?: with)?(?: code| status)?[ :=]*-?[1-9]\d*)\b"
)
_HARMLESS = re.compile(
    rb"(?i)\b(?:no|0|without|zero) (?:errors?|fail|exception)|abort complete|errors?[ :=]+0\b"
)
_STEP = re.compile(
    rb"(?i)\bloss\b|\b(?:it/s|s/it|tokens?/s|samples?/s)|\b(?:iter|iteration|epoch|step)s?\b\W{0,4}\d"
)
_TRIED = (b"retry", b"failed to connect", b"trying again", b"reconnecting")
_NEAR = 20
"""Lines between the two closing lines of nccl-tests."""
_SHOWN = 4


def verdict_of(findings: Iterable[Finding]) -> tuple[LogVerdict, int]:
    """What is said of logs, and the exit code."""
    told = list(findings)
    if any(one.status == "fail" for one in told):
        return "CAUSE NAMED", 1
    if any(one.status == "warn" for one in told):
        return "SYMPTOMS ONLY", 3
    if any(one.id == "DIAG-009" for one in told):
        return "GOOD END SHOWN", 0
    return "NOTHING KNOWN", 3


def good_end(evidence: Evidence, lines: Mapping[str, int], tails: Mapping[str, bytes]) -> list[Hit]:
    """The lines that prove it; none where a log lacks its end.

    lines: of each log, how many; less than 0: who ended in that archive cannot be told.
    tails: the last bytes of each log.
    """
    ends: dict[str, list[Hit]] = {}
    if any(count < 0 for count in lines.values()):
        return []
    known: dict[str, dict[str, Hit]] = {source: {} for source in lines}
    for (id, source), hit in evidence.last.items():
        known.setdefault(source, {})[id] = hit
    for source, count in lines.items():
        if hits := _end_of(known[source], count):
            if _goes_wrong(tails.get(source, b""), count - hits[-1].line.number):
                return []
            ends[source] = hits
        elif "NT-001" in known[source]:
            return []
    for_all = any(hit.rule.id in _FOR_ALL for hits in ends.values() for hit in hits)
    for source in lines:
        # Who writes no line of a job, such as the kernel, ends with none.
        of_job = rank_in_name(source) is not None or known[source]
        if source not in ends and of_job and not for_all:
            return []
    return [hit for hits in ends.values() for hit in hits]


def trains(tail: bytes) -> bool:
    """Whether steps of a training follow what failed or was tried again, if anything did."""
    steps = [found.end() for found in _STEP.finditer(tail)]
    text = tail.lower()
    return bool(steps) and steps[-1] > max(text.rfind(word) for word in _TRIED)


def _goes_wrong(tail: bytes, after: int) -> bool:
    """Whether one of the last `after` lines looks wrong, also where no rule knows it."""
    lines = tail.rstrip(b"\n").split(b"\n")[-after:] if after else []
    return any(_WRONG.search(line) and not _HARMLESS.search(line) for line in lines)


def _end_of(last: Mapping[str, Hit], lines: int) -> list[Hit]:
    """How one log ends, by the last line of each rule in it."""
    ends = [
        hit for hit in last.values() if hit.rule.category == "good-end" and _is_whole(hit, last)
    ]
    begun = max((last[id].line.number for id in _BEGINS if id in last), default=0)
    late = [hit for hit in ends if hit.line.number > max(begun, lines - _AFTER)]
    average = last.get("NT-005")
    told = [*late, average] if average and any(hit.rule.id == "GOOD-001" for hit in late) else late
    return sorted(told, key=lambda hit: hit.line.number)


def _is_whole(hit: Hit, last: Mapping[str, Hit]) -> bool:
    """nccl-tests ends with two lines; the first alone may be all that a cut log kept."""
    if hit.rule.id != "GOOD-001":
        return True
    average = last.get("NT-005")
    return average is not None and 0 < average.line.number - hit.line.number <= _NEAR


def told_end(ends: Sequence[Hit]) -> list[str]:
    """What the lines say, and where they stand."""
    said = [f"{hit.line.where}: {hit.line.text.strip()[:120]}" for hit in ends]
    return [f"{ends[0].rule.sentence}: {said[0]}", *said[1:]] if ends else []


def closing(lines: int, told: Sequence[str], known: bool, unended: Mapping[str, str]) -> Finding:
    """The finding where nothing is wrong: a good end, or that none shows.

    told: what proves a good end. known: facts are shown. unended: logs whose last line has no end,
    and that line.
    """
    if told:
        more = len(told) - _SHOWN
        return Finding(
            id="DIAG-009",
            status="pass",
            title=f"a good end is shown: {'; '.join(told[:_SHOWN])}"
            + (f"; and {more} more" if more > 0 else ""),
            evidence=tuple(told[:256]),
        )
    count = f"{lines:,} line" + ("" if lines == 1 else "s")
    # Many programs write no newline last: that alone proves nothing.
    cut = [f"{log} may break off in its last line: {text}" for log, text in unended.items()][
        :_SHOWN
    ]
    return Finding(
        id="DIAG-000",
        status="not_checked",
        title=f"no known trouble in {count}; the logs show no end",
        saw="; ".join([count, *cut]),
        because="nothing in these lines tells whether the job ended well, still runs, hangs or was cut "
        "off"
        if known
        else "no line of NCCL, torch.distributed, gloo, a launcher, the kernel or Kubernetes was "
        "recognised",
        fix="give the logs of all ranks and of the launcher, to their end; if they tell no more, run "
        "the job again with NCCL_DEBUG=INFO and TORCH_CPP_LOG_LEVEL=INFO",
        next="wirespeed check",
    )


def broken_off(log: str, how: str) -> Finding:
    """A log that lacks its end. how: `line 41: it breaks off`."""
    return _lacking(f"{log} is not whole: {how}", log)


def not_read(error: InputError) -> Finding:
    """One of several logs that cannot be read."""
    return _lacking(error.saw, "")


def _lacking(title: str, log: str) -> Finding:
    return Finding(
        id="DIAG-010",
        status="warn",
        title=title,
        expected="every log to its end",
        because="its writer was killed while it wrote, the file was cut when it was copied, or this "
        "user may not read it",
        costs="what stood there is not known; it may be the cause",
        fix="copy it anew and compare sizes" + (f": gzip -t {log}" if log.endswith(".gz") else ""),
        category="log-not-whole",
        confidence="cannot tell",
    )
