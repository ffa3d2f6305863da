"""Fault-finding power of the tests: seeded mutants of `src`, and which of them a test notices.

    make mutants N=200 SEED=17 JOBS=1 TREE=. OUT=build/mutants.jsonl

A mutant changes one place of one code line, drawn uniformly over the lines that can be changed. All is
done in a clone of the tree's last commit with an environment of its own, so that processes which tests
start run the mutant too. First all tests run once with a probe at each of the places
(`mutants_probe.py`), which tells per mutant the tests that reach it, in whatever process. Then, per
mutant, these tests run until one fails: those that name its module first, the short files before the
long ones, at most `BOUND_S` seconds of them. A failure counts when it comes again with the mutant, and
not without it. An interrupted measurement goes on where it stopped.
"""

import argparse
import ctypes
import json
import math
import os
import random
import shutil
import signal
import site
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import psutil

from mutants_places import Mutant, applied, candidates, probed, sound

BOUND_S = 25.0
"""Seconds of tests a mutant, as they took on the clean tree."""
TEST_S = 30.0
"""A test is given this, or three times what it took."""
START_S = 60.0
"""For pytest to start and end."""
SHORT_S = 1.0
"""A test as short fails for what it tests: where it passed before, it is not asked again."""
_PR_SET_CHILD_SUBREAPER = 36
_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
"""Is written: each mutant starts pytest some times."""
_NOTICED = ("killed", "timed out")
_HERE = Path(__file__).resolve().parent


def chosen(tree: Path, seed: int, count: int) -> list[Mutant]:
    """`count` mutants: a line uniformly of those that have any, then one of its changes."""
    lines: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for path in sorted((tree / "src").rglob("*.py")):
        for mutant in candidates(str(path.relative_to(tree)), path.read_text()):
            lines[mutant.path, mutant.line].append(mutant)
    drawn = random.Random(seed)
    picked = (drawn.choice(lines[line]) for line in drawn.sample(sorted(lines), len(lines)))
    return list(islice((one for one in picked if sound((tree / one.path).read_text(), one)), count))


class Sandbox:
    """A clone of a tree with an environment of its own, in which tests run on changed sources."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.folder, self.tree, self._changes = folder, folder / "tree", 0
        venv = folder / "venv"
        _quiet("git", "clone", "-q", str(tree), str(self.tree))
        _quiet(sys.executable, "-m", "venv", "--without-pip", str(venv))
        self._python = str(venv / "bin" / "python")
        (self.packages,) = venv.glob("lib/python*/site-packages")
        outer = [f"import site; site.addsitedir({one!r})\n" for one in site.getsitepackages()]
        (self.packages / "zz_outer.pth").write_text("".join(outer))
        (self.packages / "zz_probe.pth").write_text("import mutants_probe\n")
        shutil.copy(_HERE / "mutants_probe.py", self.packages)
        for file in Path(sys.prefix, "bin").iterdir():
            if file.is_file():
                _offer(file, venv / "bin" / file.name)
        pip = ("-m", "pip", "install", "-q", "--no-deps", "-e")
        _quiet(self._python, *pip, str(self.tree))

    def write(self, path: str, text: str) -> None:
        """With a time of its own: bytecode of an earlier text must not pass for this one's."""
        self._changes += 1
        (self.tree / path).write_text(text)
        os.utime(self.tree / path, (10**9 + self._changes, 10**9 + self._changes))

    def pytest(self, words: Sequence[str], limit_s: float | None, **env: str) -> int | None:
        """Its exit code, None when it was ended after `limit_s`; nothing that it started is left."""
        own = ("-q", "-m", "not system", "-p", "mutants_probe", "-p", "no:cacheprovider")
        command = [self._python, "-m", "pytest", *own, f"--basetemp={self.folder}/t", *words]
        with (self.folder / "log").open("wb") as log:
            started = subprocess.Popen(
                command, cwd=self.tree, stdout=log, stderr=log, env=os.environ | _BYTECODE | env
            )
            try:
                return started.wait(limit_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                for process in psutil.Process().children(recursive=True):  # orphans come to us
                    process.kill()
                psutil.wait_procs(psutil.Process().children(), timeout=10)

    def failing(self, ids: Sequence[str], times: dict[str, float]) -> tuple[str, str]:
        """(state, test): `passed`, `failed` with the first test that did, `broken` or `timed out`."""
        only, failed = self.folder / "only", self.folder / "failed"
        only.write_text("\n".join(ids))
        failed.write_text("")
        most = max(TEST_S, 3 * max(times[one] for one in ids))
        limit_s = START_S + most + 3 * sum(times[one] for one in ids)
        words = ("-x", f"--timeout={most:.0f}", *dict.fromkeys(one.split("::")[0] for one in ids))
        code = self.pytest(words, limit_s, MUTANTS_ONLY=str(only), MUTANTS_FAILED=str(failed))
        if test := failed.read_text().partition("\n")[0]:
            return "failed", test
        return {None: "timed out", 0: "passed", 5: "passed"}.get(code, "broken"), ""


def _quiet(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=600)


def _offer(file: Path, place: Path) -> None:
    """A program of the outer environment, in ours: a script of Python starts our Python."""
    first, _, rest = file.read_bytes().partition(b"\n")
    if first.startswith(f"#!{sys.prefix}/bin/python".encode()):
        place.write_bytes(f"#!{place.parent}/python\n".encode() + rest)
        place.chmod(0o755)
    elif not place.exists():
        place.symlink_to(file)


class Reach:
    """Which tests reach which mutant, and how long each takes: one run of all tests with probes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.times: dict[str, float] = {}
        self.files: dict[str, list[str]] = defaultdict(list)
        self._hits: dict[int, set[str]] = defaultdict(set)

    def measure(self, box: Sandbox, mutants: list[Mutant], jobs: int) -> None:
        """Run what has not run yet, and read."""
        if not (self.folder / "complete").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._run(box, mutants, jobs)
        for key, _, test in self._lines("hits*"):
            self._hits[int(key)].add(test)
        self.times = {test: float(seconds) for seconds, _, test in self._lines("times*")}
        for test in self.times:
            self.files[test.split("::")[0]].append(test)

    def _run(self, box: Sandbox, mutants: list[Mutant], jobs: int) -> None:
        clean = {path: (box.tree / path).read_text() for path in {one.path for one in mutants}}
        for path, text in clean.items():
            here = [(key, one) for key, one in enumerate(mutants) if one.path == path]
            box.write(path, probed(text, here))
        skip = box.folder / "skip"
        skip.write_text("\n".join(test for _, _, test in self._lines("times*")))
        (box.packages / "mutants_reach").write_text(str(self.folder.resolve()))
        words = ("-n", str(jobs), "--dist", "loadscope") if jobs > 1 else ()
        code = box.pytest(words, None, MUTANTS_SKIP=str(skip))
        (box.packages / "mutants_reach").unlink()
        for path, text in clean.items():
            box.write(path, text)
        if code not in (0, 1, 5) or not self._lines("times*"):
            raise SystemExit(f"pytest: {code}\n{(box.folder / 'log').read_text()[-2000:]}")
        (self.folder / "complete").touch()

    def _lines(self, name: str) -> list[tuple[str, str, str]]:
        files = (file.read_text().splitlines() for file in sorted(self.folder.glob(name)))
        return [line.partition("\t") for lines in files for line in lines]

    def tests(self, key: int, mutant: Mutant, tree: Path) -> list[str]:
        """Those to run, in order, within the bound. What a fixture of several tests reached, its
        whole file may see; what only an import reached, the files that are near."""
        hits = self._hits[key]
        near = {file: _near((tree / file).read_text(), file, mutant) for file in self.files}
        whole = {hit[1:] for hit in hits if hit.startswith("+")}
        if "" in hits or (mutant.imported and not hits):
            whole |= {file for file in self.files if near[file] < 2}
        found = {
            file: [one for one in tests if file in whole or one in hits]
            for file, tests in self.files.items()
        }
        spent = {file: sum(self.times[one] for one in tests) for file, tests in found.items()}
        left_s, order = math.inf, []
        for file in sorted(found, key=lambda file: (near[file], spent[file])):
            kept = set()
            for one in sorted(found[file], key=self.times.__getitem__):
                if self.times[one] <= left_s:  # the first, whatever it takes
                    kept.add(one)
                    left_s = min(left_s, BOUND_S) - self.times[one]
            order += [one for one in found[file] if one in kept]
        return order


def _near(text: str, test: str, mutant: Mutant) -> int:
    """0: that test file names the module of `mutant`; 1: it lies in its room's folder; 2: neither."""
    parts = Path(mutant.path).with_suffix("").parts[1:]
    package, name = ".".join(parts[:-1]), parts[-1]
    if f"{package}.{name}" in text or (f"from {package} import" in text and name in text):
        return 0
    return 1 if len(parts) > 2 and f"/{parts[1]}/" in test else 2


def verdict(
    box: Sandbox, mutant: Mutant, tests: list[str], times: dict[str, float]
) -> tuple[str, str]:
    """(`killed`, `timed out`, `survived` or `no test`; the test that told)."""
    text = (box.tree / mutant.path).read_text()
    state = "survived" if tests else "no test"
    while tests:
        box.write(mutant.path, applied(text, mutant))
        seen, test = box.failing(tests, times)
        sure = bool(test) and times[test] < SHORT_S
        again = sure or not test or box.failing([test], times)[0] != "passed"
        box.write(mutant.path, text)
        if seen == "passed":
            break
        alone = [test] if test else tests
        if sure or (again and box.failing(alone, times)[0] == "passed"):
            return ("timed out" if seen == "timed out" else "killed"), test
        tests = tests[tests.index(test) + 1 :] if test else []  # the clean tree does not bear it
    return state, ""


def wilson(noticed: int, count: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    z, share = 1.959964, noticed / count
    middle, scale = share + z * z / (2 * count), 1 + z * z / count
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return (middle - half) / scale, (middle + half) / scale


def report(results: list[dict[str, str]]) -> str:
    """Share noticed with its interval, and each mutant that nothing noticed."""
    states = Counter(one["state"] for one in results)
    noticed = sum(states[state] for state in _NOTICED)
    low, high = wilson(noticed, len(results))
    lines = [f"{states[state]:6}  {state}" for state in (*_NOTICED, "survived", "no test")]
    lines.append(
        f"noticed {noticed} of {len(results)}: {noticed / len(results):.1%}, "
        f"95 % interval {low:.1%} to {high:.1%}"
    )
    missed = sorted((one["key"], one["state"]) for one in results if one["state"] not in _NOTICED)
    return "\n".join(lines + [f"{state}: {key}" for key, state in missed])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--tree", type=Path, default=_HERE.parent, help="a checkout; its HEAD counts"
    )
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument(
        "--jobs", type=int, default=1, help="tests at a time, in the run with probes"
    )
    parser.add_argument("--out", type=Path, default=_HERE.parent / "build" / "mutants.jsonl")
    parser.add_argument("--list", action="store_true", help="only say which mutants they are")
    asked = parser.parse_args()
    git = ("git", "-C", str(asked.tree))
    if subprocess.check_output([*git, "status", "--porcelain", "src"], timeout=60):
        raise SystemExit(f"{asked.tree}/src has changes that are not committed")
    commit = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True, timeout=60).strip()
    mutants = chosen(asked.tree, asked.seed, asked.count)
    if asked.list:
        print("\n".join(one.key for one in mutants))
    else:
        header = {"commit": commit, "seed": asked.seed, "count": asked.count}
        print(report(measured(asked.tree, mutants, header, asked.out, asked.jobs)))


def measured(
    tree: Path, mutants: list[Mutant], header: dict[str, object], out: Path, jobs: int
) -> list[dict[str, str]]:
    """The verdict on each mutant; a line in `out` as soon as it is known."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if not out.exists():
        out.write_text(json.dumps(header) + "\n")
    first, *results = map(json.loads, out.read_text().splitlines())
    if first != header:
        raise SystemExit(f"{out} holds {first}, not {header}")
    done = {one["key"] for one in results}
    if len(done) == len(mutants):
        return results
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    reach = Reach(Path(f"{out}.reach"))
    with tempfile.TemporaryDirectory(prefix="mut-", ignore_cleanup_errors=True) as folder:
        box = Sandbox(tree, Path(folder))
        reach.measure(box, mutants, jobs)
        for key, mutant in enumerate(mutants):
            if mutant.key not in done:
                tests = reach.tests(key, mutant, box.tree)
                state, test = verdict(box, mutant, tests, reach.times)
                results.append({"key": mutant.key, "state": state, "test": test})
                with out.open("a") as file:
                    file.write(json.dumps(results[-1]) + "\n")
                print(f"{state}: {mutant.key}  {test}", flush=True)
    return results


if __name__ == "__main__":
    main()
