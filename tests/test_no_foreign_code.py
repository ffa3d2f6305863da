"""Nothing that comes from a network, a file or a stored run becomes code: no source file can do it."""

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed.cli import run

SOURCE = Path(__file__).parents[1] / "src" / "wirespeed"
GOLDEN = Path(__file__).parent / "golden" / "train.run.json"

PICKLES = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
CALLS = {"eval", "exec", "__import__", "os.system", "os.popen", "subprocess.getoutput"}
CALLS |= {"yaml.load", "yaml.unsafe_load", "yaml.full_load", "torch.hub.load", "runpy.run_path"}
CALLS |= {"pty.spawn", "ctypes.pythonapi"}
MPI_PICKLES = {"allgather", "allreduce", "alltoall", "bcast", "sendrecv"}
"""Of mpi4py; the same words with a capital send buffers."""
OBJECTS = ("_object_list", "gather_object", "broadcast_object")
ALLOWED = {
    # A reader that looks at every instruction first, and whose unpickler can import nothing.
    ("diagnose/flight_pickle.py", "pickle"),
    # Ray carries pickles whatever we do.
    ("launchers/ray/session.py", "cloudpickle"),
    # The user's own model, by the rank's own command line.
    ("training/models/user.py", "imports name"),
}


def faults(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imported(node)
        elif isinstance(node, ast.Call):
            yield from _called(node)
        if isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name in MPI_PICKLES or name.endswith(OBJECTS):
                yield name


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        names.append(node.module or "")
    for name in names:
        yield from PICKLES.intersection(name.split("."))


def _called(node: ast.Call) -> Iterator[str]:
    called = ast.unparse(node.func)
    given = {word.arg: ast.unparse(word.value) for word in node.keywords}
    if called in CALLS:
        yield called
    if called == "torch.load" and given.get("weights_only") != "True":
        yield "torch.load"
    if given.get("shell") == "True":
        yield "shell=True"
    if called.endswith("import_module"):
        name = ast.unparse(node.args[0])
        yield from PICKLES.intersection(name.strip("'").split("."))
        if not _ours(node.args[0]):
            yield f"imports {name}"


def _ours(name: ast.expr) -> bool:
    """A name that stands there, or one within this package."""
    if isinstance(name, ast.JoinedStr):
        return ast.unparse(name)[2:].startswith(("wirespeed.", "{__name__}."))
    return isinstance(name, ast.Constant) or ast.unparse(name) == "_HOMES[name]"


def test_no_source_file_turns_what_it_reads_into_code() -> None:
    found = {
        (str(path.relative_to(SOURCE)), fault)
        for path in SOURCE.rglob("*.py")
        for fault in faults(ast.parse(path.read_text("utf-8")))
    }
    assert found == ALLOWED


@pytest.mark.parametrize(
    "text",
    [
        "from pickle import loads",
        "import ray.cloudpickle",
        "dist.all_gather_object(a, b)",
        "from x import y; broadcast_object_list(a)",
        "comm.bcast(data)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "eval(text)",
        "run(words, shell=True)",
        "yaml.load(text)",
        "import_module(name)",
        'import_module(f"{name}.wirespeed.")',
    ],
)
def test_the_rule_sees_each_of_these(text: str) -> None:
    assert list(faults(ast.parse(text)))


def test_a_stored_run_that_names_a_module_imports_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    (tmp_path / "evil_model.py").write_text("open('ran', 'w')")
    told = json.loads(GOLDEN.read_text("utf-8"))
    told["config"]["model"] = "evil_model:make"
    for row in told["training"]:
        row["model"] = "evil_model:make"
    path = tmp_path / "run.json"
    path.write_text(json.dumps(told))
    for words in (["runs", "show"], ["compare", str(path)], ["report"]):
        assert run([*words, str(path)]) in (0, 1, 2, 3)
    assert not (tmp_path / "ran").exists() and "evil_model" not in sys.modules


def test_a_soak_from_elsewhere_chooses_no_hosts_and_no_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """`check --resume FOLDER` took `--on ssh --hosts … --python PROGRAM` from whoever wrote it."""
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    soak = SimpleNamespace(for_s=100.0, elapsed_s=1.0)
    config = {"on": "ssh", "hosts": "a,b", "python": "/tmp/evil", "seed": 1}
    stored = SimpleNamespace(id="1" * 8, soak=soak, config=config)
    monkeypatch.setattr("wirespeed.runs.store.find", lambda _: tmp_path)
    monkeypatch.setattr("wirespeed.runs.store.load", lambda _: stored)
    assert run(["check", "--resume", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "--on and --hosts and --python" in said and "not among your own runs" in said
