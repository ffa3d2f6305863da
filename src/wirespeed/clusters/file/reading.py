"""From the text of a cluster file to its model, with all problems at once."""

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from wirespeed.clusters.file.model import ClusterFile
from wirespeed.clusters.file.problems import (
    ClusterFileError,
    Problem,
    from_tree,
    from_validation,
    shown,
)
from wirespeed.clusters.file.yaml_tree import Key, Tree, parse

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = ["ClusterFileError", "decode", "read_cluster"]


def decode(data: bytes, source: str) -> str:
    """UTF-8, with or without a byte order mark; ClusterFileError for anything else."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        saw = f"the byte 0x{data[error.start]:02x}, which is not UTF-8"
        raise ClusterFileError(source, [Problem(line=line, saw=saw, expected="UTF-8")]) from None


def read_cluster(text: str, source: str) -> ClusterFile:
    """The cluster file that `text` is. ClusterFileError with all of its problems.

    source: what messages call it, such as its path.
    """
    from pydantic import ValidationError

    tree = parse(text.removeprefix("\ufeff"))
    problems = from_tree(tree)
    if not tree.whole:
        raise ClusterFileError(source, problems)
    problems += _preset_problems(tree)
    try:
        file = ClusterFile.model_validate({} if tree.data is None else tree.data)
    except ValidationError as error:
        problems += from_validation(error, tree)
        problems += _rules_of_the_rest(tree, error)
        raise ClusterFileError(source, dict.fromkeys(problems)) from None
    if problems:
        raise ClusterFileError(source, problems)
    return file


def _preset_problems(tree: Tree) -> list[Problem]:
    """The one value that is right only if we ship a file of that name."""
    network = tree.data.get("network") if isinstance(tree.data, dict) else None
    name = network.get("preset") if isinstance(network, dict) else None
    if not isinstance(name, str) or not name:
        return []
    from difflib import get_close_matches

    from wirespeed.clusters.presets.presets import preset_names

    if name in preset_names():
        return []
    mark = tree.mark(("network", "preset"))
    near = get_close_matches(name[:80], preset_names(), n=1, cutoff=0.5)
    problem = Problem(
        line=mark.line,
        column=mark.column,
        key="network.preset",
        saw=shown(name),
        expected=f"one of {', '.join(preset_names())}",
        meant="".join(near),
    )
    return [problem]


def _rules_of_the_rest(tree: Tree, error: "ValidationError") -> list[Problem]:
    """Rules between keys are looked at only where all values are right: so without the wrong ones."""
    from pydantic import ValidationError

    if not isinstance(tree.data, dict):
        return []
    rest = deepcopy(tree.data)
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        if one["type"] != "rules":
            _remove(rest, tuple(one["loc"]))
    cluster = rest.get("cluster")
    if not isinstance(cluster, dict) or cluster.get("name") is None:
        rest["cluster"] = {"name": "x"}
    try:
        ClusterFile.model_validate(rest)
    except ValidationError as second:
        if all(one["type"] == "rules" for one in second.errors(include_url=False)):
            return from_validation(second, tree)
    return []


def _remove(data: Any, key: Key) -> None:
    """Take out what stands at `key`; a list with a wrong item goes as a whole, so indexes stay."""
    if key[-1:] == ("[key]",):
        key = key[:-1]
    for part in key[:-1]:
        if not isinstance(data, dict) or part not in data:
            return
        if isinstance(data[part], list):
            data[part] = []
            return
        data = data[part]
    if key and isinstance(data, dict):
        data.pop(key[-1], None)
