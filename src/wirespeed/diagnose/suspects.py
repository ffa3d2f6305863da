"""The root line of a failure that no rule knows: the first error that follows from no other.

No answer is empty where something looks wrong: which line, whose it is, and what came just before. Lines
are judged by words alone, so what healthy jobs print (`0 errors`, `error=0.12`, names of settings) must
not count, and what some rule knows is that rule's matter.

Of exceptions the innermost of a chain counts: what was raised while another one was handled, or because
of it, comes after it, and a loader's or a worker's exception quotes the original below itself.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from wirespeed.diagnose.findings import JOB, cut, make_finding
from wirespeed.diagnose.prefix import Prefix, rank_in_name, strip
from wirespeed.diagnose.rule import Rule
from wirespeed.diagnose.scan import Line
from wirespeed.model.records import Finding, Subject

_WORDS = (
    "error|fatal|traceback|exception|failed|failure|abort|panic|terminate called|critical|cannot "
    "|can't |could not|couldn't |unable to|refused|denied|forbidden|unauthorized|killed|timed out"
    "|core dumped|undefined symbol|not found|no such|not permitted|assertion"
)
ANCHORS = tuple(_WORDS.split("|"))
_KEPT = 6
"""Lines kept of a log that are surely trouble, and as many that may be."""
_LOGS = 4_096
_BEFORE = 3
_STACK_LINES = 200
_MESSAGE_LINES = 12
"""Lines of an exception's message that are kept."""
_LONG = 300
_WHOLE = 1_000
"""Characters kept of an exception's message."""
_SURE = re.compile(
    r"^\S{0,80}\s?\b(?:traceback \(most recent call last\)|terminate called after"
    r"|fatal(?: error)?\b[:!]|panic: |thread '[^']*' panicked|critical\b:?"
    r"|\[?(?:error|fatal|critical|err)\]?\s*[:|\]-])"
    r"|\b(?:traceback \(most recent call last\)|fatal error|core dumped|undefined symbol"
    r"|segmentation fault|assertion\b.{0,200}\bfailed|what\(\):)"
    r"|^[\w.]*(?:error|exception)(?:: |$)|\s(?:ERROR|FATAL|CRITICAL|PANIC)\s",
    re.IGNORECASE,
)
_LEVEL = re.compile(r"\s(?:ERROR|FATAL|CRITICAL|PANIC)\s")
_WEAK = re.compile(
    r"^errors?\b|\berrors?\s*[:!,(\[]"
    r"|\berrors? (?:while|when|in|occurred|during|code|loading|reading|opening|from|at|connecting|\d)"
    r"|\b(?:an|with|got|internal|unexpected|unknown|i/o|system|runtime|cuda|hip|protocol|network|link"
    r"|device|hardware) error\b|\b\w+_(?:err|error)\b"
    r"|\bfail(?:ed|ure)\b|\babort(?:ed|ing)\b|\bpanic\b|\bexception\b"
    r"|\b(?:cannot|can't|could not|couldn't|unable to)\b|\b(?:connection|permission|access) "
    r"(?:refused|denied)|\bforbidden\b|\bunauthorized\b"
    r"|\b(?:job|was|been|process) killed\b|\btimed out|\bnot found\b|\bno such\b|\bnot permitted\b",
    re.IGNORECASE,
)
_HARMLESS = re.compile(
    # Counts and figures: `0 errors`, `errors: none`, `validation error = 0.0312`.
    r"\b(?:0|no|zero|without(?: any)?) (?:\w+ )?(?:errors?|failures?|exceptions?|failed)\b"
    r"|(?:\b|_)(?:errors?|err|failures?|failed|fails|exceptions?|aborted)\b[\"']?\s*[=:]\s*[\"'\[({]*"
    r"(?:0+(?:\.0+)?(?:e[-+]?\d+)?%?|none|null|nil|no|false|n/a|\[\]|-?\d+\.\d+(?:e[-+]?\d+)?%?"
    r"|\d+e[-+]\d+)(?![\w.])"
    r"|\b(?:error|exception)[ _-](?:handling|rate|bars?|feedback|correct\w*|bound|margin|norm|log|file"
    r"|checking|codes?:? 0)\b"
    r"|\b(?:mean|abs\w*|squared?|relative|max\w*|rms|quantization|reconstruction|validation|train\w*"
    r"|test|word|wer|prediction) (?:abs\w* |squared? |pct )?errors?\b"
    # What went on nevertheless, or only tells of a setting.
    r"|\b(?:ignor|retry|re-?try|falling back|fall back|fallback|will try|trying again|recovered|handled"
    r"|from scratch|instead\b|using (?:the )?default|will (?:proceed|use|be|continue)|above exception"
    r"|optional|skipp|harmless|expected|disabl|not (?:be )?fatal|non-?fatal|deprecat|continu"
    r"|you can (?:set|safely|ignore))"
    # What Open MPI, TensorFlow, pip and torchrun print in healthy jobs too.
    r"|it is recommended to|\bself\.log\(|maximum retry reached|cannot get incoming cpu"
    r"|help / error messages|register (?:cu\w+|factory|plugin)\b|\w+ factory\b|dependency resolver"
    r"|direct cause of|exception raised from|^frame #|^last error:|busbw|^errors?:?\s*$|\.py failed$"
    r"|\b(?:on|if|upon|in case of|for|of|any|raise|handle|log|ecc|as) (?:an? |any |of )?"
    r"(?:error|failure|exception)s?\b"
    r"|\bfail(?:ed|ure)s?[ _-](?:over|count|rate|domain|detection|threshold|polic\w+)\b"
    r"|(?:async|blocking|on|if)_error|error_polic|error_handling|error_file|debug|stderr",
    re.IGNORECASE,
)
_QUIET = re.compile(
    r"\b(?:INFO|DEBUG|TRACE|NOTICE)\b|\b(?:\w*Warning|warn|warning)\b\s?[:\]]"
    r"|(?<![NR]CCL )\bWARN(?:ING)?\b"
    r"|^\s*(?:#|export |set -|\$ |\+ |-{2,}\w|\"?\w+\"?\s*[:=] *(?:true|false|\d+)\b)"
)
"""Levels below an error, comments and listings of settings: weak words there are no suspects."""
_GLOG = re.compile(
    rb"(?:^|[\[ \]])([IWEF])(?:\d{4} \d\d:\d\d:\d\d| [\w./]+\.(?:cpp|cc|hpp|h):\d+\])"
)
"""The level that glog writes before the time, or before the file where it writes no time."""
_PANIC = re.compile(r"^thread '[^']*' (?:\(\d+\) )?panicked at ")
"""Rust; the message stands behind the place, or on the next line."""
_PROGRAM = re.compile(r"(?!https?:|error:|fatal:)\[?([A-Za-z][\w.+-]{1,40})(?:\[\d+\])?\]?: ")
_FILE = re.compile(r"\b([\w/.+-]*\w\.(?:py|cc|cpp|cxx|cu|c|h|hpp|go|rs|sh|pl)):(\d+)\b")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_DIGITS = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)

_STACK = b"Traceback (most recent call last)"
_STACK_START = re.compile(rb"(?:Original |Remote |> )?Traceback \(most recent call last\)")
_QUOTED = (b"Original Traceback", b"Remote Traceback")
"""A stack that belongs to the exception above it, and is the origin of it."""
_CHAINED = re.compile(
    rb"During handling of the above exception|The above exception was the direct cause"
)
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt)(?:: |$)")
"""The line that ends a Python stack, where the stack itself is missing."""
_LOGGED = re.compile(
    r"^\[?(?:ERROR|CRITICAL|FATAL)\]?\s*[:|-]?\s+(?:\d\d-\d\d \d\d:\d\d:\d\d\s+)?(?:\[[^\]]{1,80}\]\s+)?"
)
"""What a logger writes before each line of a stack, after its time."""
_WRAPPING = re.compile(
    r"^(?:[\w.]+\.)?(?:ChildFailedError|ProcessRaisedException|ProcessExitedException|RayTaskError"
    r"|RayActorError|ActorDiedError|WorkerCrashedError|SignalException|SystemExit|KeyboardInterrupt"
    r"|CalledProcessError|BrokenProcessPool|_?RemoteTraceback|_?RemoteError|TerminatedWorkerError"
    r"|BrokenPipeError|ConnectionResetError|EOFError)\b"
    r"|Caught \w+ in (?:DataLoader worker|replica|pin memory)|EngineCore failed|Engine core init"
    r"|exited unexpectedly|terminated with the following error|non-zero exit status|worker died"
    r"|^RuntimeError: (?:Engine process|DataLoader worker .{0,30}exited)",
)
"""Exceptions that report the end of something else; what ended it is the origin."""
_RAISES = re.compile(rb"Traceback|Error\b|Exception\b|terminate called|panicked at")
_LOOKED = 20_000
"""Lines of a log that are read for exceptions: a log may hold nothing else."""
_CHAIN = 8
"""Exceptions that are kept of a chain."""
_SHAPES = 64
"""Exceptions of different shapes that are kept of a log."""
_RANK = re.compile(rb"\[rank(\d{1,6})\]:? ")
"""Who wrote a stack, where a logger's words stand before it."""
_IGNORED = re.compile(rb"Exception ignored in|Exception in thread .{0,40}(?:tqdm|wandb|watchdog)")


@dataclass(frozen=True, slots=True)
class _Suspect:
    log: str
    number: int
    line: Prefix
    rank: int | None
    before: tuple[str, ...]
    order: int = 0
    exception: str = ""
    """Of a Python stack, or an exception of C++: its message, where it is in sight."""
    frame: str = ""
    """Of a stack: `file:line` of its innermost frame."""
    caller: str = ""
    """Of a stack that ends in a library: `file:line` of the innermost frame that is in none."""
    rest: tuple[str, ...] = ()
    """Of a line that announces more: what stands below it."""
    outer: tuple[str, ...] = ()
    """Of the innermost exception of a chain: the messages of those that it became."""
    alike: int = 0
    """Further ones of the same shape."""

    @property
    def text(self) -> str:
        """Return what went wrong in one line: the exception's first line, else the line itself."""
        return self.exception.split("\n", 1)[0] or self.line.text

    @property
    def is_exception(self) -> bool:
        """Return whether it is an exception of Python or C++ that nothing caught."""
        return bool(self.exception) or _EXCEPTION.match(self.line.text) is not None

    @property
    def writer(self) -> tuple[str, int | None, str | None]:
        """Return who wrote it, as far as the line tells: log, rank and host."""
        return self.log, self.rank, self.line.host

    @property
    def whose(self) -> str:
        """Return rank, host and program or source line, as far as they are known."""
        names = [f"rank {self.rank}"] if self.rank is not None else []
        if self.line.host:
            names.append(self.line.host)
        program = self.caller or self.frame or _program(self.line.text)
        if program:
            names.append(program)
        return ", ".join(names)


@dataclass(slots=True)
class _OfLog:
    """The suspicious lines and exceptions that are kept of one log."""

    sure: list[_Suspect] = field(default_factory=list)
    weak: list[_Suspect] = field(default_factory=list)
    exceptions: dict[str, _Suspect] = field(default_factory=dict)
    """The first of each shape: what differs in numbers only is one."""
    chains: dict[tuple[str, int | None, str | None], str] = field(default_factory=dict)
    """By writer: the shape of the exception that its last chain began with."""
    taken: set[int] = field(default_factory=set)
    """Numbers of lines that end a stack that was read."""
    looked: int = 0
    """Lines that were read for exceptions."""

    @property
    def full(self) -> bool:
        """Return whether no further line of this log is kept."""
        return len(self.sure) >= _KEPT and len(self.weak) >= _KEPT


class Suspects:
    """Watches lines with words of trouble and keeps the first few of each log."""

    def __init__(self) -> None:
        self._logs: dict[str, _OfLog] = {}
        self.around: Callable[[], tuple[bytes, bytes]] = lambda: (b"", b"")
        """What was read just before the line that is seen now, and from its beginning on."""
        self.order: Callable[[], int] = lambda: 0
        """The place of that line among all lines that were read."""
        self.whose: Callable[[str, int, Prefix], Prefix] = lambda log, number, prefix: prefix
        """Who wrote it: (log, its number, what its prefix tells)."""

    def see(self, raw: bytes, log: str, number: int) -> None:
        """Take one line that holds an anchor."""
        if log not in self._logs and len(self._logs) >= _LOGS:
            return
        kept = self._logs.setdefault(log, _OfLog())
        may_raise = _RAISES.search(raw) is not None
        enough = kept.looked >= _LOOKED if may_raise else kept.full
        if enough or number in kept.taken:
            return
        kept.looked += may_raise
        line = strip(raw[:2000].decode("utf-8", "replace"))
        sure = looks_wrong(line.text)
        level = _GLOG.search(raw[:200])
        if level is not None and level[1] == b"F":
            sure = True
        if sure is None or (level is not None and level[1] in b"IW"):
            return
        if level is not None:
            sure = True
        if not sure:
            if len(kept.weak) < _KEPT:
                kept.weak.append(self._suspect(raw, log, number, line))
        elif may_raise or len(kept.sure) < _KEPT:
            suspect = self._suspect(raw, log, number, line)
            if suspect.is_exception:
                self._keep_exception(kept, suspect, raw)
            elif len(kept.sure) < _KEPT:
                kept.sure.append(suspect)

    def _keep_exception(self, kept: _OfLog, suspect: _Suspect, raw: bytes) -> None:
        """Keep it, or join it to the chain of exceptions that it belongs to."""
        before, _ = self.around()
        lines = [line for line in before.split(b"\n") if line.strip()][-_BEFORE:]
        kept.taken.add(suspect.number)
        if any(_IGNORED.search(line) for line in lines):
            return
        shape = _shape(suspect)
        chain = kept.chains.get(suspect.writer)
        begin = kept.exceptions.get(chain) if chain is not None else None
        if begin is not None and any(quoted in raw for quoted in _QUOTED):
            del kept.exceptions[_shape(begin)]
            kept.chains[suspect.writer] = shape
            kept.exceptions[shape] = replace(suspect, outer=(*begin.outer, begin.text))
        elif begin is not None and any(_CHAINED.search(line) for line in lines):
            outer = (*begin.outer, suspect.text)[:_CHAIN]
            kept.exceptions[_shape(begin)] = replace(begin, outer=outer)
        elif shape in kept.exceptions:
            same = kept.exceptions[shape]
            kept.exceptions[shape] = replace(same, alike=same.alike + (_STACK in raw))
        elif len(kept.exceptions) < _SHAPES:
            kept.exceptions[shape] = suspect
            if _STACK in raw:
                kept.chains[suspect.writer] = shape

    def _suspect(self, raw: bytes, log: str, number: int, line: Prefix) -> _Suspect:
        before, after = self.around()
        stack, rest = _Stack(), ""
        if _STACK in raw:
            stack = _read_stack(raw, after)
            number += stack.lines
        elif b"terminate called after" in raw:
            stack.message = _what_of_cpp(after)
        elif _PANIC.match(line.text):
            stack.message = _message_of_panic(line.text, after)
        else:
            bare = _LOGGED.sub("", line.text)
            if _EXCEPTION.match(bare):
                stack.message = _with_rest(bare, raw, after)[:_WHOLE]
                stack.frame = _frame_before(before)
            elif bare.endswith(":"):
                rest = _with_rest("", raw, after)
        line.rank, line.host = self._writer(log, number, line)
        rank = line.rank
        if rank is None and stack.message:
            place = _RANK.search(raw)
            rank = int(place[1]) if place else None
        lines = _last_lines(before)
        caller = stack.caller if stack.caller != stack.frame else ""
        return _Suspect(
            log,
            number,
            line,
            rank,
            lines,
            self.order(),
            stack.message,
            stack.frame,
            caller,
            tuple(rest.splitlines())[:_MESSAGE_LINES],
        )

    def _writer(self, log: str, number: int, line: Prefix) -> tuple[int | None, str | None]:
        whose = self.whose(log, number, line)
        return (rank_in_name(log) if whose.rank is None else whose.rank), whose.host

    def exceptions(self, rules: Iterable[Rule]) -> Iterator[tuple[Line, str]]:
        """Yield each exception that no rule knows and that is the first of its chain.

        Beside where it stands: its message in one line. The order is that of the logs.
        """
        # A fact claims nothing, so an exception that only a fact knows is not explained.
        anchored = [rule for rule in rules if rule.anchors and rule.role != "fact"]
        for suspect in self._exceptions():
            if _WRAPPING.search(suspect.text):
                continue
            if not _is_known(suspect, anchored):
                yield _as_line(suspect), suspect.text

    def root_line(
        self, rules: Iterable[Rule], symptom: Line | None = None, *, after: bool = False
    ) -> Finding | None:
        """Return LOG-001 or LOG-002 of the first suspect that no rule knows.

        What is surely wrong comes before what may be, and what reports the end of something else last.
        symptom: the first line of a symptom that is told beside it; only what came before may be behind
        it, unless it announces another tool's output (`after`).
        """
        anchored = [rule for rule in rules if rule.anchors]
        logs = self._logs.values()
        exceptions = self._exceptions()
        raised = [one for one in exceptions if not _WRAPPING.search(one.text)]
        sure = [suspect for kept in logs for suspect in kept.sure]
        weak = [suspect for kept in logs for suspect in kept.weak]
        for group in (raised, sure, exceptions, weak):
            unknown = [
                suspect
                for suspect in group
                if (after or _may_cause(suspect, symptom)) and not _is_known(suspect, anchored)
            ]
            if unknown:
                return self._finding(_first(unknown), unknown)
        return None

    def exception_at(self, line: Line, rules: Iterable[Rule]) -> Finding | None:
        """Return LOG-002 of the exception that stands there, with unknown errors before it."""
        place = (line.source, line.number)
        exceptions = self._exceptions()
        first = next((one for one in exceptions if (one.log, one.number) == place), None)
        if first is None:
            return None
        others = [one for one in exceptions if not _WRAPPING.search(one.text)]
        finding = self._finding(first, others)
        anchored = [rule for rule in rules if rule.anchors]
        before = [
            f"an error before it: {sure.log}:{sure.number}: {cut(sure.text)}"
            for sure in self._logs[first.log].sure
            if sure.number < first.number and not _is_known(sure, anchored)
        ]
        return replace(finding, evidence=(*finding.evidence, *before[:_BEFORE]))

    def _finding(self, first: _Suspect, group: Sequence[_Suspect]) -> Finding:
        counted_all = all(kept.looked < _LOOKED for kept in self._logs.values())
        return _finding(first, group, "" if counted_all else "at least ")

    def _exceptions(self) -> list[_Suspect]:
        return [one for kept in self._logs.values() for one in kept.exceptions.values()]


def looks_wrong(text: str) -> bool | None:
    """Return True for a line that surely tells of trouble, False for one that may, else None."""
    if _STACK_START.search(text.encode()):
        return True
    if _HARMLESS.search(text) and not _EXCEPTION.match(text):
        return None
    if _SURE.search(text) and (not _QUIET.search(text) or _LEVEL.search(text)):
        return True
    return False if _WEAK.search(text) and not _QUIET.search(text) else None


def _as_line(suspect: _Suspect) -> Line:
    return Line(
        source=suspect.log,
        number=suspect.number,
        text=suspect.text,
        order=suspect.order,
        rank=suspect.rank,
        host=suspect.line.host,
        time=suspect.line.time,
        clock=suspect.line.clock,
    )


def _may_cause(suspect: _Suspect, symptom: Line | None) -> bool:
    if symptom is None:
        return True
    if suspect.log == symptom.source:
        return suspect.number < symptom.number
    known = suspect.line.time is not None and symptom.time is not None
    if not known or suspect.line.clock != symptom.clock:
        return False
    return (suspect.line.time or 0.0) < (symptom.time or 0.0)


def _is_known(suspect: _Suspect, rules: Sequence[Rule]) -> bool:
    """Return whether a rule knows the line, or an exception that it became.

    A rule counts that needs others, or that found a good end later.
    """
    texts = {text: text.lower() for text in (suspect.line.text, suspect.text, *suspect.outer)}
    return any(
        any(anchor.lower() in low for anchor in rule.anchors) and rule.match(text) is not None
        for text, low in texts.items()
        for rule in rules
    )


def _first(group: Sequence[_Suspect]) -> _Suspect:
    """The earliest by one clock, else the first one read."""
    timed = [one for one in group if one.line.time is not None]
    alike = len(timed) == len(group) and len({one.line.clock for one in group}) == 1
    return min(timed, key=lambda one: one.line.time or 0.0) if alike else group[0]


@dataclass(slots=True)
class _Stack:
    """What a Python stack tells."""

    message: str = ""
    """The exception that ends it, with its message; empty where it is not in sight."""
    lines: int = 0
    """From its first line to the exception."""
    frame: str = ""
    caller: str = ""


def _read_stack(raw: bytes, after: bytes) -> _Stack:
    """Read a Python stack from its first line on.

    Lines of other writers in between have another prefix and are passed over; the last line counts
    without one too, since some programs write it by themselves.
    """
    start = _STACK_START.search(raw)
    column = start.start() if start else raw.index(_STACK)
    prefix = _without_times(raw[:column])
    stack = _Stack()
    message: list[str] = []
    for number, line in enumerate(after.split(b"\n", _STACK_LINES + 1)[1 : _STACK_LINES + 1], 1):
        text = line[column:].decode("utf-8", "replace").rstrip()
        if _without_times(line[:column]) != prefix:
            bare = line.decode("utf-8", "replace").strip()
            if message or not _EXCEPTION.match(bare):
                continue
            return _Stack(bare[:_WHOLE], number, stack.frame, stack.caller)
        place = _FRAME.search(text)
        if message:
            if not text.strip() or _ENDS_MESSAGE.search(text) or len(message) >= _MESSAGE_LINES:
                break
            message.append(text)
        elif place is not None:
            stack.frame = f"{place[1]}:{place[2]}"
            if not _LIBRARY.search(place[1]):
                stack.caller = stack.frame
        elif _ENDS_STACK.match(text):
            message.append(text)
            stack.lines = number
    stack.message = "\n".join(message)[:_WHOLE]
    return stack


_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python[\d.]+/|^<frozen")
_ENDS_STACK = re.compile(r"^[A-Za-z_][\w.]*(?:: |:?$)")
"""An exception's line, of whatever name: `acme.LaneLost: …`, `KeyboardInterrupt`."""
_ENDS_MESSAGE = re.compile(r"^(?:Original )?Traceback |^Exception raised from|^During handling|^\[")


_TIMES = re.compile(
    rb"\d\d:\d\d:\d\d(?:[.,]\d+)?|\d{4}[-/]\d\d[-/]\d\d|\b\d\d-\d\d\b|\b[IWEF]\d{4}\b|\d+\.\d{3,}"
)


def _without_times(prefix: bytes) -> bytes:
    """Return a prefix as all lines of one writer have it."""
    return _TIMES.sub(b"", prefix)


def _what_of_cpp(after: bytes) -> str:
    """What an exception of C++ that nothing caught says: `what():  …` on the next line."""
    line = after.split(b"\n", 2)[1:2]
    text = strip(line[0].decode("utf-8", "replace")).text if line else ""
    return text[:_LONG] if "what()" in text else ""


def _with_rest(text: str, raw: bytes, after: bytes) -> str:
    """Return a line with those below it that belong to it: none of a logger, a stack, another writer."""
    written = raw.rstrip()
    column = max(0, len(written) - len(text.encode())) if text else 0
    prefix = _without_times(raw[:column])
    lines = [text] if text else []
    for line in after.split(b"\n", _MESSAGE_LINES + 1)[1 : _MESSAGE_LINES + 1]:
        if _without_times(line[:column]) != prefix:
            break
        below = line[column:].decode("utf-8", "replace").rstrip()
        if _ENDS_MESSAGE.search(below) or strip(below).time is not None or (text and not below):
            break
        if below:
            lines.append(below)
    return "\n".join(lines)


def _message_of_panic(text: str, after: bytes) -> str:
    """Return what a panic of Rust says, in one line."""
    if not text.endswith(":"):
        return text[:_LONG]
    line = after.split(b"\n", 2)[1:2]
    message = strip(line[0].decode("utf-8", "replace")).text if line else ""
    return f"{text} {message}"[:_LONG]


def _frame_before(before: bytes) -> str:
    """Return `file:line` of the last frame of a stack that ends just before a line, else nothing."""
    lines = [line for line in before.split(b"\n") if line.strip()][-4:]
    places = [_FRAME.search(line.decode("utf-8", "replace")) for line in lines]
    last = [place for place in places if place is not None][-1:]
    return f"{last[0][1]}:{last[0][2]}" if last else ""


def _last_lines(before: bytes) -> tuple[str, ...]:
    lines = [line for line in before.decode("utf-8", "replace").splitlines() if line.strip()]
    return tuple(cut(strip(line).text or line) for line in lines[-_BEFORE:])


def _program(text: str) -> str:
    """Who says it, as far as the line tells: `slurmstepd`, `pair.cc:129`."""
    file = _FILE.search(text)
    if file is not None:
        return f"{file[1]}:{file[2]}"
    named = _PROGRAM.match(text)
    return named[1] if named and not re.fullmatch(r"\w*(?:error|exception)", named[1], re.I) else ""


def _finding(first: _Suspect, group: Sequence[_Suspect], bound: str) -> Finding:
    """Return LOG-001 or LOG-002. bound: what stands before a count that may be too low."""
    alike = [one for one in group if _shape(one) == _shape(first)]
    evidence = [f"{first.log}:{first.number}: {cut(first.text)}"]
    evidence += [cut(line) for line in first.exception.split("\n")[1:] if line.strip()]
    evidence += [cut(line) for line in first.rest]
    evidence += [f"raised in {first.frame}"] if first.frame else []
    evidence += [f"called from {first.caller}"] if first.caller else []
    evidence += [f"what it became: {cut(message)}" for message in first.outer]
    evidence += [f"just before: {line}" for line in first.before]
    others = [f"{one.log}:{one.number}: {cut(one.text)}" for one in group if one not in alike]
    count = len(alike) + sum(one.alike for one in alike)
    more = f", and {bound}{count - 1:,} more like it" if count > 1 else ""
    became = f", which became {cut(first.outer[-1], 120)}" if first.outer else ""
    near = f"sed -n '{max(1, first.number - 20)},{first.number + 20}p' {first.log}"
    again = "run it again with NCCL_DEBUG=INFO and keep the logs of all ranks"
    return make_finding(
        "unknown_exception" if first.is_exception else "looks_wrong",
        subject=_subject(alike),
        evidence=evidence + others[:_BEFORE],
        saw=f"{first.log}:{first.number}{more}",
        said=cut(first.text, 240) + became,
        whose=f" ({first.whose})" if first.whose else "",
        frame=f", in {first.caller or first.frame}" if first.frame else "",
        next=again if first.log == "stdin" else near,
    )


def _shape(suspect: _Suspect) -> str:
    return _DIGITS.sub("#", suspect.text)


def _subject(alike: Sequence[_Suspect]) -> Subject:
    ranks = {one.rank for one in alike}
    hosts = {one.line.host for one in alike}
    if len(ranks) == 1 and (rank := ranks.pop()) is not None:
        return Subject("rank", f"rank {rank}")
    if len(hosts) == 1 and (host := hosts.pop()):
        return Subject("node", host)
    return JOB
