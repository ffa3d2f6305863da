"""What parts of `make gpu` are made with: commands of ours as processes, and figures of their JSON."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

WHOLE_S = 540.0
LEAST_S = 20.0
"""A part is not begun with less than this left."""
_END_S = 5.0
_AFTER_S = 2.0
"""How much later than the first the other ranks of a world may end."""
Run = dict[str, Any]
OURS = (sys.executable, "-m", "wirespeed")
JSON = ("-o", "json", "-q")
NOTHING: Mapping[str, str] = {}


class CannotRun(Exception):
    """Why a part, or some of it, has no figures: what it needs is not here."""


class Broke(CannotRun):
    """A command that should have run did not end in its time, or told nothing."""


TROUBLE = (CannotRun, subprocess.TimeoutExpired, OSError, KeyError, IndexError, TypeError)
"""What ends one thing that a part tries, and not the day: a figure may be missing from a run, too."""


@dataclass
class Day:
    """What every part needs, and what it has noted."""

    began: float = field(default_factory=time.monotonic)
    environ: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    part: dict[str, Any] = field(default_factory=dict)
    until: float = math.inf
    """When the part must have ended, by time.monotonic."""

    def left_s(self) -> float:
        """Of the day, and of the part that is on."""
        return min(self.began + WHOLE_S, self.until) - time.monotonic()

    def figure(self, what: str, value: str, good: bool = True) -> None:
        self.part["figures"].append({"what": what, "value": value, "good": good})
        sys.stderr.write(f"    {'  ' if good else '✗ '}{what}: {value}\n")

    def cannot(self, why: str) -> None:
        if why not in self.part["cannot"]:
            self.part["cannot"].append(why)
            sys.stderr.write(f"    - {why}\n")

    @contextmanager
    def trying(self, what: str) -> Iterator[None]:
        """What cannot be run within is told, and the part goes on; what broke is not good."""
        try:
            yield
        except (Broke, subprocess.TimeoutExpired) as error:
            self.figure(what, f"broke: {error}"[:200], False)
        except TROUBLE as error:
            told = (
                str(error) if isinstance(error, CannotRun) else f"{type(error).__name__}: {error}"
            )
            self.cannot(f"{what}: {told[:200]}")
        except Exception as error:  # a fault of ours, which must not take the other parts with it
            self.figure(what, f"broke: {type(error).__name__}: {error}"[:200], False)

    def command(self, *words: str) -> None:
        self.part["commands"].append(" ".join(words))

    def run(self, *words: str, bound_s: float = 90.0, **environ: str) -> Run:
        """A command of ours; Broke where it gives no run."""
        self.command("wirespeed", *words)
        return self._finish([self._start([*OURS, *words, *JSON], environ)], bound_s)

    def program(
        self, words: Sequence[str], environ: Mapping[str, str] = NOTHING, bound_s: float = 60.0
    ) -> tuple[int, str, str]:
        """Any program's exit code, stdout and stderr; Broke where it does not end in its time."""
        return self._ended([self._start(words, environ)], bound_s)

    def world(self, each: Iterable[Mapping[str, str]], *words: str, bound_s: float) -> Run:
        """The same command as each rank of a world that we start, with variables of each rank's own."""
        ranks = list(each)
        port = free_port()
        shared = {"WORLD_SIZE": len(ranks), "LOCAL_WORLD_SIZE": len(ranks), "MASTER_PORT": port}
        self.command("wirespeed", *words, f"(as {len(ranks)} ranks)")
        started = []
        for rank, own in enumerate(ranks):
            place = {"RANK": rank, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", **shared}
            environ = {**{name: str(one) for name, one in place.items()}, **own}
            started.append(self._start([*OURS, *words, *JSON], environ))
        return self._finish(started, bound_s)

    def _start(self, words: Sequence[str], environ: Mapping[str, str]) -> "Started":
        """Its output goes to files: no pipe that fills up holds a rank."""
        out, err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115  (ended closes)
        process = subprocess.Popen(
            words,
            env={**os.environ, **self.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        return Started(process, out, err)

    def _finish(self, started: "list[Started]", bound_s: float) -> Run:
        """What the first one, whose process is the session, printed; the others may hang on purpose."""
        return run_of(*self._ended(started, bound_s))

    def _ended(self, started: "list[Started]", bound_s: float) -> tuple[int, str, str]:
        """The first one's exit code, stdout and stderr, with nothing left of any."""
        try:
            started[0].process.wait(max(min(bound_s, self.left_s()), 1.0))
            for one in started[1:]:
                with suppress(subprocess.TimeoutExpired):
                    one.process.wait(_AFTER_S)
        except subprocess.TimeoutExpired:
            raise Broke("it did not end in its time") from None
        finally:
            texts = [one.ended() for one in started]
        return texts[0]


@dataclass(frozen=True)
class Started:
    """A command under way, and what it prints."""

    process: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]

    def ended(self) -> tuple[int, str, str]:
        """Its exit code, and what it printed; it is ended where it goes on."""
        end_group(self.process)
        texts = []
        for stream in (self.out, self.err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
            stream.close()
        return self.process.returncode, texts[0], texts[1]


def end_group(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL, to what is left of a command."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            os.killpg(process.pid, signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)


def run_of(code: int, out: str, err: str) -> Run:
    """The JSON that a command printed; Broke with its words where there is none."""
    try:
        run = json.loads(out)
    except ValueError:
        run = None
    if not isinstance(run, dict):
        lines = [one for one in err.splitlines() if one.strip()]
        said = lines[0 if code in (2, 3) else -1] if lines else "no word"
        raise Broke(f"exit {code}: {said.strip()[:200]}")
    return run


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# Figures of a run.

UNJUDGED = ("WORLD-003", "not_checked")
"""Others measured here meanwhile, for which a verdict is UNKNOWN."""
ALONE = "WORLD-005"
"""One rank sends nothing: of all that a check looks at, its world is all that may be missing here."""


def is_good(run: Run) -> bool:
    """Return whether the verdict is as good as it can be: that of a check by one rank is UNKNOWN."""
    # Where nothing is installed yet, `gpu.py --look` still has to say what is missing.
    from wirespeed.model.verdicts import standing_of

    skipped = [one["id"] for one in run["findings"] if one["status"] == "not_checked"]
    blocking = {id for id in skipped if id.startswith(("WORLD", "COL"))}
    good = standing_of(run["verdict"]) in ("good", "measured")
    return good or (run["verdict"] == "UNKNOWN" and blocking == {ALONE})


def verdict(day: Day, run: Run, what: str) -> None:
    """The verdict, the failures by name, and what the backend refused."""
    failed = [one for one in run["findings"] if one["status"] == "fail"]
    warned = [one for one in run["findings"] if one["status"] == "warn" and not one.get("allowed")]
    warned += [one for one in run["findings"] if (one["id"], one["status"]) == UNJUDGED]
    passed = sum(one["status"] == "pass" for one in run["findings"])
    count = f"{passed} passed, {len(warned)} warnings, {len(failed)} failed"
    good = is_good(run) and not failed
    day.figure(what, f"{run['verdict']}, {count}, {run['seconds']:.0f} s", good)
    for one in (*failed, *warned):
        told = f"{one['title']}: {one.get('saw') or one.get('because')}"
        day.figure(f"{one['id']} {one['status']}", told[:200], False)


def sound(day: Day, run: Run, what: str) -> Run:
    """Return the run, of which figures are shown; show its verdict, too, where it is not good."""
    if not is_good(run):
        verdict(day, run, what)
    return run


def data(day: Day, run: Run) -> None:
    """How much was compared bit for bit."""
    checked = [one for one in run.get("verifications", ()) if one["wrong"] is not None]
    elements, wrong = (sum(one[name] for one in checked) for name in ("elements", "wrong"))
    ops = {one["op"] for one in checked}
    day.figure(
        "data",
        f"{len(checked)} configurations of {len(ops)} operations, {elements:,} elements, {wrong} wrong",
        elements > 0 and not wrong,
    )
    for reason in sorted(
        {one["reason"] for one in run.get("verifications", ()) if one["wrong"] is None}
    ):
        of = {one["op"] for one in run.get("verifications", ()) if one["reason"] == reason}
        day.cannot(f"{', '.join(sorted(of))}: {reason}")


def times(day: Day, runs: Iterable[Run], *, name: str = "") -> None:
    """A row for each operation, type and size of these runs, with the figures of each way of timing."""
    rows: dict[str, list[tuple[str, bool]]] = {}
    for one in (measured for run in runs for measured in run.get("measurements", ())):
        time_us, size = one["time_us"], size_text(one["size_bytes"])
        ranks = "1 rank" if one["ranks"] == 1 else f"{one['ranks']} ranks"
        half = ""
        if time_us["low"] is not None:
            half = f" ± {(time_us['high'] - time_us['low']) / 2 / time_us['median']:.1%}"
        told = f"{one['timing']} {time_us['median']:.1f} µs{half}"
        if one["ranks"] > 1:  # one rank has nothing to do in place, and else copies
            told += f", {one['algbw_GBps']:.2f} GB/s"
        row = f"{one['op']} {one['dtype']} {size}, {ranks}{name}"
        rows.setdefault(row, []).append((told, not one["wrong"]))
    for row, found in rows.items():
        day.figure(row, "; ".join(told for told, _ in found), all(good for _, good in found))


def size_text(size: int) -> str:
    power = 2 if size >= 1 << 20 else 1
    return f"{size / 1024**power:g} {'MiB' if power == 2 else 'KiB'}"
