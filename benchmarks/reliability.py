"""Each fault made on purpose: the words that named it, how soon, what was kept, and the exit code.

    python benchmarks/reliability.py [-k TEXT]

Ranks are gloo processes of this machine; links, ports and quotas are broken between network namespaces
(`wirespeed.lab`: root and iproute2; without, those rows say so). *After the blow* counts from the fault
to the end of the command, *in all* (faults of `--inject`, and those that were there before) the whole
command, start of the ranks included. Printed is a Markdown table; the columns of other tools come from
reliability_faults.py, and their sources stand in docs/reliability.md. Exit code 1 where a fault was
not named as it must be. 9 minutes on 2 cores that others kept busy.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from reliability_faults import FAULTS, NODES, RATE, Fault
from wirespeed.errors import WirespeedError
from wirespeed.lab import Lab, LabSpec
from wirespeed.model.records import Run
from wirespeed.runs.store import load

BOUND_S = 200.0
_SAID = ("fault", "how it was made", "the words that named it", "in", "what was kept", "exit")
COLUMNS = (*_SAID, "nccl-tests", "SuperBench")
WIRESPEED = (sys.executable, "-m", "wirespeed")
_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC", "OMPI_", "SLURM_", "PMI")


@dataclass
class Stage:
    """One command with a home of its own, and what a fault may do to it."""

    folder: Path
    lab: Lab | None = None
    after: list[Callable[[], object]] = field(default_factory=list)
    session: "subprocess.Popen[bytes] | None" = None
    struck: float = 0.0

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def environment(self) -> dict[str, str]:
        """Nothing of any launcher; no cloud is asked."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith((*_LAUNCHERS, "WIRESPEED"))}
        closed = {
            f"WIRESPEED_{name}_METADATA": "http://127.0.0.1:1" for name in ("AWS", "AZURE", "GCP")
        }
        return {**kept, **closed, "WIRESPEED_HOME": str(self.home), "OMP_NUM_THREADS": "1"}

    def ranks(self) -> dict[int, psutil.Process]:
        """Forked ranks are told by their names, others by RANK in their environment."""
        found = {}
        for one in psutil.process_iter():
            with suppress(psutil.Error, OSError, ValueError):
                known = one.environ()
                if known.get("WIRESPEED_HOME") == str(self.home):
                    rank = known.get("RANK") or one.name().removeprefix("rank ")
                    if rank.isdigit():
                        found[int(rank)] = one
        return found

    def measured(self, least: int = 1) -> None:
        """Wait until that many measurements are stored."""
        self.until(lambda: _stored(self.home, b'"measurement"') >= least)

    def until(self, true: Callable[[], object]) -> None:
        deadline = time.monotonic() + BOUND_S
        while not true():
            if time.monotonic() > deadline:
                raise TimeoutError("the fault could not be made in time")
            time.sleep(0.05)

    def end(self) -> None:
        for process in self.ranks().values():
            with suppress(psutil.Error):
                process.kill()
        for undo in reversed(self.after):
            undo()


def _stored(home: Path, kind: bytes) -> int:
    return sum(
        path.read_bytes().count(b'"kind": ' + kind) for path in home.glob("runs/*/records.jsonl")
    )


@dataclass(frozen=True)
class Told:
    """What became of one fault."""

    words: str
    seconds: float
    kept: str
    code: int
    right: bool


def struck(fault: Fault, stage: Stage) -> Told:
    """The command under that fault."""
    begin = time.monotonic()
    if fault.before:
        fault.before(stage)
    out, err = stage.folder / "out", stage.folder / "err"
    code, ended = (
        _in_lab(fault, stage, stage.lab, out, err) if stage.lab else _here(fault, stage, out, err)
    )
    said = out.read_text("utf-8", "replace") + err.read_text("utf-8", "replace")
    for words in fault.then:
        done = subprocess.run(
            [*WIRESPEED, *words],
            env=stage.environment(),
            capture_output=True,
            text=True,
            timeout=BOUND_S,
        )
        said += done.stdout + done.stderr
    named, kept = _named(fault, stage, said)
    right = bool(named) and code in fault.codes
    return Told(
        named or f"NOT NAMED: {said[-300:]}", ended - (stage.struck or begin), kept, code, right
    )


def _here(fault: Fault, stage: Stage, out: Path, err: Path) -> tuple[int, float]:
    with out.open("wb") as output, err.open("wb") as errors:
        stage.session = subprocess.Popen(
            [*WIRESPEED, *fault.words],
            env=stage.environment(),
            cwd=stage.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
    _blow(fault, stage)
    try:
        return stage.session.wait(BOUND_S), time.monotonic()
    except subprocess.TimeoutExpired:
        stage.session.kill()
        return stage.session.wait(), time.monotonic()


def _in_lab(fault: Fault, stage: Stage, lab: Lab, out: Path, err: Path) -> tuple[int, float]:
    """One rank a node; the first node's rank is the one that tells, so its end counts."""
    running = lab.start(
        [*WIRESPEED, *fault.words], nodes=lab.nodes[: fault.nodes], env=stage.environment()
    )
    _blow(fault, stage)
    deadline = time.monotonic() + BOUND_S
    while lab.nodes[0] in running.alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    ended = time.monotonic()
    first = running.wait(10.0, 5.0)[0]
    out.write_text(first.stdout)
    err.write_text(first.stderr)
    return first.returncode, ended


def _blow(fault: Fault, stage: Stage) -> None:
    if fault.strike:
        stage.until(lambda: len(stage.ranks()) >= 2)
        stage.measured()
        stage.struck = time.monotonic()
        fault.strike(stage)


def _named(fault: Fault, stage: Stage, said: str) -> tuple[str, str]:
    """(the title of the finding, or the line, that names the fault; what the run folder holds)."""
    runs = _runs(stage.home)
    kept = "; ".join(_kept(run) for run in runs) or "no run"
    for run in runs:
        for one in run.findings:
            if one.id.startswith(fault.named) and fault.who in f"{one.title} {one.subject}":
                return f"{one.title} ({one.id}, {one.status})", kept
    lines = (" ".join(line.split()) for line in said.splitlines())
    return next((line for line in lines if any(word in line for word in fault.named)), ""), kept


def _runs(home: Path) -> list[Run]:
    found = []
    for path in sorted(home.glob("runs/*-*")):
        with suppress(WirespeedError):
            found.append(load(path))
    return found


def _kept(run: Run) -> str:
    figures = len(run.measurements) + sum(row.rounds for row in run.training)
    pairs = f", pairs: {run.located.pairs_measured}" if run.located else ""
    return f"{run.verdict}, figures: {figures}{pairs}, findings: {len(run.findings)}"


@contextmanager
def laboratory(wanted: bool) -> Iterator[Lab | None]:
    """Nodes, where this is root on Linux with the tools for them."""
    missing = [name for name in ("ip", "tc", "nft") if shutil.which(name) is None]
    if not wanted or os.geteuid() != 0 or missing:
        yield None
        return
    with Lab(LabSpec(NODES, f"r{os.getpid()}", RATE)) as made:
        yield made


def row(fault: Fault, lab: Lab | None) -> tuple[str, bool]:
    """One line of the table, and whether it says what it must."""
    sys.stderr.write(f"{fault.name} … ")
    sys.stderr.flush()
    if (fault.nodes and lab is None) or (fault.root and os.geteuid() != 0):
        sys.stderr.write("not made: needs root and iproute2\n")
        return f"| {fault.name} | {fault.made} | *not made: needs root* | | | | | |", True
    with tempfile.TemporaryDirectory(prefix="reliability-") as folder:
        stage = Stage(Path(folder), lab if fault.nodes else None)
        stage.home.mkdir()
        try:
            told = struck(fault, stage)
        finally:
            stage.end()
            if lab:
                lab.heal()
    sys.stderr.write(f"{told.seconds:.1f} s, exit {told.code}{'' if told.right else ', WRONG'}\n")
    when = f"{told.seconds:.1f} s {'after the blow' if fault.strike else 'in all'}"
    when = "when asked" if fault.then else when
    when = "went on to its end" if fault.strike and fault.codes == (0,) else when
    cells = [fault.name, fault.made, told.words, when, told.kept, str(told.code)]
    cells += [fault.nccl_tests, fault.superbench]
    shown = (" ".join(cell.replace("|", "/").replace(folder, "…").split()) for cell in cells)
    return "| " + " | ".join(shown) + " |", told.right


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("-k", default="", help="only faults whose name has this text")
    asked = parser.parse_args(words)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the lab goes, too
    chosen = [one for one in FAULTS if asked.k in one.name]
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|", flush=True)
    wrong = False
    with laboratory(any(one.nodes for one in chosen)) as lab:
        for one in chosen:
            text, right = row(one, lab)
            print(text, flush=True)
            wrong |= not right
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
